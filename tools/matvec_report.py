#!/usr/bin/env python3
"""What tools/matvec-bench.sh measured, as bench/results has it and as a table.

matvec_report.py OUT_DIR: reads OUT_DIR/runs, writes OUT_DIR/matvec.json and OUT_DIR/table.txt."""
import pathlib
import sys

import product_report

BASELINES = {"cuda": "CUDA: all cores read into pinned memory, 4 chunks of 64 MiB under way", "cpu": "all cores with SIMD, memory map"}


def part_of(case):
    """x1_5 is one and a half of the cache."""
    return case.replace("_", ".")[1:]


def gigabytes(report):
    return 1e-9 * report["matrix_bytes"]


def main():
    out = pathlib.Path(sys.argv[1])
    runs = product_report.load_or_exit(out)
    results = []
    for case, by in runs.items():
        def about(text, one, way, case=case):
            return f"matrix-vector, {text}: {one['rows']} rows of {one['columns']}, {part_of(case)} of the cache, {way}"
        results += product_report.results_of(by, about, "GB/s", gigabytes, BASELINES)
    text = product_report.table(runs, "matrix-vector: GB/s of the matrix, median", gigabytes,
                                lambda case, one: f"{one['matrix_bytes'] / 2 ** 30:.3f} GiB, {part_of(case)} of cache")
    product_report.write(out, "matvec", results, text, "MATVEC_COMMIT")


if __name__ == "__main__":
    main()
