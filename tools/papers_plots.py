#!/usr/bin/env python3
"""Draws the plots that entries of bench/papers describe by `draw`: papers_plots.py -o DIR
[REPOSITORY].

`draw` has the result `file`, the `title`, `x` and `y` (the axes), `points` along the x axis, their
`labels` if these are others, and `lines`: for each label the place of its figures as in
tools/papers_table.py, in which @ is the point. Other plots are drawn by tools/plots.py and
tools/buffer_plots.py. Needs matplotlib (Debian: python3-matplotlib). Exit status: 0 drawn; 1
matplotlib or a figure is not there."""
import argparse
import pathlib
import sys

import papers_table


def draw(entry, root, folder, pyplot):
    wanted = entry["draw"]
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for label, values in papers_table.drawn_lines(wanted, root).items():
        axes.plot(range(len(values)), values, marker="o", label=label)
    axes.set_xticks(range(len(wanted["points"])), wanted.get("labels", wanted["points"]))
    axes.set(xlabel=wanted["x"], ylabel=wanted["y"], title=wanted["title"])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.text(0.99, 0.01, wanted["file"], ha="right", fontsize=6)
    figure.tight_layout()
    figure.savefig(folder / pathlib.Path(entry["plot"]).name, dpi=150)
    pyplot.close(figure)
    print(f"{entry['id']}: {folder / pathlib.Path(entry['plot']).name}")


def main():
    parser = argparse.ArgumentParser(prog="papers_plots", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", nargs="?", metavar="REPOSITORY",
                        default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("-o", "--out", required=True, metavar="DIR",
                        help="where the pictures go; made if it is not there")
    wanted = parser.parse_args()
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit(f"papers_plots: matplotlib is not there for {sys.executable}; install it (Debian: "
                 "apt-get install python3-matplotlib) and run with the python3 that has it")
    folder = pathlib.Path(wanted.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for paper in papers_table.load(wanted.repository):
            for entry in paper["entries"]:
                if entry.get("draw"):
                    draw(entry, wanted.repository, folder, pyplot)
    except OSError as error:
        sys.exit(f"papers_plots: '{folder}': {error.strerror}; give another -o")
    except papers_table.Mistake as mistake:
        sys.exit(f"papers_plots: {mistake}")


if __name__ == "__main__":
    main()
