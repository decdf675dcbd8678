"""The report of tools/app_bench.py: samples and medians of each method, rows that compare Penstock
with each baseline as bench/results has them, and a table of text."""
import collections.abc
import json
import pathlib
import statistics
import typing

from bench_machine import significant
from app_bench_table import Application, Case, Figure, Method, Values

# Of each case and method the reports of its processes, first first.
Runs = dict[Case, dict[Method, list[Values]]]


class Measured(typing.Protocol):
    """What the script hands in when all has run."""
    application: Application
    runs: Runs
    made: list[Values]  # reports of what was made as input
    out: pathlib.Path

    def conditions(self) -> Values: ...


def pick(report: typing.Any, path: str) -> typing.Any:
    """What a path leads to; None if it is not there. `2` is an index of a list, `1:` the rest."""
    for key in path.split("."):
        if isinstance(report, list) and key.endswith(":"):
            report = report[int(key[:-1]):]
        elif isinstance(report, list):
            report = report[int(key)] if -len(report) <= int(key) < len(report) else None
        else:
            report = report.get(key) if isinstance(report, dict) else None
    return report


def samples_of(reports: list[Values], paths: str) -> list[float]:
    """One number of each process, the sum of its paths; several if the path leads to a list."""
    samples: list[float] = []
    for report in reports:
        parts = [pick(report, path) for path in paths.split("+")]
        if isinstance(parts[0], list):
            samples += parts[0]
        elif None not in parts:
            samples.append(sum(parts))
    return samples


class Summary:
    """What the processes of a method on a case said."""

    def __init__(self, application: Application, case: Case, method: Method,
                 reports: list[Values]) -> None:
        self.case, self.method = case, method
        good = [report for report in reports if "failed" not in report]
        self.runs = len(good)
        self.failures = [report["failed"] for report in reports if "failed" in report]
        self.first = good[0] if good else {}
        self.facts = {name: fact for name, path in application.facts.items()
                      if (fact := pick(self.first, path)) is not None}
        self.seconds = {figure: found for figure in application.figures
                        if (found := samples_of(good, figure.seconds))}
        self.measures = {name: found for name, path in application.measures.items()
                         if (found := samples_of(good, path))}

    def median(self, measure: str) -> float | None:
        found = self.measures.get(measure)
        return statistics.median(found) if found else None

    def value(self, figure: Figure, ours: Values) -> float | None:
        """In the figure's unit, of as much work as `ours` did."""
        found = self.seconds.get(figure)
        return figure.value(statistics.median(found), ours) if found else None

    def told(self) -> str:
        parts = [f"{name} {statistics.median(found):.4g}" for name, found in self.measures.items()]
        return f"{', '.join(parts)}; median of {self.runs}"

    def json(self) -> Values:
        told: Values = {"case": self.case.name, "method": self.method.name, "runs": self.runs}
        if self.failures:
            told["failures"] = self.failures
        if self.first:
            named = {f"seconds of {figure.text}" if figure.text else "seconds": found
                     for figure, found in self.seconds.items()} | self.measures
            told |= {"facts": self.facts, "samples": named,
                     "medians": {name: statistics.median(found) for name, found in named.items()}}
        return told


def row(application: Application, conditions: Values, ours: Summary, other: Summary,
        figure: Figure) -> Values | None:
    """Penstock's way beside a baseline; None if either has no such time. A baseline that did its
    work once stands beside all times of Penstock."""
    base = other.seconds.get(figure) or other.seconds.get(application.figures[0])
    value = ours.value(figure, ours.facts)
    if not base or value is None:
        return None
    seconds = statistics.median(ours.seconds[figure])
    base_seconds = statistics.median(base)
    about = {**conditions["settings"], **ours.case.values, **ours.facts, "case": ours.case.name,
             "state": conditions["state"], "figure": figure.text, "way": ours.method.text,
             "n_databases": conditions["settings"].get("databases")}
    note = f"{ours.told()}; baseline: {other.told()}"
    if application.counted:
        count, base_count = (side.facts[application.counted] for side in (ours, other))
        same = f"equal {application.counted}"
        differs = f"the baseline counts {base_count} {application.counted}, Penstock {count}"
        note += f"; {same if count == base_count else differs}"
    cache = pick(ours.first, "runtime.cache_bytes")
    cores = ours.median("cores")
    return {"goal": application.goal, "case": application.case_text.format(**about),
            "backend": pick(ours.first, "runtime.backend") or ours.first.get("backend"),
            "page_bytes": pick(ours.first, "runtime.page_bytes"), "value": significant(value, 5),
            "unit": figure.unit, "baseline": other.method.text,
            "baseline_value": significant(figure.value(base_seconds, ours.facts), 5),
            "ratio": significant(base_seconds / seconds),
            "cpu_cores_used": None if cores is None else round(cores, 2),
            "note": f"{note}; cache of {cache} bytes"}


def rows(application: Application, conditions: Values,
         cases: list[list[Summary]]) -> collections.abc.Iterator[Values]:
    for by in cases:
        for ours in (summary for summary in by if not summary.method.is_baseline):
            for figure in application.figures:
                if figure.methods and ours.method.name not in figure.methods:
                    continue
                for other in (summary for summary in by if summary.method.is_baseline):
                    found = row(application, conditions, ours, other, figure)
                    if found is not None:
                        yield found


def cell(value: typing.Any) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, (int, str)) else f"{value:.4g}"


def table(application: Application, cases: list[list[Summary]]) -> str:
    """A line for each method of each case. In brackets: how many times as long as Penstock's first
    way it takes."""
    figures = application.figures
    heads = ["case", "method", "runs", *(figure.text or figure.unit for figure in figures),
             *application.measures, *application.columns]
    lines = [heads]
    for by in cases:
        ours = next((summary for summary in by if not summary.method.is_baseline and summary.runs),
                    None)
        for summary in by:
            if not summary.runs:
                lines.append([summary.case.name, summary.method.name, summary.failures[0][:80]])
                continue
            cells = []
            for figure in figures:
                text = cell(summary.value(figure, (ours or summary).facts))
                if ours and ours is not summary and {figure} <= ours.seconds.keys() \
                        & summary.seconds.keys():
                    text += " ({:.2f}x)".format(statistics.median(summary.seconds[figure])
                                                / statistics.median(ours.seconds[figure]))
                cells.append(text)
            lines.append([summary.case.name, summary.method.name, str(summary.runs), *cells,
                          *(cell(summary.median(name)) for name in application.measures),
                          *(cell(summary.facts.get(name)) for name in application.columns)])
    # The text of a failure may be longer than its column: nothing follows it.
    widths = [max(len(line[i]) for line in lines if len(line) == len(heads))
              for i in range(len(heads))]
    text = [application.title]
    text += ["  ".join(word.ljust(width) if i < 2 else word.rjust(width) for i, (word, width) in
                       enumerate(zip(line, widths))).rstrip() for line in lines]
    return "\n".join(text) + "\n"


def write(name: str, measured: Measured, machine: Values) -> bool:
    """Writes NAME.json and table.txt. False if the application has no time to report."""
    application, conditions = measured.application, measured.conditions()
    cases = [[Summary(application, case, method, reports) for method, reports in by.items()]
             for case, by in measured.runs.items()]
    ran = [summary for by in cases for summary in by if summary.runs and not summary.method.tool]
    parts = {"machine": json.dumps(machine), "application": json.dumps(name),
             "conditions": json.dumps(conditions)}
    made = [application.made_row(report) for report in measured.made if application.made_row]
    lists = {"results": made + list(rows(application, conditions, cases)),
             "samples": [summary.json() for by in cases for summary in by]}
    for key, entries in lists.items():
        parts[key] = "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"
    whole = ",\n".join(f'"{key}":{text}' for key, text in parts.items())
    (measured.out / f"{name}.json").write_text("{" + whole + "}\n", encoding="utf-8")
    text = table(application, cases)
    (measured.out / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return bool(ran)
