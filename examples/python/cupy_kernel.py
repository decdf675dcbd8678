#!/usr/bin/env python3
"""A kernel of CuPy, in CUDA C++, that reads rows of a file while it runs.

    cupy_kernel.py

Needs CuPy and a GPU: elsewhere it ends with status 77. Each warp computes the number of a row,
reads that row and writes the place of its largest element."""
from __future__ import annotations

import pathlib
import sys
import tempfile

import numpy as np

try:
    import cupy  # type: ignore[import-not-found, import-untyped, unused-ignore]
    cupy.cuda.runtime.getDeviceCount()
except Exception as missing:
    print(f"needs CuPy and a GPU: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps
from penstock.device import cupy as device

SOURCE = r"""
#include "penstock/table.hpp"

extern "C" __global__ void largest(const __grid_constant__ penstock::runtime_ref fs,
                                   const __grid_constant__ penstock::table_ref table,
                                   const int* seeds, int count, int* places) {
    __shared__ float rows[4][64];
    const auto warp = penstock::this_warp();
    const int i = blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= count) return;
    // The number comes from the kernel itself: no host knows it before.
    const unsigned long long number = seeds[i] * 2654435761ull % table.size();
    float* const row = rows[threadIdx.x / 32];
    const long got = penstock::read_row(warp, fs, table, number, row);
    if (!warp.is_leader()) return;
    int best = got < 0 ? -1 : 0;
    for (int at = 1; at < got / 4; ++at)
        if (row[at] > row[best]) best = at;
    places[i] = best;
}
"""


def main() -> None:
    rows = np.random.default_rng(1).standard_normal((100_000, 64)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows.npy")
        np.save(path, rows)
        with ps.Runtime(device="gpu", cache="4MiB", page=512, log=None) as rt:
            table = ps.open_array(path, runtime=rt)
            seeds = cupy.arange(20_000, dtype=cupy.int32)
            places = cupy.empty_like(seeds)
            kernel = device.raw_module(SOURCE).get_function("largest")
            kernel((5000,), (128,), (device.reference(rt.ref_bytes()),
                                     device.reference(table.ref_bytes()), seeds,
                                     np.int32(seeds.size), places))
            got = places.get()  # waits for the kernel
            rt.check()
    numbers = np.arange(20_000, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(len(rows))
    right = np.array_equal(got, rows[numbers].argmax(axis=1))
    print("right" if right else "WRONG")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
