#!/usr/bin/env python3
"""What reaches the library for arrays on a GPU: addresses, streams and devices, of frameworks that
are played by a few lines each, so that it is tested where there is no GPU."""
import contextlib
import ctypes
import sys
import types
import unittest

import common

common.need("numpy")
import penstock as ps  # noqa: E402
from penstock import _frameworks, _memory  # noqa: E402


class recorder:
    """In place of the library's table: what gather and its like are called with, and apart the
    bytes of an element, and whether the call waits for its end."""

    def __init__(self):
        self.calls = []
        self.item_bytes = []
        self.waits = []
        self.closed = False

    def gather(self, *arguments):
        self.calls.append(arguments[:4] + arguments[5:-1])
        self.item_bytes.append(arguments[4])
        self.waits.append(arguments[-1])

    scatter = gather

    def prefetch(self, *arguments):
        self.calls.append(arguments[:-1])
        self.waits.append(arguments[-1])

    def close(self):
        self.closed = True


class dtype(str):
    __slots__ = ()
    size = property(lambda self: {"int32": 4, "int64": 8, "float32": 4, "uint8": 1}[self])


class tensor:
    """As much of a tensor as is looked at."""

    def __init__(self, shape, kind="int64", device="cuda", strides=None, address=4096):
        self.shape, self.dtype, self.address = tuple(shape), dtype(kind), address
        self.device = types.SimpleNamespace(type=device, index=0 if device == "cuda" else None)
        packed, step = [], 1
        for extent in reversed(self.shape):
            packed.insert(0, step)
            step *= extent
        self.strides = packed if strides is None else strides
        self.packed, self.recorded, self.made_on = packed, [], torch.cuda.current

    requires_grad = is_nested = False
    layout = "strided"

    def is_inference(self):
        return False

    def transpose_(self, *axes):
        self.writes = axes

    def data_ptr(self):
        return self.address

    def numel(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def is_contiguous(self):
        return self.strides == self.packed

    def contiguous(self):
        return tensor(self.shape, self.dtype, self.device.type, address=8192)

    def is_conj(self):
        return False

    def is_neg(self):
        return False

    def stride(self):
        return self.strides

    def element_size(self):
        return self.dtype.size

    def record_stream(self, stream):
        self.recorded.append(stream.cuda_stream)


class cuda:
    """torch.cuda: the current stream, and blocks in which it is another."""

    class Stream:
        def __init__(self, address=0, device=None):
            self.cuda_stream = address

    class ExternalStream(Stream):
        pass

    current = 70

    @classmethod
    def current_stream(cls, device):
        return cls.Stream(cls.current)

    @classmethod
    @contextlib.contextmanager
    def stream(cls, stream):
        before, cls.current = cls.current, stream.cuda_stream
        yield
        cls.current = before


torch = types.ModuleType("torch")
torch.Tensor, torch.cuda, torch.dtype, torch.strided = tensor, cuda, dtype, "strided"
torch.empty = lambda shape, dtype, device: tensor(shape, dtype, device.type, address=1 << 20)
for kind_name in ("int32", "int64", "float32", "uint8"):
    setattr(torch, kind_name, dtype(kind_name))


class on_bus:
    """An array with the interface of CUDA arrays alone, as of a library without a maker here."""

    def __init__(self, shape, typestr, strides=None, read_only=False):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "version": 3,
                                         "data": (1 << 21, read_only), "strides": strides}


class streams(common.Case):
    def setUp(self):
        super().setUp()
        before = sys.modules.get("torch")
        sys.modules["torch"] = torch
        _frameworks._known.clear()
        self.addCleanup(_frameworks._known.clear)
        self.addCleanup(lambda: sys.modules.update(torch=before) if before else
                        sys.modules.pop("torch"))
        path = self.folder / "rows.bin"
        path.write_bytes(bytes(6400))
        self.array = ps.open_array(path, dtype="float32", shape=(-1, 16), mode="r+",
                                   runtime=self.runtime(writable=True))
        self.array._core.close()
        self.array._core = self.core = recorder()
        self.array._on_gpu, self.array._places = True, {0: 0}

    def test_a_call_on_the_current_stream(self):
        ids = tensor((5, 3), "int32")
        out = self.array.gather(ids)
        self.assertEqual(self.core.calls,
                         [(4096, _memory.INT32, 15, 1 << 20, 0, 70, None, 0)])
        self.assertEqual((out.shape, out.dtype, out.recorded, out.made_on),
                         ((5, 3, 16), "float32", [], 70))

    def test_a_result_on_another_stream_has_memory_of_that_stream(self):
        for stream in (cuda.Stream(90), 90, types.SimpleNamespace(ptr=90),
                       types.SimpleNamespace(__cuda_stream__=(0, 90)),
                       types.SimpleNamespace(__cuda_stream__=lambda: (0, 90)),
                       types.SimpleNamespace(handle=ctypes.c_void_p(90))):
            with self.subTest(stream=stream):
                out = self.array.gather(tensor((5,)), stream=stream, pad=-1)
                self.assertEqual(self.core.calls[-1][5:], (90, -1, 0))
                self.assertEqual((out.made_on, out.recorded), (90, [70]))
        out = self.array.gather(tensor((5,)), stream=70)
        self.assertEqual((out.made_on, out.recorded), (70, []))
        with self.assertRaisesRegex(ValueError, "stream"):
            self.array.gather(tensor((5,)), stream="fast")

    def test_out_is_taken_as_it_is(self):
        out = tensor((5, 16), "float32", address=9000)
        self.assertIs(self.array.gather(tensor((5,)), out=out, stream=90), out)
        self.assertEqual(self.core.calls[-1][3:], (9000, 0, 90, None, 0))
        self.assertEqual(out.recorded, [])
        apart = tensor((5, 16), "float32", strides=[20, 1])
        self.array.gather(tensor((5,)), out=apart)
        self.assertEqual(self.core.calls[-1][4], 80)
        wrong = [tensor((4, 16), "float32"), tensor((5, 16), "uint8"),
                 tensor((5, 16), "float32", device="cpu"),
                 tensor((5, 16), "float32", strides=[20, 2])]
        calls = len(self.core.calls)
        for other in wrong:
            with self.assertRaises(ValueError):
                self.array.gather(tensor((5,)), out=other)
        with self.assertRaises(ValueError):  # host numbers, rows of the GPU
            self.array.gather([1], out=tensor((1, 16), "float32"))
        self.array._places = {3: 0}
        with self.assertRaisesRegex(ValueError, "GPU 3"):
            self.array.gather(tensor((5,)))
        self.array._on_gpu = False
        with self.assertRaisesRegex(ValueError, "host memory"):
            self.array.gather(tensor((5,)))
        self.assertEqual(len(self.core.calls), calls)

    def test_numbers_that_lie_apart(self):
        ids = tensor((5,), strides=[2])
        self.array.gather(ids)
        self.assertEqual(self.core.calls[-1][0], 8192)
        with self.assertRaisesRegex(ValueError, "contiguous"):
            self.array.gather(ids, stream=90)

    def test_scatter_and_prefetch(self):
        self.array.scatter(tensor((5,)), tensor((5, 16), "float32", address=9000), stream=90)
        self.assertEqual(self.core.calls[-1], (4096, 1, 5, 9000, 0, 90, None, 0))
        self.array.prefetch(tensor((5,), "int32"))
        self.assertEqual(self.core.calls[-1], (4096, 0, 5, 70, True, 0))
        self.array.will_need(tensor((5,), "int32"), stream=90)
        self.assertEqual(self.core.calls[-1], (4096, 0, 5, 90, False, 0))

    def test_values_of_which_a_copy_is_made(self):
        """The copy is made on the current stream, and goes back to the memory of that."""
        class negative(tensor):
            def is_neg(self):
                return True

            def resolve_neg(self):
                return tensor(self.shape, self.dtype, address=9500)

        values = negative((5, 16), "float32")
        with self.assertRaisesRegex(ValueError, "^values: .* give such with stream="):
            self.array.scatter(tensor((5,)), values, stream=90)
        self.assertEqual(self.core.calls, [])
        self.array.scatter(tensor((5,)), values, stream=70)
        self.array.scatter(tensor((5,)), values)
        self.assertEqual([call[3] for call in self.core.calls], [9500, 9500])

    def test_arrays_with_an_interface_alone_need_out(self):
        ids, out = on_bus((5,), "<i8"), on_bus((5, 16), "<f4")
        self.array.gather(ids, out=out, stream=90)
        self.assertEqual(self.core.calls[-1], (1 << 21, 1, 5, 1 << 21, 0, 90, None, 0))
        with self.assertRaisesRegex(ValueError, "out="):
            self.array.gather(ids)
        for wrong in (on_bus((5,), "<f8"), on_bus((5,), ">i8"), on_bus((5,), "<i8", (16,))):
            with self.assertRaises(ValueError):
                self.array.gather(wrong, out=out)
        for wrong in (on_bus((5, 16), "<f8"), on_bus((5, 16), "<f4", read_only=True)):
            with self.assertRaises(ValueError):
                self.array.gather(ids, out=wrong)


if __name__ == "__main__":
    unittest.main()
