#!/usr/bin/env python3
"""docs/papers.md and bench/papers: papers_test.py REPOSITORY. The page is what
tools/papers_table.py makes of the entries, no figure or table of a paper is left out, and every
figure of ours is in its result file. Mistakes are planted, and each must be found."""
import copy
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import app_bench_table  # noqa: E402  (found through the path above)
import papers_table  # noqa: E402

# What the papers have, counted in them: the last of each series, and of each figure in parts.
LAST = {"GPUfs": ["Fig. 12", "Table V"], "SYSTOR 2016": ["Fig. 10", "Table 3"],
        "GAIA": ["Fig. 3.1c", "Fig. 4.3", "Fig. 5.1", "Fig. 6.2b", "Fig. 6.4b",
                 "Table 5.1", "Table 6.1"],
        "GRAM and DEDU": ["Fig. 4c", "Fig. 5d", "Fig. 6"]}
HIT = "h100/2026-11-24-hit.json"


def small_paper():
    return {"name": "P", "reference": "P.", "ids": ["Fig. 1", "Fig. 2a", "Fig. 2b"], "entries": [
        {"id": "Fig. 1", "state": "repeated", "varied": "v", "paper": "1",
         "command": "penstock bench hit",
         "ours": [{"file": HIT, "at": "H100",
                   "text": "{4096|hit, copying read into shared memory|ratio|the same*}"}]},
        {"id": "Fig. 2a", "state": "not repeated", "varied": "v", "why": "Not measured yet."},
        {"id": "Fig. 2b", "state": "no experiment", "varied": "v", "why": "A drawing."},
        {"id": "Section 3", "state": "not repeated", "varied": "v", "why": "Not measured yet."}]}


def with_text(text, file=HIT):
    def change(paper):
        paper["entries"][0]["ours"][0].update(text=text, file=file)
    return change


def with_entry(number, **fields):
    return lambda paper: paper["entries"][number].update(fields)


# What is planted, and what must be said of it.
PLANTED = [
    (lambda paper: paper["ids"].remove("Fig. 2a"), "2 has the parts b"),
    (lambda paper: paper["ids"].remove("Fig. 1"), "Fig. 1 is left out"),
    (lambda paper: paper["ids"].append("Table IV"), "Table 3 is left out"),
    (lambda paper: paper["ids"].append("Figure 3"), "'Figure 3' is no id"),
    (lambda paper: paper["entries"].pop(1), "Fig. 2a has no entry"),
    (lambda paper: paper["entries"].append(paper["entries"][1]), "Fig. 2a has several entries"),
    (with_entry(0, id="Fig. 3"), "Fig. 3 is not in ids"),
    (with_entry(0, state="done"), "state 'done' is none of"),
    (with_entry(0, ours=[]), "ours or the command are missing"),
    (with_entry(0, command=""), "ours or the command are missing"),
    (with_entry(0, state="stands in"), "one sentence that says why is missing"),
    (with_entry(0, plot="papers/gone.png"), "plot docs/papers/gone.png is not there"),
    (with_entry(1, why=""), "one sentence that says why is missing"),
    (with_entry(1, ours=small_paper()["entries"][0]["ours"]), "but it has figures of ours"),
    (with_entry(0, draw={"file": HIT, "points": ["512"], "lines": {"a": "@|hit, map*|value"}}),
     "{512|hit, map*|value}: 0 figures fit"),
    (with_text("{4096|hit*|value}", "h100/gone.json"), "No such file"),
    (with_text("{4096|hit, gone|value}"), "0 figures fit"),
    (with_text("{4096|hit*|value}"), "2 figures fit"),
    (with_text("{4096|hit, map*|gone}"), "the file has no figure there"),
    (with_text("{/machine/gone}"), "the file has no such place"),
    (with_text("{=2981}"), "names no line"),
    (with_text("{=298|hit, copying}"), "has no such line with it"),
    # In the file, but of another row.
    (with_text("{=2942.6|hit, copying}"), "has no such line with it"),
    (with_text("2981 GB/s"), "'1 GB/s' is looked up in no file"),
    (with_entry(1, why="It takes 4 ms."), "'4 ms' is looked up in no file"),
    (with_text("{=1|penstock-grep}", "h100/2026-11-24-grep-table.txt"),
     "has no such line with it"),
    (with_text("{/a}", "h100/2026-11-24-grep-table.txt"), "is no JSON"),
]


class Papers(unittest.TestCase):
    maxDiff = None

    def test_the_page_is_what_the_tool_makes(self):
        page = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
        self.assertTrue(papers_table.page(papers_table.load(ROOT), ROOT) == page,
                        "run tools/papers_table.py")

    def test_no_entry_has_a_mistake(self):
        for paper in papers_table.load(ROOT):
            self.assertEqual(papers_table.mistakes(paper, ROOT), [])

    def test_the_last_figures_and_tables_are_listed(self):
        def ends(ids):
            last = {}
            for kind, chapter, number, letter in map(papers_table.parts, ids):
                last[kind, chapter] = max(last.get((kind, chapter), (0, "")), (number, letter))
            return last

        for paper in papers_table.load(ROOT):
            self.assertEqual(ends(paper["ids"]), ends(LAST[paper["name"]]), paper["name"])
            self.assertLessEqual(set(LAST[paper["name"]]), set(paper["ids"]), paper["name"])

    def test_commands_exist(self):
        cases = set(re.findall(r'^    \{"([\w-]+)",', (ROOT / "bench/bench.cpp").read_text(
            encoding="utf-8"), re.MULTILINE))
        self.assertIn("hit", cases)
        for paper in papers_table.load(ROOT):
            commands = [entry.get("command", "") for entry in paper["entries"]]
            for text in "; ".join(filter(None, [*commands, paper["plots"]])).split("; "):
                words = re.sub(r"^PENSTOCK_\w+=\S+ ", "", text).split()
                if words[:2] == ["penstock", "bench"]:
                    asked = {word for word in words[2:] if not word.startswith("--")}
                    self.assertLessEqual(asked, cases)
                elif words[0].startswith("tools/"):
                    self.assertTrue((ROOT / words[0]).is_file(), words[0])
                if words[0] == "tools/app_bench.py":
                    self.assertIn(words[1], app_bench_table.APPLICATIONS)

    def test_every_plot_is_shown(self):
        shown = {entry["plot"] for paper in papers_table.load(ROOT) for entry in paper["entries"]
                 if entry.get("plot")}
        there = {f"papers/{path.name}" for path in (ROOT / "docs/papers").iterdir()}
        self.assertEqual(shown, there)

    def test_planted_mistakes_are_found(self):
        self.assertEqual(papers_table.mistakes(small_paper(), ROOT), [])
        for number, (plant, said) in enumerate(PLANTED):
            with self.subTest(number=number, said=said):
                paper = copy.deepcopy(small_paper())
                plant(paper)
                self.assertIn(said, "\n".join(papers_table.mistakes(paper, ROOT)))

    def test_figures_are_shown_with_three_digits(self):
        shown = [papers_table.shown(value) for value in (0.47253, 49.593, 1345.7, 999.7, 50, "x")]
        self.assertEqual(shown, ["0.473", "49.6", "1,346", "1,000", "50", "x"])


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["papers_test.py"])
