"""Memory of regions as arrays of torch, CuPy, JAX and Numba, without a copy and freed in any order;
and rows by numbers that lie in arrays of each. See gpu_common.py."""
import functools
import gc
import subprocess
import sys
import threading

import gpu_common as common

SCRIPT = "gpu_exchange"
wanted = common.arguments(SCRIPT)
common.need_gpu(wanted, SCRIPT)

import numpy as np  # noqa: E402
import torch  # noqa: E402

import penstock as ps  # noqa: E402

CUDA = wanted.device == "cuda"
ROWS, WIDTH = 4096, 48


class World:
    def __init__(self, folder):
        self.path = folder / "rows.npy"
        self.rows = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
        np.save(self.path, self.rows)
        self.runtime = ps.Runtime(device="gpu" if CUDA else "cpu", cache="16MiB", writable=True,
                                  log=None)
        self.table = ps.open_array(self.path, runtime=self.runtime)
        self.ids = np.random.default_rng(2).integers(0, ROWS, (30, 7))

    def region(self, mode="r+"):
        return ps.open_region(self.path, mode, runtime=self.runtime)


def need(name):
    """The module. JAX would take most of the GPU's memory for itself, unless it is told not to."""
    import importlib
    import os
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise common.Skip(str(error)) from error


def same(array, expected):
    if not np.array_equal(np.asarray(array), expected):
        raise AssertionError("the bytes differ")


def same_place(address, region):
    if address != region.address:
        raise AssertionError(f"{address:#x} is a copy of {region.address:#x}")


def torch_region(w):
    with w.region() as region:
        tensor = torch.from_dlpack(region)
        same_place(tensor.data_ptr(), region)
        same(tensor.cpu(), w.rows)
        if CUDA:
            other = torch.as_tensor(region, device="cuda")  # __cuda_array_interface__
            same_place(other.data_ptr(), region)
        with region.acquired():
            tensor[5] += 1
        w.rows[5] += 1
        same(np.load(w.path), w.rows)
        del tensor


def numpy_region(w):
    if CUDA:
        raise common.Skip("the memory is of the GPU")
    with w.region("r") as region:
        array = np.asarray(region)
        same_place(array.ctypes.data, region)
        same(np.from_dlpack(region), w.rows)


def cupy_region(w):
    cupy = need("cupy")
    with w.region() as region:
        for array in (cupy.asarray(region), cupy.from_dlpack(region)):
            same_place(array.data.ptr, region)
            same(array.get(), w.rows)


def numba_region(w):
    need("numba.cuda")
    from numba import cuda
    with w.region() as region:
        array = cuda.as_cuda_array(region)
        same_place(array.device_ctypes_pointer.value, region)
        same(array.copy_to_host(), w.rows)


def need_jax():
    jax = need("jax")
    if CUDA and jax.default_backend() != "gpu":
        raise common.Skip("this jax has no GPU")
    return jax


def jax_region(w):
    jax = need_jax()
    with w.region("r") as region:
        array = jax.dlpack.from_dlpack(region)
        same_place(array.unsafe_buffer_pointer(), region)
        same(array, w.rows)
        del array


def freed_in_any_order(w):
    """The tensor after the region, the region after the tensor, from another thread."""
    region = w.region()
    tensor = torch.from_dlpack(region)
    region.close()
    same(tensor.cpu(), w.rows)  # the memory lives as long as the tensor
    del region
    gc.collect()
    same(tensor.cpu(), w.rows)
    held = [tensor]
    thread = threading.Thread(target=held.clear)
    del tensor
    thread.start()
    thread.join()
    gc.collect()
    for _ in range(50):
        region = w.region()
        tensors = [torch.from_dlpack(region) for _ in range(3)]
        del region
        gc.collect()
        same(tensors.pop().cpu(), w.rows)
        del tensors


def at_exit(w):
    """A program that ends with tensors, a region and a runtime open ends well and soon."""
    text = f"""
import torch, penstock as ps
rt = ps.Runtime(device={"gpu" if CUDA else "cpu"!r}, cache="8MiB", writable=True, log=None)
region = ps.open_region({str(w.path)!r}, "r+", runtime=rt)
tensor = torch.from_dlpack(region)
table = ps.open_array({str(w.path)!r}, runtime=rt)
rows = table.gather(torch.zeros(5, dtype=torch.int64, device={wanted.device!r}))
print(float(tensor.sum()))
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=50,
                         check=False)
    if ran.returncode != 0 or "Traceback" in ran.stderr or "terminate" in ran.stderr:
        raise AssertionError(f"status {ran.returncode}: {ran.stderr[-500:]}")


def rows_of(w, ids, to_host):
    same(to_host(w.table.gather(ids)), w.rows[w.ids])
    same(to_host(w.table[ids]), w.rows[w.ids])


def torch_rows(w):
    rows_of(w, torch.from_numpy(w.ids).to(wanted.device), lambda rows: rows.cpu())


def numpy_rows(w):
    rows_of(w, w.ids, lambda rows: rows if isinstance(rows, np.ndarray) else rows.get())


def cupy_rows(w):
    cupy = need("cupy")
    rows_of(w, cupy.asarray(w.ids), lambda rows: rows.get())
    out = cupy.empty((*w.ids.shape, WIDTH), cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    ids = cupy.asarray(w.ids)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        w.table.gather(ids, out=out)
    stream.synchronize()
    same(out.get(), w.rows[w.ids])


def numba_rows(w):
    need("numba.cuda")
    from numba import cuda
    rows_of(w, cuda.to_device(w.ids), lambda rows: rows.copy_to_host())


def jax_rows(w):
    jax = need_jax()
    rows_of(w, jax.numpy.asarray(w.ids.astype(np.int32)), np.asarray)


def main():
    gpu_only = [cupy_region, numba_region, cupy_rows, numba_rows] if CUDA else []
    with common.folder() as folder:
        w = World(folder)
        checks = [torch_region, numpy_region, freed_in_any_order, at_exit, torch_rows, numpy_rows,
                  *gpu_only, jax_region, jax_rows]
        common.run(SCRIPT, [(check.__name__, functools.partial(check, w)) for check in checks],
                   wanted, common.describe_machine(wanted.device))


if __name__ == "__main__":
    main()
