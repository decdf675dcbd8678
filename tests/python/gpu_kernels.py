"""Kernels of CuPy and Numba that call Penstock: rows equal to those of memory, files opened and
read, errors as results. See gpu_common.py."""
import functools

import gpu_common as common

SCRIPT = "gpu_kernels"
wanted = common.arguments(SCRIPT)
common.need_gpu(wanted, SCRIPT)

import numpy as np  # noqa: E402
import torch  # noqa: E402

import penstock as ps  # noqa: E402

ROWS, WIDTH = 1 << 14, 64

SOURCE = r"""
#include "penstock/file.hpp"
#include "penstock/table.hpp"
#include "penstock/view.hpp"

extern "C" __global__ void rows(const __grid_constant__ penstock::runtime_ref fs,
                                const __grid_constant__ penstock::table_ref table,
                                const std::int64_t* ids, std::uint64_t count, char* out,
                                unsigned long long* failed) {
    const auto warp = penstock::this_warp();
    const std::uint64_t i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= count) return;
    const std::uint64_t missed =
        penstock::gather(warp, fs, table, ids + i, 1, out + i * table.row_bytes());
    if (warp.is_leader()) atomicAdd(failed, static_cast<unsigned long long>(missed));
}

// Each warp reads a piece of 4096 bytes, and the sum of the elements is taken through a view.
extern "C" __global__ void file(const __grid_constant__ penstock::runtime_ref fs, const char* path,
                                char* to, std::int64_t bytes, std::int64_t* results) {
    const auto warp = penstock::this_warp();
    const std::int64_t at = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 4096;
    const int fd = penstock::open(warp, fs, path);
    std::int64_t got = fd;
    if (fd >= 0 && at < bytes) got = penstock::read(warp, fs, fd, to + at, 4096, at);
    if (fd >= 0) {
        const penstock::view<float> elements(fs, fd);
        if (at == 0 && warp.is_leader()) results[1] = static_cast<std::int64_t>(elements[5]);
        penstock::close(warp, fs, fd);
    }
    if (at == 0 && warp.is_leader()) results[0] = got;
}
"""


class World:
    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "rows.npy"
        self.rows = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
        np.save(self.path, self.rows)
        self.raw = folder / "rows.raw"
        self.raw.write_bytes(self.rows.tobytes())
        self.runtime = ps.Runtime(device="gpu", cache="4MiB", page=512, roots=[folder], log=None)
        self.table = ps.open_array(self.path, runtime=self.runtime)
        self.ids = np.random.default_rng(3).integers(0, ROWS, 5000)


def need(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise common.Skip(str(error)) from error


def check_rows(got, expected):
    if not np.array_equal(got, expected):
        raise AssertionError(f"{int((got != expected).any(axis=-1).sum())} rows differ")


def cupy_rows(w):
    cupy = need("cupy")
    from penstock.device import cupy as device
    kernel = device.raw_module(SOURCE).get_function("rows")
    ids = cupy.asarray(w.ids)
    out = cupy.empty((len(w.ids), WIDTH), cupy.float32)
    failed = cupy.zeros(1, cupy.uint64)
    references = (device.reference(w.runtime.ref_bytes()), device.reference(w.table.ref_bytes()))
    kernel(((len(w.ids) + 3) // 4,), (128,), (*references, ids, np.uint64(len(w.ids)), out, failed))
    check_rows(out.get(), w.rows[w.ids])
    if int(failed[0]) != 0:
        raise AssertionError(f"{failed} rows failed")
    ids[7] = ROWS + 1
    kernel(((len(w.ids) + 3) // 4,), (128,), (*references, ids, np.uint64(len(w.ids)), out, failed))
    cupy.cuda.runtime.deviceSynchronize()
    if int(failed[0]) != 1:
        raise AssertionError(f"{failed} rows failed, and one number is no row")
    common.expect(IndexError, w.table.check, str(ROWS + 1))


def cupy_file(w):
    cupy = need("cupy")
    from penstock.device import cupy as device
    kernel = device.raw_module(SOURCE).get_function("file")
    bytes_ = w.rows.nbytes
    for name, code in ((str(w.raw), 4096), (str(w.folder / "absent"), -2)):
        path = cupy.asarray(np.frombuffer(name.encode() + b"\0", np.uint8))
        out = cupy.zeros(bytes_, cupy.uint8)
        results = cupy.zeros(2, cupy.int64)
        kernel(((bytes_ // 4096 + 3) // 4,), (128,), (
            device.reference(w.runtime.ref_bytes()), path, out, np.int64(bytes_), results))
        if int(results[0]) != code:
            raise AssertionError(f"{name}: {results[0]}, and {code} is right")
        if code > 0:
            check_rows(out.get().view(np.float32).reshape(w.rows.shape), w.rows)
            if int(results[1]) != 5:
                raise AssertionError(f"element 5 is {results[1]}")


def numba_kernels():
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks for it, and numpy 2.5 has it no longer
        np.row_stack = np.vstack
    from numba import cuda

    from penstock.device import numba as device

    @cuda.jit
    def by_warp(fs, table, ids, out, failed):
        i = cuda.grid(1) // 32
        if i < ids.size:
            missed = device.warp_gather_int64(device.address(fs), device.address(table),
                                              device.address_of(ids, i), 1,
                                              device.address_of(out, i))
            if cuda.laneid == 0:
                cuda.atomic.add(failed, 0, missed)

    @cuda.jit
    def by_lane(fs, table, ids, out, failed):
        i = cuda.grid(1)
        if i < ids.size:
            got = device.lane_read_row(device.address(fs), device.address(table), ids[i],
                                       device.address_of(out, i))
            if got < 0:
                cuda.atomic.add(failed, 0, 1)

    @cuda.jit
    def read_file(fs, path, to, results):
        fd = device.warp_open(device.address(fs), device.address(path), 0)
        if fd < 0:
            results[0] = fd
        else:
            results[1] = device.warp_size(device.address(fs), fd)
            results[0] = device.warp_read(device.address(fs), fd, device.address(to), to.size, 0)
            device.warp_close(device.address(fs), fd)
    return cuda, device, by_warp, by_lane, read_file


def numba_rows(w):
    need("numba.cuda")
    cuda, device, by_warp, by_lane, _ = numba_kernels()
    fs, table = (device.reference(of.ref_bytes()) for of in (w.runtime, w.table))
    for kernel, threads in ((by_warp, 32), (by_lane, 1)):
        ids = w.ids.copy()
        for bad in (0, 1):
            out = cuda.device_array((len(ids), WIDTH), np.float32)
            failed = cuda.to_device(np.zeros(1, np.int64))
            if bad:
                ids[11] = -4
            kernel[(len(ids) * threads + 127) // 128, 128](fs, table, cuda.to_device(ids), out,
                                                           failed)
            cuda.synchronize()
            expected = w.rows[w.ids].copy()
            if bad:
                expected[11] = 0
                common.expect(IndexError, w.table.check)
            check_rows(out.copy_to_host(), expected)
            if int(failed.copy_to_host()[0]) != bad:
                raise AssertionError(f"{failed.copy_to_host()} rows failed, and {bad} had to")


def numba_file(w):
    need("numba.cuda")
    cuda, device, _, _, read_file = numba_kernels()
    fs = device.reference(w.runtime.ref_bytes())
    for name, code in ((str(w.raw), 40_000), (str(w.folder / "absent"), -2)):
        path = cuda.to_device(np.frombuffer(name.encode() + b"\0", np.uint8))
        to = cuda.to_device(np.zeros(40_000, np.uint8))
        results = cuda.to_device(np.zeros(2, np.int64))
        read_file[1, 32](fs, path, to, results)
        got = results.copy_to_host()
        if got[0] != code:
            raise AssertionError(f"{name}: {got[0]}, and {code} is right")
        if code > 0:
            if got[1] != w.rows.nbytes:
                raise AssertionError(f"size: {got[1]}")
            check_rows(to.copy_to_host().view(np.float32), w.rows.reshape(-1)[:10_000])


def main():
    if wanted.device == "cpu":
        raise SystemExit("gpu_kernels needs a GPU; tests/install/nvrtc compiles the same here")
    with common.folder() as folder:
        w = World(folder)
        checks = [cupy_rows, cupy_file, numba_rows, numba_file]
        common.run(SCRIPT, [(check.__name__, functools.partial(check, w)) for check in checks],
                   wanted, {**common.describe_machine("cuda"), "cuda": torch.version.cuda})


if __name__ == "__main__":
    main()
