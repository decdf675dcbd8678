"""tools/matmul-bench.sh on a little data: its rows, its table, and what it says when a run fails.
What it shares with matvec-bench.sh is tested there.

Usage: matmul_bench_test.py SCRIPT BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import matrix_support as support


def bench(script, bin_dir, folder, out, **variables):
    env = {**os.environ, "MATMUL_BACKEND": "cpu", "MATMUL_COMMIT": "test", "MATMUL_CACHE": "1MiB",
           "MATMUL_SIZES": "200x150x100 30x700x300", "MATMUL_RUNS": "2", "MATMUL_PAGE": "4KiB",
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
            code == 0 and "all results are equal" in said and said.count("data: making") == 2, said)
        support.require(os.listdir(os.path.join(folder, "data")) == [],
                        f"left {os.listdir(os.path.join(folder, 'data'))}")
        with open(os.path.join(folder, "good", "matmul.json"), encoding="utf-8") as file:
            report = json.load(file)
        rows = report["results"]
        # Three times of each case against the only baseline without a GPU.
        support.require(report["machine"]["commit"] == "test" and len(rows) == 6, str(report))
        support.require(all(row["goal"] == "S18" and row["unit"] == "TFLOP/s" and row["value"] > 0
                            and row["ratio"] > 0
                            for row in rows),
                        str(rows))
        support.require(sum("200 x 100 by 100 x 150" in row["case"] for row in rows) == 3,
                        str(rows))
        with open(os.path.join(folder, "good", "runs", "30x700x300.cpu.1.json"),
                  encoding="utf-8") as file:
            support.require(json.load(file)["check"]["rows"] == 30,
                            "the first result was not checked")
        code, said = bench(script, bin_dir, folder, "fails", MATMUL_PAGE="3000")
        support.require(code == 1 and "FAILED: 200x150x100 penstock 1" in said and "3000" in said,
                        said)
        code, said = bench(script, bin_dir, folder, "size", MATMUL_SIZES="200x150")
        support.require(code == 2 and "'200x150'" in said, said)
        code, said = bench(script, folder, folder, "none")
        support.require(code == 2 and "build penstock-matmul" in said, said)
    print("the benchmark's rows are right, and what goes wrong is said")


if __name__ == "__main__":
    main()
