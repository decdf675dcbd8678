#!/usr/bin/env python3
"""tools/gram_bench.py at tiny sizes: gram_bench_test.py PENSTOCK. Which rows there are and how they
were worked out; times are not looked at."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "gram_bench.py"


class GramBench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def measure(self, *arguments, program=PROGRAM):
        out = self.folder / "result.json"
        ran = subprocess.run([sys.executable, "-B", TOOL, program, "-o", out, "--data", self.folder,
                              "--backend", "cpu", "--cached", "--commit", "abc1234",
                              *map(str, arguments)],
                             capture_output=True, text=True, check=False, timeout=300)
        return ran, json.loads(out.read_text()) if out.exists() else None

    def test_every_goal_has_its_rows(self):
        ran, result = self.measure("--scale", 1 / 1024, "--turns", 3)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        rows = result["results"]
        self.assertEqual([row["goal"] for row in rows],
                         ["D15", "D15a", "D19", "S15", "D10", "D10", "S15"])
        self.assertEqual([json.loads(line) for line in ran.stdout.splitlines()], rows)
        for row in rows:
            if "ratios" in row:
                self.assertEqual((len(row["ratios"]), row["accesses"], row["threads"]),
                                 (3, 3906, 1))
                self.assertEqual((row["ratio"], row["most"]),
                                 (statistics.median(row["ratios"]), max(row["ratios"])))
        self.assertEqual(rows[1]["kept_back"], 0)  # always used
        self.assertEqual(rows[2]["value"], statistics.median(rows[2]["values"]))
        self.assertTrue(all(0 < share < 100 for share in rows[2]["values"]))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["result.json"])

    def test_what_is_left_out_and_what_fails_is_told(self):
        ran, result = self.measure("--scale", 1 / 4096, "--time-limit", 0)
        self.assertEqual((ran.returncode, ran.stdout, result["results"]), (1, "", []))
        self.assertEqual(result["settings"]["left_out"], ["D15", "S15 at 4", "S15 at 1"])
        self.assertIn("left out: D15", ran.stderr)
        ran, result = self.measure("--scale", 1 / 4096, program="false")
        self.assertEqual((ran.returncode, result["results"]), (1, []))
        self.assertEqual(self.measure("--turns", 0)[0].returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["gram_bench_test.py"])
