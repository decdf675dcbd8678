#!/usr/bin/env python3
"""Measures whether GRAM and DEDU (ICCS 2011) cost more than a buffer of the host alone, policies in
turns so that a disk that changes changes for all of them:

  tools/gram_bench.py PROGRAM -o RESULT.json [--data DIR] [--turns N] [--time-limit S]
  tools/gram_bench.py PROGRAM -o RESULT.json --full [--threads 16] [--accesses N]

PROGRAM is penstock. Files are made in a folder of their own below --data, on the disk to be
measured, and go again; they are read past the page cache. Each row of the result has a `goal`:

  D15   the paper's default point at --scale: gram against native
  D15a  the same with --always-gram, which uses the device also where it does not pay
  D19   the device's share of the time that threads wait for pages: copies, calls and the bus
  S15   dedu against gram, at factors 1 and 4
  D10   dedu with signatures made by the device against those made by the threads
  S14, D18   of `penstock bench exchange`, on a GPU: pages moved by the kernel against the copy
             engine, and against a copy of the API for each page
  D14   with --full: the paper's full size, 64 Ki pages each, working set 640 Ki (2.5 GiB on the
        disk), four million accesses by --threads threads: gram and dedu against native

A row is the median over turns of what an access costs its thread, and `ratio` the median of the
ratios within a turn; `ratios` has all. One JSON line a row is printed as it is measured. Exit
status: 0 all rows were measured, 1 a run failed or the time limit left rows out, 2 wrong usage."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_machine
import buffer_paper
import buffer_runs

PAGE = buffer_paper.PAGE_BYTES


class Failed(Exception):
    """A run did not end well."""


class Bench:
    def __init__(self, wanted, folder):
        self.wanted, self.folder, self.rows, self.skipped = wanted, folder, [], []
        self.begin = time.monotonic()

    def left(self):
        return self.wanted.time_limit - (time.monotonic() - self.begin)

    def call(self, *arguments):
        command = [self.wanted.program, *map(str, arguments), "--json"]
        try:
            ran = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, check=False,
                                 timeout=self.wanted.run_limit)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{' '.join(command)}: took more than {self.wanted.run_limit:g} s; give "
                         "more with --run-limit") from error
        if ran.returncode != 0:
            raise Failed(f"{' '.join(command)}: {ran.stderr.strip() or ran.returncode}")
        return json.loads(ran.stdout)

    def make(self, pages, accesses, factor):
        for path in self.folder.iterdir():
            path.unlink()
        self.call("trace", "generate", "-o", "trace", "--binary", "--seed", self.wanted.seed,
                  "--pages", pages, "--accesses", accesses, "--factor", factor, "--page", PAGE,
                  "--data", "data")
        buffer_runs.put_on_disk(self.folder / "data")

    def replay(self, policy, host, *more, threads=1):
        flags = ["--policy", policy, "--ram", host * PAGE, "--threads", threads]
        flags += ["--gpu", host * PAGE] if policy != "native" else []
        if self.wanted.backend and policy != "native":  # which has no part on a device
            flags += ["--backend", self.wanted.backend]
        flags += ["--cached"] if self.wanted.cached else []
        return self.call("replay", "trace", *flags, *more)

    def in_turns(self, kinds, host, turns, threads=1):
        """{name: reports}; every second turn has them the other way round. `kinds`: {name:
        (policy, flags)}."""
        reports = {name: [] for name in kinds}
        for turn in range(turns):
            names = list(kinds) if turn % 2 == 0 else list(reversed(kinds))
            for name in names:
                policy, *more = kinds[name]
                reports[name].append(self.replay(policy, host, *more, threads=threads))
        return reports

    def compare(self, goal, case, measured, base, base_name, aim=None):
        cost = [1e3 * report["ms_per_access"] for report in measured]
        before = [1e3 * report["ms_per_access"] for report in base]
        ratios = [round(a / b, 4) for a, b in zip(cost, before)]
        middle = sorted(measured, key=lambda r: r["ms_per_access"])[len(measured) // 2]
        self.add({"goal": goal, "case": case, "backend": middle["backend"], "page_bytes": PAGE,
                  "value": rounded(statistics.median(cost)), "unit": "us an access",
                  "baseline": base_name, "baseline_value": rounded(statistics.median(before)),
                  "ratio": statistics.median(ratios), "ratios": ratios, "most": max(ratios),
                  "aim": aim, "threads": middle["threads"], "accesses": middle["accesses"],
                  "device_hit_share": middle["device_hit_share"],
                  "miss_share": middle["miss_share"], "demotions": middle["demotions"],
                  "kept_back": middle.get("kept_back"), "stand_backs": middle.get("stand_backs"),
                  "note": f"turns: {len(ratios)}"})

    def add(self, row):
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def part(self, name, seconds, measure, *arguments):
        """Left out where it would not end in time."""
        if self.left() < seconds:
            self.skipped.append(name)
            return
        measure(*arguments)

    # The parts

    def default_point(self):
        host = round(buffer_paper.HOST * buffer_paper.KI * self.wanted.scale)
        self.make(host * 10, round(buffer_paper.ACCESSES * self.wanted.scale), 4)
        said = self.in_turns({"native": ("native",), "gram": ("gram",),
                              "always": ("gram", "--always-gram")}, host, self.wanted.turns)
        case = f"gram at the paper's default point, {host} pages each"
        self.compare("D15", case, said["gram"], said["native"], "native", aim=1.02)
        self.compare("D15a", case + ", the device always used", said["always"], said["native"],
                     "native")
        shares = [100 * report["device_cost_share"] for report in said["always"]]
        self.add({"goal": "D19", "case": "share of the device in the waits of gram, always used",
                  "backend": said["always"][0]["backend"], "page_bytes": PAGE,
                  "value": rounded(statistics.median(shares)), "unit": "% of the waits",
                  "baseline": "all of the time that a thread waits for pages",
                  "values": [rounded(share) for share in shares], "aim": 1,
                  "note": "copies for the device, calls of it and waits for it"})

    def shared_blocks(self, factor):
        host = round(buffer_paper.HOST * buffer_paper.KI * self.wanted.scale)
        self.make(host * 10, round(buffer_paper.ACCESSES * self.wanted.scale), factor)
        turns = min(self.wanted.turns, 3)
        kinds = {"gram": ("gram",), "dedu": ("dedu",)}
        if factor != 1:
            kinds.update({"device": ("dedu", "--sign-on", "device"),
                          "md5": ("dedu", "--signature", "md5"),
                          "device md5": ("dedu", "--signature", "md5", "--sign-on", "device")})
        said = self.in_turns(kinds, host, turns)
        self.compare("S15", f"dedu at factor {factor}", said["dedu"], said["gram"], "gram")
        if factor != 1:
            self.compare("D10", "dedu, quick signatures by the device", said["device"],
                         said["dedu"], "by the threads")
            self.compare("D10", "dedu, MD5 by the device", said["device md5"], said["md5"],
                         "by the threads")

    def exchange(self):
        for row in self.call("bench", "exchange", "--file", "256MiB", "--repeats", 5,
                             "--quiet")["results"]:
            self.add(row)

    def full(self):
        host = buffer_paper.HOST * buffer_paper.KI
        self.make(buffer_paper.WORKING_SET * buffer_paper.KI, self.wanted.accesses, 4)
        said = {name: [self.replay(name, host, threads=self.wanted.threads)]
                for name in ("native", "gram") + (("dedu",) if self.wanted.dedu else ())}
        for name in list(said)[1:]:
            self.compare("D14", f"{name} at the paper's full size", said[name], said["native"],
                         "native", aim=1.02 if name == "gram" else None)


def rounded(value):
    return float(f"{value:.5g}")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gram_bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM", help="penstock")
    parser.add_argument("-o", "--out", required=True, metavar="RESULT.json")
    parser.add_argument("--data", default=tempfile.gettempdir(), metavar="DIR",
                        help="folder on the disk to be measured; default: %(default)s")
    parser.add_argument("--backend", choices=["gpu", "cpu"],
                        help="where the device's part lies; default: a GPU if there is one")
    parser.add_argument("--cached", action="store_true",
                        help="through the page cache; then the times are not a disk's")
    parser.add_argument("--turns", type=int, default=5, metavar="N")
    parser.add_argument("--scale", type=float, default=1 / 64, metavar="F",
                        help="of the paper's sizes; default: 1/64")
    parser.add_argument("--full", action="store_true", help="the full size in place of the rest")
    parser.add_argument("--dedu", action="store_true", help="with --full: dedu too")
    parser.add_argument("--threads", type=int, default=16, metavar="N", help="of --full")
    parser.add_argument("--accesses", type=int, default=buffer_paper.ACCESSES, metavar="N",
                        help="of --full; default: the paper's %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--time-limit", type=float, default=140, metavar="S",
                        help="seconds after which no other part begins; default: %(default)s")
    parser.add_argument("--run-limit", type=float, default=600, metavar="S",
                        help="seconds that a run may take; default: %(default)s")
    parser.add_argument("--commit", metavar="TEXT", help="default: git is asked")
    parser.add_argument("--note", default="", metavar="TEXT")
    wanted = parser.parse_args(arguments)
    program = shutil.which(wanted.program)
    if program is None:
        parser.error(f"'{wanted.program}' is no program; give the path of penstock")
    if wanted.turns < 1 or not 1 / 4096 <= wanted.scale <= 1:
        parser.error("--turns, --scale: give at least one turn, and a scale from 1/4096 to 1")
    wanted.program = str(pathlib.Path(program).resolve())
    return wanted


def main(arguments):
    wanted = parse(arguments)
    load_before = round(os.getloadavg()[0], 2)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-gram-", dir=wanted.data))
    bench, failure = Bench(wanted, folder), None
    try:
        if wanted.full:
            bench.full()
        else:
            bench.part("D15", 20, bench.default_point)
            if wanted.backend != "cpu" and bench_machine.said_by("nvidia-smi", "-L"):
                bench.part("S14", 30, bench.exchange)
            bench.part("S15 at 4", 25, bench.shared_blocks, 4)
            bench.part("S15 at 1", 12, bench.shared_blocks, 1)
    except (Failed, KeyboardInterrupt) as error:
        failure = str(error) or "interrupted"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    machine = bench_machine.machine_of(wanted.data, wanted.commit or bench_machine.commit_here())
    settings = {"scale": 1 if wanted.full else wanted.scale,
                "turns": 1 if wanted.full else wanted.turns, "full": wanted.full,
                "seed": wanted.seed, "cached": wanted.cached,
                "seconds": round(time.monotonic() - bench.begin, 1),
                "load_average_before": load_before, "left_out": bench.skipped,
                "note": wanted.note}
    lines = ",\n".join(map(json.dumps, bench.rows))
    pathlib.Path(wanted.out).write_text(f'{{"machine":{json.dumps(machine)},\n'
                                        f'"settings":{json.dumps(settings)},\n'
                                        f'"results":[\n{lines}\n]}}\n',
                                        encoding="utf-8")
    for line in ([failure] if failure else []) + [f"left out: {name}" for name in bench.skipped]:
        print(f"gram_bench: {line}", file=sys.stderr)
    return 1 if failure or bench.skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
