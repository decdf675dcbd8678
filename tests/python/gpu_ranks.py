"""Ranks of a job read one table through each other's caches (docs/guide/several-processes.md).

    torchrun --nproc-per-node 2 tests/python/gpu_ranks.py [--folder DIR] [--out FILE]

Each rank has a GPU and a runtime of its own, with Runtime(share=...) and, as the baseline, without.
Two measurements, and each row is compared in the first:

  load   both read all rows once by request, each in an order of its own, into caches that have room
         for them: bytes from the host, in files (1.0: once in all), and seconds
  union  random rows of a file of 1.8 caches, windows open: GB/s of each rank

Rank 0 prints one JSON line. Exit status 1 if a row was wrong or the ranks were not linked."""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
import torch.distributed

import penstock as ps

ROW_BYTES = 4096
CACHE_BYTES = 2 << 30
BATCH = 1 << 16


def make_file(path, rows):
    """Row i has its number in each of its words."""
    part = 1 << 16
    with open(path, "wb") as file:
        for first in range(0, rows, part):
            numbers = np.arange(first, min(rows, first + part), dtype=np.int64)
            file.write(np.repeat(numbers, ROW_BYTES // 8).tobytes())


def statistics(runtime):
    return json.loads(runtime._core.statistics())


def from_host(before, after):
    """Bytes that came from the file."""
    return after["file_read_bytes"] - before["file_read_bytes"]


class Rank:
    def __init__(self, folder):
        self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        self.folder = folder

    def together(self, value):
        """The values of all ranks; a barrier."""
        out = [None] * self.ranks
        torch.distributed.all_gather_object(out, value)
        return out

    def runtime(self, shared, cache_bytes):
        more = {"share": f"ranks-{os.environ.get('TORCHELASTIC_RUN_ID', 'job')}"} if shared else {}
        return ps.Runtime(device=f"cuda:{self.device.index}", cache=cache_bytes, page=ROW_BYTES,
                          windows="64GiB", roots=[self.folder], **more)

    def table(self, runtime, rows):
        table = ps.open_array(self.folder / "rows", dtype="int64", shape=(rows, ROW_BYTES // 8),
                              runtime=runtime)
        time.sleep(1)  # shared runtimes meet in the background
        return table

    def load(self, shared, rows):
        with self.runtime(shared, 2 * rows * ROW_BYTES) as runtime:
            table = self.table(runtime, rows)
            order = torch.randperm(rows, device=self.device,
                                   generator=torch.Generator(self.device).manual_seed(self.rank))
            out = torch.empty((BATCH, ROW_BYTES // 8), dtype=torch.int64, device=self.device)
            wrong = torch.zeros((), dtype=torch.int64, device=self.device)
            self.together(0)
            before, begin = statistics(runtime), time.perf_counter()
            for ids in order.split(BATCH):
                got = out[:len(ids)]
                table.gather(ids, out=got)
                wrong += (got != ids[:, None]).sum()
            torch.cuda.synchronize(self.device)
            seconds = time.perf_counter() - begin
            after = statistics(runtime)
            table.check()
            said = self.together((int(wrong), from_host(before, after), seconds,
                                  after["neighbour_reads"] + after["neighbour_loads"]))
        if any(wrong for wrong, *_ in said):
            raise RuntimeError(f"words that were wrong, of each rank: {[w for w, *_ in said]}")
        if shared and not any(neighbour for *_, neighbour in said):
            raise RuntimeError("no rank read from another's cache")
        return {"files_from_host": round(sum(got for _, got, *_ in said) / (rows * ROW_BYTES), 4),
                "seconds": round(max(seconds for *_, seconds, _ in said), 4)}

    def union(self, shared, rows):
        with self.runtime(shared, CACHE_BYTES) as runtime:
            table = self.table(runtime, rows)
            table.windows()
            generator = torch.Generator(self.device).manual_seed(self.rank + 10)
            lists = [torch.randint(rows, (BATCH,), device=self.device, generator=generator)
                     for _ in range(32)]
            out = torch.empty((BATCH, ROW_BYTES // 8), dtype=torch.int64, device=self.device)
            rates = []
            for _ in range(6):  # the first ones fill the caches
                self.together(0)
                begin = time.perf_counter()
                for ids in lists:
                    table.gather(ids, out=out)
                torch.cuda.synchronize(self.device)
                rates.append(len(lists) * BATCH * ROW_BYTES / (time.perf_counter() - begin) / 1e9)
            table.check()
            said = self.together(sorted(rates[3:])[1])
        return round(sum(said) / len(said), 2)


def main():
    parser = argparse.ArgumentParser("gpu_ranks")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--out")
    parser.add_argument("--commit", default="unknown")
    wanted = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("gloo")
    folder = pathlib.Path(wanted.folder)
    rank = Rank(folder)
    rows = CACHE_BYTES * 18 // 10 // ROW_BYTES
    try:
        if rank.rank == 0:
            make_file(folder / "rows", rows)
        rank.together(0)
        figures = {
            "load": {name: rank.load(shared, CACHE_BYTES // ROW_BYTES // 2)
                     for name, shared in (("linked", True), ("unlinked", False))},
            "union_gb_per_s": {name: rank.union(shared, rows)
                               for name, shared in (("linked", True), ("unlinked", False))}}
        rank.together(0)
    finally:
        if rank.rank == 0:
            (folder / "rows").unlink(missing_ok=True)
    if rank.rank == 0:
        load, union = figures["load"], figures["union_gb_per_s"]
        figures["R7_files"] = load["linked"]["files_from_host"]
        figures["R7_time"] = round(load["linked"]["seconds"] / load["unlinked"]["seconds"], 3)
        figures["R1"] = round(union["linked"] / union["unlinked"], 2)
        line = json.dumps({"script": "gpu_ranks", "ranks": rank.ranks, "commit": wanted.commit,
                           "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                           "file_bytes": rows * ROW_BYTES, "cache_bytes": CACHE_BYTES,
                           "row_bytes": ROW_BYTES, "figures": figures})
        print(line, flush=True)
        if wanted.out:
            pathlib.Path(wanted.out).write_text(line + "\n", encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
