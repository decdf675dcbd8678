#!/usr/bin/env python3
"""Tells in words what a program's --json report says the cache did: demo_report.py REPORT."""
import json
import sys


def grep_line(report):
    runtime = report["runtime"]
    return (f"{report['files']:,} files, {report['bytes']:,} bytes, {report['words']:,} words: "
            f"{report['matches']:,} matches; {report['seconds']['search']:.2f} s on "
            f"{runtime['device']}, reading with {runtime['io']}")


def collage_line(report):
    runtime = report["runtime"]
    return (f"{report['blocks']:,} blocks, {report['evaluations']:,} candidates of "
            f"{report['library']['tiles']:,} tiles compared, {report['unique_tiles']:,} different "
            f"ones; {report['seconds']['collage']:.2f} s on {runtime['device']}, reading with "
            f"{runtime['io']}")


def main(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    runtime = report["runtime"]
    cache = runtime["statistics"]
    is_collage = report["program"] == "penstock-collage"
    print(collage_line(report) if is_collage else grep_line(report))
    accesses = cache["hits"] + cache["misses"]
    for name, count, more in (
            ("cache", runtime["cache_bytes"], f"bytes, in pages of {runtime['page_bytes']:,}"),
            ("page accesses", accesses, f"hits {cache['hits']:,}, misses {cache['misses']:,}"),
            ("evictions", cache["evictions"],
             f"frames looked at to choose them {cache['clock_steps']:,}"),
            ("opens", cache["opens"], f"of these asked of the host {cache['open_requests']:,}"),
            ("requests", cache["requests"], f"taken in {cache['batches']:,} batches"),
            ("bytes loaded", cache["bytes_loaded"], f"in {cache['file_reads']:,} reads of files")):
        print(f"{name:<16}{count:>12,}   {more}")


if __name__ == "__main__":
    main(sys.argv[1])
