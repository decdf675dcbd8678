#!/usr/bin/env python3
"""Tensors of torch in host memory: rows equal to those of index_select, and regions that are
tensors."""
import functools
import unittest
import warnings
from unittest import mock

import common

common.need("numpy")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Debian's torch is older than its Python
    common.need("torch")
    import torch
    import penstock.torch as pt
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import _frameworks  # noqa: E402


class tensors(common.Case):
    def setUp(self):
        super().setUp()
        self.rt = self.runtime(writable=True)
        self.path = self.folder / "rows.bin"
        self.rows = torch.arange(500 * 6, dtype=torch.int32).view(500, 6)
        self.path.write_bytes(bytes(self.rows.numpy().data))

    def open(self, **options):
        return ps.open_array(self.path, dtype=torch.int32, shape=(-1, 6), runtime=self.rt,
                             **options)

    def same(self, got, expected):
        self.assertEqual((got.shape, got.dtype), (expected.shape, expected.dtype))
        self.assertTrue(torch.equal(got, expected))

    def test_rows_equal_those_of_index_select(self):
        with self.open() as array:
            for kind in (torch.int32, torch.int64):
                for shape in ((64,), (0,), (), (3, 5)):
                    ids = torch.randint(0, 500, shape).to(kind)
                    self.same(array.gather(ids), self.rows[ids.long()])
                    self.same(array[ids.view(-1)], self.rows[ids.long().view(-1)])
            ids = torch.randint(0, 500, (64,))
            self.same(array.gather(ids[::2]), self.rows[ids[::2]])
            out = torch.zeros(64, 6, dtype=torch.int32)
            self.assertIs(array.gather(ids, out=out), out)
            self.same(out, self.rows[ids])
            wide = torch.zeros(64, 9, dtype=torch.int32)
            array.gather(ids, out=wide[:, 1:7])
            self.same(wide[:, 1:7].contiguous(), self.rows[ids])
            self.same(array[3:9].to("cpu"), self.rows[3:9])
            for wrong in (torch.zeros(64, 6), torch.zeros(63, 6, dtype=torch.int32),
                          torch.zeros(6, 64, dtype=torch.int32).t()):
                with self.assertRaises(ValueError):
                    array.gather(ids, out=wrong)
            with self.assertRaises(ValueError):
                array.gather(ids.float())

    def test_short_numbers(self):
        with self.open(mode="r+") as array:
            for kind in (torch.int8, torch.uint8, torch.int16):
                ids = torch.tensor([5, 0, 99], dtype=kind)
                self.same(array.gather(ids), self.rows[[5, 0, 99]])
                self.same(pt.gather(array, ids), self.rows[[5, 0, 99]])
                array.scatter(ids, self.rows[[5, 0, 99]])
                array.prefetch(ids)
            for wrong in (torch.bool, torch.float32):
                with self.assertRaisesRegex(ValueError, "counts no rows"):
                    array.gather(ids.to(wrong))
            for truth in (torch.tensor(True), torch.tensor(False)):
                for name, call in (("t[i]", lambda: array[truth]),
                                   ("view", lambda: array[2:][truth]),
                                   ("gather", lambda: array.gather(truth)),
                                   ("scatter", lambda: array.scatter(truth, self.rows[0])),
                                   ("pad", lambda: array.gather([0], pad=truth))):
                    with self.subTest(call=name, truth=truth), self.assertRaises(ValueError):
                        call()

    @unittest.skipUnless(hasattr(torch, "func"), "torch.func came with PyTorch 2.0")
    def test_tensors_that_stand_for_others(self):
        ids = torch.tensor([[1, 2], [3, 4]])
        rows = torch.zeros(2, 2, 6, dtype=torch.int32)
        wide = torch.zeros(12, requires_grad=True)
        with self.open(mode="r+") as array:
            for name, call in (
                    ("gather", lambda: torch.vmap(array.gather)(ids)),
                    ("t[ids]", lambda: torch.vmap(lambda i: array[i])(ids)),
                    ("t[i]", lambda: torch.vmap(lambda i: array[i])(ids[0])),
                    ("pt.gather", lambda: torch.vmap(lambda i: pt.gather(array, i))(ids)),
                    ("out", lambda: torch.vmap(lambda r: array.gather(ids[0], out=r))(rows)),
                    ("scatter", lambda: torch.vmap(array.scatter)(ids, rows)),
                    ("values", lambda: torch.vmap(lambda r: array.scatter(ids[0], r))(rows)),
                    ("prefetch", lambda: torch.vmap(array.prefetch)(ids)),
                    ("grad", lambda: torch.func.grad(lambda x: (array.gather(
                        (x == 0).nonzero().reshape(-1)) * x.sum()).sum())(wide))):
                with self.subTest(call=name), self.assertRaisesRegex(ValueError, "no memory"):
                    call()

    def test_scatter_and_bfloat16(self):
        with self.open(mode="r+") as array:
            ids = torch.randperm(500)[:40]
            values = torch.randint(0, 1 << 30, (40, 6), dtype=torch.int32)
            array.scatter(ids, values)
            self.same(array.gather(ids), values)
        with ps.open_array(self.path, dtype="bfloat16", shape=(-1, 12), runtime=self.rt) as array:
            got = array.gather(torch.tensor([499]))
            self.assertEqual(got.dtype, torch.bfloat16)

    def test_views_that_show_other_values_than_their_memory(self):
        path = self.folder / "complex.bin"
        np.zeros((10, 4), np.complex64).tofile(path)
        rt = self.runtime(writable=True)
        with ps.open_array(path, dtype="complex64", shape=(-1, 4), mode="r+", runtime=rt) as array:
            values = torch.full((1, 4), 1 + 2j, dtype=torch.complex64).conj()
            array.scatter(torch.tensor([3]), values)
            self.assertTrue(torch.equal(array.gather(torch.tensor([3])), values.resolve_conj()))
            with self.assertRaisesRegex(ValueError, "^out: it is a view"):
                array.gather(torch.tensor([3]), out=torch.zeros(1, 4, dtype=torch.complex64).conj())
        path = self.folder / "floats.bin"
        np.zeros((10, 4), np.float32).tofile(path)
        with ps.open_array(path, dtype="float32", shape=(-1, 4), mode="r+", runtime=rt) as array:
            values = torch.full((1, 4), 1 + 2j, dtype=torch.complex64).conj().imag
            self.assertTrue(values.is_neg())
            array.scatter(torch.tensor([3]), values)
            self.assertEqual(array.gather(torch.tensor([3])).tolist(), [[-2.0] * 4])
            self.assertEqual(tuple(array[5:2].to("cpu").shape), (0, 4))
            self.assertEqual(tuple(array[5:2:-1].to("cpu").shape), (3, 4))
            whole = torch.full((5, 5, 4), -1.0)
            with self.assertRaisesRegex(ValueError, "^out: its rows do not lie at one distance"):
                array.gather(torch.zeros(2, 3, dtype=torch.int64), out=whole[:2, :3])
            self.assertTrue(torch.equal(whole, torch.full((5, 5, 4), -1.0)))

    def test_wide_elements_that_this_torch_lacks_are_refused(self):
        """Tensors of bytes in their place would have less memory than the rows, as PyTorch before
        2.3 has no uint16, uint32 and uint64."""
        lacking = _frameworks.Torch(torch)
        lacking.dtypes.clear()
        ids = torch.tensor([1, 2, 3])
        for name in ("uint16", "uint32", "uint64"):
            with self.subTest(name), \
                    mock.patch.object(torch, name, None, create=True), \
                    mock.patch.dict(_frameworks._known, {torch.Tensor: lacking}), \
                    ps.open_array(self.path, dtype=name, shape=(180, 8), mode="r+",
                                  runtime=self.rt) as array:
                whole = torch.full((9, 8), 255, dtype=torch.uint8)
                for call in (lambda: array.gather(ids), lambda: array.gather(ids, out=whole[:3]),
                             lambda: array.scatter(ids, whole[:3]),
                             lambda: array[1:4].to("cpu"), lambda: pt.gather(array, ids),
                             lambda: pt.gather(array, ids, whole[:3]), lambda: pt.Embedding(array),
                             lambda: pt.RowDataset(array)[1], lambda: pt.torch_dtype(array)):
                    with self.assertRaisesRegex(ValueError, f"has no {name}; give ids of numpy"):
                        call()
                self.assertTrue((whole == 255).all())
                array.sync()
                rows = array.gather(ids.numpy())
                signed = torch.from_numpy(rows.view(name[1:]))
                self.assertEqual(signed.numpy().tobytes(), rows.tobytes())
        np.testing.assert_array_equal(np.fromfile(self.path, np.int32).reshape(500, 6),
                                      self.rows.numpy())

    def test_autograd_knows_of_rows_in_out(self):
        path = self.folder / "floats.npy"
        content = torch.randn(100, 8)
        np.save(path, content.numpy())
        ids = torch.tensor([5, 1, 99])
        with ps.open_array(path, runtime=self.rt) as array:
            for out in (torch.ones(3, 8), torch.ones(5, 3, 10)[1, :, 2:]):
                weight = torch.ones(3, 8, requires_grad=True)
                product = (weight * out).sum()
                array.gather(ids, out=out)
                self.same(out.contiguous(), content[ids])
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    product.backward()
            for out in (torch.ones(3, 8, requires_grad=True),
                        torch.ones(3, 8, requires_grad=True) * 2):
                for gather in (array.gather, functools.partial(pt.gather, array)):
                    with self.assertRaisesRegex(ValueError, "^out: it requires a gradient"):
                        gather(ids, out=out)
                    self.assertLess(out.max(), 2.1)
                with torch.no_grad():
                    array.gather(ids, out=out)
                self.assertTrue(torch.equal(out, content[ids]))
            with torch.inference_mode():
                out = torch.ones(3, 8)
            self.same(array.gather(ids, out=out), content[ids])
            out, row = torch.ones(8), torch.tensor(5)
            self.same(array.gather(row, out=out), content[5])
            self.assertEqual(out._version, 1)
            self.assertEqual(array.gather(ids)._version, 0)
            for refused in (ids, [5, 1, 99]):
                self.assertRaises(ValueError, array.gather, refused, out=out)
            self.assertEqual(out._version, 1)
            for partly in (torch.tensor(500), np.int64(500)):  # no row of it was there
                self.assertRaises(IndexError, array.gather, partly, out=out)
            array.gather(np.int64(5), out=out)
            self.assertEqual(out._version, 4)

    def test_tensors_without_memory_are_refused(self):
        """Their device is no GPU, and their address is none of the host."""
        ids = torch.tensor([1, 2])
        nowhere = torch.empty(2, 6, dtype=torch.int32, device="meta")
        with self.open(mode="r+") as array:
            for call in (lambda: array.gather(ids.to("meta")),
                         lambda: array.gather(ids.to("meta"), out=self.rows[:2]),
                         lambda: array.gather(ids, out=nowhere),
                         lambda: array.scatter(ids, nowhere),
                         lambda: array.prefetch(ids.to("meta"))):
                with self.assertRaisesRegex(ValueError, "meta"):
                    call()

    def test_a_region_that_may_only_be_read(self):
        """A tensor that could be written would end the process, or change what others share."""
        with ps.open_region(self.path, "r", "int32", (-1, 6), runtime=self.rt) as region:
            with self.assertRaisesRegex(BufferError, r'mode="r\+"'):
                torch.utils.dlpack.from_dlpack(region.__dlpack__())
            copied = torch.tensor(np.asarray(region))
            self.same(copied, self.rows)
            copied[0] = 5
            self.assertEqual(np.asarray(region)[0].tolist(), self.rows[0].tolist())

    def test_a_region_is_a_tensor_without_a_copy(self):
        region = ps.open_region(self.path, "r+", "int32", (-1, 6), runtime=self.rt)
        tensor = torch.from_dlpack(region)
        self.assertEqual(tensor.data_ptr(), region.address)
        self.same(tensor, self.rows)
        with region.acquired():
            tensor[3] = 9
        self.assertEqual(np.fromfile(self.path, np.int32)[18:24].tolist(), [9] * 6)
        region.close()
        self.rt.close()
        self.assertEqual(tensor[3].tolist(), [9] * 6)


if __name__ == "__main__":
    unittest.main()
