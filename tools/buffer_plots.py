#!/usr/bin/env python3
"""Draws figures 4(a-c), 5(a-d) and 6 of the paper on GRAM and DEDU (ICCS 2011) for Penstock:
buffer_plots.py RESULT.json -o FOLDER.

RESULT.json is what tools/buffer_figures.py wrote. Lines are ours; crosses and dotted lines are what
the paper's text gives in numbers, as shares of our own baseline where it gives shares, and where
the data fits in the paper if the text does not say where. A figure without any point is left out,
and that is said. Needs matplotlib (Debian: python3-matplotlib). Exit status: 0 something was drawn;
1 nothing was, or the file cannot be read; 2 wrong usage."""
import argparse
import json
import pathlib
import sys

PAPER = {"color": "black", "linewidth": 1}
COLORS = {"native": "C7", "gram": "C0", "dedu": "C1", "dedu, host alone": "C2"}


def load_pyplot():
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        return pyplot
    except ImportError:
        sys.exit(f"buffer_plots: matplotlib is not there for {sys.executable}; install it (Debian: "
                 "apt-get install python3-matplotlib) and run with the python3 that has it")


class Result:
    def __init__(self, path):
        self.all = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.figures, self.settings, self.machine = (self.all["figures"], self.all["settings"],
                                                     self.all["machine"])
        self.curves = {}
        for row in self.all["results"]:
            if row["value"] is not None:
                self.curves.setdefault(row["figure"], {}).setdefault(row["curve"], []).append(row)
        self.foot = self.foot_of()

    def value(self, figure, curve, x=None):
        """None if there is no such point."""
        rows = self.curves.get(figure, {}).get(curve, [])
        return next((row["value"] for row in rows if row["x"] in (x, None)), None)

    def foot_of(self):
        device = (self.machine["device"] if self.machine["device"] != "none"
                  else f"{self.machine['cores']} cores")
        origin = "simulated" if self.settings["simulate"] else device
        return f"{origin}, {self.settings['scale']} of the paper's sizes, {self.machine['commit']}"


def lines(result, axes, figure, key="value", style="-"):
    """A line for each curve; one that is the same along the whole axis is drawn across."""
    for curve, rows in result.curves[figure].items():
        points = sorted((row["x"], row[key]) for row in rows
                        if row["x"] is not None and row.get(key) is not None)
        across = [row[key] for row in rows if row["x"] is None]
        if points:
            axes.plot(*zip(*points), style, marker="o", color=COLORS.get(curve),
                      label=curve if key == "value" else f"{curve}, {key.replace('_', ' ')}")
        for value in across:
            axes.axhline(value, linestyle="--", color=COLORS.get(curve), label=curve)


def cross(axes, x, value, label):
    if value is not None:
        axes.plot([x], [value], "x", markersize=9, color="black", label=f"paper: {label}")


def marks_4a(result, axes):
    axes.axvline(596, linestyle=":", label="paper: the working set fits", **PAPER)
    native = result.value("4a", "native")
    cross(axes, 596, None if native is None else 0.17 * native, "83 % less than native, at most")


def marks_4c(result, axes):
    native = result.value("4c", "native", 128)
    cross(axes, 128, None if native is None else 0.1 * native, "90 % less than native, at most")
    ticks = sorted({row["x"] for rows in result.curves["4c"].values() for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])


def marks_5a(result, axes):
    gram = result.value("5a", "gram")
    cross(axes, 1, None if gram is None else 1.05 * gram, "5 % more than gram at factor 1")
    cross(axes, 10, None if gram is None else 0.19 * gram, "81 % less than gram, at most")
    axes.axvline(5, linestyle=":", label="paper: the data fits", **PAPER)


def marks_5d(_, axes):
    axes.axvspan(32, 64, alpha=0.1, color="black",
                 label="paper: dedu begins to cost more than gram")


def marks_6(result, axes):
    most = max((row["x"] for row in result.curves["6"].get("native", [])), default=None)
    native = result.value("6", "native", most)
    cross(axes, most, None if native is None else 0.32 * native, "68 % less than native, at most")
    right = axes.twinx()
    lines(result, right, "6", "sharing_ratio", "--")
    right.axhline(0.4, linestyle=":", label="paper: sharing ratio, at most", **PAPER)
    right.set(ylabel="sharing ratio (dashed)", ylim=(0, 1))


MARKS = {"4a": marks_4a, "4c": marks_4c, "5a": marks_5a, "5d": marks_5d, "6": marks_6}


def draw(name, result, folder, pyplot):
    """True if the figure could be drawn."""
    if name not in result.curves:
        said = next((row["message"] for row in result.all["results"]
                     if row["figure"] == name and row["message"]),
                    "there is none in the file")
        print(f"figure {name}: left out, for it has no point; {said}")
        return False
    figure, axes = pyplot.subplots(figsize=(7, 5.5))
    lines(result, axes, name)
    MARKS.get(name, lambda *_: None)(result, axes)
    unit = next(row["unit"] for rows in result.curves[name].values() for row in rows)
    axes.set(xlabel=result.figures[name]["x"],
             ylabel=unit if " / " in unit else f"{unit} per access",
             title=f"Figure {name}: {result.figures[name]['title']}")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    handles = [entry for each in figure.axes for entry in zip(*each.get_legend_handles_labels())]
    axes.legend(*zip(*handles), fontsize=7, ncol=2, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.text(0.99, 0.01, result.foot, ha="right", fontsize=6)
    figure.tight_layout()
    figure.savefig(folder / f"buffer-{name}.png", dpi=150)
    pyplot.close(figure)
    print(f"figure {name}: {folder / f'buffer-{name}.png'}")
    return True


def load(path):
    try:
        return Result(path)
    except OSError as error:
        sys.exit(f"buffer_plots: '{path}': {error.strerror}; name a file that "
                 "tools/buffer_figures.py wrote")
    except (ValueError, KeyError, TypeError):
        sys.exit(f"buffer_plots: '{path}' is no result of tools/buffer_figures.py; name a file "
                 "that it wrote")


def main():
    parser = argparse.ArgumentParser(prog="buffer_plots", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", metavar="RESULT.json", help="what tools/buffer_figures.py wrote")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER",
                        help="where the pictures go; made if it is not there")
    wanted = parser.parse_args()
    result, pyplot, folder = load(wanted.result), load_pyplot(), pathlib.Path(wanted.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"buffer_plots: '{folder}': {error.strerror}; give another -o")
    drawn = [draw(name, result, folder, pyplot) for name in result.figures]
    print(f"{sum(drawn)} figures drawn, {len(drawn) - sum(drawn)} left out")
    sys.exit(0 if any(drawn) else 1)


if __name__ == "__main__":
    main()
