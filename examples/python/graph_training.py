#!/usr/bin/env python3
"""Training on a graph whose node features lie in a file that is larger than the cache.

    graph_training.py [--device cpu] [--nodes 200000] [--epochs 2]

Each step samples neighbours of some nodes and gathers their features from the file, on the device.
The same training with all features in memory has to have the same losses, to the bit. The sampler
is a small one of this program; docs/guide/pytorch.md shows PyTorch Geometric's."""
from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time
from typing import Callable

try:
    import torch
    from torch import Tensor, nn
except ImportError as missing:
    print(f"needs PyTorch: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps
import penstock.torch as pt

WIDTH, CLASSES, FANOUT, BATCH = 128, 8, 10, 512


class Sampler:
    """Uniform neighbours, with repeats: FANOUT for each node, of a graph as lists in one array."""

    def __init__(self, nodes: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(7)
        degrees = torch.randint(1, 30, (nodes,), generator=generator)
        self.begin = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]).to(device)
        self.ends = torch.randint(0, nodes, (int(degrees.sum()),), generator=generator).to(device)

    def neighbours(self, nodes: Tensor) -> Tensor:
        """A row of FANOUT nodes for each."""
        first = self.begin[nodes][:, None]
        many = self.begin[nodes + 1][:, None] - first
        drawn = torch.rand(len(nodes), FANOUT, device=nodes.device)
        return self.ends[first + (drawn * many).long()]


class TwoHops(nn.Module):
    """Mean of the neighbours beside the node itself, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2 * WIDTH, 64), nn.Linear(128, CLASSES)

    def forward(self, seed: Tensor, first: Tensor, second: Tensor) -> Tensor:
        near = torch.relu(self.inner(torch.cat([first, second.mean(dim=2)], dim=-1)))
        own = torch.relu(self.inner(torch.cat([seed, first.mean(dim=1)], dim=-1)))
        out: Tensor = self.outer(torch.cat([own, near.mean(dim=1)], dim=-1))
        return out


def train(features: Callable[[Tensor], Tensor], labels: Tensor, epochs: int) -> list[float]:
    """The loss of each step; `features` gives rows for numbers of nodes, of any shape."""
    torch.manual_seed(1)
    device = labels.device
    sampler = Sampler(len(labels), device)
    model = TwoHops().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(epochs):
        for seeds in torch.split(torch.randperm(len(labels), device=device)[:20 * BATCH], BATCH):
            first = sampler.neighbours(seeds)
            second = sampler.neighbours(first.reshape(-1)).reshape(*first.shape, FANOUT)
            logits = model(features(seeds), features(first), features(second))
            loss = nn.functional.cross_entropy(logits, labels[seeds])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
    return [float(loss) for loss in losses]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["auto", "cpu"], default="auto")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=2)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "features.bin")
        torch.manual_seed(0)
        memory = torch.randn(wanted.nodes, WIDTH)
        path.write_bytes(memory.numpy().tobytes())
        cache = max(memory.numel() * 4 // 4, 1 << 20)  # a quarter of the features
        with ps.Runtime(device=wanted.device, cache=cache, page=512, log=None) as rt:
            table = ps.open_array(path, dtype="float32", shape=(-1, WIDTH), runtime=rt)
            device = torch.device("cuda" if rt.backend == "gpu" else "cpu")
            labels = torch.randint(0, CLASSES, (wanted.nodes,)).to(device)
            with contextlib.suppress(OSError):  # a file that can have none is read all the same
                table.windows()                 # rows that lie in memory are read in place
            # PyTorch starts its libraries in the first steps, which are in no time.
            train(lambda ids: pt.gather(table, ids), labels, epochs=1)
            begin = time.perf_counter()
            losses = train(lambda ids: pt.gather(table, ids), labels, wanted.epochs)
            took = time.perf_counter() - begin
            rt.check()
            memory = memory.to(device)
            begin = time.perf_counter()
            expected = train(lambda ids: memory[ids], labels, wanted.epochs)
            in_memory = time.perf_counter() - begin
    same = losses == expected
    print(f"{len(losses)} steps on {device}, {memory.numel() * 4 >> 20} MiB of features, a cache "
          f"of {cache >> 20} MiB: {took:.1f} s from the file, {in_memory:.1f} s from memory")
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, {'equal' if same else 'NOT EQUAL'} to those "
          "of features in memory")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
