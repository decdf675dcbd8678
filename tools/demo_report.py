#!/usr/bin/env python3
"""Tells in words what a program's --json report says the cache did: demo_report.py REPORT."""
import json
import sys


def grep_line(report):
    runtime = report["runtime"]
    return (f"{report['files']:,} files, {report['bytes']:,} bytes, {report['words']:,} words: {report['matches']:,} matches; "
            f"{report['seconds']['search']:.2f} s on {runtime['device']}, reading with {runtime['io']}")


def collage_line(report):
    runtime = report["runtime"]
    return (f"{report['blocks']:,} blocks, {report['evaluations']:,} candidates of {report['library']['tiles']:,} tiles compared, "
            f"{report['unique_tiles']:,} different ones; {report['seconds']['collage']:.2f} s on {runtime['device']}, "
            f"reading with {runtime['io']}")


def main(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    runtime = report["runtime"]
    cache = runtime["statistics"]
    print(collage_line(report) if report["program"] == "penstock-collage" else grep_line(report))
    print(f"cache           {runtime['cache_bytes']:>12,}   bytes, in pages of {runtime['page_bytes']:,}")
    accesses = cache["hits"] + cache["misses"]
    print(f"page accesses   {accesses:>12,}   hits {cache['hits']:,}, misses {cache['misses']:,}")
    print(f"evictions       {cache['evictions']:>12,}   frames looked at to choose them {cache['clock_steps']:,}")
    print(f"opens           {cache['opens']:>12,}   of these asked of the host {cache['open_requests']:,}")
    print(f"requests        {cache['requests']:>12,}   taken in {cache['batches']:,} batches")
    print(f"bytes loaded    {cache['bytes_loaded']:>12,}   in {cache['file_reads']:,} reads of files")


if __name__ == "__main__":
    main(sys.argv[1])
