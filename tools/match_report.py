#!/usr/bin/env python3
"""What tools/match-bench.sh measured, as bench/results has it and as a table like table IV of the GPUfs paper.

match_report.py OUT_DIR: reads OUT_DIR/runs, writes OUT_DIR/match.json and OUT_DIR/table.txt."""
import collections
import json
import pathlib
import statistics
import sys

from bench_machine import machine_of

NAMES = ("penstock", "requests", "cpu", "cuda")
BASELINES = {"cpu": "all cores with SIMD, memory maps", "cuda": "CUDA: all cores read into pinned memory, copies and comparisons overlap"}
CASES = {"whole": "no match, every pair compared to its end", "half-whole": "half of the queries match, every pair compared to its end",
         "none": "no match", "first": "every query matches the first image"}


def load(out):
    """{case: {name: [report]}}, in the order of CASES."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted((out / "runs").glob("*.json")):
        case, name, _, _ = path.name.split(".")  # CASE.NAME.RUN.json
        with open(path, encoding="utf-8") as file:
            runs[case][name].append(json.load(file))
    return {case: runs[case] for case in CASES if case in runs}


def median_of(reports, *keys):
    def pick(report):
        for key in keys:
            report = report[key]
        return report
    return statistics.median(pick(report) for report in reports)


def seconds_of(reports):
    """With the windows, which only one method has: what a user waits for when the runtime stands."""
    return statistics.median(report["seconds"]["match"] + report["seconds"]["windows"] for report in reports)


def said_of(reports):
    one = reports[0]
    return (f"match {median_of(reports, 'seconds', 'match'):.4f} s, windows {median_of(reports, 'seconds', 'windows'):.4f} s, start "
            f"{median_of(reports, 'seconds', 'start'):.3f} s, {median_of(reports, 'gflops'):.0f} GFLOP/s, {one['pairs_compared']} of {one['pairs']} pairs and "
            f"{one['numbers_compared']} numbers compared, {one['bytes_read']} bytes read, {median_of(reports, 'cpu_cores_used'):.2f} cores, {one['how']}, "
            f"median of {len(reports)}")


def result(case, name, reports, baseline, others):
    one = reports[0]
    value, other = seconds_of(reports), seconds_of(others)
    way = {"penstock": "windows", "requests": "no windows"}[name]
    size = sum(database["bytes"] for database in one["databases"])
    note = f"{said_of(reports)}; baseline: {said_of(others)}; cache {one['runtime']['cache_bytes']} of {size} bytes; the time of the windows is in the value"
    return {"goal": "S18", "case": f"{CASES[case]}: {one['queries']['images']} queries, {len(one['databases'])} databases of {one['databases'][0]['images']} images "
                                   f"of {one['shape']}, {way}",
            "backend": one["backend"], "page_bytes": one["runtime"]["page_bytes"], "value": round(value, 5), "unit": "s", "baseline": BASELINES[baseline],
            "baseline_value": round(other, 5), "ratio": round(other / value, 3), "cpu_cores_used": round(median_of(reports, "cpu_cores_used"), 2), "note": note}


def table(runs):
    names = [name for name in NAMES if any(name in by for by in runs.values())]
    lines = ["image match: seconds from the queries' file to all matches, median, windows included; in brackets how much longer than penstock",
             f"{'case':<14}{'matched':>9}{'pairs':>8}" + "".join(f"{name:>22}" for name in names)]
    for case, by in runs.items():
        if "penstock" not in by:
            continue
        one, base = by["penstock"][0], seconds_of(by["penstock"])
        line = f"{case:<14}{one['matched']:>9}{100 * one['pairs_compared'] / max(1, one['pairs']):>7.1f}%"
        for name in names:
            cell = f"{seconds_of(by[name]):.4f}" if name in by else "-"
            if name in by and name != "penstock":
                cell += f" ({seconds_of(by[name]) / base:.2f}x)"
            line += f"{cell:>22}"
        lines.append(line)
    lines.append("of that, windows; GFLOP/s of the rest; cores used; start besides")
    for case, by in runs.items():
        for name in (name for name in names if name in by):
            reports = by[name]
            lines.append(f"{case:<14}{name:<10} windows {median_of(reports, 'seconds', 'windows'):.4f} s, {median_of(reports, 'gflops'):>8.0f} GFLOP/s, "
                         f"{median_of(reports, 'cpu_cores_used'):>6.2f} cores, start {median_of(reports, 'seconds', 'start'):.3f} s, "
                         f"{reports[0]['bytes_read'] / 1e9:.3f} GB read")
    return "\n".join(lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1])
    runs = load(out)
    if not runs:
        sys.exit("match_report: no run succeeded")
    results = [result(case, name, by[name], baseline, by[baseline]) for case, by in runs.items() for name in ("penstock", "requests") if name in by
               for baseline in BASELINES if baseline in by]
    rows = ",\n".join(json.dumps(one) for one in results)
    (out / "match.json").write_text('{"machine":' + json.dumps(machine_of(out, "MATCH_COMMIT")) + ',\n"results":[\n' + rows + "\n]}\n", encoding="utf-8")
    text = table(runs)
    (out / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
