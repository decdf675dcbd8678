"""penstock.pyg on CPU threads: a FeatureStore gives the batches that tensors in memory give.
gpu_pyg.py has what needs a GPU. Skipped where torch_geometric is missing."""
import copy
import pathlib
import pickle
import sys
import tempfile
import types
import unittest
from unittest import mock

try:
    import numpy
    import torch
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Data, TensorAttr
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import BaseSampler, SamplerOutput
    from torch_geometric.testing import MyGraphStore
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import penstock as ps
from penstock.pyg import FeatureStore
from penstock.torch import gather


class Neighbours(BaseSampler):
    """All neighbours of the seeds, one hop: enough to have a subgraph, without pyg-lib."""

    def __init__(self, edges):
        self.edges = edges

    def sample_from_nodes(self, index, **_):
        seeds = index.node
        chosen = torch.isin(self.edges[1], seeds)
        row, col = self.edges[:, chosen]
        nodes = torch.cat([seeds, row[~torch.isin(row, seeds)].unique()])
        place = torch.full((int(self.edges.max()) + 1,), -1)
        place[nodes] = torch.arange(len(nodes))
        return SamplerOutput(node=nodes, row=place[row], col=place[col],
                             edge=chosen.nonzero().reshape(-1), metadata=(index.input_id, None))

    def sample_from_edges(self, index, neg_sampling=None):
        raise NotImplementedError


class Store(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(300, 16, generator=generator)
        self.y = torch.randint(0, 4, (300,), generator=generator)
        self.edges = torch.randint(0, 300, (2, 2000), generator=generator)
        self.folder = folder.name
        path = pathlib.Path(self.folder) / "x.npy"
        numpy.save(path, self.x.numpy())
        self.runtime = ps.Runtime("cpu", cache="1MiB", page=512, log=None)
        self.addCleanup(self.runtime.close)
        self.array = ps.open_array(path, runtime=self.runtime)
        self.store = FeatureStore({"x": self.array, "y": self.y})

    def test_every_kind_of_index(self):
        ids = torch.tensor([5, 299, 5])
        shaped = torch.tensor([[5, 299], [5, 0], [7, 7]])
        for index, wanted in ((ids, ids), (7, 7), (torch.tensor(7), 7), (numpy.int64(7), 7),
                              (slice(2, 9, 3), slice(2, 9, 3)), (None, slice(None)),
                              (self.y == 2, self.y == 2), ([], []), (ids[:0], []),
                              ([5, 299, 5], ids), (numpy.array([5]), [5]),
                              (shaped, shaped), (shaped.tolist(), shaped), (range(3), range(3))):
            for name, rows in (("x", self.x), ("y", self.y)):
                with self.subTest(index=index, name=name):
                    got = self.store.get_tensor(group_name=None, attr_name=name, index=index)
                    self.assertTrue(torch.equal(torch.as_tensor(got), rows[wanted]), got.shape)
        self.store.check()

    def test_a_mask_of_another_length_is_refused(self):
        for name in ("x", "y"):
            for count in (299, 301, (300, 1), (300, 16), ()):
                mask = torch.zeros(count, dtype=torch.bool)
                mask[7 if count else ...] = True
                with self.subTest(name=name, count=count), \
                        self.assertRaisesRegex(IndexError, "mask"):
                    self.store.get_tensor(group_name=None, attr_name=name, index=mask)

    def test_bytes_are_a_mask_as_to_torch(self):
        mask = (self.y == 2).to(torch.uint8)
        for name, rows in (("x", self.x), ("y", self.y)):
            got = self.store.get_tensor(group_name=None, attr_name=name, index=mask)
            self.assertTrue(torch.equal(got, rows[self.y == 2]), name)
            for index in (mask[:3], mask.numpy()[:1], torch.tensor(1, dtype=torch.uint8)):
                with self.assertRaisesRegex(IndexError, "uint8 is a mask.*int64"):
                    self.store.get_tensor(group_name=None, attr_name=name, index=index)

    @unittest.skipUnless(hasattr(torch, "set_default_device"), "came with PyTorch 2.0")
    def test_lists_lie_on_the_host(self):
        self.addCleanup(torch.set_default_device, None)
        torch.set_default_device("meta")
        got = self.store.get_tensor(group_name=None, attr_name="x", index=[5, 7])
        torch.set_default_device(None)
        self.assertTrue(torch.equal(got, self.x[[5, 7]]))

    def test_a_copy_has_the_features_and_what_is_sent_has_not(self):
        ids = torch.tensor([3, 9])
        for made in (copy.copy(self.store), copy.deepcopy(self.store)):
            for name, rows in (("x", self.x), ("y", self.y)):
                got = made.get_tensor(group_name=None, attr_name=name, index=ids)
                self.assertTrue(torch.equal(got, rows[ids]))
        sent = pickle.loads(pickle.dumps(self.store))
        for _ in range(2):
            self.assertEqual(sent.get_tensor_size(group_name=None, attr_name="x"), (300, 16))
            self.assertEqual(len(sent.get_all_tensor_attrs()), 2)
            for ask in (lambda: sent.get_tensor(group_name=None, attr_name="x", index=ids),
                        lambda: sent.multi_get_tensor([TensorAttr(None, "y", index=ids)])):
                with self.assertRaisesRegex(ChildProcessError, "filter_per_worker=False"):
                    ask()
            sent.check()
            sent = pickle.loads(pickle.dumps(sent))
        alone = pickle.loads(pickle.dumps(FeatureStore({"y": self.y})))
        got = alone.get_tensor(group_name=None, attr_name="y", index=ids)
        self.assertTrue(torch.equal(got, self.y[ids]))

    def test_one_mask_for_arrays_of_several_lengths_is_refused(self):
        path = pathlib.Path(self.folder) / "short.npy"
        numpy.save(path, self.x[:50].numpy())
        store = FeatureStore({"x": self.array,
                              ("c", "x"): ps.open_array(path, runtime=self.runtime)})
        mask = torch.zeros(300, dtype=torch.bool)
        mask[7] = True
        with self.assertRaisesRegex(IndexError, "mask"):
            store.multi_get_tensor([TensorAttr(None, "x", index=mask),
                                    TensorAttr("c", "x", index=mask)])
        ids = torch.tensor([3, 9])
        for got in store.multi_get_tensor([TensorAttr(None, "x", index=ids),
                                           TensorAttr("c", "x", index=ids)]):
            self.assertTrue(torch.equal(got, self.x[ids]))

    def test_numbers_that_pyg_has(self):
        """An EdgeIndex, and a row of it, hold their tensor and have no memory of their own."""
        edges = EdgeIndex(self.edges, sparse_size=(300, 300))
        for ids, plain in ((edges[0], self.edges[0]), (edges, self.edges)):
            with self.subTest(kind=type(ids)):
                for got in (self.array.gather(ids), self.array[ids], gather(self.array, ids),
                            self.store.get_tensor(group_name=None, attr_name="x", index=ids)):
                    self.assertTrue(torch.equal(got, self.x[plain]))
                self.array.prefetch(ids)
                self.array.will_need(ids)

    def test_negative_numbers_are_no_rows_of_an_array(self):
        with self.assertRaises(IndexError):
            self.store.get_tensor(group_name=None, attr_name="x", index=torch.tensor([-1]))

    def test_sizes_and_names(self):
        self.assertEqual(self.store.get_tensor_size(group_name=None, attr_name="x"), (300, 16))
        self.assertEqual({attr.attr_name for attr in self.store.get_all_tensor_attrs()},
                         {"x", "y"})

    def test_the_size_of_what_an_index_chooses(self):
        ids = torch.tensor([5, 299, 5])
        sent = pickle.loads(pickle.dumps(self.store))
        for index in (ids, numpy.array([5]), ids.tolist(), ids.view(3, 1), 7, torch.tensor(7), [],
                      slice(2, 9, 3), slice(9, 2), None, self.y == 2, (self.y == 2).byte(),
                      range(3)):
            for name in ("x", "y"):
                asked = {"group_name": None, "attr_name": name, "index": index}
                wanted = tuple(self.store.get_tensor(**asked).shape)
                for store in (self.store, sent):
                    with self.subTest(index=index, name=name):
                        self.assertEqual(store.get_tensor_size(**asked), wanted)

    def test_batches_lie_where_the_first_array_is(self):
        other = ps.open_array(pathlib.Path(self.folder) / "x.npy", runtime=self.runtime)
        on_gpu = types.SimpleNamespace(backend="gpu", device_numbers=[1])
        for array, runtime in ((self.array, on_gpu), (other, self.runtime)):
            patched = mock.patch.object(type(array), "runtime", property(
                lambda found, first=array, given=runtime: given if found is first else on_gpu))
            with self.subTest(runtime=runtime), patched:
                for features in ({"y": self.y, "x": array}, {"x": array, "z": self.array}):
                    wanted = "cuda:1" if runtime is on_gpu else "cpu"
                    self.assertEqual(FeatureStore(features).device, torch.device(wanted))
                    self.assertEqual(FeatureStore(features, "cpu").device, torch.device("cpu"))
        self.assertEqual(FeatureStore({"y": self.y}).device, torch.device("cpu"))

    def test_is_only_read(self):
        with self.assertRaisesRegex(NotImplementedError, "only read"):
            self.store.put_tensor(self.x, group_name=None, attr_name="x", index=None)
        with self.assertRaisesRegex(NotImplementedError, "only read"):
            self.store.remove_tensor(group_name=None, attr_name="x", index=None)

    def test_what_it_does_not_have(self):
        with self.assertRaisesRegex(KeyError, "it has"):
            self.store.get_tensor(group_name=None, attr_name="z", index=None)

    def test_features_of_edges_are_refused(self):
        """PyG asks for each by the numbers of nodes, so rows of edges would be others' silently."""
        with self.assertRaisesRegex(ValueError, "edges"):
            FeatureStore({(("a", "to", "b"), "weight"): self.array})
        for name in ("edge_attr", "edge_weight", "edge_index", "edge_type", "e_id", "edge_time",
                     "train_edge", "edge"):
            for features in ({"x": self.array, name: self.x}, {name: self.x}, {name: self.array},
                             {(None, name): self.x}):
                with self.subTest(name=name), \
                        self.assertRaisesRegex(ValueError, f"{name}.*edges have no features here"):
                    FeatureStore(features)
        FeatureStore({"knowledge": self.x, "e": self.x, ("paper", "edge_count"): self.x})

    def test_features_of_one_group_have_a_row_for_each_node(self):
        for other in (self.x[:50], torch.zeros(2000, 3), self.x[:0]):
            for group in (None, "paper"):
                with self.subTest(count=len(other), group=group), self.assertRaisesRegex(
                        ValueError, f"x.*300 rows.*w.*has {len(other)}"):
                    FeatureStore({(group, "x"): self.array, (group, "w"): other})
        with self.assertRaisesRegex(ValueError, "w.*no rows"):
            FeatureStore({"w": torch.tensor(7)})

    def test_features_of_numpy_lists_and_views(self):
        ids = torch.tensor([3, 9, 3])
        for given in (self.y.numpy(), self.y.tolist(), range(300), self.array[:], self.x.numpy()):
            wanted = self.x if isinstance(given, ps.View) else torch.as_tensor(given)
            store = FeatureStore({"x": self.array, "w": given})
            with self.subTest(kind=type(given)):
                got = store.multi_get_tensor([TensorAttr(None, "x", index=ids),
                                              TensorAttr(None, "w", index=ids)])
                self.assertTrue(torch.equal(got[0], self.x[ids]))
                self.assertTrue(torch.equal(got[1], wanted[ids]))
                self.assertEqual(store.get_tensor_size(group_name=None, attr_name="w"),
                                 tuple(wanted.shape))
                copy.deepcopy(store)
        for wrong in (None, ["a"], numpy.array(["a"]), object(), [[1], [1, 2]]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(TypeError, "'w'.*tensor"):
                FeatureStore({"x": self.array, "w": wrong})

    def test_groups_of_a_heterogeneous_graph(self):
        store = FeatureStore({("paper", "x"): self.array, ("author", "x"): self.x[:10]})
        got = store.multi_get_tensor([TensorAttr("paper", "x", index=torch.tensor([1, 2])),
                                      TensorAttr("author", "x", index=torch.tensor([1, 2]))])
        self.assertTrue(torch.equal(got[0], self.x[1:3]))
        self.assertTrue(torch.equal(got[1], self.x[1:3]))

    def batches(self, data, filter_per_worker=False, **options):
        loader = NodeLoader(data, Neighbours(self.edges), input_nodes=torch.arange(120),
                            batch_size=32, filter_per_worker=filter_per_worker, **options)
        return list(loader)

    def test_batches_are_those_of_memory(self):
        graph = MyGraphStore()
        graph.put_edge_index(self.edges, edge_type=None, layout="coo", is_sorted=False,
                             size=(300, 300))
        inside = Data(x=self.x, y=self.y, edge_index=self.edges, num_nodes=300)
        for options in ({}, {"num_workers": 2}, {"num_workers": 2, "start": "spawn"},
                        {"num_workers": 1, "start": "forkserver"}):
            options["multiprocessing_context"] = options.pop("start", None) or \
                ("fork" if options else None)
            pairs = zip(self.batches((self.store, graph), **options),
                        self.batches(inside), strict=True)
            for ours, theirs in pairs:
                self.assertTrue(torch.equal(ours.x, theirs.x))
                self.assertTrue(torch.equal(ours.y, theirs.y))
                self.assertTrue(torch.equal(ours.edge_index, theirs.edge_index))
        for start in ("fork", "spawn"):
            with self.assertRaisesRegex(ChildProcessError,
                                        "filter_per_worker=False.*num_workers=0"):
                self.batches((self.store, graph), filter_per_worker=True, num_workers=1,
                             multiprocessing_context=start)


if __name__ == "__main__":
    unittest.main()
