#!/usr/bin/env python3
"""tools/buffer_figures.py has every point of the paper's figures, they lie where theory puts them,
and what went wrong stands in the result: figures_test.py PROGRAM."""
import contextlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps_penstock"))
# Found through the path above.
from support import FLAGS, PROGRAM, InFolder, clean_environment, penstock  # noqa: E402

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import buffer_figures  # noqa: E402  (likewise)
import buffer_paper  # noqa: E402

DEVICE = [32, 64, 96, 128, 256, 384, 512, 576, 596, 640]
POINTS = {
    "4a": {"native": [None], "gram": DEVICE},
    "4b": {"gram": DEVICE},
    "4c": {"native": [64, 128, 256, 512, 640, 1024, 2048],
           "gram": [64, 128, 256, 512, 640, 1024, 2048]},
    "5a": {"native": [None], "gram": [None], "dedu": [1, 2, 3, 4, 5, 6, 8, 10]},
    "5b": {"native": [None], "gram": DEVICE, "dedu": DEVICE},
    "5c": {"gram": DEVICE, "dedu": DEVICE},
    "5d": {"gram": [0, 4, 8, 16, 32, 48, 64], "dedu": [0, 4, 8, 16, 32, 48, 64]},
    "6": {name: [1, 2, 4, 8, 12] for name in ("native", "gram", "dedu", "dedu, host alone")},
}
# At a scale of 1/256: pages of the host, of the working set; accesses; pages for each Ki page of
# the paper.
HOST, ALL, ACCESSES, EACH = 256, 2560, 15625, 4
COUNTS = ["accesses", "reads", "writes", "host_hits", "device_hits", "misses", "loads",
          "write_backs", "bytes_to_device", "bytes_from_device"]


def tool(name, *arguments):
    return subprocess.run([sys.executable, "-B", TOOLS / name, *map(str, arguments)],
                          env=clean_environment(), capture_output=True, text=True, check=False,
                          timeout=1000)


def figures(folder, *arguments, program=PROGRAM):
    """How it ended, and the result, or None if there is none. Nothing but the result may be left in
    the folder for the data."""
    data, out = pathlib.Path(folder) / "disk", pathlib.Path(folder) / "result.json"
    data.mkdir(exist_ok=True)
    ran = tool("buffer_figures.py", program, "-o", out, "--data", data, "--commit", "abc1234",
               *arguments)
    assert os.listdir(data) == [], "files were left behind"
    return ran, json.loads(out.read_text()) if out.exists() else None


def by_place(result):
    return {(row["figure"], row["curve"], row["x"]): row for row in result["results"]}


def seen_first(pages, frames):
    """How many hits fewer than frames / pages of all accesses there are in the mean because the
    buffer is empty at first: while k pages have been met, the next access hits with probability k /
    pages, not frames / pages, and it takes pages / (pages - k) accesses to meet another."""
    return sum((frames - k) / (pages - k) for k in range(frames))


class Simulated(unittest.TestCase):
    """All figures once, of uniform reads wherever nothing else is said: each access is to any page
    with the same probability, whatever was before."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.ran, cls.result = figures(folder, "--simulate", "--scale", "1/256", "--seed", 5)
            trace = pathlib.Path(folder) / "trace"
            penstock("trace", "generate", "-o", trace, "--text", "--quiet", "--pages", ALL,
                     "--accesses", ACCESSES, "--seed", 5)
            records = trace.read_text().split("\n\n", 1)[1].splitlines()
        cls.distinct = len({line.split()[3] for line in records})
        cls.rows = by_place(cls.result)

    def row(self, figure, curve, x):
        return self.rows[figure, curve, x]

    def test_every_point_is_there(self):
        self.assertEqual((self.ran.returncode, self.ran.stderr), (0, ""))
        self.assertEqual(set(self.rows), {(figure, curve, x) for figure, curves in POINTS.items()
                                          for curve, xs in curves.items() for x in xs})
        self.assertEqual(len(self.result["results"]), len(self.rows))
        self.assertEqual([row["message"] for row in self.rows.values()
                          if row["value"] is None or row["message"] or len(row["values"]) != 1],
                         [])
        self.assertIn(f"{len(self.rows)} points measured, 0 not", self.ran.stdout)

    def test_proportions_are_the_papers(self):
        settings = self.result["settings"]
        self.assertEqual([settings[name]
                          for name in ("scale", "page_bytes", "host_pages", "device_pages",
                                       "working_set_pages", "accesses")],
                         ["1/256", 4096, HOST, HOST, ALL, ACCESSES])
        self.assertEqual(self.result["machine"]["commit"], "abc1234")
        for (figure, curve, x), row in self.rows.items():
            self.assertEqual((row["accesses"], row["host_pages"]), (ACCESSES, HOST))
            device = (0 if row["policy"] == "native" else 2 if curve == "dedu, host alone"
                      else EACH * x if figure in ("4a", "4b", "5b", "5c") else HOST)
            self.assertEqual((figure, curve, x, row["device_pages"]), (figure, curve, x, device))
            self.assertEqual(row["working_set_pages"], EACH * 64 * x if figure == "6" else EACH * x
                                                       if figure == "4c" else ALL)
            self.assertEqual(row["factor"],
                             x if figure == "5a" and x else 1 if figure == "6" else 4)
            self.assertEqual(row["host_hits"] + row["device_hits"] + row["misses"], ACCESSES)
            self.assertEqual((row["reads"], row["writes"]) == (ACCESSES, 0),
                             figure != "5d" or x == 0)
            # A sum of independent accesses is within four standard deviations but for one seed in
            # 16,000, and the seed is fixed.
            self.assertLessEqual(abs(row["writes"] - ACCESSES * row["write_percent"] / 100),
                                 4 * math.sqrt(ACCESSES) / 2)
            self.assertEqual(row["write_percent"], x if figure == "5d" else 0)

    def test_hits_are_as_frequent_as_pages_are_in_the_buffer(self):
        for device in DEVICE:
            row = self.row("4a", "gram", device)
            host, both = row["host_hits"], row["host_hits"] + row["device_hits"]
            for hits, frames in ((host, HOST), (both, min(HOST + EACH * device, ALL))):
                # A buffer of all pages is never full if some are never met, so what it lacks is
                # simply counted.
                mean = (ACCESSES * frames / ALL - seen_first(ALL, frames) if frames < ALL
                        else ACCESSES - self.distinct)
                self.assertLessEqual(abs(hits - mean),
                                     4 * math.sqrt(ACCESSES * (frames / ALL) * (1 - frames / ALL)),
                                     (device, frames))

    def test_the_hosts_part_hits_where_it_does_alone(self):
        for size in POINTS["4c"]["gram"]:
            self.assertEqual(self.row("4c", "gram", size)["host_hits"],
                             self.row("4c", "native", size)["host_hits"])
        for device in DEVICE:
            self.assertEqual(self.row("4a", "gram", device)["host_hits"],
                             self.row("4a", "native", None)["host_hits"])

    def test_what_fits_misses_once_for_each_page(self):
        def fitting(figure, curve):
            return [x for x in POINTS[figure][curve]
                    if self.row(figure, curve, x)["misses"]
                    == self.row(figure, curve, x)["distinct_pages"]]
        self.assertEqual([self.row("4a", "gram", x)["misses"] for x in (576, 596, 640)],
                         [self.distinct] * 3)
        self.assertEqual(fitting("4a", "gram"), [576, 596, 640])
        self.assertEqual((fitting("4c", "native"), fitting("4c", "gram")), ([64], [64, 128]))
        self.assertEqual((fitting("5a", "dedu"), fitting("5b", "dedu")),
                         ([5, 6, 8, 10], DEVICE[2:]))
        self.assertEqual((fitting("6", "native"), fitting("6", "gram")), ([1], [1, 2]))
        self.assertEqual(fitting("6", "dedu")[:2], [1, 2])

    def test_without_equal_pages_dedu_is_gram(self):
        alike = [(self.row("5a", "dedu", 1), self.row("5a", "gram", None)),
                 (self.row("6", "dedu", 1), self.row("6", "gram", 1))]
        for dedu, gram in alike:
            self.assertEqual([dedu[name] for name in COUNTS], [gram[name] for name in COUNTS])
            self.assertEqual(dedu["sharing_ratio"], 0)
        self.assertNotIn("sharing_ratio", alike[0][1])
        self.assertEqual([self.row("5b", "dedu", 64)[name] for name in COUNTS],
                         [self.row("5a", "dedu", 4)[name] for name in COUNTS])
        self.assertEqual(self.row("5a", "dedu", 5)["sharing_ratio"], 1)

    def test_values_are_what_their_counts_say(self):
        native = self.row("4a", "native", None)
        for (figure, curve, x), row in self.rows.items():
            if figure in ("4b", "5c"):
                wanted = (100 * (native["misses"] - row["misses"]) / ACCESSES
                          / (row["device_pages"] / 256))
                self.assertEqual(row["misses"],
                                 self.row({"4b": "4a", "5c": "5b"}[figure], curve, x)["misses"])
            else:
                wanted = (row["loads"] + row["write_backs"]) / ACCESSES
                self.assertEqual(row["loads"] == row["misses"], row["writes"] == 0)
            self.assertAlmostEqual(row["value"], wanted, delta=1e-5 * wanted)

    def test_the_papers_numbers_stand_beside(self):
        beside = {(entry["figure"], entry["paper"] if not isinstance(entry["paper"], list)
                                    else tuple(entry["paper"])): entry["ours"]
                  for entry in self.result["paper"]}
        native, gram = (self.row("4a", "native", None)["misses"],
                        self.row("5a", "gram", None)["misses"])
        self.assertEqual((beside["4a", 596], beside["4c", 128], beside["5a", 5]), (576, 128, 5))
        self.assertAlmostEqual(beside["4a", 83], 100 * (1 - self.distinct / native), delta=0.01)
        self.assertAlmostEqual(beside["5a", 81], 100 * (1 - self.distinct / gram), delta=0.01)
        self.assertEqual([entry["ours"] for entry in self.result["paper"]
                          if entry["what"].startswith("dedu costs more")],
                         [0])
        self.assertEqual({entry["figure"] for entry in self.result["paper"]}, set(POINTS))
        self.assertGreater(beside["6", 40], 0)

    def test_where_two_curves_cross(self):
        for dedu, between in [([1, 2, 4, 4], [8, 16]), ([1, 3, 2, 4], None), ([1, 2, 2, 2], None),
                              ([3, 4, 5, 6], None), ([1, 3, 3, 3], [4, 8])]:
            pairs = list(zip([4, 8, 16, 32], dedu, [3, 3, 3, 3]))
            self.assertEqual(buffer_paper.crossing(pairs), between, pairs)

    def test_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in [("result", json.dumps(self.result)), ("empty", ""),
                                  ("list", "[]"), ("object", "{}")]:
                pathlib.Path(folder, name).write_text(content)
                drawn = tool("buffer_plots.py", f"{folder}/{name}", "-o", f"{folder}/plots")
                if name != "result":
                    self.assertEqual((drawn.returncode, drawn.stdout), (1, ""))
                    self.assertIn("is no result", drawn.stderr)
                elif subprocess.run([sys.executable, "-c", "import matplotlib"],
                                    capture_output=True, check=False).returncode != 0:
                    self.assertEqual((drawn.returncode, drawn.stdout), (1, ""))
                    self.assertIn("python3-matplotlib", drawn.stderr)
                else:
                    self.assertEqual((drawn.returncode, drawn.stderr), (0, ""))
                    self.assertEqual(sorted(os.listdir(f"{folder}/plots")),
                                     [f"buffer-{name}.png" for name in POINTS])


class Ends(InFolder):
    def wrapped(self, script):
        """A program that does as penstock does, and first what the script says; it writes down how
        it was called."""
        path = self.make("wrapped", f'#!/bin/sh\necho "$*" >> "{self.folder}/calls"\n{script}\n'
                                    f'exec "{PROGRAM}" "$@"\n'.encode())
        path.chmod(0o755)
        return path

    def test_against_files_it_counts_the_same(self):
        asked = ["--scale", "1/1024", "--figures", "4a,5d"]
        # what is refused is tested too
        program = self.wrapped('case "$*" in *dedu*) exit 2;; esac')
        _, simulated = figures(self.folder, *asked, "--simulate")
        ran, result = figures(self.folder, *asked, "--cached", "--always-gram", "--repeats", 2,
                              *FLAGS, program=program)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        counted = by_place(simulated)
        self.assertEqual(len(result["results"]), len(counted))
        for place, row in by_place(result).items():
            if row["policy"] == "dedu":
                self.assertEqual((row["value"], row["message"]),
                                 (None, "ended with 2 and said nothing"))
                continue
            self.assertEqual([row[name] for name in COUNTS],
                             [counted[place][name] for name in COUNTS])
            self.assertEqual((row["unit"], len(row["values"]), row["past_the_page_cache"],
                              row["message"]),
                             ("ms", 2, False, None))
            self.assertLessEqual(min(row["values"]), row["value"])
        calls = [line.split() for line in (self.folder / "calls").read_text().splitlines()]
        replays = [call for call in calls if call[0] == "replay"]
        self.assertEqual(len(replays), 2 * (11 + 6) + 7,
                         "what is refused once is not asked for again")
        self.assertEqual(sum("--writes" in call for call in replays), 2 * 6 + 6)
        for before, call in zip(calls, calls[1:]):
            self.assertFalse(before[0] == call[0] == "replay" and "--writes" in before,
                             "files that a run has changed are played again")

    def test_dedu_against_files_counts_and_shares_the_same(self):
        asked = ["--scale", "1/2048", "--figures", "6", "--policies", "dedu"]
        _, simulated = figures(self.folder, *asked, "--simulate")
        ran, result = figures(self.folder, *asked, "--cached", "--repeats", 1, *FLAGS)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        counted = by_place(simulated)
        self.assertEqual(len(result["results"]), len(counted))
        for place, row in by_place(result).items():
            self.assertEqual([row[name] for name in (*COUNTS, "sharing_ratio")],
                             [counted[place][name] for name in (*COUNTS, "sharing_ratio")], place)

    def test_what_is_refused_or_fails_is_in_the_result(self):
        for status in (2, 1):
            program = self.wrapped('case "$*" in *dedu*) echo "one line" >&2; echo "not today" '
                                   f'>&2; exit {status};; esac')
            ran, result = figures(self.folder, "--simulate", "--scale", "1/1024", "--figures", "5a",
                                  program=program)
            self.assertEqual(ran.returncode, 0 if status == 2 else 1)
            rows = by_place(result)
            self.assertEqual(
                {place[1]: (row["value"] is None, row["message"]) for place, row in rows.items()},
                {"native": (False, None), "gram": (False, None), "dedu": (True, "not today")})
            self.assertIn("8 points: not today", ran.stderr)
            self.assertEqual([entry["ours"] for entry in result["paper"]], [None, None, None])

    def test_data_that_cannot_be_made(self):
        program = self.wrapped('case "$*" in trace*"--factor 3 "*) exit 1;; esac')
        ran, result = figures(self.folder, "--simulate", "--scale", "1/1024", "--figures", "5a",
                              program=program)
        self.assertEqual(ran.returncode, 1)
        self.assertEqual([(row["x"], row["message"]) for row in result["results"]
                          if row["value"] is None],
                         [(3, "ended with 1 and said nothing")])

    def test_skewed_accesses_hit_more_often(self):
        asked = ["--simulate", "--scale", "1/1024", "--figures", "4a,6"]
        _, uniform = figures(self.folder, *asked)
        ran, skewed = figures(self.folder, *asked, "--skew", "0.9")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual((uniform["settings"]["skew"], skewed["settings"]["skew"]), (0, 0.9))
        alike, hot = by_place(uniform), by_place(skewed)
        self.assertEqual(set(alike), set(hot))
        for place, row in hot.items():
            if place[0] == "6":  # which is skewed as it is
                self.assertEqual([row[name] for name in COUNTS],
                                 [alike[place][name] for name in COUNTS])
            elif place[1] == "native":
                # A tenth of the pages has two fifths of the accesses and more.
                self.assertGreater(row["host_hits"], 3 * alike[place]["host_hits"])
            else:
                self.assertLess(row["misses"], alike[place]["misses"], place)

    def test_out_of_time(self):
        ran, result = figures(self.folder, "--simulate", "--scale", "1/1024", "--time-limit",
                              "0.000001")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual({(row["value"], row["message"]) for row in result["results"]},
                         {(None, "left out: the time limit was over")})
        self.assertEqual(len(result["results"]),
                         sum(len(xs) for curves in POINTS.values() for xs in curves.values()))

    def test_stopped(self):
        program = self.wrapped('case "$*" in *dedu*) kill -TERM $PPID; exec sleep 3;; esac')
        ran, result = figures(self.folder, "--simulate", "--scale", "1/1024", "--figures", "4a,5a",
                              program=program)
        self.assertEqual(ran.returncode, 1)
        self.assertEqual({(row["policy"], row["message"]) for row in result["results"]},
                         {("native", None), ("gram", None), ("dedu", "left out: stopped before")})

    def test_bad_input(self):
        good = ["--simulate", "--scale", "1/1024"]
        for arguments, parts in [
                (["--figures", "4a,7"], ["--figures", "'7'", "4a,4b"]),
                (["--policies", "lru"], ["--policies", "'lru'", "native,gram,dedu"]),
                (["--scale", "2"], ["--scale", "'2'", "to 1"]),
                (["--scale", "1/0"], ["--scale", "'1/0'", "such as 1/64"]),
                (["--scale", "1/100000"], ["--scale", "1/4096"]),
                (["--skew", "6"], ["--skew", "'6'", "to 5"]),
                (["--repeats", "0"], ["--repeats", "'0'", "from 1"]),
                (["--seed", "-1"], ["--seed", "'-1'"]),
                (["--blocks", "3"], ["--blocks", "'3'", "power of two"]),
                (["--time-limit", "nan"], ["--time-limit", "'nan'"]),
                (["--cached"], ["--cached", "--simulate"]),
                (["--figures", "5d", "--policies", "native"], ["--policies", "no point of native"]),
                (["--plots", PROGRAM], ["--plots", PROGRAM, "no folder"]),
                (["--data", self.folder / "absent"], ["--data", "absent", "no folder"]),
                (["-o", self.folder / "absent" / "result"],
                 ["-o", "absent", "folder that exists"])]:
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                status = buffer_figures.main([PROGRAM, "-o", f"{self.folder}/result.json", "--data",
                                              str(self.folder), *good, *map(str, arguments)])
            self.assertEqual((status, os.listdir(self.folder)), (2, []),
                             (arguments, said.getvalue()))
            self.assert_one_line(said.getvalue().encode(), *parts)
        ran, result = figures(self.folder, *good, program=self.folder / "no-program")
        self.assertEqual((ran.returncode, result), (2, None))
        self.assert_one_line(ran.stderr.encode(), "no-program", "path of penstock")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["figures_test.py"])
