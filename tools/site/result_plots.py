#!/usr/bin/env python3
"""Draws the plots of docs/images from results: result_plots.py [--check].

Each plot shows figures of one result file beside their baselines of the same run, and names file,
card and conditions. The figures stand in the picture as text too, so --check compares them with the
results without drawing: exit status 1 if a picture is missing or has other figures. Drawing needs
matplotlib (Debian: python3-matplotlib)."""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/images"
RESULTS = ROOT / "bench/results"

TABLES = "h100/2026-11-26-tables.json"
MISSES = "h100/2026-11-24-miss.json"
SIZES = {"64 B": 64, "256 B": 256, "512 B": 512, "1 KiB": 1024, "4 KiB": 4096}
OURS, THEIRS = "#3949ab", "#9e9e9e"


def rows_of(file):
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))["results"]


def only(rows, case, **fields):
    """The row of a case; of several equal ones the baseline or page size tells."""
    found = [row for row in rows if row["case"] == case
             and all(row[key] == value for key, value in fields.items())]
    if len(found) != 1:
        raise SystemExit(f"result_plots: {case} {fields}: {len(found)} rows fit")
    return found[0]


def p50(row, of_baseline=False):
    """Microseconds, from the note of the row."""
    pattern = r"baseline p50 ([\d.]+) us" if of_baseline else r"^p50 ([\d.]+) us"
    found = re.search(pattern, row["note"])
    return float(found.group(1))


def rows_points():
    """GB/s of rows by the size of a row: panel -> size -> [table, baseline]."""
    rows, panels = rows_of(TABLES), {}
    for title, case in (("first touch: uniform rows of 1 GiB",
                         "table through windows over 1 GiB, cache 1/16, rows of {}"),
                        ("repeats: Zipf's law, 0.99, over 1 GiB",
                         "table, Zipf 0.99 over 1 GiB, cache 1/16, rows of {}"),
                        ("hits: 1 GiB, all in the cache", "table, all resident, rows of {}")):
        panels[title] = {}
        for name, size in SIZES.items():
            # The file has the cases over 1 GiB first, then those over 8.
            row = next(row for row in rows if row["case"] == case.format(name))
            panels[title][name] = [round(row[key] * size / 1e3, 2)
                                   for key in ("value", "baseline_value")]
    return panels


def lists_points():
    """Median microseconds of a launch and its wait, by the number of rows."""
    rows, lines = rows_of(TABLES), {}
    for count in (16, 64, 256, 1024, 4096, 16384, 65536):
        case = f"table through windows, {count} rows of 256 B"
        by_baseline = {row["baseline"]: row for row in rows if row["case"] == case}
        points = {"table, first touches": p50(next(iter(by_baseline.values()))),
                  "table in a graph, the same rows again":
                      p50(only(rows, f"table in a graph, {count} rows of 256 B"))}
        points |= {name: p50(row, of_baseline=True) for name, row in by_baseline.items()}
        for name, value in points.items():
            lines.setdefault(name, {})[str(count)] = value
    return lines


def misses_points():
    """GB/s of reads that miss the cache: what is read -> [Penstock, baseline]."""
    rows, bars = rows_of(MISSES), {}
    through = "loads of random pages through windows, cache 1/16 of the file"
    for label, case, page in (
            ("random pages of 64 KiB, windows", through, 65536),
            ("random pages of 4 KiB, windows", through, 4096),
            ("random pages of 512 B, windows", through, 512),
            ("whole file, windows opened before", "whole file, windows open", 65536),
            ("whole file, opening windows in the time",
             "whole file, windows opened first, in the time", 65536),
            ("whole file, by requests, no windows", "whole file, by requests", 65536)):
        row = only(rows, case, page_bytes=page)
        bars[label] = [row["value"], row["baseline_value"]]
    return bars


def draw_rows(pyplot, points):
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.8))
    for axes, (title, sizes) in zip(panels, points.items()):
        for side, color, label in ((0, OURS, "Penstock"),
                                   (1, THEIRS, "plain kernel")):
            axes.bar([at + 0.4 * side - 0.2 for at in range(len(sizes))],
                     [pair[side] for pair in sizes.values()], 0.38, color=color, label=label)
        for at, pair in enumerate(sizes.values()):
            axes.annotate(f"{pair[0] / pair[1]:.2f}", (at, max(pair)), ha="center", va="bottom",
                          fontsize=8)
        axes.set_xticks(range(len(sizes)), list(sizes))
        axes.set(title=title, xlabel="bytes of a row")
        axes.margins(y=0.1)
    panels[0].set_ylabel("GB/s of rows")
    panels[1].legend(fontsize=7, loc="upper left")
    return figure, ("Above each pair: Penstock's share of the plain kernel, which reads the same "
                    "rows from pinned host memory (hits: from device memory).\nOne H100, file in "
                    "memory, windows opened before the time, cache a 16th of the file but for "
                    "hits, medians of 5; " + TABLES)


def draw_lists(pyplot, points):
    figure, axes = pyplot.subplots(figsize=(8, 4.6))
    styles = {"table, first touches": (OURS, "-"),
              "table in a graph, the same rows again": (OURS, "--"),
              "plain kernel from pinned memory": ("#424242", "-"),
              "take from a mapping and copy": ("#ef6c00", "-"),
              "io_uring by hand and copy": ("#8e24aa", "-")}
    for name, line in points.items():
        color, style = styles[name]
        axes.plot(list(map(int, line)), list(line.values()), style, color=color, marker="o",
                  markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    counts = list(next(iter(points.values())))
    axes.set_xticks(list(map(int, counts)), counts)
    axes.set(title="A list of rows of 256 bytes: from the launch to its end", xlabel="rows",
             ylabel="median, microseconds")
    axes.legend(fontsize=8)
    return figure, ("One H100, file of 1 GiB in memory, windows opened before the time, take and "
                    "io_uring by one thread,\n2000 rounds in turns (100 to 512 from 4096 rows on); "
                    + TABLES)


def draw_misses(pyplot, points):
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for side, color, label in ((0, OURS, "Penstock"), (1, THEIRS, "baseline")):
        axes.barh([-at - 0.4 * side + 0.2 for at in range(len(points))],
                  [pair[side] for pair in points.values()], 0.38, color=color, label=label)
    for at, pair in enumerate(points.values()):
        axes.annotate(f"{pair[0] / pair[1]:.2f}", (max(pair), -at), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks([-at for at in range(len(points))], list(points))
    axes.set(title="Reads of a file in memory that miss the cache", xlabel="GB/s")
    axes.margins(x=0.08)
    axes.legend(fontsize=8, loc="center right", bbox_to_anchor=(1, 0.62))
    return figure, ("Beside each pair: Penstock's share. Baselines: warps that copy random pages "
                    "of pinned memory; for whole files\na pipeline of pread by all cores and "
                    "cudaMemcpyAsync. One H100, file of 8 GiB, medians of 5; " + MISSES)


PLOTS = {"rows": (rows_points, draw_rows), "lists": (lists_points, draw_lists),
         "misses": (misses_points, draw_misses)}


def text_of(points):
    return json.dumps(points, separators=(",", ":"))


def drawn(name):
    """The figures of a picture as it is, or None."""
    path = IMAGES / f"{name}.svg"
    if not path.is_file():
        return None
    found = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(encoding="utf-8"))
    return found and json.loads(found.group(1).replace("&quot;", '"').replace("&amp;", "&"))


def check():
    wrong = [name for name, (points, _) in PLOTS.items()
             if text_of(drawn(name)) != text_of(points())]
    unknown = {path.stem for path in IMAGES.glob("*.svg")} - set(PLOTS)
    for name in sorted([*wrong, *unknown]):
        print(f"docs/images/{name}.svg does not show what the results have; run "
              "tools/site/result_plots.py")
    return 1 if wrong or unknown else 0


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    if sys.argv[1:]:
        sys.exit(f"result_plots: '{sys.argv[1]}' is no option; usage: result_plots.py [--check]")
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit(f"result_plots: matplotlib is not there for {sys.executable}; install it (Debian: "
                 "apt-get install python3-matplotlib) and run with the python3 that has it")
    # Text stays text, and the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "penstock",
                                "axes.spines.top": False, "axes.spines.right": False,
                                "axes.grid": True, "axes.grid.axis": "both", "grid.alpha": 0.25,
                                "axes.axisbelow": True, "axes.titlesize": 10, "font.size": 9})
    IMAGES.mkdir(exist_ok=True)
    for name, (points, draw) in PLOTS.items():
        figures = points()
        figure, caption = draw(pyplot, figures)
        figure.tight_layout(rect=(0, 0.09, 1, 1))
        figure.text(0.01, 0.015, caption, fontsize=7, color="#616161")
        figure.savefig(IMAGES / f"{name}.svg", facecolor="white",
                       metadata={"Date": None, "Creator": None, "Title": name,
                                 "Description": text_of(figures)})
        print(f"docs/images/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
