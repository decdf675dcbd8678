#!/usr/bin/env python3
"""Measures what figures 4(a-c), 5(a-d) and 6 of the paper on GRAM and DEDU (ICCS 2011) show, for
Penstock:

  tools/buffer_figures.py PROGRAM -o RESULT.json [--plots FOLDER] [--simulate] [--scale F]
  [--figures 4a,5d] [--skew S] [--time-limit S] ...

PROGRAM is penstock. Proportions are the paper's: 64 Ki pages of 4 KiB in host and device memory
each, a working set five times both, four million accesses, all of it times F. Each page is as
likely as every other, but with --skew, and in figure 6. Files are made in a
folder of their own below --data and go again. RESULT.json has a row for each point, the median of
its runs, or the message why there is none; the paper's numbers, as far as its text has them, beside
ours; the machine and the settings. --plots draws it as tools/buffer_plots.py does.

A cost is milliseconds per access; with --simulate, which reads no file, pages read from and written
to the disk per access. A utility is by how many percent points fewer accesses miss than natively,
for each MiB of device memory.

With --time-limit, or when it is interrupted, what was measured by then is kept. All points are
measured once before any is measured again. Exit status: 0 each point was measured, refused by the
program, or left out because time was over; 1 a run failed, it was interrupted, or no point was
measured; 2 wrong usage."""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from fractions import Fraction

import bench_machine
import buffer_paper
import buffer_runs

POLICIES = ["native", "gram", "dedu"]
# Of a run's report, as far as it has them.
KEPT = ["accesses", "reads", "writes", "host_hits", "device_hits", "misses", "loads", "write_backs",
        "bytes_to_device", "bytes_from_device", "device_bytes_per_second", "host_hit_share",
        "device_hit_share", "miss_share", "sharing_ratio", "backend", "past_the_page_cache",
        "flush_seconds", "kept_back", "stand_backs", "device_cost_share"]


class WrongUsage(Exception):
    """What was asked for cannot be; said before anything is made."""


def chosen(flag, text, known):
    asked = text.split(",") if text else known
    for name in asked:
        if name not in known:
            raise WrongUsage(f"{flag}: '{name}' is not known; give some of {','.join(known)}")
    return [name for name in known if name in asked]


def number(flag, text, convert, fits, cure):
    try:
        value = convert(text)
        if fits(value):
            return value
    except (ValueError, ZeroDivisionError):
        pass
    raise WrongUsage(f"{flag}: '{text}' is not possible; give {cure}")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="buffer_figures", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM", help="penstock")
    parser.add_argument("-o", "--out", required=True, metavar="RESULT.json",
                        help="file that gets the result; one that is there is replaced")
    parser.add_argument("--plots", metavar="FOLDER", help="draw it there too; needs matplotlib")
    parser.add_argument(
        "--scale", default="1/64", metavar="F",
        help="of the paper's sizes, such as 1/64 (the default) or 0.25; 1 is the paper's")
    parser.add_argument("--figures", default="", metavar="LIST",
                        help="which, such as 4a,5d; default: all")
    parser.add_argument("--policies", default="", metavar="LIST",
                        help="which of native,gram,dedu; default: all")
    parser.add_argument("--skew", default="0", metavar="S",
                        help="figures 4 and 5 take the n-th hottest page as 1/n^S, S up to 5, in "
                             "place of all alike (0, the default)")
    parser.add_argument("--simulate", action="store_true", help="count, and read no file")
    parser.add_argument("--backend", choices=["gpu", "cpu"],
                        help="where the device's part lies; default: a GPU if there is one")
    parser.add_argument("--data", default=tempfile.gettempdir(), metavar="DIR",
                        help="folder on the disk to be measured; default: %(default)s")
    parser.add_argument(
        "--cached", action="store_true",
        help="through the operating system's page cache; then the times are not a disk's")
    parser.add_argument("--always-gram", action="store_true",
                        help="gram uses its device also where it does not pay")
    parser.add_argument("--blocks", default="4", metavar="D",
                        help="blocks in a page, for dedu; default: 4")
    parser.add_argument("--repeats", metavar="N", help="runs of each point; default: 3, or 1 with "
                                                       "--simulate, where all are equal")
    parser.add_argument("--seed", default="1", metavar="S", help="of the traces; default: 1")
    parser.add_argument("--time-limit", metavar="S",
                        help="seconds after which the rest is left out; default: none")
    parser.add_argument("--commit", metavar="TEXT",
                        help="what the result calls the program's version; default: git is asked")
    parser.add_argument("--note", default="", metavar="TEXT",
                        help="what else is to be known of the machine")
    wanted = parser.parse_args(arguments)
    wanted.figures = chosen("--figures", wanted.figures, list(buffer_paper.FIGURES))
    wanted.policies = chosen("--policies", wanted.policies, POLICIES)
    wanted.scale = number("--scale", wanted.scale, Fraction,
                          lambda f: buffer_paper.LEAST_SCALE <= f <= 1,
                          f"a number from {buffer_paper.LEAST_SCALE} to 1, such as 1/64")
    wanted.skew = number("--skew", wanted.skew, float, lambda s: s == 0 or 0.001 <= s <= 5,
                         "0, or a number from 0.001 to 5")
    wanted.repeats = number("--repeats", wanted.repeats or ("1" if wanted.simulate else "3"), int,
                            lambda n: 1 <= n <= 1000, "a whole number from 1 to 1000")
    wanted.seed = number("--seed", wanted.seed, int, lambda n: 0 <= n < 1 << 64,
                         "a whole number from 0 to 2^64 - 1")
    wanted.blocks = number("--blocks", wanted.blocks, int, lambda n: n in (1, 2, 4, 8, 16, 32, 64),
                           "a power of two from 1 to 64")
    if wanted.time_limit is not None:
        wanted.time_limit = number("--time-limit", wanted.time_limit, float, lambda s: 0 < s <= 1e9,
                                   "seconds above 0")
    if wanted.simulate and (wanted.backend or wanted.cached or wanted.always_gram):
        raise WrongUsage("--backend, --cached and --always-gram are of runs against files; leave "
                         "them out, or --simulate")
    return wanted


def check_places(wanted, plan):
    program = shutil.which(wanted.program)
    if program is None:
        raise WrongUsage(f"'{wanted.program}' is no program; give the path of penstock")
    wanted.program = str(pathlib.Path(program).resolve())
    folder = pathlib.Path(wanted.out).resolve().parent
    if (not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK)
        or pathlib.Path(wanted.out).is_dir()):
        raise WrongUsage(f"-o: '{wanted.out}' cannot be a file; give one in a folder that exists "
                         "and can be written to")
    if not os.path.isdir(wanted.data) or not os.access(wanted.data, os.W_OK | os.X_OK):
        raise WrongUsage(
            f"--data: '{wanted.data}' is no folder that can be written to; give one that exists")
    # A binary record has at most 40 bytes.
    need = max((40 * load.accesses + (0 if wanted.simulate else load.data_bytes())
                for load in plan.runs()),
               default=0)
    free = shutil.disk_usage(wanted.data).free
    if need > free:
        raise WrongUsage(f"--data: '{wanted.data}' has {free >> 20} MiB free, and "
                         f"{(need >> 20) + 1} MiB are needed; give another folder, or a smaller "
                         "--scale")
    if not plan.points:
        raise WrongUsage(f"--policies: these figures have no point of {','.join(wanted.policies)}; "
                         "give more of either")
    if wanted.plots:
        if os.path.exists(wanted.plots) and not os.path.isdir(wanted.plots):
            raise WrongUsage(f"--plots: '{wanted.plots}' is no folder; give another")
        import buffer_plots
        buffer_plots.load_pyplot()


def cost_of(report):
    """Of one access. A simulation knows no time: what a disk does is what it counts."""
    return (report["ms_per_access"] if "ms_per_access" in report
            else (report["loads"] + report["write_backs"]) / max(report["accesses"], 1))


def row_of(point, runner):
    outcome, base = runner.outcomes[point.run], runner.outcomes.get(point.base)
    run, device_mib = point.run, point.run.device_pages * buffer_paper.PAGE_BYTES / (1 << 20)
    row = {"figure": point.figure, "curve": point.curve, "x": point.x, "value": None, "unit": "",
           "values": [],
           "message": outcome.message() or (None if outcome.reports else "not measured yet"),
           "policy": run.policy, "host_pages": run.host_pages, "device_pages": run.device_pages,
           "working_set_pages": run.workload.pages * max(run.workload.machines, 1),
           "factor": run.workload.factor, "write_percent": run.workload.writes,
           "machines": run.workload.machines, "distinct_pages": runner.distinct.get(run.workload)}
    if base is not None:
        row["unit"] = "percent points / MiB"
        row["message"] = row["message"] or base.message()
        row["values"] = [100 * (native["miss_share"] - report["miss_share"]) / device_mib
                         for native, report in zip(base.reports, outcome.reports)]
    else:
        row["unit"] = "pages of disk I/O" if runner.settings.simulate else "ms"
        row["values"] = [cost_of(report) for report in outcome.reports]
    if row["values"]:
        row["value"] = statistics.median(row["values"])
        # Of the run in the middle. The counts of gram, which may stand back, differ a little.
        middle = sorted(outcome.reports, key=cost_of)[len(outcome.reports) // 2]
        row.update({name: middle[name] for name in KEPT
                    if name in middle and (name != "sharing_ratio" or run.policy == "dedu")})
    row["value"], row["values"] = (row["value"] and float(f"{row['value']:.6g}"),
                                   [float(f"{value:.6g}") for value in row["values"]])
    return row


def result_of(wanted, plan, runner, load_average):
    rows = [row_of(point, runner) for point in plan.points]
    settings = {
        "scale": str(wanted.scale), "page_bytes": buffer_paper.PAGE_BYTES,
        "host_pages": plan.pages(buffer_paper.HOST),
        "device_pages": plan.pages(buffer_paper.DEVICE),
        "working_set_pages": plan.pages(buffer_paper.WORKING_SET), "accesses": plan.load().accesses,
        "simulate": wanted.simulate, "backend": wanted.backend, "cached": wanted.cached,
        "always_gram": wanted.always_gram,
        "blocks_per_page": wanted.blocks, "repeats": wanted.repeats, "threads": buffer_runs.THREADS,
        "order": buffer_runs.ORDER, "seed": wanted.seed, "skew": wanted.skew,
        "policies": wanted.policies, "time_limit_s": wanted.time_limit,
        "seconds": round(runner.seconds(), 1), "load_average_before": load_average,
        "note": wanted.note}
    machine = bench_machine.machine_of(wanted.data, wanted.commit)
    axes = {name: {"title": buffer_paper.FIGURES[name][0], "x": buffer_paper.FIGURES[name][1]}
            for name in wanted.figures}
    beside = [claim for claim in buffer_paper.claims(rows) if claim["figure"] in wanted.figures]
    return {"machine": machine, "settings": settings, "figures": axes, "paper": beside,
            "results": rows}


def write(path, result):
    """Whole or not at all, with a line for each row."""
    parts = [f'"{name}":' + (json.dumps(value) if not isinstance(value, list)
                             else "[\n" + ",\n".join(map(json.dumps, value)) + "\n]")
             for name, value in result.items()]
    half = pathlib.Path(f"{path}.part")
    half.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    half.replace(path)


def main(arguments):
    try:
        wanted = parse(arguments)
        plan = buffer_paper.Plan(wanted.figures, wanted.scale, wanted.policies, wanted.skew)
        check_places(wanted, plan)
    except WrongUsage as wrong:
        print(f"buffer_figures: {wrong}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wanted.commit = wanted.commit or bench_machine.commit_here()
    load_average = round(os.getloadavg()[0], 2)
    runner = buffer_runs.Runner(
        wanted, lambda so_far: write(wanted.out, result_of(wanted, plan, so_far, load_average)))
    try:
        runner.measure(plan)
        result = result_of(wanted, plan, runner, load_average)
        write(wanted.out, result)
    except OSError as error:
        print(f"buffer_figures: '{error.filename}': {error.strerror}; is there room, and may it be "
              "written to?",
              file=sys.stderr)
        return 1
    rows = result["results"]
    without = [row for row in rows if row["value"] is None]
    for message in sorted({row["message"] for row in without}):
        print(f"buffer_figures: {sum(row['message'] == message for row in without)} points: "
              f"{message}",
              file=sys.stderr)
    print(buffer_paper.table(result["paper"]))
    print(f"{len(rows) - len(without)} points measured, {len(without)} not; {wanted.out}")
    failed = (runner.stopped or any(outcome.failed for outcome in runner.outcomes.values())
              or len(without) == len(rows))
    if wanted.plots and not runner.stopped:
        failed |= subprocess.run([sys.executable,
                                  pathlib.Path(__file__).with_name("buffer_plots.py"), wanted.out,
                                  "-o", wanted.plots],
                                 check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
