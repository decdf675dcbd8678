"""tools/matvec-bench.sh on a little data: its rows, its table, and what it says when methods differ
or fail.

Usage: matvec_bench_test.py SCRIPT BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import matrix_support as support


def bench(script, bin_dir, folder, out, **variables):
    env = {**os.environ, "MATVEC_BACKEND": "cpu", "MATVEC_COMMIT": "test", "MATVEC_CACHE": "1MiB",
           "MATVEC_COLUMNS": "333", "MATVEC_RUNS": "2", "MATVEC_REPEAT": "2", "MATVEC_PAGE": "4KiB",
           **variables}
    done = subprocess.run(
        [script, bin_dir, os.path.join(folder, "data"), os.path.join(folder, out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=1000, check=False)
    return done.returncode, done.stdout.decode()


def main():
    script, bin_dir = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        code, said = bench(script, bin_dir, folder, "good")
        support.require(
            code == 0 and "all results are equal" in said and said.count("data: making") == 3, said)
        support.require(os.listdir(os.path.join(folder, "data")) == [],
                        f"left {os.listdir(os.path.join(folder, 'data'))}")
        with open(os.path.join(folder, "good", "matvec.json"), encoding="utf-8") as file:
            report = json.load(file)
        rows = report["results"]
        support.require(report["machine"]["commit"] == "test" and len(rows) == 9, str(report))
        support.require(all(row["goal"] == "S18" and row["backend"] == "cpu" and row["value"] > 0
                            and row["ratio"] > 0
                            for row in rows),
                        str(rows))
        for size, wanted in (("0.25", 197), ("1", 787), ("1.5", 1181)):
            of_size = [row for row in rows if f", {size} of the cache," in row["case"]]
            support.require(len(of_size) == 3
                            and all(f"{wanted} rows of 333" in row["case"] for row in of_size),
                            f"{size}: {of_size}")
        with open(os.path.join(folder, "good", "runs", "x1_5.cpu.1.json"),
                  encoding="utf-8") as file:
            support.require(json.load(file)["check"]["greatest_deviation"] > 0,
                            "the first result was not checked")

        # What is kept is used again, and not for another size.
        code, said = bench(script, bin_dir, folder, "kept", MATVEC_SIZES="1", MATVEC_KEEP="1")
        support.require(code == 0 and "data: making" in said, said)
        code, said = bench(script, bin_dir, folder, "again", MATVEC_SIZES="1", MATVEC_KEEP="1")
        support.require(code == 0 and "data: making" not in said, said)
        code, said = bench(script, bin_dir, folder, "other", MATVEC_SIZES="1", MATVEC_COLUMNS="334")
        support.require(code == 0 and "data: making" in said, said)

        # A program that answers otherwise each time.
        liars = os.path.join(folder, "liars")
        os.mkdir(liars)
        with open(os.path.join(liars, "penstock-matvec"), "w", encoding="utf-8") as file:
            file.write(
                f'#!/bin/sh\n"{bin_dir}/penstock-matvec" "$@" || exit 1\n[ "$1" = run ] || exit 0\n'
                'while [ $# -gt 0 ]; do [ "$1" != -o ] || echo $$ >"$2"; shift; done\n')
        os.chmod(os.path.join(liars, "penstock-matvec"), 0o755)
        code, said = bench(script, liars, folder, "lies", MATVEC_SIZES="1")
        support.require(code == 1 and "DIFFERENT: x1 by penstock" in said
                        and "all results are equal" not in said,
                        said)
        code, said = bench(script, bin_dir, folder, "fails", MATVEC_SIZES="1", MATVEC_PAGE="3000")
        support.require(code == 1 and "FAILED: x1 penstock 1" in said and "3000" in said, said)
        code, said = bench(script, bin_dir, folder, "size", MATVEC_CACHE="much")
        support.require(code == 2 and "'much'" in said, said)
        code, said = bench(script, folder, folder, "none")
        support.require(code == 2 and "build penstock-matvec" in said, said)
    print("the benchmark's rows are right, and what goes wrong is said")


if __name__ == "__main__":
    main()
