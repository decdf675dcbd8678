#!/usr/bin/env python3
"""A kernel of Numba, in Python, that reads rows of a file while it runs.

    numba_kernel.py

Needs numba-cuda and a GPU: elsewhere it ends with status 77. Each warp walks along a list in the
file: a row names the row that comes after it."""
from __future__ import annotations

import pathlib
import sys
import tempfile

import numpy as np

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks for it, and numpy 2.5 has it no longer
    setattr(np, "row_stack", np.vstack)
try:
    from numba import cuda  # type: ignore[import-not-found, import-untyped, unused-ignore]
    if not cuda.is_available():
        raise ImportError("there is no GPU")
    from penstock.device import numba as device
except ImportError as missing:
    print(f"needs numba-cuda and a GPU: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps

STEPS, WALKS, NODES = 50, 1000, 100_000


@cuda.jit  # type: ignore[untyped-decorator, unused-ignore]
def walk(fs, table, starts, ends):  # type: ignore[no-untyped-def]
    rows = cuda.shared.array((4, 8), np.int64)  # a row for each warp of the block
    warp = cuda.threadIdx.x // 32
    i = cuda.blockIdx.x * 4 + warp
    if i < starts.size:
        node = starts[i]
        for _ in range(STEPS):
            if device.warp_read_row(device.address(fs), device.address(table), node,
                                    device.address_of(rows, warp)) < 0:
                break
            node = rows[warp, 0]
            cuda.syncwarp()  # all have the number before the next row is read
        if cuda.laneid == 0:
            ends[i] = node


def main() -> None:
    random = np.random.default_rng(1)
    following = np.zeros((NODES, 8), np.int64)
    following[:, 0] = random.permutation(NODES)
    starts = random.integers(0, NODES, WALKS)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "next.npy")
        np.save(path, following)
        with ps.Runtime(device="gpu", cache="4MiB", page=512, log=None) as rt:
            table = ps.open_array(path, runtime=rt)
            fs, rows = device.reference(rt.ref_bytes()), device.reference(table.ref_bytes())
            ends = cuda.to_device(np.full(WALKS, -1, np.int64))
            walk[(WALKS + 3) // 4, 128](fs, rows, cuda.to_device(starts), ends)
            got = ends.copy_to_host()  # waits for the kernel
            rt.check()
    expected = starts
    for _ in range(STEPS):
        expected = following[expected, 0]
    right = np.array_equal(got, expected)
    print("right" if right else "WRONG")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
