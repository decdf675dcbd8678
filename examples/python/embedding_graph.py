#!/usr/bin/env python3
"""An embedding table of a checkpoint, read from the file by kernels inside a CUDA graph.

    embedding_graph.py [--checkpoint model/ --tensor embed.weight] [--device cpu] [--steps 1000]

Without a checkpoint it makes one of its own in a temporary folder. The graph is captured once and
launched with new numbers each step; rows that are not in memory are fetched by the launched kernel.
On CPU threads the same calls run one by one."""
from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import struct
import sys
import tempfile
import time
from typing import Callable

try:
    import torch
except ImportError as missing:
    print(f"needs PyTorch: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps
import penstock.torch as pt


def make_checkpoint(path: pathlib.Path, rows: int, width: int) -> None:
    """A .safetensors file with one tensor of random numbers."""
    size = 2 * rows * width
    header = json.dumps({"embed.weight": {"dtype": "F16", "shape": [rows, width],
                                          "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for begin in range(0, rows, 1 << 16):
            part = torch.randn(min(rows - begin, 1 << 16), width).half()
            file.write(part.numpy().tobytes())


def read_by_hand(table: ps.Array, ids: torch.Tensor) -> torch.Tensor:
    """The rows of a table of float16, read from the files on the host."""
    rows = []
    for row in ids.tolist():
        for path, first_byte, count in table.layout.pieces:
            if row < count:
                with open(path, "rb") as file:
                    file.seek(first_byte + row * table.layout.stride_bytes)
                    rows.append(torch.frombuffer(bytearray(file.read(table.row_bytes)),
                                                 dtype=torch.float16))
                break
            row -= count
    return torch.stack(rows)


def step_of(embed: pt.Embedding, ids: torch.Tensor) -> tuple[Callable[[], None], torch.Tensor]:
    """The work of a step, and where its result lies: a graph on a GPU, plain calls elsewhere."""
    out = torch.zeros(*ids.shape, embed.embedding_dim, dtype=torch.float32, device=ids.device)

    def work() -> None:
        out.copy_(embed(ids).float().cumsum(dim=0))

    if ids.device.type != "cuda":
        return work, out
    work()  # whatever is made on first use is made before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay, out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--tensor", default="embed.weight")
    parser.add_argument("--device", choices=["auto", "cpu"], default="auto")
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--steps", type=int, default=1000)
    wanted = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = wanted.checkpoint
        if checkpoint is None:
            checkpoint = pathlib.Path(folder, "model.safetensors")
            make_checkpoint(checkpoint, wanted.rows, 128)
        page = ps.describe(checkpoint, wanted.tensor).page_bytes
        with ps.Runtime(device=wanted.device, cache="64MiB", page=page) as rt:
            embed = pt.Embedding.from_safetensors(checkpoint, wanted.tensor, runtime=rt)
            with contextlib.suppress(OSError):  # a file that can have none is read all the same
                embed.array.windows()           # rows that lie in memory are read in place
            device = "cuda" if rt.backend == "gpu" else "cpu"
            ids = torch.zeros(64, dtype=torch.int64, device=device)
            step, out = step_of(embed, ids)
            begin = time.perf_counter()
            for _ in range(wanted.steps):
                ids.copy_(torch.randint(0, embed.num_embeddings, (64,)))
                step()
            last = out.cpu()  # waits for the device
            took = time.perf_counter() - begin
            rt.check()        # raises if a row of any step could not be had
            print(f"{wanted.steps} steps of 64 rows on {device}: "
                  f"{1e6 * took / max(wanted.steps, 1):.0f} us each")
            right = True
            if embed.dtype == torch.float16:
                by_hand = read_by_hand(embed.array, ids).to(device).float().cumsum(dim=0)
                right = torch.equal(last, by_hand.cpu())
                print(f"the last one is {'right' if right else 'WRONG'}")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
