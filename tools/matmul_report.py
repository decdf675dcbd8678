#!/usr/bin/env python3
"""What tools/matmul-bench.sh measured, as bench/results has it and as a table.

matmul_report.py OUT_DIR: reads OUT_DIR/runs, writes OUT_DIR/matmul.json and OUT_DIR/table.txt."""
import pathlib
import sys

import product_report

BASELINES = {"cuda": "CUDA: panels of A and B through pinned memory, 4 chunks under way, the same kernel", "cpu": "all cores with SIMD, memory maps"}


def teraflop(report):
    return 2e-12 * report["m"] * report["n"] * report["k"]


def main():
    out = pathlib.Path(sys.argv[1])
    runs = product_report.load_or_exit(out)
    results = []
    for by in runs.values():
        def about(text, one, way):
            return f"matrix product, {text}: {one['m']} x {one['k']} by {one['k']} x {one['n']}, {way}"
        results += product_report.results_of(by, about, "TFLOP/s", teraflop, BASELINES)
    text = product_report.table(runs, "matrix product: TFLOP/s, median", teraflop, lambda case, one: case)
    product_report.write(out, "matmul", results, text, "MATMUL_COMMIT")


if __name__ == "__main__":
    main()
