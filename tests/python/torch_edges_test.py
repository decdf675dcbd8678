"""penstock.torch where programs do more than its examples: modules made of an Embedding that load
their own state, loaders of rows alone, and slices of any step. Skipped where torch is missing."""
import pickle
import sys
import unittest

from torch_module_test import WithTable  # ends where torch is not

import torch
import penstock.torch as pt


class Biased(pt.Embedding):
    """A module of a program's own: rows of the file, and what a training has made beside them."""

    def __init__(self, array, fill=0.0):
        super().__init__(array)
        self.bias = torch.nn.Parameter(torch.full((24,), fill))
        self.register_buffer("seen", torch.full((3,), fill))
        self.head = torch.nn.Linear(24, 2)


class States(WithTable):
    def saved(self):
        return Biased(self.open(), 7.0).state_dict()

    def test_a_module_made_of_it_loads_what_is_its_own(self):
        saved = self.saved()
        ours = Biased(self.open())
        told = ours.load_state_dict(saved)
        self.assertEqual((told.missing_keys, told.unexpected_keys), ([], []))
        for name, wanted in saved.items():
            self.assertTrue(torch.equal(ours.state_dict()[name], wanted), name)

    def test_a_weight_of_a_checkpoint_is_not_unexpected(self):
        """Alone, deeper in a model, and beside what the module has itself."""
        inner = Biased(self.open())
        outer = torch.nn.Sequential(torch.nn.Sequential(inner), self.embedding())
        state = {"0.0." + name: value for name, value in self.saved().items()}
        state.update({"0.0.weight": self.weight, "1.weight": self.weight})
        told = outer.load_state_dict(state)
        self.assertEqual((told.missing_keys, told.unexpected_keys), ([], []))
        self.assertEqual(inner.bias.tolist(), [7.0] * 24)
        told = self.embedding().load_state_dict({"weight": self.weight})
        self.assertEqual((told.missing_keys, told.unexpected_keys), ([], []))

    def test_a_state_that_does_not_fit_is_refused(self):
        saved = self.saved()
        for wrong, said in (
                ({name: saved[name] for name in saved if name != "bias"}, "Missing.*bias"),
                ({**saved, "biass": saved["bias"]}, "Unexpected.*biass"),
                ({**saved, "weights": self.weight}, "Unexpected.*weights"),
                ({**saved, "bias": torch.ones(5)}, "size mismatch for bias")):
            with self.subTest(said), self.assertRaisesRegex(RuntimeError, said):
                Biased(self.open()).load_state_dict(wrong)
        told = Biased(self.open()).load_state_dict({"weights": self.weight}, strict=False)
        self.assertEqual(told.unexpected_keys, ["weights"])
        self.assertIn("bias", told.missing_keys)

    def test_hooks_before_a_load_see_the_state_and_may_change_it(self):
        """As those that give names of an older version of the program their new ones."""
        saved = self.saved()
        saved["shift"] = saved.pop("bias")
        saved["tail.weight"], saved["tail.bias"] = (saved.pop("head." + name)
                                                    for name in ("weight", "bias"))
        seen = []

        def rename(state, prefix, *others):
            seen.extend(state)
            state[prefix + "bias"] = state.pop(prefix + "shift")
            for name in ("weight", "bias"):
                state[f"{prefix}head.{name}"] = state.pop(f"{prefix}tail.{name}")

        ours = Biased(self.open())
        ours._register_load_state_dict_pre_hook(rename)
        ours.load_state_dict({**saved, "weight": self.weight})
        self.assertIn("weight", seen)
        self.assertEqual(ours.bias.tolist(), [7.0] * 24)
        self.assertTrue(torch.equal(ours.head.weight, saved["tail.weight"]))


class RowsAlone(WithTable):
    """Batches of a dataset without labels."""

    def setUp(self):
        super().setUp()
        self.data = pt.RowDataset(self.open())

    def same(self, rows, ids):
        self.assertIsInstance(rows, torch.Tensor)
        self.assertTrue(torch.equal(rows, self.weight[list(ids)]))

    def test_loaders_give_rows_with_and_without_as_is(self):
        loader, part = torch.utils.data.DataLoader, torch.utils.data.Subset(self.data, range(3, 9))
        for name, data, first in (("dataset", self.data, 0), ("subset", part, 3)):
            for options in ({}, {"collate_fn": self.data.as_is}, {"collate_fn": torch.stack},
                            {"collate_fn": lambda batch: torch.stack(tensors=batch)}):
                with self.subTest(name, options=options):
                    rows = next(iter(loader(data, batch_size=4, **options)))
                    if not isinstance(rows, torch.Tensor):
                        self.skipTest("this torch has no __getitems__")
                    self.same(rows, range(first, first + 4))
        chosen = torch.utils.data.BatchSampler(range(500), 2, drop_last=False)
        for options in ({}, {"collate_fn": self.data.as_is}):
            batches = loader(self.data, sampler=chosen, batch_size=None, **options)
            self.same(next(iter(batches)), (0, 1))

    @unittest.skipUnless(hasattr(torch.utils.data, "StackDataset"), "came with PyTorch 2.1")
    def test_a_stack_of_them_and_of_labels(self):
        stacked = torch.utils.data.StackDataset(rows=self.data, label=torch.arange(500))
        got = next(iter(torch.utils.data.DataLoader(stacked, batch_size=3)))
        self.same(got["rows"], range(3))
        self.assertEqual(got["label"].tolist(), [0, 1, 2])

    def test_a_batch_is_its_rows(self):
        for ids in ([3, 7], [3], [3, 7, 3], []):
            batch = pickle.loads(pickle.dumps(self.data.__getitems__(ids)))
            self.same(self.data.as_is(batch), ids)
            self.assertEqual(len(batch), len(ids))
            self.same(batch[1:].whole, ids[1:])
            self.assertRaises(IndexError, lambda batch=batch, ids=ids: batch[len(ids)])
            for row, sample in zip(ids, batch, strict=True):
                self.assertTrue(torch.equal(sample, self.weight[row]))


class Steps(WithTable):
    def test_a_slice_whose_step_is_beyond_its_rows_has_its_row(self):
        array = self.open()
        labelled = pt.RowDataset(array, self.weight)
        for step in (500, sys.maxsize, 10**20, -500, -sys.maxsize, -10**20):
            for begin in (None, 0, 7, -1, 10**20):
                part = slice(begin, None, step)
                wanted = self.weight[range(500)[part]]
                with self.subTest(part=part):
                    self.assertTrue(torch.equal(array[part].to("cpu"), wanted))
                    self.assertTrue(torch.equal(torch.from_numpy(array[part].__array__()), wanted))
                    self.assertTrue(torch.equal(array[:][part].to("cpu"), wanted))
                    for got in labelled[part]:
                        self.assertTrue(torch.equal(got, wanted))
                    array.prefetch(part)
                    array.will_need(part)


if __name__ == "__main__":
    unittest.main()
