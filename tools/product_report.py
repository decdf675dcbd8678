"""What matvec_report.py and matmul_report.py share: reports of products by several methods, as bench/results has them and as a table."""
import collections
import json
import statistics
import sys

from bench_machine import machine_of

NAMES = ("penstock", "requests", "cuda", "cpu")
WAYS = {"penstock": "windows", "requests": "no windows"}


def first(report):
    return [report["seconds"]["runs"][0]]


def with_windows(report):
    return [report["seconds"]["runs"][0] + report["seconds"]["windows"]]


def again(report):
    return report["seconds"]["runs"][1:]


# Which of the times. A baseline that ran once stands beside both.
WHICH = {"first product": first, "first product, opening windows in the time": with_windows, "again": again}


def load(out):
    """{case: {name: [report]}}"""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted((out / "runs").glob("*.json")):
        case, name, _, _ = path.name.split(".")  # CASE.NAME.RUN.json
        with open(path, encoding="utf-8") as file:
            runs[case][name].append(json.load(file))
    return runs


def rate_of(reports, which, amount, once=False):
    """What `amount` of one report comes to a second, in the median; None if there is no such time. `once`: a first time will do."""
    seconds = [one for report in reports for one in which(report)]
    if not seconds and once:
        seconds = [one for report in reports for one in first(report)]
    return amount(reports[0]) / statistics.median(seconds) if seconds else None


def median_of(reports, pick):
    return statistics.median(pick(report) for report in reports)


def said_of(reports):
    one = reports[0]
    return (f"{one['how']}, start {median_of(reports, lambda r: r['seconds']['start']):.3f} s, windows {median_of(reports, lambda r: r['seconds']['windows']):.3f} s, "
            f"{median_of(reports, lambda r: r['cpu_cores_used']):.2f} cores, {len(reports)} processes of {len(one['seconds']['runs'])} products, "
            f"{one['bytes_read']} bytes read in one")


def results_of(by, about, unit, amount, baselines):
    """Rows for one case. `about(text, report, way)`: what the row is called."""
    for name, way in WAYS.items():
        for text, which in WHICH.items():
            for baseline, how in baselines.items():
                if name not in by or baseline not in by or (which is with_windows and name == "requests"):
                    continue
                reports, others, one = by[name], by[baseline], by[name][0]
                value, other = rate_of(reports, which, amount), rate_of(others, which, amount, once=True)
                if value is None:
                    continue
                yield {"goal": "S18", "case": about(text, one, way), "backend": one["backend"], "page_bytes": one["runtime"]["page_bytes"], "value": float(f"{value:.5g}"),
                       "unit": unit, "baseline": how, "baseline_value": float(f"{other:.5g}"), "ratio": round(value / other, 3),
                       "cpu_cores_used": round(median_of(reports, lambda r: r["cpu_cores_used"]), 2),
                       "note": f"{said_of(reports)}; cache of {one['runtime']['cache_bytes']} bytes; baseline: {said_of(others)}"}


def table(runs, title, amount, name_of):
    names = [name for name in NAMES if any(name in by for by in runs.values())]
    lines = [title, " " * 74 + "".join(f"{name:>12}" for name in names)]
    for case, by in runs.items():
        for text, which in WHICH.items():
            rates = [rate_of(by[name], which, amount) if name in by else None for name in names]
            lines.append(f"{name_of(case, next(iter(by.values()))[0]):<30}{text:<44}" + "".join(f"{rate:>12.2f}" if rate else f"{'-':>12}" for rate in rates))
    return "\n".join(lines) + "\n"


def write(out, name, results, text, commit_variable):
    rows = ",\n".join(json.dumps(one) for one in results)
    (out / f"{name}.json").write_text('{"machine":' + json.dumps(machine_of(out, commit_variable)) + ',\n"results":[\n' + rows + "\n]}\n", encoding="utf-8")
    (out / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")


def load_or_exit(out):
    runs = load(out)
    if not runs:
        sys.exit("no run succeeded")
    return runs
