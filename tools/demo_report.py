#!/usr/bin/env python3
"""Tells in words what a program's --json report says the cache did: demo_report.py REPORT."""
import json
import sys


def main(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    cache = report.get("statistics", report.get("stats", {}))
    print(f"{report.get('files', 0):,} files, {report.get('bytes', 0):,} bytes in {report.get('seconds', 0):.2f} s "
          f"on {report.get('device', report.get('backend', '?'))}, read with {report.get('io', '?')}")
    accesses = cache["hits"] + cache["misses"]
    print(f"page accesses   {accesses:>12,}   hits {cache['hits']:,}, misses {cache['misses']:,}")
    print(f"evictions       {cache['evictions']:>12,}   frames looked at to choose them {cache['clock_steps']:,}")
    print(f"opens           {cache['opens']:>12,}   of these asked of the host {cache['open_requests']:,}")
    print(f"requests        {cache['requests']:>12,}   taken in {cache['batches']:,} batches")
    print(f"bytes loaded    {cache['bytes_loaded']:>12,}   in {cache['file_reads']:,} reads of files")


if __name__ == "__main__":
    main(sys.argv[1])
