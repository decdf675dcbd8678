#!/usr/bin/env python3
"""Measures `penstock cp` beside `cp`, whole programs in turns, from the operating system's page
cache to new files in it:

  tools/cp_bench.py PROGRAM -o RESULT.json [--dir DIR] [--repeats 11] [--kernel]

PROGRAM is penstock. Files are made in a folder of their own below --dir, on the file system to be
measured, and go again. A copy is taken away before the next one is made, outside the time. The
first copies of each way are compared with their sources. With --kernel the copy by a kernel is a
second row of each size. Each row has medians of wall time, and the processor seconds of both. Exit
status: 0 all rows were measured, 1 a run failed or copied other bytes, 2 wrong usage."""
import argparse
import filecmp
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_machine

MIB = 1 << 20
CASES = (("1 MiB", 1, MIB), ("16 MiB", 1, 16 * MIB), ("256 MiB", 1, 256 * MIB),
         ("4 GiB", 1, 4096 * MIB), ("1,000 files of 64 KiB", 1000, 65536))


def run(command):
    """Wall and processor seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rounded(values):
    return float(f"{statistics.median(values):.4g}")


def check_copies(sources, place):
    """The copies have the bytes of their sources."""
    for source in sources:
        if not filecmp.cmp(source, place / source.name, shallow=False):
            raise OSError(f"{place / source.name} is not what {source} is")


def measure(title, sources, folder, way, wanted):
    taken = {"penstock": [], "cp": []}
    commands = {"penstock": [wanted.program, "cp", "--quiet", *way], "cp": ["cp"]}
    for turn in range(wanted.repeats):
        for name in list(taken) if turn % 2 == 0 else list(reversed(taken)):
            place = folder / "copies"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            taken[name].append(run([*commands[name], *map(str, sources), str(place)]))
            if turn == 0:
                check_copies(sources, place)
    ours, theirs = ([wall for wall, _ in taken[name]] for name in ("penstock", "cp"))
    row = {"goal": "S9cp", "case": f"penstock cp{' --kernel' if way else ''} of {title}",
           "value": rounded(ours), "unit": "s", "baseline": "cp of coreutils",
           "baseline_value": rounded(theirs),
           # Less is better: turned round, as in all results.
           "ratio": bench_machine.significant(
               statistics.median(b / a for a, b in zip(ours, theirs))),
           "cpu_seconds": rounded([cpu for _, cpu in taken["penstock"]]),
           "baseline_cpu_seconds": rounded([cpu for _, cpu in taken["cp"]]),
           "note": f"whole programs, median of {wanted.repeats} turns, the first copies compared; "
                   "page cache to page cache"}
    print(json.dumps(row), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(prog="cp_bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM", type=os.path.abspath)
    parser.add_argument("-o", "--out", required=True, metavar="RESULT.json")
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--commit", default=bench_machine.commit_here())
    wanted = parser.parse_args()
    rows = []
    try:
        for title, files, size in CASES:
            with tempfile.TemporaryDirectory(dir=wanted.dir, prefix="cp_bench-") as made:
                folder = pathlib.Path(made)
                (folder / "sources").mkdir()
                sources = [folder / "sources" / str(i) for i in range(files)]
                block = os.urandom(min(size, MIB))
                for source in sources:
                    with open(source, "wb") as file:
                        for _ in range(size // len(block)):
                            file.write(block)
                for way in ((), ("--kernel",))[:1 + wanted.kernel]:
                    rows.append(measure(title, sources, folder, way, wanted))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"cp_bench: {error}")
    pathlib.Path(wanted.out).write_text(json.dumps(
        {"machine": bench_machine.machine_of(wanted.dir, wanted.commit), "results": rows},
        indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
