#!/usr/bin/env python3
"""Training on a table of rows in a file, on several nodes, by Ray or by torchrun.

    many_nodes.py [--nodes 3] [--kill]            three nodes of Ray on this machine alone
    many_nodes.py --address auto FILE             the nodes of the Ray cluster that is there
    torchrun --nnodes 16 many_nodes.py FILE       ranks of a job, with penstock-agent on each node

Each node reads its part of the file from the shared file system once; what others need of it comes
from its memory. A task computes the gradient of a part of the rows on the node that has the part;
if that node dies, another one computes it. --kill kills a node while its tasks run.

The sums of all rows must be those of the file as read() has it, and the weights those of the same
training in memory. FILE has rows of 512 bytes, 127 features and a label; it is made if it is not
there. Status 77 where something is missing."""
from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from typing import Any, NamedTuple, Optional, Sequence

try:
    import numpy as np
except ImportError as missing:
    print(f"needs numpy: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps

FEATURES, BATCH = 127, 4096
STEP = 0.5


class Part(NamedTuple):
    """What a task says about its part of the rows."""

    gradient: Any
    loss: float
    checksum: int
    rows: int
    node: str


def make_file(path: str, rows: int) -> None:
    """Rows whose label is whether a hidden vector has a positive product with the features."""
    random = np.random.default_rng(3)
    hidden = random.standard_normal(FEATURES)
    with open(path, "wb") as file:
        for first in range(0, rows, BATCH):
            table = np.empty((min(BATCH, rows - first), FEATURES + 1), np.float32)
            table[:, :-1] = random.standard_normal((len(table), FEATURES))
            table[:, -1] = table[:, :-1] @ hidden > 0
            file.write(table.tobytes())
        file.flush()
        os.fsync(file.fileno())


def learn(rows: Any, weights: Any) -> tuple[Any, float, int]:
    """Gradient and loss of a logistic regression, summed over these rows, and their bytes' sum."""
    features, labels = rows[:, :-1].astype(np.float64), rows[:, -1]
    guess = 1 / (1 + np.exp(-(features @ weights)))
    loss = -np.log(np.where(labels > 0, guess, 1 - guess) + 1e-12).sum()
    checksum = int(rows.view(np.uint32).sum(dtype=np.uint64))
    return features.T @ (guess - labels), float(loss), checksum


def rows_of(part: int, of: int, rows: int) -> range:
    return range(rows * part // of, rows * (part + 1) // of)


def node_here() -> str:
    """Nodes that are processes of one machine have one name, and each its identifier of Ray."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return socket.gethostname()
    return f"{socket.gethostname()} {ray.get_runtime_context().get_node_id()[:4]}"


_tables: dict[str, ps.Array] = {}  # of this process, which does several tasks


def gradient(path: str, part: int, of: int, weights: Any, rest: float = 0) -> Part:
    """Reads a part of the rows through the cache, and learns from them."""
    if path not in _tables:
        runtime = ps.Runtime(cache="64MiB", page="64KiB", log=None)
        _tables[path] = ps.open_array(path, dtype="float32", shape=(-1, FEATURES + 1),
                                      runtime=runtime)
    table = _tables[path]
    wanted = rows_of(part, of, len(table))
    total, loss, checksum = np.zeros(FEATURES), 0.0, 0
    for first in range(wanted.start, wanted.stop, BATCH):
        rows = table.gather(np.arange(first, min(first + BATCH, wanted.stop)))
        more = learn(rows, weights)
        total, loss, checksum = total + more[0], loss + more[1], checksum + more[2]
    time.sleep(rest)
    return Part(total, loss, checksum, len(wanted), node_here())


def train(parts: Any, epochs: int, say: Any) -> tuple[Any, int]:
    """`parts(weights)` gives what all parts say, in their order. The weights, and the sum of all
    bytes in the last epoch."""
    weights, checksum = np.zeros(FEATURES), 0
    for epoch in range(epochs):
        begin = time.perf_counter()
        answers: Sequence[Part] = parts(weights)
        rows = sum(answer.rows for answer in answers)
        checksum = sum(answer.checksum for answer in answers)
        weights = weights - STEP * sum(answer.gradient for answer in answers) / rows
        places = Counter(answer.node for answer in answers)
        say(f"epoch {epoch}: loss {sum(answer.loss for answer in answers) / rows:.4f}, "
            f"{time.perf_counter() - begin:.2f} s, parts by node: "
            f"{', '.join(f'{node} {count}' for node, count in sorted(places.items()))}")
    return weights, checksum


def is_right(path: str, wanted: argparse.Namespace, weights: Any, checksum: int) -> bool:
    """Beside the same training on the bytes of read()."""
    with open(path, "rb") as file:
        rows = np.frombuffer(file.read(), np.float32).reshape(-1, FEATURES + 1)

    def parts(now: Any) -> list[Part]:
        found = []
        for part in range(wanted.parts):
            mine = rows_of(part, wanted.parts, len(rows))
            found.append(Part(*learn(rows[mine.start:mine.stop], now), len(mine), "memory"))
        return found

    expected, sum_of_all = train(parts, wanted.epochs, lambda line: None)
    same = checksum == sum_of_all and np.allclose(weights, expected, rtol=1e-9, atol=1e-12)
    print(f"{len(rows)} rows, {'equal' if same else 'NOT EQUAL'} to those in memory", flush=True)
    return bool(same)


def by_ray(path: str, wanted: argparse.Namespace, cluster: Any) -> tuple[Any, int]:
    import ray

    import penstock.ray as pr

    task = ray.remote(max_retries=10)(gradient)
    with pr.start(memory=wanted.memory, socket=wanted.socket, wait_ms=500) as nodes:
        begin = time.perf_counter()
        print("warm:", pr.warm(path, over=nodes), f"{time.perf_counter() - begin:.2f} s",
              flush=True)
        victim = cluster.worker_nodes and max(cluster.worker_nodes, key=str) if cluster else None

        def parts(weights: Any) -> Any:
            nonlocal victim
            calls = [task.options(**nodes.near(path, part=part, of=wanted.parts)).remote(
                path, part, wanted.parts, weights, wanted.rest) for part in range(wanted.parts)]
            if wanted.kill and victim is not None:
                ray.wait(calls, num_returns=1)  # so its tasks have begun, and not ended
                cluster.remove_node(victim, allow_graceful=False)
                print("a node was killed", flush=True)
                victim = None
            return ray.get(calls)

        return train(parts, wanted.epochs, lambda line: print(line, flush=True))


def by_torchrun(path: str, wanted: argparse.Namespace) -> Optional[tuple[Any, int]]:
    """None in all ranks but the first."""
    import torch.distributed

    dist: Any = torch.distributed
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if os.environ.get("PENSTOCK_STORE"):
        from penstock import agent

        print(f"rank {rank}: warm: {agent.warm(path, part=rank, of=ranks)}", flush=True)
    dist.barrier()

    def parts(weights: Any) -> list[Part]:
        mine = [gradient(path, part, wanted.parts, weights)
                for part in range(rank, wanted.parts, ranks)]
        found: list[Any] = [None] * ranks
        dist.all_gather_object(found, mine)
        return [found[part % ranks][part // ranks] for part in range(wanted.parts)]

    done = train(parts, wanted.epochs,
                 lambda line: print(line, flush=True) if rank == 0 else None)
    dist.barrier()
    dist.destroy_process_group()
    return done if rank == 0 else None


def on_this_machine(wanted: argparse.Namespace) -> Any:
    """A cluster of Ray whose nodes are processes here, with one agent for all of them."""
    from ray.cluster_utils import Cluster

    # The file lies on a file system of this machine alone, which stores do not serve by default.
    os.environ["PENSTOCK_STORE_LOCAL"] = "1"
    resources = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=resources)
    for _ in range(wanted.nodes - 1):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    return cluster


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("--address", help="of a Ray cluster; without it one is made here")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="of a file that is made")
    parser.add_argument("--parts", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--memory", default="256MiB", help="that a node gives to the store")
    parser.add_argument("--socket", help="of the agents")
    parser.add_argument("--rest", type=float, default=0, help="seconds that a task takes longer")
    parser.add_argument("--kill", action="store_true")
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    with tempfile.TemporaryDirectory() as folder:
        if "RANK" in os.environ and not wanted.file:
            sys.exit("many_nodes.py: ranks need a FILE that all of them have")
        path = wanted.file or os.path.join(folder, "rows.bin")
        if int(os.environ.get("RANK", "0")) == 0 and not os.path.exists(path):
            make_file(path, wanted.rows)
            time.sleep(4)  # a file that changed a moment ago is not shared
        if "RANK" in os.environ:
            done = by_torchrun(path, wanted)
            sys.exit(0 if done is None or is_right(path, wanted, *done) else 1)
        try:
            import mooncake.store  # noqa: F401
            import ray
        except ImportError as missing:
            print(f"needs Ray and Mooncake (pip install penstock-io[ray]): {missing}",
                  file=sys.stderr)
            sys.exit(77)
        cluster: Any = None if wanted.address else on_this_machine(wanted)
        ray.init(wanted.address or cluster.address, log_to_driver=False)
        try:
            right = is_right(path, wanted, *by_ray(path, wanted, cluster))
        finally:
            ray.shutdown()
            if cluster:
                cluster.shutdown()
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
