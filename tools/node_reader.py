#!/usr/bin/env python3
"""What runs on a node of tools/three_nodes.py: makes the file, brings a part of it into the store,
or reads it through Penstock and compares every byte.

  node_reader.py make FILE MIB
  node_reader.py warm FILE PART OF                    by penstock.agent; one JSON line of counts
  node_reader.py read FILE PART OF [--seconds S] [--stop FILE]

`read` begins at its part, so that readers are not all at the same block, and goes round: once, or
for so many seconds, or until the other file is there. It prints a JSON line: bytes, seconds, how
many rows were wrong, the longest call of 256 KiB and when it began, and where bytes came from."""
import argparse
import json
import os
import sys
import time

import numpy as np

ROW_BYTES = 4096
WORDS = ROW_BYTES // 8
BATCH = 64  # rows of a call: 256 KiB, which no block of 2 MiB cuts
MIX = np.uint64(0x9E3779B97F4A7C15)


def rows(numbers):
    """The rows with these numbers, as they must be: no two words of a file are the same."""
    words = numbers.astype(np.uint64)[:, None] * np.uint64(WORDS)
    with np.errstate(over="ignore"):
        return (words + np.arange(WORDS, dtype=np.uint64)[None, :]) * MIX


def make(wanted):
    count = int(wanted.words[0]) * (1 << 20) // ROW_BYTES
    with open(wanted.file, "wb") as file:
        for first in range(0, count, BATCH):
            file.write(rows(np.arange(first, min(first + BATCH, count))).tobytes())
        file.flush()
        os.fsync(file.fileno())


def warm(wanted):
    from penstock import agent

    part, of = (int(word) for word in wanted.words)
    begin = time.monotonic()
    done = dict(agent.warm(wanted.file, part=part, of=of, socket=os.environ["PENSTOCK_STORE"]))
    print(json.dumps({**done, "seconds": round(time.monotonic() - begin, 3)}), flush=True)


def read(wanted):
    import penstock as ps

    part, of = (int(word) for word in wanted.words)
    count = os.path.getsize(wanted.file) // ROW_BYTES
    begin = time.monotonic()
    slowest = []  # seconds and the time of each long call
    wrong = calls = 0
    with ps.Runtime(cache=wanted.cache, page="64KiB", device="cpu") as runtime:
        table = ps.open_array(wanted.file, dtype="uint64", shape=(count, WORDS), runtime=runtime)
        per_round = count // BATCH
        first = per_round * part // of
        while True:
            if wanted.seconds is None and wanted.stop is None:
                if calls == per_round:
                    break
            elif wanted.stop and os.path.exists(wanted.stop):
                break
            elif wanted.seconds is not None and time.monotonic() - begin > wanted.seconds:
                break
            number = (first + calls) % per_round * BATCH
            numbers = np.arange(number, number + BATCH)
            before = time.monotonic()
            got = table.gather(numbers)
            took = time.monotonic() - before
            wrong += int((got != rows(numbers)).any(axis=1).sum())
            calls += 1
            slowest = sorted([*slowest, (took, time.time())], reverse=True)[:5]
        took = time.monotonic() - begin
        counts = json.loads(runtime._core.statistics())
    print(json.dumps({
        "bytes": calls * BATCH * ROW_BYTES, "seconds": round(took, 3), "wrong_rows": wrong,
        "longest_ms": round(slowest[0][0] * 1e3, 1), "long_calls": [
            {"ms": round(seconds * 1e3, 1), "ended": round(when, 3)} for seconds, when in slowest],
        "counts": {name: value for name, value in counts.items()
                   if isinstance(value, int) and value and
                   name.startswith(("store_", "block_", "file_read", "through", "window_loads",
                                    "bytes_loaded", "misses"))}}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["make", "warm", "read"])
    parser.add_argument("file")
    parser.add_argument("words", nargs="+")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--stop")
    parser.add_argument("--cache", default="16MiB")
    wanted = parser.parse_args()
    {"make": make, "warm": warm, "read": read}[wanted.verb](wanted)


if __name__ == "__main__":
    sys.exit(main())
