"""tools/match-bench.sh on a little data: its rows, its table, and what it says when methods differ
or fail.

Usage: bench_test.py SCRIPT BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import match_support as support


def bench(script, bin_dir, folder, out, **variables):
    env = {**os.environ, "MATCH_BACKEND": "cpu", "MATCH_COMMIT": "test", "MATCH_IMAGES": "300",
           "MATCH_QUERIES": "40", "MATCH_SHAPE": "8x8", "MATCH_REPEATS": "2", **variables}
    done = subprocess.run(
        [script, bin_dir, os.path.join(folder, "data"), os.path.join(folder, out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=1000, check=False)
    return done.returncode, done.stdout.decode()


def main():
    script, bin_dir = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        code, said = bench(script, bin_dir, folder, "good")
        support.require(code == 0 and "all matches are equal" in said and "data: making" in said,
                        said)
        with open(os.path.join(folder, "good", "match.json"), encoding="utf-8") as file:
            report = json.load(file)
        rows = report["results"]
        support.require(report["machine"]["commit"] == "test" and len(rows) == 4, str(report))
        support.require(all(row["goal"] == "S18" and row["backend"] == "cpu" and row["value"] > 0
                            and row["ratio"] > 0
                            for row in rows),
                        str(rows))
        support.require(all(f"{case}" in said for case in ("whole", "half-whole", "none", "first")),
                        said)
        whole, half, none, first = (row["note"] for row in rows)
        every = 40 * 900
        support.require(f"{every} of {every} pairs and {every * 64} numbers" in whole, whole)
        support.require(f"{every} of {every} pairs" in none and f"and {every * 64} numbers" in none,
                        none)
        support.require(f"{every} of {every} pairs" not in half
                        and f"{every} of {every} pairs" not in first,
                        half + first)

        # What is there is used again, a part of the cases too, and not for another size.
        code, said = bench(script, bin_dir, folder, "again", MATCH_CASES="none")
        support.require(code == 0 and "data: making" not in said
                        and "whole" not in said.split("image match")[1],
                        said)
        code, said = bench(script, bin_dir, folder, "other", MATCH_CASES="none", MATCH_IMAGES="200")
        support.require(code == 0 and "data: making" in said, said)

        # A program that answers otherwise the second time.
        liars = os.path.join(folder, "liars")
        os.mkdir(liars)
        with open(os.path.join(liars, "penstock-match"), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n"{bin_dir}/penstock-match" "$@" || exit 1\nwhile [ $# -gt 0 ]; '
                       'do [ "$1" != --out ] || echo $$ >"$2"; shift; done\n')
        os.chmod(os.path.join(liars, "penstock-match"), 0o755)
        code, said = bench(script, liars, folder, "lies", MATCH_CASES="none", MATCH_IMAGES="200")
        support.require(code == 1 and "DIFFERENT: none by penstock" in said
                        and "all matches are equal" not in said,
                        said)
        code, said = bench(script, bin_dir, folder, "fails", MATCH_CASES="none", MATCH_IMAGES="200",
                           MATCH_PAGE="3000")
        support.require(code == 1 and "FAILED: none penstock 1" in said and "3000" in said, said)
        code, said = bench(script, folder, folder, "none")
        support.require(code == 2 and "build penstock-match" in said, said)
    print("the benchmark's rows are right, and what goes wrong is said")


if __name__ == "__main__":
    main()
