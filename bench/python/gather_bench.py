#!/usr/bin/env python3
"""Rows of a file by numbers on the device, from Python: Penstock beside pinned memory and numpy.

    gather_bench.py [--device cpu] [--size 1GiB] [--folder DIR] [--out FILE] [--seconds 80]

Methods, in turns, each with new numbers every round, which no other method has had:
  penstock        Array.gather through windows, into memory that is there
  penstock_graph  the same, captured once: new numbers are copied, the graph is launched
  pinned          index_select from pinned host memory that the GPU reads in place (UVA), the whole
                  table copied there before
  pinned_graph    the same, captured
  memmap          the numbers to the host, numpy's take from a memory map, the rows to the device;
                  of a file that is not in memory one thread faults page after page, with the
                  kernel's default read-around
  memmap_random   the same, of a file that is not in memory, without that read-around
The time of a round is that of the call until the device has ended. The file is in the page cache
and the map has its pages, but for the cases that are named cold. Every method's rows are compared
before and after it is measured, in memory that held none of them.

One JSON object in the form of bench/results: machine and commit, `ready` (the time until the first
row may be read; both sides begin with CUDA started, and Penstock's runtime has a key of its own),
`rows` (microseconds, p50 and, from 100 rounds on, p99, by row bytes, numbers and
law), `cold`, and `processes` (how many copies of the table four processes have in host memory). A
case for which the time does not suffice is left out and named."""
import argparse
import contextlib
import json
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import penstock as ps

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
sys.dont_write_bytecode = True
import bench_machine  # noqa: E402  (found through the path above)

ROW_BYTES = (160, 256, 512, 4096)
COUNTS = (16, 64, 1024, 65536)
EXPONENT = 0.99  # of Zipf's law
PROCESSES = 4


class OnHost:
    """Memory of the host as memory of the GPU, which reads it over the bus."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape), "typestr": "|u1", "version": 3,
            "data": (tensor.data_ptr(), False), "strides": None}


class Table:
    """One row size: the file as rows, by each method."""

    def __init__(self, path, row_bytes, device, pinned):
        self.path, self.row_bytes, self.device = path, row_bytes, device
        self.rows = os.path.getsize(path) // row_bytes
        shape = (self.rows, row_bytes)
        where = "gpu" if device == "cuda" else "cpu"
        page = ps.describe(path, dtype="uint8", shape=shape).page_bytes
        begin = time.perf_counter()
        self.runtime = ps.Runtime(device=where, cache="64MiB", page=page, log=None)
        self.runtime_s = time.perf_counter() - begin
        begin = time.perf_counter()
        self.array = ps.open_array(path, dtype="uint8", shape=shape, runtime=self.runtime)
        self.window_bytes = self.array.windows()
        self.ready_s = time.perf_counter() - begin
        self.mapped = np.memmap(path, np.uint8, "r", shape=shape)
        self.mapped.reshape(-1)[::mmap.PAGESIZE].max()  # so that no round pays for the first touch
        self.pinned = None
        if device == "cuda":
            flat = pinned[:self.rows * row_bytes].view(shape)
            self.pinned = torch.as_tensor(OnHost(flat), device="cuda")
            if self.pinned.data_ptr() != flat.data_ptr():
                raise RuntimeError("torch copied the pinned memory: the baseline is not UVA")

    def methods(self, count):
        """Name -> a call that gathers the rows of a list of so many numbers and returns them."""
        out = torch.empty(count, self.row_bytes, dtype=torch.uint8, device=self.device)
        host = torch.empty(count, self.row_bytes, dtype=torch.uint8,
                           pin_memory=self.device == "cuda")

        def penstock(ids):
            return self.array.gather(ids, out=out)

        def pinned(ids):
            return torch.index_select(self.pinned, 0, ids, out=out)

        def memmap(ids):
            np.take(self.mapped, ids.cpu().numpy(), axis=0, out=host.numpy(), mode="clip")
            return out.copy_(host, non_blocking=True) if self.device == "cuda" else host
        if self.device == "cpu":
            return {"penstock": penstock, "memmap": memmap}
        return {"penstock": penstock, "penstock_graph": captured(penstock, count),
                "pinned": pinned, "pinned_graph": captured(pinned, count), "memmap": memmap}

    def numbers(self, law, count, rounds, seed):
        """Lists of numbers of rows on the device. Popular rows lie anywhere in the file."""
        random = np.random.default_rng([self.row_bytes, count, seed])
        if law == "uniform":
            drawn = random.integers(0, self.rows, (rounds, count))
        else:
            weights = np.cumsum(np.arange(1, self.rows + 1, dtype=np.float64) ** -EXPONENT)
            ranks = np.searchsorted(weights, random.random((rounds, count)) * weights[-1])
            drawn = ranks.astype(np.uint64) * np.uint64(2654435761) % np.uint64(self.rows)
        return torch.from_numpy(drawn.astype(np.int64)).to(self.device)

    def close(self):
        settle(self.device)
        self.runtime.check()
        self.runtime.close()
        self.mapped = self.pinned = None  # pages that are mapped do not leave memory


def settle(device):
    if device == "cuda":
        torch.cuda.synchronize()


def captured(call, count):
    """The call as a graph that is launched with new numbers in the same memory."""
    numbers = torch.zeros(count, dtype=torch.int64, device="cuda")
    call(numbers)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(numbers)

    def launch(ids):
        numbers.copy_(ids)
        graph.replay()
        return out
    return launch


def quantiles(seconds):
    """Of a few rounds the 99th percentile would be the slowest one, so it is left out."""
    ordered = sorted(seconds)
    out = {"p50_us": round(1e6 * ordered[len(ordered) // 2], 1)}
    if len(ordered) >= 100:
        out["p99_us"] = round(1e6 * ordered[int(len(ordered) * 0.99)], 1)
    return out


def in_turns(methods, numbers, device):
    """Time of each method over lists of its own; the first of each is not counted."""
    times = {name: [] for name in methods}
    compare(methods, numbers, 0)
    for turn in range(1, len(numbers["memmap"])):
        for name, call in methods.items():
            settle(device)
            begin = time.perf_counter()
            call(numbers[name][turn])
            settle(device)
            times[name].append(time.perf_counter() - begin)
    compare(methods, numbers, -1)
    return {name: quantiles(taken) for name, taken in times.items()}


def compare(methods, numbers, turn):
    """Looks at the rows of one list of each method, which share their memory."""
    for name, call in methods.items():
        ids = numbers[name][turn]
        expected = methods["memmap"](ids).cpu().clone()
        call(ids).bitwise_not_()  # the next call has to write all of it
        if not torch.equal(call(ids).cpu(), expected):
            raise AssertionError(f"{name}: the rows are not those of the file")


class NotCold(Exception):
    """A file stays in memory when it is dropped."""


def drop_pages(path):
    stayed = bench_machine.drop_from_page_cache(path)
    if stayed is None:
        raise NotCold("the file is another user's: what stays in memory is not told")
    if stayed > bench_machine.MOST_THAT_STAYS:
        raise NotCold(f"{100 * stayed:.1f} % of the file stays in memory when it is dropped; name "
                      "a --folder on a disk")


def cold(path, row_bytes, device, rounds=6, count=1024):
    """Lists of rows that are not in memory, without windows."""
    shape = (os.path.getsize(path) // row_bytes, row_bytes)
    times = {"penstock": [], "memmap": [], "memmap_random": []}
    with ps.Runtime(device="gpu" if device == "cuda" else "cpu", cache="64MiB", windows=0,
                    page=max(512, min(4096, row_bytes)), log=None) as rt:
        array = ps.open_array(path, dtype="uint8", shape=shape, runtime=rt)
        for turn in range(rounds):
            ids = torch.randint(0, shape[0], (count,), device=device)
            drop_pages(path)
            settle(device)
            begin = time.perf_counter()
            rows = array.gather(ids)
            settle(device)
            ours = time.perf_counter() - begin
            taken = {"penstock": ours}
            for name in ("memmap", "memmap_random"):
                drop_pages(path)
                mapped = np.memmap(path, np.uint8, "r", shape=shape)  # a new one: no page is mapped
                if name == "memmap_random":
                    mapped._mmap.madvise(mmap.MADV_RANDOM)
                begin = time.perf_counter()
                expected = torch.from_numpy(mapped[ids.cpu().numpy()]).to(device)
                settle(device)
                taken[name] = time.perf_counter() - begin
                if not torch.equal(rows, expected):
                    raise AssertionError("cold: the rows are not those of the file")
                del mapped
            if turn > 0:  # the first one also has what is made on first use
                for name, seconds in taken.items():
                    times[name].append(seconds)
        rt.check()
    return {name: quantiles(taken) for name, taken in times.items()}


def memory_of(pid):
    """Bytes of memory that a process has, what it shares counted by its part."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("Pss:"))


def child(path, device):
    """One of several processes that have windows of the table: says when it is ready, before and
    after, and ends with its standard input."""
    row_bytes = 256
    shape = (os.path.getsize(path) // row_bytes, row_bytes)
    rt = ps.Runtime(device="gpu" if device == "cuda" else "cpu", cache="16MiB", page=512, log=None)
    array = ps.open_array(path, dtype="uint8", shape=shape, runtime=rt)
    array.gather(torch.zeros(4, dtype=torch.int64, device=device))
    settle(device)
    print("begun", flush=True)
    sys.stdin.readline()
    array.windows()
    for begin in range(0, shape[0], 1 << 18):
        array.gather(torch.arange(begin, min(begin + (1 << 18), shape[0]), device=device))
    settle(device)
    rt.check()
    print("ready", flush=True)
    sys.stdin.readline()


def processes(path, device):
    """Memory of the host that the windows of several processes take together, in tables."""
    command = [sys.executable, "-B", __file__, "--child", str(path), "--device", device]
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, text=True,
                                                        stdout=subprocess.PIPE))
                   for _ in range(PROCESSES)]

        def all_say(word):
            for started in running:
                said = started.stdout.readline().strip()
                if said != word:
                    raise RuntimeError(f"a process said '{said}' and not '{word}'")
            return sum(memory_of(started.pid) for started in running)

        def go_on():
            for started in running:
                started.stdin.write("\n")
                started.stdin.flush()
        before = all_say("begun")
        go_on()
        after = all_say("ready")
        go_on()
    size = os.path.getsize(path)
    return {"processes": PROCESSES, "table_bytes": size, "more_bytes": after - before,
            "tables": round((after - before) / size, 3)}


def make_file(folder, size):
    path = pathlib.Path(folder, "gather_bench.bin")
    random = np.random.default_rng(1)
    with open(path, "wb") as file:
        for begin in range(0, size, 1 << 26):
            file.write(random.bytes(min(1 << 26, size - begin)))
        file.flush()
        os.fsync(file.fileno())
    return path


def pinned_copy(path, device):
    """The whole table in pinned memory, and how long that took; the file is in memory."""
    begin = time.perf_counter()
    pinned = torch.empty(os.path.getsize(path), dtype=torch.uint8, pin_memory=device == "cuda")
    with open(path, "rb", buffering=0) as file:
        view, at = memoryview(pinned.numpy()), 0
        while at < len(view):
            at += file.readinto(view[at:])
    return pinned, time.perf_counter() - begin


def measure(path, wanted, out):
    device, end = wanted.device, time.monotonic() + wanted.seconds
    torch.zeros(1, device=device)
    settle(device)
    pinned, pinned_s = pinned_copy(path, device)
    out["ready"] = {"pinned_s": round(pinned_s, 4)}
    for row_bytes in ROW_BYTES:
        table = Table(path, row_bytes, device, pinned)
        out["ready"][f"penstock_{row_bytes}_s"] = round(table.ready_s, 4)
        out["ready"][f"runtime_{row_bytes}_s"] = round(table.runtime_s, 4)
        out["window_bytes"] = table.window_bytes
        for count in COUNTS:
            if count * row_bytes > os.path.getsize(path):
                continue
            rounds = 9 if count == COUNTS[-1] else 200
            methods = table.methods(count)
            for law in ("uniform", "zipf"):
                case = {"row_bytes": row_bytes, "numbers": count, "law": law}
                if time.monotonic() > end:
                    out["left_out"].append(case)
                    continue
                case["rounds"] = rounds
                numbers = {name: table.numbers(law, count, rounds + 1, seed)
                           for seed, name in enumerate(methods)}
                case.update(in_turns(methods, numbers, device))
                out["rows"].append(case)
        del methods
        table.close()
    del pinned
    for row_bytes in (256, 4096):
        case = {"row_bytes": row_bytes, "numbers": 1024, "state": "cold"}
        try:
            out["cold"].append({**case, **cold(path, row_bytes, device)})
        except NotCold as why:
            print(f"gather_bench: cold rows left out: {why}", file=sys.stderr)
            out["left_out"].append(case)
    with open(path, "rb") as file:  # into memory again
        while file.read(1 << 24):
            pass
    if time.monotonic() < end:
        out["processes"] = processes(path, device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--folder")
    parser.add_argument("--out")
    parser.add_argument("--commit")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--child")
    wanted = parser.parse_args()
    if wanted.child:
        child(wanted.child, wanted.device)
        return
    if wanted.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU; --device cpu measures CPU threads", file=sys.stderr)
        sys.exit(77)
    size = ps._core.parse_size("--size", wanted.size)
    with tempfile.TemporaryDirectory(dir=wanted.folder) as folder:
        commit = wanted.commit or bench_machine.commit_here()
        out = {"case": "python_gather", **bench_machine.machine_of(folder, commit),
               "torch": torch.__version__, "python": sys.version.split()[0], "table_bytes": size,
               "cache_bytes": 64 << 20, "ready": {}, "rows": [], "cold": [], "left_out": []}
        measure(make_file(folder, size), wanted, out)
    text = json.dumps(out)
    if wanted.out:
        pathlib.Path(wanted.out).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
