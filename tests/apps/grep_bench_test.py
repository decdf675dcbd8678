"""tools/grep-bench.sh on a small tree: its rows, its comparison of counts, and what it says of
tools that are missing or fail.

Usage: grep_bench_test.py SCRIPT BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import grep_support as support


def bench(script, bin_dir, directory, out, **variables):
    env = {**os.environ, "GREP_REPEATS": "2", "GREP_BACKENDS": "cpu", "GREP_COMMIT": "test",
           **variables}
    done = subprocess.run([script, bin_dir, os.path.join(directory, "tree"),
                           os.path.join(directory, "words"), os.path.join(directory, out)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=1000,
                          check=False)
    return done.returncode, done.stdout.decode()


def rows_of(directory, out):
    with open(os.path.join(directory, out, "grep.json"), encoding="utf-8") as file:
        return json.load(file)["results"]


def main():
    script, bin_dir = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        os.makedirs(os.path.join(directory, "tree", "sub"))
        for i in range(30):
            with open(os.path.join(directory, "tree", "sub" if i % 2 else "", f"f{i}"), "w",
                      encoding="utf-8") as file:
                file.write("alpha beta_2 alphabet\n" * (i + 1))
        with open(os.path.join(directory, "words"), "w", encoding="utf-8") as file:
            file.write("alpha\nbeta_2\nabsent\n")
        matches = 2 * sum(range(1, 31))

        code, said = bench(script, bin_dir, directory, "good", RG=os.path.join(directory, "no rg"))
        support.require(code == 0 and "all lines are equal" in said, said)
        support.require(f"missing: {directory}/no rg" in said, said)
        rows = {row["baseline"]: row for row in rows_of(directory, "good")}
        support.require(set(rows) == {"baseline: all cores, same counting, plain reads",
                                      "GNU grep on all cores"},
                        str(rows))
        support.require(all("equal matches" in row["note"] and row["backend"] == "cpu"
                            for row in rows.values()),
                        str(rows))
        # The last column: a speed may have the same digits in it.
        ends = [line.split()[-1] for line in said.splitlines() if line.split()]
        support.require(ends.count(str(matches)) == 3, f"{matches} in each row: {said}")

        liar = os.path.join(directory, "rg")
        with open(liar, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 5\n")
        os.chmod(liar, 0o755)
        code, said = bench(script, bin_dir, directory, "other counts", RG=liar)
        support.require(code == 0, said)
        notes = [row["note"] for row in rows_of(directory, "other counts")
                 if row["baseline"] == "ripgrep"]
        support.require(len(notes) == 1 and f"it counts 5 matches, we {matches}" in notes[0],
                        str(notes))

        with open(liar, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nsleep 60\n")
        code, said = bench(script, bin_dir, directory, "slow", RG=liar, GREP_TOOL_TIMEOUT="1")
        support.require(code == 0 and said.count("took longer than 1 s") == 2, said)

        code, said = bench(script, os.path.join(directory, "tree"), directory, "none")
        support.require(code == 2 and "build penstock-grep" in said, said)
    print("passed")


if __name__ == "__main__":
    main()
