#!/usr/bin/env python3
"""What tools/matvec-bench.sh measured, as bench/results has it and as a table.

matvec_report.py OUT_DIR: reads OUT_DIR/runs, writes OUT_DIR/matvec.json and OUT_DIR/table.txt."""
import collections
import json
import pathlib
import statistics
import sys

from bench_machine import machine_of

NAMES = ("penstock", "requests", "cuda", "cpu")
BASELINES = {"cuda": "CUDA: all cores read into pinned memory, 4 chunks of 64 MiB under way", "cpu": "all cores with SIMD, memory map"}


def first(report):
    return [report["seconds"]["runs"][0]]


def with_windows(report):
    return [report["seconds"]["runs"][0] + report["seconds"]["windows"]]


def again(report):
    return report["seconds"]["runs"][1:]


WHICH = {"first product": first, "first product, opening windows in the time": with_windows, "again": again}


def load(out):
    """{case: {name: [report]}}"""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted((out / "runs").glob("*.json")):
        case, name, _, _ = path.name.split(".")  # CASE.NAME.RUN.json
        with open(path, encoding="utf-8") as file:
            runs[case][name].append(json.load(file))
    return runs


def rate_of(reports, which):
    """GB/s of the median, or None if there is nothing to take it of."""
    seconds = [one for report in reports for one in which(report)]
    return 1e-9 * reports[0]["matrix_bytes"] / statistics.median(seconds) if seconds else None


def said_of(reports):
    one = reports[0]
    cores = statistics.median(report["cpu_cores_used"] for report in reports)
    return (f"{one['how']}, start {statistics.median(r['seconds']['start'] for r in reports):.3f} s, windows "
            f"{statistics.median(r['seconds']['windows'] for r in reports):.3f} s, {cores:.2f} cores, {len(reports)} processes of {len(one['seconds']['runs'])} products, "
            f"{one['bytes_read']} bytes read in one")


def results_of(case, by):
    for name in ("penstock", "requests"):
        for text, which in WHICH.items():
            for baseline, about in BASELINES.items():
                if name not in by or baseline not in by or (which is with_windows and name == "requests"):
                    continue
                reports, others, one = by[name], by[baseline], by[name][0]
                value, other = rate_of(reports, which), rate_of(others, which)
                if value is None or other is None:
                    continue
                way = {"penstock": "windows", "requests": "no windows"}[name]
                yield {"goal": "S18", "case": f"matrix-vector, {text}: {one['rows']} rows of {one['columns']}, {case.replace('_', '.')[1:]} of the cache, {way}",
                       "backend": one["backend"], "page_bytes": one["runtime"]["page_bytes"], "value": round(value, 3), "unit": "GB/s", "baseline": about,
                       "baseline_value": round(other, 3), "ratio": round(value / other, 3),
                       "cpu_cores_used": round(statistics.median(report["cpu_cores_used"] for report in reports), 2),
                       "note": f"{said_of(reports)}; cache {one['runtime']['cache_bytes']} of {one['matrix_bytes']} bytes; baseline: {said_of(others)}"}


def table(runs):
    names = [name for name in NAMES if any(name in by for by in runs.values())]
    lines = ["matrix-vector: GB/s of the matrix, median", f"{'matrix':<12}{'of cache':>10}  {'':<44}" + "".join(f"{name:>12}" for name in names)]
    for case, by in runs.items():
        size = next(iter(by.values()))[0]["matrix_bytes"]
        for text, which in WHICH.items():
            rates = [rate_of(by[name], which) if name in by else None for name in names]
            lines.append(f"{size / 2 ** 30:<8.3f}GiB {case.replace('_', '.')[1:]:>9}  {text:<44}" + "".join(f"{rate:>12.2f}" if rate else f"{'-':>12}" for rate in rates))
    return "\n".join(lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1])
    runs = load(out)
    if not runs:
        sys.exit("matvec_report: no run succeeded")
    rows = ",\n".join(json.dumps(one) for case, by in runs.items() for one in results_of(case, by))
    (out / "matvec.json").write_text('{"machine":' + json.dumps(machine_of(out, "MATVEC_COMMIT")) + ',\n"results":[\n' + rows + "\n]}\n", encoding="utf-8")
    text = table(runs)
    (out / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
