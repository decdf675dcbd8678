"""penstock.torch on CPU threads: rows equal to index_select, the operator, Embedding, RowDataset.
torch_programs_test.py has programs that torch makes, gpu_torch.py what needs a GPU. Skipped where
torch is missing."""
import copy
import json
import pathlib
import pickle
import struct
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import penstock as ps
import penstock.torch as pt
from penstock import _frameworks

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


def write_safetensors(path, tensors):
    """As the library writes them, without the library."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = bytes(tensor.contiguous().view(torch.uint8).reshape(-1).tolist()) \
            if tensor.numel() else b""
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


class Holder(torch.Tensor):
    """A tensor without memory, and the one that it holds."""

    @classmethod
    def of(cls, held):
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype,
                                                   device=held.device)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, call, kinds, given, named=None):
        raise NotImplementedError(f"{call} of {cls.__name__}")

    def as_tensor(self):
        return self.held


class WithTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        generator = torch.Generator().manual_seed(33)
        self.weight = torch.randn(500, 24, generator=generator)
        write_safetensors(self.folder / "model.safetensors",
                          {"embed.weight": self.weight,
                           "half.weight": self.weight.to(torch.bfloat16)})
        self.runtime = ps.Runtime("cpu", cache="1MiB", page=512, log=None)
        self.addCleanup(self.runtime.close)
        self.ids = torch.randint(0, 500, (7, 11), generator=generator)

    def open(self, name="embed.weight"):
        return ps.open_array(self.folder / "model.safetensors", name, runtime=self.runtime)

    def embedding(self, name="embed.weight", **options):
        return pt.Embedding.from_safetensors(self.folder / "model.safetensors", name,
                                             runtime=self.runtime, **options)


class Gather(WithTable):
    def test_rows_are_those_of_index_select(self):
        table = self.open()
        expected = self.weight[self.ids]
        self.assertTrue(torch.equal(pt.gather(table, self.ids), expected))
        self.assertTrue(torch.equal(pt.gather(table, self.ids.int()), expected))
        out = torch.empty_like(expected)
        self.assertIs(pt.gather(table, self.ids, out=out), out)
        self.assertTrue(torch.equal(out, expected))

    def test_a_padding_number_gives_zeros(self):
        ids = torch.tensor([3, -1, 4])
        rows = pt.gather(self.open(), ids, pad=-1)
        self.assertTrue(torch.equal(rows[0], self.weight[3]))
        self.assertEqual(rows[1].abs().sum(), 0)

    def test_no_numbers(self):
        self.assertEqual(pt.gather(self.open(), torch.empty(0, dtype=torch.int64)).shape, (0, 24))

    def test_a_number_that_is_no_row_raises(self):
        with self.assertRaisesRegex(IndexError, "500"):
            pt.gather(self.open(), torch.tensor([500]))

    def test_a_handle_of_an_array_that_is_gone(self):
        table = self.open()
        number = pt.handle(table)
        self.assertEqual(number, pt.handle(table))
        self.assertNotEqual(number, pt.handle(self.open()))
        table.close()
        del table
        with self.assertRaisesRegex(ValueError, "keep the array"):
            pt._gather(number, torch.tensor([0]), torch.empty(1, 24), None)


@unittest.skipUnless(pt.has_operator, "this torch takes no fake kernels")
class Operator(WithTable):
    def test_opcheck(self):
        table = self.open()
        torch.library.opcheck(torch.ops.penstock.gather.default,
                              (pt.handle(table), self.ids, torch.empty(7, 11, 24), None))
        torch.library.opcheck(torch.ops.penstock.gather.default,
                              (pt.handle(table), self.ids, torch.empty(7, 11, 24), -1))

    def test_compiled_without_a_break_of_the_graph(self):
        embedding = self.embedding(scale=2.0)
        compiled = torch.compile(lambda ids: embedding(ids).sum(-1), fullgraph=True,
                                 backend="aot_eager")
        for ids in (self.ids, self.ids.flip(0)):
            self.assertTrue(torch.equal(compiled(ids), (self.weight[ids] * 2.0).sum(-1)))

    def test_a_function_that_gathers_compiles(self):
        table = self.open()
        number = pt.handle(table)

        def rows(ids):
            out = torch.empty(*ids.shape, 24)
            torch.ops.penstock.gather(number, ids, out, None)
            return out + 1
        compiled = torch.compile(rows, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(self.ids), self.weight[self.ids] + 1))

    def test_shapes_alone_go_to_the_fake_kernel(self):
        table, ids = self.open(), self.ids.to("meta")
        embedding = self.embedding(dtype=torch.bfloat16, scale=2.0)
        for rows, dtype in ((pt.gather(table, ids), torch.float32),
                            (pt.gather(table, ids.int(), pad=-1), torch.float32),
                            (embedding(ids), torch.bfloat16)):
            self.assertEqual((rows.device.type, tuple(rows.shape), rows.dtype),
                             ("meta", (7, 11, 24), dtype))
        out = torch.empty(7, 11, 24)
        nowhere = out.to("meta")
        self.assertIs(pt.gather(table, ids, out=nowhere), nowhere)
        number = pt.handle(table)
        for call in (lambda: pt.gather(table, ids, out=out),
                     lambda: pt.gather(table, self.ids, out=nowhere),
                     lambda: torch.ops.penstock.gather(number, ids, out, None),
                     lambda: torch.ops.penstock.gather(number, self.ids, nowhere, None)):
            with self.assertRaisesRegex(ValueError, "meta"):
                call()
        with self.assertRaisesRegex(ValueError, "meta"):
            table.gather(ids)


class Sparse(WithTable):
    def test_sparse_and_nested_numbers_are_refused(self):
        array = self.open()
        wrong = [torch.tensor([[0, 1], [1, 0]]).to_sparse(),
                 torch.tensor([[0, 1], [1, 0]]).to_sparse_csr()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if hasattr(torch, "nested"):
                parts = [torch.tensor([1, 2]), torch.tensor([3])]
                wrong.append(torch.nested.nested_tensor(parts))
                if hasattr(torch, "jagged"):
                    wrong.append(torch.nested.nested_tensor(parts, layout=torch.jagged))
            for ids in wrong:
                for gather in (lambda ids=ids: pt.gather(array, ids),
                               lambda ids=ids: pt.RowDataset(array).__getitems__(ids)):
                    with self.subTest(ids=ids), self.assertRaisesRegex(ValueError, "^ids: "):
                        gather()
                if not ids.is_nested:
                    with self.assertRaisesRegex(ValueError, "^ids: they are torch.sparse"):
                        array.gather(ids)


class Wrong(WithTable):
    def test_what_is_no_tensor(self):
        table = self.open()
        for wrong in ([1, 2], (1, 2), 3, memoryview(bytes(4)), None):
            for call in (self.embedding(), lambda ids: pt.gather(table, ids)):
                with self.subTest(wrong=wrong), self.assertRaisesRegex(
                        TypeError, f"^ids: {type(wrong).__name__} is no tensor.*Array.gather"):
                    call(wrong)


class Subclasses(WithTable):
    """Tensors of other classes, which may have no memory of their own."""

    def test_what_has_memory_is_as_a_tensor(self):
        class Named(torch.Tensor):
            pass

        table, wanted = self.open(), self.weight[self.ids]
        for ids in (self.ids.as_subclass(Named),
                    torch.nn.Parameter(self.ids, requires_grad=False)):
            with self.subTest(kind=type(ids)):
                for rows in (table.gather(ids), table[ids], pt.gather(table, ids)):
                    self.assertTrue(torch.equal(rows.as_subclass(torch.Tensor), wanted))

    def test_the_tensor_that_it_holds(self):
        """As PyG's Index and EdgeIndex hold one."""
        table = self.open()
        for kind in (torch.int64, torch.int32, torch.int16):
            for held in (self.ids.to(kind), self.ids.to(kind).t()):
                ids = Holder.of(held)
                self.assertEqual(ids.data_ptr(), 0)
                with self.subTest(kind=kind):
                    wanted = self.weight[held.long()]
                    self.assertTrue(torch.equal(table.gather(ids), wanted))
                    self.assertTrue(torch.equal(table[ids], wanted))
                    out = torch.zeros(wanted.shape)
                    table.gather(ids, out=out)
                    self.assertTrue(torch.equal(out, wanted))
                    table.prefetch(ids)
                    table.will_need(ids)
        self.assertEqual(table.gather(Holder.of(self.ids[:0])).shape, (0, 11, 24))

    def test_what_holds_none_is_named(self):
        class Bare(Holder):
            as_tensor = None

        class DTensor(Holder):
            as_tensor = None

            def to_local(self):
                return self.held

        table, rows = self.open(), torch.zeros(7, 11, 24)
        for kind, cure in ((Bare, "give its plain tensor"), (DTensor, r"give ids.to_local\(\)")):
            ids = kind.of(self.ids)
            for name, call in (("gather", lambda ids=ids: table.gather(ids)),
                               ("t[ids]", lambda ids=ids: table[ids]),
                               ("prefetch", lambda ids=ids: table.prefetch(ids)),
                               ("will_need", lambda ids=ids: table.will_need(ids))):
                with self.subTest(kind=kind, call=name), \
                        self.assertRaisesRegex(ValueError, f"^ids: .*{kind.__name__}.*{cure}"):
                    call()
            with self.assertRaisesRegex(ValueError, f"^out: .*{kind.__name__}"):
                table.gather(self.ids, out=kind.of(rows))
        with self.assertRaisesRegex(ValueError, r"^ids: .*DTensor.*give ids.to_local\(\)"):
            pt.gather(table, DTensor.of(self.ids))
        with self.assertRaisesRegex(ValueError, r"^ids: .*DTensor.*give ids.to_local\(\)"):
            pt.Embedding(table)(DTensor.of(self.ids))


class Embedding(WithTable):
    def test_rows_as_of_nn_embedding(self):
        real = torch.nn.Embedding.from_pretrained(self.weight, padding_idx=0)
        ours = self.embedding(padding_idx=0)
        self.assertTrue(torch.equal(ours(self.ids), real(self.ids)))
        ids = torch.tensor([[0, 1]])
        self.assertTrue(torch.equal(ours(ids), real(ids)))
        self.assertEqual((ours.num_embeddings, ours.embedding_dim, ours.padding_idx),
                         (real.num_embeddings, real.embedding_dim, real.padding_idx))
        self.assertEqual(self.embedding(padding_idx=-1).padding_idx, 499)
        ours.check()

    def test_dtype_and_scale_to_the_bit(self):
        half = self.weight.to(torch.bfloat16)
        ours = self.embedding("half.weight", scale=24 ** 0.5)
        self.assertEqual(ours.dtype, torch.bfloat16)
        expected = half[self.ids] * torch.tensor(24 ** 0.5).to(torch.bfloat16)
        self.assertTrue(torch.equal(ours(self.ids), expected))
        wide = self.embedding("half.weight", dtype=torch.float32)
        self.assertTrue(torch.equal(wide(self.ids), half[self.ids].float()))

    def test_bits_of_elements_that_this_torch_lacks_are_no_numbers(self):
        path = self.folder / "small.bin"
        path.write_bytes(bytes([0x38] * 64))  # 1.0
        with ps.open_array(path, dtype="float8_e4m3fn", shape=(-1, 8),
                           runtime=self.runtime) as array, \
                mock.patch.object(torch, "float8_e4m3fn", None, create=True), \
                mock.patch.dict(_frameworks._known, {torch.Tensor: _frameworks.Torch(torch)}):
            for options in ({"dtype": torch.float32}, {"scale": 2.0},
                            {"dtype": torch.bfloat16, "scale": 2.0}):
                with self.subTest(options), \
                        self.assertRaisesRegex(ValueError, "float8_e4m3fn.*newer PyTorch"):
                    pt.Embedding(array, **options)
            ours = pt.Embedding(array)
            self.assertEqual(ours(torch.tensor([1])).tolist(), [[0x38] * 8])
            for name, value in (("dtype", torch.float32), ("scale", 2.0)):
                with self.assertRaisesRegex(ValueError, "float8_e4m3fn.*newer PyTorch"):
                    setattr(ours, name, value)
            ours.dtype, ours.scale = torch.uint8, None
            self.assertEqual(ours(torch.tensor([1])).tolist(), [[0x38] * 8])

    def test_padding_idx_out_of_range_is_refused(self):
        for wrong in (500, -501):
            with self.assertRaisesRegex(ValueError, "padding_idx"):
                self.embedding(padding_idx=wrong)

    def test_not_in_the_state_dict(self):
        model = torch.nn.Sequential(self.embedding(scale=2.0), torch.nn.Linear(24, 2))
        self.assertEqual(set(model.state_dict()), {"1.weight", "1.bias"})
        state = {"0.weight": self.weight, **model.state_dict()}
        model.load_state_dict(state)  # a checkpoint's rows are neither missing nor unexpected
        self.assertEqual(sum(p.numel() for p in model.parameters()), 24 * 2 + 2)

    def test_a_copy_shares_the_table(self):
        ours = self.embedding(scale=3.0, pad=-1)
        other = copy.deepcopy(torch.nn.Sequential(ours))[0]
        self.assertIs(other.array, ours.array)
        ids = torch.tensor([1, -1])
        self.assertTrue(torch.equal(other(ids), ours(ids)))

    @unittest.skipUnless(hasattr(torch.nn.Module, "compile"), "came with PyTorch 2.1")
    def test_a_copy_of_a_compiled_module_is_its_own(self):
        ours = self.embedding()
        ours.compile(backend="eager")
        other = copy.deepcopy(torch.nn.Sequential(ours))[0]
        other.scale = 3.0
        self.assertTrue(torch.equal(other(self.ids), self.weight[self.ids] * 3.0))
        self.assertTrue(torch.equal(ours(self.ids), self.weight[self.ids]))

    def test_moves_with_the_model(self):
        model = torch.nn.Sequential(self.embedding(scale=2.0)).to("cpu").to(torch.float16).eval()
        self.assertEqual(model(self.ids).dtype, torch.float32)

    def test_a_trace_has_the_gather(self):
        """Or is refused: it would give memory that was never written."""
        embedding = self.embedding(scale=2.0)
        if not pt.has_operator:
            with self.assertRaisesRegex(RuntimeError, "operator"):
                torch.jit.trace(embedding, self.ids, check_trace=False)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(embedding, self.ids, check_trace=False)
        self.assertTrue(torch.equal(traced(self.ids.flip(0)), embedding(self.ids.flip(0))))

    def test_its_scale_is_the_same_wherever_the_model_goes(self):
        """A move of the model to another dtype must not round it."""
        scale = 2048 ** 0.5
        expected = self.weight[self.ids] * torch.tensor(scale)
        for move in (torch.nn.Module.half, torch.nn.Module.bfloat16, torch.nn.Module.double,
                     lambda model: model.bfloat16().float(), lambda model: model.to("meta")):
            model = torch.nn.Sequential(self.embedding(scale=scale))
            self.assertTrue(torch.equal(move(model)(self.ids), expected))
        self.assertEqual(self.embedding(scale=scale).scale, scale)

    def test_its_scale_and_dtype_may_be_set(self):
        ours = self.embedding()
        ours.scale = 24 ** 0.5
        ours.dtype = torch.bfloat16
        expected = self.embedding(scale=24 ** 0.5, dtype=torch.bfloat16)(self.ids)
        self.assertTrue(torch.equal(ours(self.ids), expected))
        ours.scale = None
        self.assertTrue(torch.equal(ours(self.ids), self.weight[self.ids].to(torch.bfloat16)))

    def raw(self, dtype, kind=torch.uint8):
        """A table of four rows of 8 elements, by the name of their dtype."""
        path = self.folder / f"{dtype}.bin"
        path.write_bytes(bytes(torch.ones(4, 8).to(kind).view(torch.uint8).reshape(-1).tolist()))
        return ps.open_array(path, dtype=dtype, shape=(-1, 8), runtime=self.runtime)

    def test_a_scale_needs_floats(self):
        """Of int8 a scale below 1 would make zeros, and of float8 torch has no product."""
        cases = [("int8", torch.int8), ("int64", torch.int64), ("bool", torch.bool)]
        if hasattr(torch, "float8_e4m3fn"):
            cases.append(("float8_e4m3fn", torch.float8_e4m3fn))
        for name, kind in cases:
            array = self.raw(name, kind)
            refused = self.assertRaisesRegex(
                ValueError, f"^scale: rows are {name}; give dtype=torch.float32 .* too$")
            with self.subTest(name):
                for scale in (0.5, 2.0):
                    with refused:
                        pt.Embedding(array, scale=scale)
                with refused:
                    pt.Embedding(self.open(), dtype=kind, scale=0.5)
                ours = pt.Embedding(array, dtype=torch.float32, scale=0.5)
                self.assertEqual(ours(torch.tensor([1])).tolist(), [[0.5] * 8])
                for wrong in (None, kind):
                    with refused:
                        ours.dtype = wrong
                self.assertEqual(ours(torch.tensor([1])).tolist(), [[0.5] * 8])
                plain = pt.Embedding(array)
                with refused:
                    plain.scale = 0.5
                self.assertEqual(plain(torch.tensor([1])).float().tolist(), [[1.0] * 8])

    def test_a_scale_of_complex_rows(self):
        for name, kind in (("complex64", torch.complex64), ("complex128", torch.complex128)):
            rows = torch.full((4, 2), 1 + 1j, dtype=kind)
            path = self.folder / name
            path.write_bytes(bytes(torch.view_as_real(rows).view(torch.uint8).flatten().tolist()))
            array = ps.open_array(path, dtype=name, shape=(-1, 2), runtime=self.runtime)
            got = pt.Embedding(array, scale=0.1)(torch.tensor([2]))
            self.assertTrue(torch.equal(got, rows[[2]] * torch.tensor(0.1, dtype=kind)), name)

    def test_a_scale_that_the_dtype_does_not_have_is_refused(self):
        for scale, dtype in ((1e-9, torch.float16), (-1e-9, torch.float16), (1e6, torch.float16),
                             (1e-50, torch.float32), (1e50, torch.float32)):
            with self.subTest(scale=scale), self.assertRaisesRegex(ValueError, "^scale: .* would"):
                self.embedding(scale=scale, dtype=dtype)
        self.assertEqual(self.embedding(scale=0.0)(self.ids).abs().max(), 0)
        self.assertEqual(self.embedding(scale=1e6)(self.ids).dtype, torch.float32)

    def test_a_dtype_is_one_of_torch(self):
        ours = self.embedding()
        for wrong in ("float16", float, 16):
            refused = self.assertRaisesRegex(TypeError, "^dtype: .*torch.float16")
            with self.subTest(wrong=wrong):
                with refused:
                    self.embedding(dtype=wrong)
                with refused:
                    ours.dtype = wrong
        self.assertTrue(torch.equal(ours(self.ids), self.weight[self.ids]))

    def test_rows_of_more_dimensions_are_refused(self):
        write_safetensors(self.folder / "cube.safetensors", {"cube": torch.zeros(4, 2, 3)})
        with self.assertRaisesRegex(ValueError, "one dimension"):
            pt.Embedding.from_safetensors(self.folder / "cube.safetensors", "cube",
                                          runtime=self.runtime)


class Dataset(WithTable):
    def test_batches_of_a_loader(self):
        labels = torch.arange(500)
        data = pt.RowDataset(self.open(), labels)
        loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True,
                                             collate_fn=data.as_is)
        seen = []
        for rows, numbers in loader:
            if not isinstance(rows, torch.Tensor):
                self.skipTest("this torch has no __getitems__")
            self.assertTrue(torch.equal(rows, self.weight[numbers]))
            seen.extend(numbers.tolist())
        self.assertEqual(sorted(seen), list(range(500)))

    def same(self, got, ids):
        """Rows and labels of the batch, where the label of a row is all of it."""
        self.assertEqual(len(got), 2)
        for part in got:
            self.assertTrue(torch.equal(part, self.weight[torch.as_tensor(ids).long()]))

    def test_a_batch_is_its_samples_where_it_is_not_unpacked(self):
        """Rows and labels of one shape would be mixed without a word by what expects samples."""
        data = pt.RowDataset(self.open(), self.weight)
        for ids in ([3, 7], [3], [3, 7, 3]):
            batch = pickle.loads(pickle.dumps(data.__getitems__(ids)))
            self.same(data.as_is(batch), ids)
            self.assertEqual(len(batch), len(ids))
            for at, row in enumerate(ids):
                self.same(batch[at], row)
            self.same(batch[-1], ids[-1])
            self.assertRaises(IndexError, lambda batch=batch, ids=ids: batch[len(ids)])
            self.same(batch[1:].whole, ids[1:])
            for sample, row in zip(batch, ids, strict=True):
                self.same(sample, row)

    def test_loaders_without_its_collate_fn(self):
        data = pt.RowDataset(self.open(), self.weight)
        loader = torch.utils.data.DataLoader
        first = [0, 1]
        for name, batches in (
                ("forgotten", loader(data, batch_size=2)),
                ("subset", loader(torch.utils.data.Subset(data, range(500)), batch_size=2)),
                ("subset as it is", loader(torch.utils.data.Subset(data, range(500)), batch_size=2,
                                           collate_fn=data.as_is))):
            with self.subTest(name):
                self.same(next(iter(batches)), first)
        chosen = torch.utils.data.BatchSampler(range(500), 2, drop_last=False)
        for options in ({}, {"collate_fn": data.as_is}):
            self.same(next(iter(loader(data, sampler=chosen, batch_size=None, **options))), first)
        if hasattr(torch.utils.data, "StackDataset"):
            stacked = torch.utils.data.StackDataset(data, torch.arange(500))
            for got, numbers in (next(iter(loader(stacked, batch_size=2))),
                                 next(iter(loader(stacked, batch_size=3)))):
                self.same(got, numbers)

    def test_rows_by_lists_tensors_and_slices(self):
        labelled, plain = pt.RowDataset(self.open(), self.weight), pt.RowDataset(self.open())
        for index, ids in (([0, 3], [0, 3]), (range(2, 4), [2, 3]), (slice(0, 3), [0, 1, 2]),
                           (slice(-2, None), [498, 499]), (slice(9, 2, -3), [9, 6, 3]),
                           (slice(3, 3), []), (torch.tensor([5, 2]), [5, 2]), ([4], [4]),
                           (torch.tensor([[5], [2]]), [[5], [2]]), (torch.tensor(7), 7)):
            with self.subTest(index=index):
                self.same(labelled[index], ids)
                self.same((plain[index],) * 2, ids)
        for wrong in (True, torch.tensor(True), [True], 1.5):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                plain[wrong]
        for wrong in (None, "a", ["a"]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(TypeError, "^ids: "):
                plain[wrong]

    def test_labels_of_numpy_lists_and_arrays(self):
        rows, numbers = self.open(), list(range(500))
        for given in (numbers, range(500), memoryview(bytes(500)), self.open(), self.open()[:]):
            kind = type(given)
            with self.subTest(kind=kind):
                wanted = self.weight if kind in (ps.Array, ps.View) else torch.as_tensor(given)
                got = pt.RowDataset(rows, given)[[3, 9]]
                self.assertTrue(torch.equal(got[1], wanted[[3, 9]]))
        for wrong in (["a"] * 500, object(), 5, torch.tensor(5)):
            with self.subTest(wrong=type(wrong)), \
                    self.assertRaisesRegex((TypeError, ValueError), "^labels: "):
                pt.RowDataset(rows, wrong)

    def test_it_is_of_an_array(self):
        for wrong in (self.weight, self.open()[:], self.weight.tolist(), "model.safetensors"):
            for make in (pt.RowDataset, pt.Embedding):
                with self.subTest(make=make, wrong=type(wrong)), \
                        self.assertRaisesRegex(TypeError, "^array: .*open_array"):
                    make(wrong)

    def test_one_row(self):
        data = pt.RowDataset(self.open())
        self.assertTrue(torch.equal(data[-1], self.weight[499]))
        self.assertTrue(torch.equal(data.as_is(data.__getitems__([1, 2])), self.weight[1:3]))
        with self.assertRaises(IndexError):
            data[500]

    def test_numbers_are_whole(self):
        data = pt.RowDataset(self.open(), torch.arange(500))
        for wrong in ([1.7], torch.tensor([0.5]), torch.tensor([True, False]), [True]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "counts no rows"):
                data.__getitems__(wrong)
        self.assertEqual(tuple(data.as_is(data.__getitems__([]))[0].shape), (0, 24))
        for right in ([3, 4], torch.tensor([3, 4], dtype=torch.int32), range(3, 5)):
            rows, labels = data.as_is(data.__getitems__(right))
            self.assertTrue(torch.equal(rows, self.weight[3:5]))
            self.assertEqual(labels.tolist(), [3, 4])

    @unittest.skipUnless(hasattr(torch, "set_default_device"), "came with PyTorch 2.0")
    def test_lists_lie_on_the_host(self):
        """Whatever device torch makes tensors on else."""
        data = pt.RowDataset(self.open())
        self.addCleanup(torch.set_default_device, None)
        torch.set_default_device("meta")
        rows = data.__getitems__([1, 2])
        torch.set_default_device(None)
        self.assertTrue(torch.equal(data.as_is(rows), self.weight[1:3]))

    def test_batches_lie_where_the_runtime_is(self):
        """Of a GPU that is not torch's current one; a runtime of GPUs as its properties look."""
        array = self.open()
        for numbers, current, wanted in (((1,), 0, 1), ((0,), 1, 0), ((2, 1), 0, 2),
                                         ((0, 1), 1, 1)):
            runtime = types.SimpleNamespace(backend="gpu", device_numbers=list(numbers))
            with self.subTest(numbers=numbers, current=current), \
                    mock.patch.object(ps.Array, "runtime", runtime), \
                    mock.patch.object(torch.cuda, "current_device", lambda at=current: at):
                self.assertEqual(pt.RowDataset(array).device, torch.device("cuda", wanted))
                self.assertEqual(pt.RowDataset(array, device="cpu").device, torch.device("cpu"))
        self.assertEqual(pt.RowDataset(array).device, torch.device("cpu"))

    def test_labels_of_another_length_are_refused(self):
        with self.assertRaisesRegex(ValueError, "labels"):
            pt.RowDataset(self.open(), torch.zeros(499))


if __name__ == "__main__":
    unittest.main()
