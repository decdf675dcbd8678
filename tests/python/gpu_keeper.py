"""Jobs of Python beside `penstock keep`: what one run needs, the cache of the program has.

    python3 tests/python/gpu_keeper.py [cpu] --program build/bin/penstock

Checks, each with a job that has a runtime with Runtime(share=...), and on a GPU no windows, so that
rows come from the keeper's cache, from the job's own, or by request from the file:

  rows     all rows in another order are right; on a GPU a tenth of them at most came from the file
  killed   the keeper is killed while the job reads: every row is right, and no call takes a second
  speed    GB/s of rows that the keeper has, of the same rows in the job's own cache (GPU)"""
import argparse
import functools
import json
import os
import select
import subprocess
import sys
import time

import numpy as np
import gpu_common as common

SCRIPT = "gpu_keeper"
ROW_BYTES, ROWS = 4096, 1 << 17  # 512 MiB
CACHE_BYTES = 1 << 30
BATCH = 1 << 13


class World:
    def __init__(self, folder, wanted):
        self.folder, self.wanted = folder, wanted
        self.rows = 1 << 10 if wanted.device == "cpu" else ROWS
        self.path = folder / "rows"
        numbers = np.arange(self.rows, dtype=np.int64)
        # Row i has i in each of its words.
        np.repeat(numbers, ROW_BYTES // 8).tofile(self.path)
        os.environ["XDG_RUNTIME_DIR"] = str(folder)  # processes of one user meet there

    def keeper(self):
        """`penstock keep`, which has the whole file in its cache."""
        backend = "gpu" if self.wanted.device == "cuda" else "cpu"
        process = subprocess.Popen(
            [self.wanted.program, "keep", "--share", "python", "--backend", backend, "--cache",
             str(CACHE_BYTES), "--page", str(ROW_BYTES), "--json", str(self.path)],
            stdout=subprocess.PIPE, text=True)
        ready, _, _ = select.select([process.stdout], [], [], 120)
        kept = json.loads(process.stdout.readline())["kept_bytes"] if ready else None
        if kept != self.rows * ROW_BYTES:
            process.kill()
            raise AssertionError(f"the keeper has {kept} bytes")
        return process

    def job(self):
        """A runtime, linked with the keeper, and its table."""
        import penstock as ps
        device = "cuda:0" if self.wanted.device == "cuda" else "cpu"
        runtime = ps.Runtime(device=device, cache=CACHE_BYTES, page=ROW_BYTES, windows=0,
                             share="python", roots=[self.folder])
        until = time.monotonic() + 60
        while runtime.linked_processes == 0:
            if time.monotonic() > until:
                raise AssertionError("job and keeper were not linked")
            time.sleep(0.01)
        return runtime, ps.open_array(self.path, dtype="int64", shape=(self.rows, ROW_BYTES // 8),
                                      runtime=runtime)

    def gather(self, table, order):
        """All these rows, each compared; the longest call in seconds, and GB/s without the
        comparison."""
        import torch
        place = "cuda" if self.wanted.device == "cuda" else "cpu"
        longest = total = 0.0
        wrong = 0
        for first in range(0, len(order), BATCH):
            ids = torch.as_tensor(order[first:first + BATCH], device=place)
            if place == "cuda":
                torch.cuda.synchronize()
            begin = time.monotonic()
            got = table.gather(ids if place == "cuda" else ids.numpy())
            if place == "cuda":
                torch.cuda.synchronize()
            took = time.monotonic() - begin
            longest, total = max(longest, took), total + took
            got = torch.as_tensor(got)
            wrong += int((got != ids[:, None]).any(dim=1).sum())
        if wrong:
            raise AssertionError(f"{wrong} rows of {len(order)} are wrong")
        return longest, len(order) * ROW_BYTES / total / 1e9


def statistics(runtime):
    return json.loads(runtime._core.statistics())


def rows(w):
    keeper = w.keeper()
    try:
        runtime, table = w.job()
        with runtime:
            w.gather(table, np.random.default_rng(1).permutation(w.rows))
            found = statistics(runtime)
            from_file = found["file_read_bytes"]
            if w.wanted.device == "cuda" and from_file > w.rows * ROW_BYTES // 10:
                raise AssertionError(f"{from_file} bytes came from the file")
            return {name: found[name] for name in
                    ("neighbour_reads", "neighbour_loads", "file_read_bytes", "hits", "misses")}
    finally:
        keeper.kill()
        keeper.wait()


def killed(w):
    keeper = w.keeper()
    try:
        runtime, table = w.job()
        with runtime:
            order = np.random.default_rng(2).permutation(w.rows)
            third = len(order) // 3
            before, _ = w.gather(table, order[:third])
            keeper.kill()
            after, _ = w.gather(table, order[third:])
            if after >= 1:
                raise AssertionError(f"a call took {after:.2f} s after the kill")
            return {"longest_ms": round(before * 1e3, 1), "after_ms": round(after * 1e3, 1),
                    "file_read_bytes": statistics(runtime)["file_read_bytes"]}
    finally:
        keeper.kill()
        keeper.wait()


def speed(w):
    if w.wanted.device == "cpu":
        raise common.Skip("rows come from memory of the operating system")
    keeper = w.keeper()
    try:
        runtime, table = w.job()
        with runtime:
            half = np.random.default_rng(3).permutation(w.rows // 2)
            w.gather(table, half[:BATCH])  # the kernels are loaded
            _, kept = w.gather(table, half[BATCH:])
            loaded = statistics(runtime)
            for _ in range(4):  # rows that are asked for again enter the own cache
                w.gather(table, half)
            before = statistics(runtime)
            _, own = w.gather(table, half)
            after = statistics(runtime)
            return {"from_the_keeper_gb_per_s": round(kept, 2), "own_gb_per_s": round(own, 2),
                    "ratio": round(kept / own, 3), "loaded": {
                        name: loaded[name] for name in ("neighbour_reads", "neighbour_loads")},
                    "own_run": {name: after[name] - before[name] for name in
                                ("hits", "misses", "neighbour_reads", "neighbour_loads")}}
    finally:
        keeper.kill()
        keeper.wait()


def main():
    parser = argparse.ArgumentParser(SCRIPT)
    parser.add_argument("device", nargs="?", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="")
    wanted = parser.parse_args()
    common.need_gpu(wanted, SCRIPT)
    with common.folder() as folder:
        w = World(folder, wanted)
        common.run(SCRIPT, [(check.__name__, functools.partial(check, w))
                            for check in (rows, killed, speed)],
                   wanted, common.describe_machine(wanted.device))


if __name__ == "__main__":
    sys.exit(main())
