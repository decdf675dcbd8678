#!/usr/bin/env python3
"""Tensors of torch on a GPU: rows equal to those of index_select, in order of streams, in a
captured graph that is replayed with new numbers while pages leave, and errors that come later.

gpu_torch_test.py [--times] also prints times beside rows in pinned host memory."""
import errno
import importlib.util
import os
import sys
import threading
import time
import unittest

import common

common.need("numpy", "torch")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
import torch  # noqa: E402

if not torch.cuda.is_available():
    print("skipped: torch finds no GPU")
    sys.exit(common.SKIPPED)

REPLAYS = 10_000
TIMES = "--times" in sys.argv
if TIMES:
    sys.argv.remove("--times")


class Case(common.Case):
    def gpu_runtime(self, **options):
        return self.runtime(**{"device": "gpu", "cache": "64MiB", **options})

    def table(self, rt, rows, columns, dtype=torch.float32, **options):
        """An array in a file, and its rows as a tensor on the GPU."""
        generator = torch.Generator().manual_seed(self.seed)
        row_bytes = columns * torch.empty(0, dtype=dtype).element_size()
        content = torch.randint(0, 256, (rows, row_bytes), dtype=torch.uint8, generator=generator)
        path = self.folder / f"{rows}x{columns}.bin"
        content.numpy().tofile(path)
        expected = content.cuda().view(dtype)
        array = ps.open_array(path, dtype=dtype, shape=(-1, columns), runtime=rt, **options)
        return array, expected

    def pick(self, expected, ids):
        """Rows of any type: not every type can be indexed on a GPU."""
        return expected.view(torch.uint8)[ids.long()].view(expected.dtype)

    def same(self, got, expected):
        self.assertEqual((got.shape, got.dtype, got.device),
                         (expected.shape, expected.dtype, expected.device))
        self.assertTrue(torch.equal(got.contiguous().view(torch.uint8),
                                    expected.contiguous().view(torch.uint8)))

    def ids(self, rows, shape, dtype=torch.int64):
        return torch.randint(0, rows, shape, device="cuda").to(dtype)


class gathers(Case):
    def test_rows_equal_those_of_index_select(self):
        rt = self.gpu_runtime()
        self.assertEqual(rt.backend, "gpu")
        for dtype, columns in [(torch.float32, 64), (torch.float16, 80), (torch.bfloat16, 128),
                               (torch.int64, 512), (torch.uint8, 160), (torch.uint8, 33),
                               (torch.float8_e4m3fn, 256)]:
            array, expected = self.table(rt, 20_000, columns, dtype)
            for kind, shape in [(torch.int64, (64,)), (torch.int32, (1,)), (torch.int64, (0,)),
                                (torch.int32, (7, 9)), (torch.int64, (30_000,))]:
                with self.subTest(dtype=dtype, columns=columns, kind=kind, shape=shape):
                    ids = self.ids(20_000, shape, kind)
                    self.same(array.gather(ids), self.pick(expected, ids))
                    self.same(array[ids], self.pick(expected, ids))
            ids = self.ids(20_000, (100,))
            self.same(array.gather(ids[::2]), self.pick(expected, ids[::2]))
            array.check()
            array.close()

    def test_out_is_written_and_nothing_is_allocated_or_waited_for(self):
        rt = self.gpu_runtime()
        array, expected = self.table(rt, 5000, 64)
        ids = self.ids(5000, (256,))
        out = torch.zeros(256, 64, device="cuda")
        array.gather(ids, out=out)  # loads the kernels
        torch.cuda.synchronize()
        out.zero_()
        before = torch.cuda.memory_allocated()
        torch.cuda._sleep(400_000_000)
        self.assertIs(array.gather(ids, out=out), out)
        self.assertFalse(torch.cuda.current_stream().query(), "the call waited for the stream")
        self.assertEqual(torch.cuda.memory_allocated(), before)
        torch.cuda.synchronize()
        self.same(out, expected[ids])
        wide = torch.zeros(256, 80, device="cuda")
        array.gather(ids, out=wide[:, 8:72])
        self.same(wide[:, 8:72], expected[ids])
        for wrong in (torch.zeros(256, 64), torch.zeros(255, 64, device="cuda"),
                      torch.zeros(256, 64, device="cuda", dtype=torch.float64)):
            with self.assertRaises(ValueError):
                array.gather(ids, out=wrong)
        with self.assertRaises(ValueError):
            array.gather(ids, out=np.zeros((256, 64), np.float32))

    def test_streams_order_the_work(self):
        rt = self.gpu_runtime()
        array, expected = self.table(rt, 5000, 64)
        side = torch.cuda.Stream()
        for stream in (None, side, side.cuda_stream, torch.cuda.ExternalStream(side.cuda_stream)):
            with self.subTest(stream=stream):
                ids = torch.zeros(64, dtype=torch.int64, device="cuda")
                new = self.ids(5000, (64,))
                torch.cuda.synchronize()
                with torch.cuda.stream(side):
                    torch.cuda._sleep(50_000_000)
                    ids.copy_(new)  # the gather has to come after it
                    got = array.gather(ids) if stream is None else None
                if stream is not None:
                    got = array.gather(ids, stream=stream)
                with torch.cuda.stream(side):
                    self.same(got.clone(), expected[new])
        # Memory that is freed while the side stream still writes it must not be handed out.
        for _ in range(50):
            ids = self.ids(5000, (4096,))
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                torch.cuda._sleep(1_000_000)
            got = array.gather(ids, stream=side)
            del got
            other = torch.ones(4096, 64, device="cuda")
            torch.cuda.synchronize()
            self.assertTrue(bool((other == 1).all()))

    def test_padding_and_host_numbers(self):
        rt = self.gpu_runtime()
        array, expected = self.table(rt, 5000, 64)
        ids = torch.tensor([3, -1, 7, -1], device="cuda")
        got = array.gather(ids, pad=-1)
        self.same(got[::2], expected[[3, 7]])
        self.assertFalse(bool(got[1::2].any()))
        host = expected.cpu().numpy()
        for numbers in ([5, 1, 4999], np.array([5, 1, 4999], np.int32), range(2000)):
            self.assertEqual(array.gather(numbers).tobytes(), host[np.asarray(numbers)].tobytes())
        self.assertEqual(array[-1].tobytes(), host[-1].tobytes())
        self.assertEqual(np.asarray(array[10:4000:3]).tobytes(), host[10:4000:3].tobytes())
        self.same(array[10:20].to("cuda"), expected[10:20])
        array.prefetch(slice(0, 100))
        array.prefetch(ids.clamp(min=0))
        array.will_need(ids)
        with self.assertRaises(ValueError):
            array.gather(torch.tensor([1]), out=torch.zeros(1, 64, device="cuda"))

    def test_errors_come_with_the_next_call_and_with_check(self):
        rt = self.gpu_runtime()
        array, expected = self.table(rt, 5000, 64)
        for raises in (lambda: array.gather(self.ids(5000, (4,))), array.check, rt.check):
            got = array.gather(torch.tensor([1, 5000, 2], device="cuda"))
            torch.cuda.synchronize()
            self.same(got[[0, 2]], expected[[1, 2]])
            self.assertFalse(bool(got[1].any()))
            with self.assertRaisesRegex(IndexError, "5000"):
                raises()
            rt.check()
        with self.assertRaises(IndexError):
            array.gather([1, -1])
        with open(array.path, "r+b") as file:
            file.truncate(4096)
        array.gather(torch.arange(2000, 5000, device="cuda"))
        torch.cuda.synchronize()
        with self.assertRaises(OSError) as caught:
            rt.check()
        self.assertEqual(caught.exception.errno, errno.ESTALE)

    def test_scattered_rows_are_read_back_and_reach_the_file(self):
        rt = self.gpu_runtime(writable=True)
        array, expected = self.table(rt, 5000, 64, mode="r+")
        ids = torch.randperm(5000, device="cuda")[:700]
        values = torch.rand(700, 64, device="cuda")
        array.scatter(ids, values)
        self.same(array.gather(ids), values)
        torch.cuda.synchronize()
        array.sync()
        expected[ids] = values
        got = torch.from_numpy(np.fromfile(array.path, np.float32)).view(5000, 64)
        self.same(got, expected.cpu())


class graphs(Case):
    def test_a_captured_graph_is_replayed_with_new_numbers_while_pages_leave(self):
        rt = self.gpu_runtime(cache="4MiB", page="4KiB", windows=0)
        rows = 100_000
        array, expected = self.table(rt, rows, 64, torch.int32)  # random floats may be no number
        ids = torch.zeros(64, dtype=torch.int64, device="cuda")
        out = torch.zeros(64, 64, dtype=torch.int32, device="cuda")
        array.gather(ids, out=out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            array.gather(ids, out=out)
        new = torch.randint(0, rows, (REPLAYS, 64), device="cuda")
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        file = os.open(array.path, os.O_RDONLY)
        for turn in range(REPLAYS):
            ids.copy_(new[turn])
            graph.replay()
            wrong += (out != expected[ids]).sum()
            if turn % 500 == 0:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
        torch.cuda.synchronize()
        self.assertEqual(int(wrong), 0)
        rt.check()
        self.assertGreater(ps.stats(rt).evictions, 0)
        ids.fill_(rows)  # a number of no row, in the graph
        graph.replay()
        torch.cuda.synchronize()
        with self.assertRaises(IndexError):
            rt.check()
        del graph

    def test_a_gather_that_allocates_may_be_captured_too(self):
        rt = self.gpu_runtime()
        array, expected = self.table(rt, 5000, 64, torch.int32)
        ids = self.ids(5000, (64,))
        array.gather(ids)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = array.gather(ids) * 2
        for _ in range(20):
            ids.copy_(self.ids(5000, (64,)))
            graph.replay()
            self.same(out, expected[ids] * 2)
        # Python's own calls beside a capture leave it alone.
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            array.gather(ids, out=torch.empty(64, 64, dtype=torch.int32,
                                              device="cuda"))
            rt.check()
            ps.stats(rt)
            array.gather([1, 2])

    def test_an_array_is_closed_beside_a_capture_after_what_was_scattered(self):
        rt = self.gpu_runtime(writable=True)
        path = self.folder / "written.bin"
        ids = torch.arange(0, 5000, 7, device="cuda")
        counter = torch.zeros((), device="cuda")
        stream, errors = torch.cuda.Stream(), []

        def scatter_and_close(value):
            try:
                with ps.open_array(path, mode="r+", dtype="float32", shape=(-1, 64),
                                   runtime=rt) as array, torch.cuda.stream(stream):
                    torch.cuda._sleep(500_000_000)
                    array.scatter(ids, values[value])
            except Exception as error:
                errors.append(error)

        values = {v: torch.full((len(ids), 64), float(v), device="cuda") for v in (1, 2, 3, 4)}
        torch.cuda.synchronize()
        modes = ("global", "thread_local", "relaxed")
        for value, mode in enumerate(("none", *modes), 1):
            np.zeros((5000, 64), np.float32).tofile(path)
            if mode == "none":
                scatter_and_close(value)
            else:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode=mode):
                    counter.add_(1)
                    thread = threading.Thread(target=scatter_and_close, args=(value,))
                    thread.start()
                    thread.join()
                    counter.add_(1)
                counter.zero_()
                graph.replay()
                self.assertEqual(float(counter), 2, mode)
            self.assertEqual(errors, [], mode)
            got = np.fromfile(path, np.float32).reshape(5000, 64)
            self.assertTrue((got[::7] == value).all(), mode)


def cupy_is_here():
    return importlib.util.find_spec("cupy") is not None


class regions(Case):
    def test_memory_stays_until_the_kernels_that_use_it_have_ended(self):
        path = self.folder / "long.bin"
        np.full(16 << 20, 7, np.float32).tofile(path)
        # What goes wrong takes the device with it.
        code = """
import sys, time, torch, penstock as ps
path, mode, way = sys.argv[1:]
rt = ps.Runtime(device="gpu", cache="64MiB", writable=True)
stream, out = torch.cuda.Stream(), torch.zeros(16 << 20, device="cuda")
region = ps.open_region(path, mode, "float32", runtime=rt)
if mode == "r":  # torch takes no memory that is read only, but what cupy has of it
    import cupy
    shared = cupy.asarray(region)
    tensor = torch.from_dlpack(shared)
    del shared
else:
    tensor = torch.from_dlpack(region)
torch.add(tensor, 0, out=out)  # is loaded
torch.cuda.synchronize()
out.zero_()
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    torch.cuda._sleep(1_000_000_000)
    torch.add(tensor, 0, out=out)
if way == "tensor last":
    region.close()
    del tensor
elif way == "region last":
    del tensor
    region.close()
else:
    del tensor, region
time.sleep(0.2)
other = ps.open_region(path, mode, "float32", runtime=rt)
stream.synchronize()
assert bool((out == 7).all()), "wrong numbers"
other.close()
rt.close()
"""
        for mode in ("r", "r+") if cupy_is_here() else ("r+",):
            for way in ("tensor last", "region last", "dropped"):
                with self.subTest(mode=mode, way=way):
                    done = self.child(code, str(path), mode, way)
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_region_is_a_tensor_without_a_copy(self):
        rt = self.gpu_runtime(writable=True)
        path = self.folder / "matrix.bin"
        content = np.arange(3000 * 5, dtype=np.float32).reshape(3000, 5)
        content.tofile(path)
        region = ps.open_region(path, "r+", "float32", (-1, 5), runtime=rt)
        tensor = torch.from_dlpack(region)
        self.assertEqual((tensor.data_ptr(), tensor.device.type), (region.address, "cuda"))
        self.same(tensor.cpu(), torch.from_numpy(content))
        stream = torch.cuda.Stream()
        with region.acquired(stream), torch.cuda.stream(stream):
            tensor.mul_(2)
        self.assertEqual(np.fromfile(path, np.float32).tolist(), (content * 2).ravel().tolist())
        self.assertEqual(torch.as_tensor(region, device="cuda").data_ptr(), region.address)
        region.close()
        self.same(tensor.cpu(), torch.from_numpy(content * 2))
        rt.close()
        self.same(tensor.cpu(), torch.from_numpy(content * 2))


class caches(Case):
    def test_a_cache_in_a_tensor(self):
        memory = torch.zeros((64 << 20) + 4096, dtype=torch.uint8, device="cuda")
        rt = ps.Runtime(cache_memory=memory[4096:], page="4KiB", log=None)
        self.addCleanup(rt.close)
        self.assertEqual((rt.backend, rt.settings()["cache_bytes"]), ("gpu", "64 MiB"))
        free = torch.cuda.mem_get_info()[0]
        array, expected = self.table(rt, 300_000, 128)
        ids = self.ids(300_000, (20_000,))
        array.prefetch(ids[:1000])
        self.same(array.gather(ids), self.pick(expected, ids))
        self.assertLess(free - torch.cuda.mem_get_info()[0], 512 << 20)
        array.check()
        pages = memory.data_ptr()
        del memory  # the runtime holds it: nothing else gets this memory
        other = torch.full((64 << 20,), 7, dtype=torch.uint8, device="cuda")
        self.assertFalse(pages <= other.data_ptr() < pages + (64 << 20))
        self.same(array.gather(ids), self.pick(expected, ids))
        array.check()

    def test_memory_that_is_no_cache(self):
        on_gpu = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
        with self.assertRaisesRegex(ValueError, "contiguous"):
            ps.Runtime(cache_memory=on_gpu[::2], log=None)
        with self.assertRaisesRegex(ValueError, "lies on cuda"):
            ps.Runtime("cpu", cache_memory=on_gpu, log=None)
        with self.assertRaisesRegex(ValueError, "lies on cpu"):
            ps.Runtime("gpu", cache_memory=on_gpu.cpu(), log=None)


@unittest.skipUnless(TIMES, "only with --times")
class times(Case):
    def per_call(self, call, calls=2000):
        """Medians in microseconds: of the caller, and with the wait for the GPU."""
        for _ in range(50):
            call()
        torch.cuda.synchronize()
        host, whole = [], []
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            middle = time.perf_counter()
            torch.cuda.synchronize()
            whole.append(time.perf_counter() - begin)
            host.append(middle - begin)
        return [round(sorted(t)[calls // 2] * 1e6, 2) for t in (host, whole)]

    def test_beside_rows_in_pinned_memory(self):
        rt = self.gpu_runtime(cache="64MiB", page="512")
        for columns in (64, 1024):
            rows = (1 << 30) // (columns * 4)
            array, expected = self.table(rt, rows, columns)
            with open(array.path, "rb") as file:
                while file.read(1 << 24):
                    pass
            print(f"\nrows of {columns * 4} bytes, windows of {array.windows()} bytes")
            pinned = expected.cpu().pin_memory()

            class on_bus:
                __cuda_array_interface__ = {"shape": tuple(pinned.shape), "typestr": "<f4",
                                            "version": 3, "data": (pinned.data_ptr(), False)}

            uva = torch.as_tensor(on_bus(), device="cuda")
            for count in (16, 64, 1024, 65_536):
                ids = self.ids(rows, (count,))
                out = torch.empty(count, columns, device="cuda")
                array.gather(ids, out=out)
                self.same(out, uva[ids])
                torch.cuda.synchronize()
                new = [self.ids(rows, (count,)) for _ in range(64)]
                turn = [0]

                def other():
                    turn[0] += 1
                    ids.copy_(new[turn[0] % 64])

                def ours():
                    other()
                    array.gather(ids, out=out)

                def theirs():
                    other()
                    torch.index_select(uva, 0, ids, out=out)

                print(f"{count:>6} rows: penstock {self.per_call(ours)} us (caller, whole), pinned "
                      f"{self.per_call(theirs)} us")
            array.close()


if __name__ == "__main__":
    unittest.main()
