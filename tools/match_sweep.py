#!/usr/bin/env python3
"""Measures the image search by sizes of the cache and of pages, as GPUfs (Table III) and SYSTOR
2016 (Fig. 10) did:

  tools/match_sweep.py BIN_DIR DATA_DIR -o RESULT.json [--repeats 5] [--images 25000]

BIN_DIR holds penstock-match. DATA_DIR gets three databases of images and one of queries: 1.2 GB in
all by default, as the papers had. They are read once before all runs, so the disk is not measured.
No query has a match. Each row is the median of runs in processes of their own, which take turns
with the baseline, and its seconds are those of the search with the opening of windows; the start of
the process is left out. `evictions` are pages that the cache dropped for others. Exit status: 0 all
rows were measured, 1 a run failed, 2 wrong usage."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import bench_machine

CACHES = ("2GiB", "1GiB", "512MiB")
PAGES = ("4KiB", "16KiB", "64KiB", "256KiB", "1MiB")
USUAL_PAGE = "64KiB"  # of the rows by sizes of the cache; those by sizes of pages have CACHES[0]
WAYS = {"windows, opened in the time": ("--windows",), "requests": ()}


class Failed(Exception):
    """A run did not end well."""


def call(*command):
    command = [str(word) for word in command]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         check=False, timeout=120)
    if ran.returncode != 0:
        raise Failed(f"{' '.join(command)}: {ran.stderr.strip() or ran.returncode}")
    return ran.stdout


class Sweep:
    def __init__(self, wanted):
        self.wanted, self.rows = wanted, []
        self.program = pathlib.Path(wanted.bin_dir) / "penstock-match"
        folder = pathlib.Path(wanted.data_dir) / "pictures"
        if not folder.is_dir():
            call(self.program, "make", folder, "--queries", wanted.queries, "--images",
                 wanted.images, "--databases", 3)
        self.files = [folder / "queries.images", *sorted(folder.glob("database-*.images"))]
        self.bytes = sum(file.stat().st_size for file in self.files)

    def search(self, *flags):
        report = json.loads(call(self.program, *self.files, "--threshold", "1e-12", "--json",
                                 "--quiet", *flags))
        if report["matched"] != 0:
            raise Failed(f"{report['matched']} queries have a match; no one should")
        return report

    @staticmethod
    def seconds(report):
        return report["seconds"]["match"] + report["seconds"]["windows"]

    def row(self, case, page, cache, flags):
        sizes = ("--cache", cache, "--page", page)
        measured, base = [], []
        for _ in range(self.wanted.repeats):
            measured.append(self.search(*sizes, *flags))
            base.append(self.seconds(self.search("--method", self.wanted.baseline)))
        taken = [self.seconds(report) for report in measured]
        middle = sorted(measured, key=self.seconds)[len(measured) // 2]
        runtime = middle["runtime"]
        self.rows.append(
            {"goal": "32.9", "case": case, "backend": runtime["backend"],
             "page_bytes": runtime["page_bytes"], "cache_bytes": runtime["cache_bytes"],
             "value": round(statistics.median(taken), 5), "unit": "s", "baseline":
             f"method {self.wanted.baseline}", "baseline_value": round(statistics.median(base), 5),
             "ratio": bench_machine.significant(
                 statistics.median(base) / statistics.median(taken)),
             "values": [round(value, 5) for value in taken],
             "evictions": runtime["statistics"]["evictions"],
             "bytes_read": middle["bytes_read"], "note": f"median of {len(taken)}; files of "
             f"{self.bytes} bytes in the page cache; no query has a match"})
        print(json.dumps(self.rows[-1]), flush=True)

    def measure(self):
        self.search("--method", "cpu")  # reads all files
        for way, flags in WAYS.items():
            for cache in CACHES:
                self.row(f"image search by {way}: cache {cache}", USUAL_PAGE, cache, flags)
            for page in PAGES:
                self.row(f"image search by {way}: page {page}", page, CACHES[0], flags)


def main():
    parser = argparse.ArgumentParser(prog="match_sweep", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", metavar="BIN_DIR")
    parser.add_argument("data_dir", metavar="DATA_DIR")
    parser.add_argument("-o", "--out", required=True, metavar="RESULT.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=25000, help="of each database")
    parser.add_argument("--queries", type=int, default=2016)
    parser.add_argument("--baseline", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--commit", default=bench_machine.commit_here())
    wanted = parser.parse_args()
    try:
        sweep = Sweep(wanted)
        sweep.measure()
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"match_sweep: {error}")
    pathlib.Path(wanted.out).write_text(json.dumps(
        {"machine": bench_machine.machine_of(wanted.data_dir, wanted.commit),
         "results": sweep.rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
