#!/usr/bin/env python3
"""Writes docs/papers.md from bench/papers: a row for each figure and table of the four papers that
Penstock follows.

  tools/papers_table.py [--check] [REPOSITORY]

bench/papers has a file for each paper: `ids`, the list of all its figures and tables, an entry for
each, and `plots`, the commands that draw. An entry has `state` (a key of STATES), `varied`, `paper`
(the paper's numbers), `ours`, `command`, `plot`, and `why`, one sentence about what differs or is
missing. Experiments without a figure stand behind the others. Each item of `ours` names its result
`file`, the conditions `at`, and a `text`. The figures of the text are looked up in the file, so
none is written by hand:

  {PAGE_BYTES|CASE|KEY|BASELINE}   of the row with this case; CASE and BASELINE may have *, and
                                   BASELINE may be left out. Rows of tools/buffer_figures.py have
                                   their figure in place of the page, and as case "CURVE at X", or
                                   what the row of the paper says
  {/a/0/b}                         what the JSON has there
  {=0.527|LINE}                    what the file, a text, has so in a line with the words LINE

A place may end with *N, a factor. tools/papers_plots.py draws the entries that have `draw`. Exit
status: 0 written, or with --check equal to the page; 1 not equal, or an entry cannot be used; each
mistake is a line."""
import argparse
import fnmatch
import functools
import json
import pathlib
import re
import sys

PAPERS = ["gpufs", "systor", "gaia", "gram"]
STATES = {"repeated": "repeated: the same experiment with Penstock, on other machines and sizes",
          "stands in": "stands in: other work, data or baseline in place of the paper's",
          "not repeated": "not repeated: no figure of Penstock's",
          "no experiment": "no experiment: a drawing or a list"}
ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8}
# A measured figure outside of braces: it would be one that no file vouches for.
BY_HAND = re.compile(r"\d ?(?:[GTMK]i?B/s|[GT]FLOP/s|ms|us|ns|s|times|million|billion)\b")
BEGIN = """# The papers' experiments

Four papers are behind Penstock, and each of their figures and tables has a row here. The page is
made by `tools/papers_table.py` from `bench/papers`; every figure of Penstock's is looked up in the
file of `bench/results` that stands beside it. A test compares.

The papers' numbers are of GPUs from 2008 to 2016, with the buses and disks of their time: shapes
and ratios can be compared, and times cannot. Files are warm unless a row says cold. **The original
GPUfs and ActivePointers do not build any more** with today's CUDA, so no row has their speed on
these machines. Plain CUDA by hand and all cores of the host stand in for them as baselines, and
`penstock/gpufs.cuh` for the calls of GPUfs.

"""


class Mistake(Exception):
    """Something in an entry that cannot be used; the text names it."""


@functools.lru_cache(maxsize=None)
def text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Mistake(f"{path.parent.name}/{path.name}: {error.strerror}") from error


@functools.lru_cache(maxsize=None)
def report_of(path):
    try:
        return json.loads(text_of(path))
    except ValueError as error:
        raise Mistake(f"{path.parent.name}/{path.name} is no JSON: {error}") from error


def rows_of(report):
    """(page or figure, case, row) of each row of a report."""
    for row in report.get("results", []):
        if "curve" in row:
            yield row["figure"], f"{row['curve']} at {row['x']}", row
        else:
            yield str(row["page_bytes"]), row["case"], row
    for row in report.get("paper", []):
        yield row["figure"], row["what"], row


def row_value(report, where):
    page, case, key, *baseline = where.split("|")
    found = {row.get(key) for at, name, row in rows_of(report)
             if at == page and fnmatch.fnmatchcase(name, case)
             and fnmatch.fnmatchcase(str(row.get("baseline", "")), (baseline or ["*"])[0])}
    if len(found) != 1:
        raise Mistake(f"{{{where}}}: {len(found)} figures fit, not one")
    return found.pop()


def path_value(report, where):
    try:
        for step in where[1:].split("/"):
            report = report[int(step) if isinstance(report, list) else step]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise Mistake(f"{{{where}}}: the file has no such place") from error
    return report


def shown(value):
    """Three digits, and all of those before the point."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{float(f'{value:.3g}'):g}"


def value_at(path, where):
    plain, factor = re.fullmatch(r"(.*?)(?:\*(\d+))?", where).groups()
    report = report_of(path)
    value = path_value(report, plain) if plain.startswith("/") else row_value(report, plain)
    if value is None:
        raise Mistake(f"{{{where}}}: the file has no figure there")
    return value if factor is None else value * int(factor)


def looked_up(path, where):
    if where.startswith("="):
        number, _, words = where[1:].partition("|")
        if not words:
            raise Mistake(f"{{{where}}}: names no line; give some words of it, as {{=1.5|CASE}}")
        if not any(re.search(rf"(?<![\d.]){re.escape(number)}(?!\.?\d)", line)
                   for line in text_of(path).split("\n") if words in line):
            raise Mistake(f"{{{where}}}: {path.parent.name}/{path.name} has no such line with it")
        return number
    return shown(value_at(path, where))


def drawn_lines(draw, root):
    """The figures of each line that tools/papers_plots.py draws, by label."""
    path = pathlib.Path(root, "bench/results", draw["file"])
    return {label: [value_at(path, where.replace("@", point)) for point in draw["points"]]
            for label, where in draw["lines"].items()}


def refuse_by_hand(text):
    found = BY_HAND.search(text)
    if found:
        raise Mistake(f"'{found.group()}' is looked up in no file; put it in braces, in ours")


def ours(item, root):
    path = pathlib.Path(root, "bench/results", item["file"])
    refuse_by_hand(re.sub(r"\{[^}]*\}", "", item["text"]) + " " + item["at"])
    text = re.sub(r"\{([^}]*)\}", lambda found: looked_up(path, found[1]), item["text"])
    return f"{item['at']}: {text} (`{item['file']}`)"


def parts(name):
    """(kind, chapter, number, letter) of an id such as Fig. 3.1a or Table IV."""
    found = re.fullmatch(r"(Fig\.|Table) (?:(\d+)\.)?(\d+|[IVX]+)([a-z]?)", name)
    if found is None:
        raise Mistake(f"'{name}' is no id of a figure or table")
    number = ROMAN.get(found[3]) or int(found[3])
    return found[1], found[2] or "", number, found[4]


def holes(ids):
    """Numbers and letters that are left out between those that are there, by kind and chapter."""
    numbered = {}
    for name in ids:
        kind, chapter, number, letter = parts(name)
        numbered.setdefault((kind, chapter), {}).setdefault(number, []).append(letter)
    for (kind, chapter), there in numbered.items():
        place = f"{kind} {chapter + '.' if chapter else ''}"
        for number in set(range(1, max(there) + 1)) - set(there):
            yield f"{place}{number} is left out"
        for number, letters in there.items():
            wanted = ([""] if letters == [""]
                      else [chr(ord("a") + n) for n in range(len(letters))])
            if sorted(letters) != wanted:
                yield f"{place}{number} has the parts {', '.join(letters)}"


def entry_mistakes(entry, root):
    if entry["state"] not in STATES:
        yield f"state '{entry['state']}' is none of {', '.join(STATES)}"
    measured = entry["state"] in ("repeated", "stands in")
    if measured and not (entry.get("ours") and entry.get("command") and entry.get("paper")):
        yield f"{entry['state']}, but numbers of the paper, ours or the command are missing"
    if not measured and entry.get("ours"):
        yield f"{entry['state']}, but it has figures of ours"
    if entry["state"] != "repeated" and not entry.get("why", "").endswith("."):
        yield "one sentence that says why is missing"
    if entry.get("plot") and not pathlib.Path(root, "docs", entry["plot"]).is_file():
        yield f"plot docs/{entry['plot']} is not there"
    try:
        refuse_by_hand(entry.get("why", ""))
        for item in entry.get("ours", []):
            ours(item, root)
        if entry.get("draw"):
            drawn_lines(entry["draw"], root)
    except Mistake as mistake:
        yield str(mistake)


def mistakes(paper, root):
    """What is wrong with the file of a paper, a line each."""
    listed = [entry["id"] for entry in paper["entries"]]
    figures = [name for name in listed if name.startswith(("Fig.", "Table"))]
    try:
        wrong = list(holes(paper["ids"]))
    except Mistake as mistake:
        wrong = [str(mistake)]
    wrong += [f"{name} has no entry" for name in paper["ids"] if name not in figures]
    wrong += [f"{name} is not in ids" for name in figures if name not in paper["ids"]]
    wrong += [f"{name} has several entries" for name in set(listed) if listed.count(name) > 1]
    for entry in paper["entries"]:
        wrong += [f"{entry['id']}: {text}" for text in entry_mistakes(entry, root)]
    return [f"{paper['name']}: {text}" for text in wrong]


def load(root):
    return [json.loads(pathlib.Path(root, f"bench/papers/{name}.json").read_text(encoding="utf-8"))
            for name in PAPERS]


def row_of(entry, root):
    figures = "<br>".join(ours(item, root) for item in entry.get("ours", []))
    command = f"`{entry['command']}`" if entry.get("command") else ""
    plot = f"[plot]({entry['plot']})" if entry.get("plot") else ""
    cells = [entry["id"], entry["state"], entry["varied"], entry.get("paper", ""),
             figures or "none", entry.get("why", ""), command, plot]
    return "| " + " | ".join(cells) + " |"


def section(paper, root):
    lines = [f"## {paper['name']}", "", paper["reference"], "",
             "| | state | varied | the paper | Penstock | why, or what differs | command | plot |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    lines += [row_of(entry, root) for entry in paper["entries"]]
    if paper.get("plots"):
        lines += ["", "The plots are drawn by:", "", "```sh", *paper["plots"].split("; "), "```"]
    plots = [(entry["id"], entry["plot"]) for entry in paper["entries"] if entry.get("plot")]
    for name, plot in plots:
        lines += ["", f"![{paper['name']}, {name}]({plot})"]
    return "\n".join(lines) + "\n"


def page(papers, root):
    counts = ["| paper | " + " | ".join(STATES) + " |", "| --- |" + " --- |" * len(STATES)]
    for paper in papers:
        states = [entry["state"] for entry in paper["entries"]]
        cells = [f"[{paper['name']}](#{paper['name'].lower().replace(' ', '-')})"]
        cells += [str(states.count(state)) for state in STATES]
        counts.append("| " + " | ".join(cells) + " |")
    meaning = "".join(f"- {text}\n" for text in STATES.values())
    begin = BEGIN + meaning + "\n" + "\n".join(counts) + "\n\n"
    return begin + "\n".join(section(paper, root) for paper in papers)


def main():
    parser = argparse.ArgumentParser(prog="papers_table", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", nargs="?", metavar="REPOSITORY",
                        default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    wanted = parser.parse_args()
    papers, out = load(wanted.repository), pathlib.Path(wanted.repository, "docs/papers.md")
    wrong = [text for paper in papers for text in mistakes(paper, wanted.repository)]
    if wrong:
        sys.exit("\n".join(wrong))
    text = page(papers, wanted.repository)
    if not wanted.check:
        out.write_text(text, encoding="utf-8")
    elif not out.is_file() or out.read_text(encoding="utf-8") != text:
        sys.exit("docs/papers.md is not what tools/papers_table.py makes; run it")


if __name__ == "__main__":
    main()
