#!/usr/bin/env python3
"""A file as a tensor that another process changes at the same time.

    shared_region.py [--device cpu] [--file weights.bin]

The program maps a file of float32 as a region and shares its memory with a tensor, without a copy.
A second process, which knows nothing of Penstock, writes to the file through a memory map. acquire
brings its changes into the tensor, only the pages that changed; release brings the tensor's changes
to the file, only the bytes that changed."""
from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as missing:
    print(f"needs PyTorch: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps

ELEMENTS = 1 << 20

# What the other process runs: it adds 100 to some elements, and prints what it finds in others.
OTHER = """
import mmap, struct, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
    for i in range(0, 1000, 10):
        value, = struct.unpack_from("<f", memory, 4 * i)
        struct.pack_into("<f", memory, 4 * i, value + 100)
    print(sum(struct.unpack_from("<1000f", memory, 4 * 500_000)))
"""


def run_other(path: pathlib.Path) -> float:
    ran = subprocess.run([sys.executable, "-c", OTHER, str(path)], check=True, text=True,
                         stdout=subprocess.PIPE)
    return float(ran.stdout)


def share(path: pathlib.Path, rt: ps.Runtime) -> bool:
    right = True
    with ps.open_region(path, "r+", dtype="float32", shape=(ELEMENTS,), runtime=rt) as region:
        weights = torch.utils.dlpack.from_dlpack(region)  # the region's own memory
        print(f"a tensor of {weights.numel()} elements on {weights.device}")

        run_other(path)
        with region.acquired():
            changed = int((weights[:1000] == torch.arange(1000, device=weights.device) + 100).sum())
            print(f"the other process changed {changed} elements; "
                  f"{region.traffic()['pages_fetched']} pages came in up to now")
            right = right and changed == 100
            weights[500_000:501_000] = 2.0
        # The changes of the block are in the file now.
        total = run_other(path)
        print(f"the other process finds a sum of {total:.0f}")
        right = right and total == 2000.0
        del weights
    return right


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["auto", "cpu"], default="auto")
    parser.add_argument("--file", type=pathlib.Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path: pathlib.Path = wanted.file or pathlib.Path(folder, "weights.bin")
        path.write_bytes(torch.arange(ELEMENTS, dtype=torch.float32).numpy().tobytes())
        with ps.Runtime(device=wanted.device, cache="16MiB", writable=True, log=None) as rt:
            right = share(path, rt)
    print("right" if right else "WRONG")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
