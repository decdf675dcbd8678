#!/usr/bin/env python3
"""Counts the code of applications by Penstock beside plain CUDA, as the papers count it: by
semicolons. count_code.py [REPOSITORY] prints JSON in the form of bench/results.

Counted are the files in which only that method is; what both use, such as the comparison of images
and the command line, is in neither."""
import json
import pathlib
import platform
import sys

import bench_machine
import tidy_text

# Application: the file of Penstock's method, the file of the CUDA baseline.
PAIRS = {"collage": ("apps/collage/penstock_make.cu", "apps/collage/cuda_make.cu"),
         "match": ("apps/match/penstock_match.cu", "apps/match/cuda_match.cu"),
         "grep": ("apps/grep/penstock_search.cu", "apps/grep/cuda_search.cu")}


def semicolons(text):
    code, _ = tidy_text.split_comments(text)
    return code.count(";")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).resolve().parents[1])
    rows = []
    for name, files in PAIRS.items():
        penstock, cuda = (semicolons((root / file).read_text(encoding="utf-8")) for file in files)
        rows.append({"goal": "code", "case": f"semicolons of {name}", "backend": "gpu",
                     "page_bytes": 0, "value": penstock, "unit": "semicolons",
                     "baseline": "CUDA by hand", "baseline_value": cuda,
                     "ratio": round(cuda / penstock, 3), "note": f"{files[0]}, {files[1]}"})
    machine = {"device": "none", "kernel": platform.release(),
               "commit": bench_machine.commit_here()}
    print(json.dumps({"machine": machine, "results": rows}, indent=1))


if __name__ == "__main__":
    main()
