#!/usr/bin/env python3
"""Draws what the figures of two papers show, for Penstock, from results of penstock bench: plots.py
RESULTS... -o DIR.

  systor-4   share of accesses that miss, by size of the cache            policy
  systor-5   bytes loaded for each byte asked for, by page size           miss --sweep
  systor-6   rate and size of what is served together, by threads that serve, calls by blocks
             request --sweep, gpu
  systor-7   the same, calls by warps (threads on the cpu back end)       request --sweep
  systor-8   time of a run that evicts, by shards of the clock            miss --sweep
  gpufs-7    whole file in order, by page size                            sequential --sweep
  gpufs-8    what the time of a whole file is spent on, by page size      sequential --sweep
  gpufs-9    random blocks of 32 KiB, by page size                        miss --sweep
  gpufs-10   cached reads, as a share of plain memory, by page size       hit map --sweep

Rows of several files are put together; of two with the same case, back end and page size the later
one counts. A figure whose rows are not there is left out, and that is said. Needs matplotlib
(Debian: python3-matplotlib). Exit status: 0 something was drawn; 1 nothing was, or a file cannot be
read; 2 wrong usage."""
import argparse
import json
import pathlib
import re
import sys

KIB = 1024
CACHE = re.compile(r"cache 1/(\d+) of the (?:file|pages)")
SERVED = re.compile(
    r"requests of random pages by (\w+), (\d+) service threads?, (cache [^,]*)(, taken together)?")
SHARDS = re.compile(r"random pages, (\d+) clock shards?")
POLICY = re.compile(r"policy, (.*), cache 1/(\d+) of the pages, (.*)")


class Missing(Exception):
    """The rows that a figure needs are not in the inputs."""


class Results:
    def __init__(self, paths):
        self.rows, self.devices = {}, []
        for path in paths:
            report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            machine, rows = report["machine"], report["results"]
            if machine["device"] == "cpu":
                device = f"{machine['cores']} cores"
            else:
                device = machine["device"]
            if device not in self.devices:
                self.devices.append(device)
            for row in rows:
                self.rows[row["backend"], row["case"], row["page_bytes"]] = row

    def backends(self):
        return sorted({backend for backend, _, _ in self.rows}, reverse=True)

    def matching(self, backend, pattern):
        """(match, row) of every row whose whole case matches."""
        for (where, case, _), row in self.rows.items():
            match = (pattern.fullmatch(case) if hasattr(pattern, "fullmatch")
                     else (case if case == pattern else None))
            if where == backend and match:
                yield match, row

    def by_page(self, backend, pattern, key="value"):
        """For each case that matches: its name, and (page size in KiB, figure) in order of the page
        size."""
        cases = {}
        for _, row in self.matching(backend, pattern):
            cases.setdefault(row["case"], []).append((row["page_bytes"] / KIB, row[key]))
        return [(case, sorted(points)) for case, points in cases.items()]


def from_zero(*all_axes):
    """Values begin at zero and end a little above the largest."""
    for axes in all_axes:
        axes.set_ylim(0, 1.1 * max((max(line.get_ydata()) for line in axes.get_lines()), default=1))


def page_axis(axes, ticks):
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axes.set_xlabel("page size, KiB")


def lines_by_page(results, axes, cases, least, key="value", change=lambda value: value):
    """One line for each case that has at least `least` page sizes. `cases`: what to match, and its
    label."""
    ticks = set()
    for backend in results.backends():
        for pattern, label in cases:
            lines = [line for line in results.by_page(backend, pattern, key)
                     if len(line[1]) >= least]
            for case, points in lines:
                name = label if len(lines) == 1 else case
                axes.plot([page for page, _ in points], [change(value) for _, value in points],
                          marker="o", label=f"{name} ({backend})")
                ticks.update(page for page, _ in points)
    if not ticks:
        raise Missing
    page_axis(axes, ticks)


def systor_4(results, axes):
    drawn = set()
    for backend in results.backends():
        points = {}
        for match, row in results.matching(backend, POLICY):
            if match[3] == "CLOCK" and row["unit"] == "hit ratio":
                points.setdefault(match[1],
                                  []).append((1 / int(match[2]), 100 * (1 - row["value"])))
        for trace, line in sorted(points.items()):
            axes.plot(*zip(*sorted(line)), marker="o", label=trace)
            drawn.update(size for size, _ in line)
    if not drawn:
        raise Missing
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(drawn), [f"1/{round(1 / size)}" for size in sorted(drawn)])
    axes.set(xlabel="size of the cache, of the pages", ylabel="accesses that miss, %",
             ylim=(0, 102), title="Misses of the engine's clock (simulated)")


def systor_5(results, axes):
    lines_by_page(results, axes, [("random records of 3 KiB, loaded", "records of 3 KiB"),
                                  ("random blocks of 32 KiB, loaded", "blocks of 32 KiB")],
                  2)
    axes.set_yscale("log", base=2)
    axes.set(ylabel="bytes loaded for each byte asked for", title="Redundant data, by page size")


def served_by(results, axes, callers, title):
    """Rate as lines, and on a second axis how much was taken together, dashed; the cache nearest to
    a 16th of the file."""
    right, drawn, ticks = axes.twinx(), 0, set()
    for backend in results.backends():
        found = [(match, row) for match, row in results.matching(backend, SERVED)
                 if match[1] in callers]
        caches = sorted({match[3] for match, _ in found},
                        key=lambda cache: abs(int((CACHE.search(cache) or [0, 1])[1]) - 16))
        for page in sorted({row["page_bytes"] for match, row in found if match[3] == caches[0]}):
            for together, side, style in ((None, axes, "-"), (", taken together", right, "--")):
                line = sorted((int(match[2]), row["value"]) for match, row in found
                              if match[3] == caches[0] and row["page_bytes"] == page
                              and match[4] == together)
                if len(line) < 2:
                    continue
                quantity = "taken together" if together else "rate"
                side.plot(*zip(*line), style, marker="o", color=f"C{drawn // 2}",
                          label=f"{quantity}, {page // KIB or page / KIB} KiB pages ({backend})")
                ticks.update(threads for threads, _ in line)
                drawn += 1
    if not drawn:
        raise Missing
    axes.set_xticks(sorted(ticks))
    axes.set(xlabel="threads that serve requests", ylabel="GB/s", title=title)
    right.set(ylabel="taken together in the mean, KiB (dashed)")
    from_zero(axes, right)


def systor_6(results, axes):
    served_by(results, axes, {"blocks"}, "Requests by blocks")


def systor_7(results, axes):
    served_by(results, axes, {"warps", "threads"}, "Requests by warps (gpu) or threads (cpu)")


def systor_8(results, axes):
    ticks = set()
    for backend in results.backends():
        line = sorted((int(match[1]), row["value"])
                      for match, row in results.matching(backend, SHARDS))
        if len(line) >= 2:
            axes.plot(*zip(*line), marker="o", label=backend)
            ticks.update(shards for shards, _ in line)
    if not ticks:
        raise Missing
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [str(tick) for tick in sorted(ticks)])
    axes.set(xlabel="shards of the clock", ylabel="seconds",
             title="Time of a run that evicts, by shards")
    from_zero(axes)


WHOLE_FILE = [("whole file, windows open", "windows"),
              ("whole file, windows opened first, in the time", "windows, with opening"),
              ("whole file, by requests", "requests"),
              ("whole file, prefetch by one thread", "requests, one thread"),
              ("no Penstock: pipeline by hand, pieces of a page",
               "pipeline by hand, pieces of a page")]
AT_ONCE = [("no Penstock: the file in one piece", "value", "file in one piece"),
           ("no Penstock: pipeline by hand, pieces of 4 MiB", "baseline_value", "copy engine"),
           ("whole file, by requests", "baseline_value", "pread or pipeline by hand")]


def gpufs_7(results, axes):
    lines_by_page(results, axes, WHOLE_FILE, 2)
    for backend in results.backends():
        for case, key, label in AT_ONCE:
            values = [row[key] for _, row in results.matching(backend, case)]
            if values:
                axes.axhline(sorted(values)[len(values) // 2], linestyle=":", color="black",
                             linewidth=1)
                axes.annotate(f"{label} ({backend})", (0.01, sorted(values)[len(values) // 2]),
                              xycoords=("axes fraction", "data"), fontsize=7, va="bottom")
    axes.set(ylabel="GB/s", title="Whole file into the cache, by page size")
    from_zero(axes)


def gpufs_8(results, axes):
    lines_by_page(results, axes,
                  [("whole file, in the cache already: look-ups only", "look-ups only"),
                   ("whole file, windows open", "look-ups and the bus"),
                   ("whole file, windows opened first, in the time", "and opening windows"),
                   ("whole file, by requests", "look-ups, reads by the CPU, the bus")],
                  2, change=lambda rate: 1e3 / rate)
    axes.set_yscale("log")
    axes.set(ylabel="milliseconds for each GB", title="What a whole file takes, part by part")


def gpufs_9(results, axes):
    lines_by_page(results, axes, [("random blocks of 32 KiB", "Penstock")], 2)
    lines_by_page(results, axes, [("random blocks of 32 KiB", "pread, all cores")], 2,
                  key="baseline_value")
    axes.set(ylabel="GB/s of what was asked for", title="Random blocks of 32 KiB, by page size")
    from_zero(axes)


def gpufs_10(results, axes):
    lines_by_page(results, axes,
                  [("hit, copying read into shared memory", "copying read"),
                   ("hit, map, look, unmap", "map, look, unmap"),
                   (re.compile(r"hit, 1 thread, .*"), "copying read, 1 thread"),
                   (re.compile(r"map, look at 4 KiB, unmap, .*"), "map, look, unmap")],
                  2, key="ratio", change=lambda ratio: 100 * ratio)
    axes.axhline(100, linestyle=":", color="black", linewidth=1)
    axes.set(ylabel="% of plain memory", title="Cached reads, by page size")
    from_zero(axes)


FIGURES = {"systor-4": (systor_4, "policy"), "systor-5": (systor_5, "miss --sweep"),
           "systor-6": (systor_6, "request --sweep on a GPU"),
           "systor-7": (systor_7, "request --sweep"), "systor-8": (systor_8, "miss --sweep"),
           "gpufs-7": (gpufs_7, "sequential --sweep"), "gpufs-8": (gpufs_8, "sequential --sweep"),
           "gpufs-9": (gpufs_9, "miss --sweep"), "gpufs-10": (gpufs_10, "hit map --sweep")}


def draw(name, results, folder, pyplot):
    """True if the figure could be drawn."""
    body, needs = FIGURES[name]
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    try:
        body(results, axes)
    except Missing:
        print(f"{name}: left out, for the inputs have no rows for it; measure with: penstock bench "
              f"{needs}")
        return False
    finally:
        pyplot.close(figure)
    handles = [entry for each in figure.axes for entry in zip(*each.get_legend_handles_labels())]
    axes.legend(*zip(*handles), fontsize=7)
    axes.grid(alpha=0.3)
    figure.text(0.99, 0.01, ", ".join(results.devices), ha="right", fontsize=6)
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=150)
    print(f"{name}: {folder / (name + '.png')}")
    return True


def load(paths):
    for path in paths:
        try:
            Results([path])
        except OSError as error:
            sys.exit(f"plots: '{path}': {error.strerror}; name a file that penstock bench wrote")
        except (ValueError, KeyError, TypeError):
            sys.exit(f"plots: '{path}' is no report of penstock bench; name a file that it wrote")
    return Results(paths)


def main():
    parser = argparse.ArgumentParser(prog="plots", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="reports of penstock bench")
    parser.add_argument("-o", "--out", required=True, metavar="DIR",
                        help="where the pictures go; made if it is not there")
    wanted = parser.parse_args()
    results = load(wanted.results)
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit(f"plots: matplotlib is not there for {sys.executable}; install it (Debian: "
                 "apt-get install python3-matplotlib) and run with the python3 that has it")
    folder = pathlib.Path(wanted.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"plots: '{folder}': {error.strerror}; give another -o")
    drawn = [draw(name, results, folder, pyplot) for name in FIGURES]
    print(f"{sum(drawn)} figures drawn, {len(drawn) - sum(drawn)} left out")
    sys.exit(0 if any(drawn) else 1)


if __name__ == "__main__":
    main()
