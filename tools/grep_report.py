#!/usr/bin/env python3
"""What tools/grep-bench.sh measured, as bench/results has it and as a table like table V of the GPUfs paper.

grep_report.py OUT_DIR: reads OUT_DIR/runs, writes OUT_DIR/grep.json and OUT_DIR/table.txt."""
import json
import pathlib
import statistics
import sys

from bench_machine import machine_of

ROWS = {"penstock-gpu": "penstock-grep on the GPU", "penstock-cpu": "penstock-grep on CPU threads",
        "cpu": "baseline: all cores, same counting, plain reads", "cuda": "baseline: CUDA, host reads, same counting",
        "grep": "GNU grep on all cores", "rg": "ripgrep", "rg-inside": "ripgrep without -w: words inside words too"}


def read_text(path):
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def load(out, name):
    """Medians over the runs of one row; {"failed": why} if there is none; None if it was not asked for."""
    runs, why = [], None
    for time_file in sorted((out / "runs").glob(f"{name}.*.time")):
        stem = str(time_file)[:-len(".time")]
        failed = read_text(pathlib.Path(stem + ".failed"))
        report = read_text(pathlib.Path(stem + ".json"))
        matches = read_text(pathlib.Path(stem + ".matches"))
        if failed or not (report or matches):
            why = failed or read_text(pathlib.Path(stem + ".log")) or "it ended without a report"
            continue
        wall, user, system = (float(word) for word in read_text(time_file).split("\n")[-1].split())
        one = json.loads(report) if report else None
        runs.append({"wall": wall, "cpu": user + system, "matches": one["matches"] if one else int(matches), "report": one,
                     "search": one["seconds"]["search"] if one else wall})
    if not runs:
        why = why or read_text(out / "runs" / f"{name}.1.failed")
        return {"failed": why} if why else None
    return {"wall": median(runs, "wall"), "cpu": median(runs, "cpu"), "search": median(runs, "search"), "matches": runs[0]["matches"],
            "runs": len(runs), "report": runs[0]["report"], "phases": phases(runs)}


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def phases(runs):
    if runs[0]["report"] is None:
        return {}
    names = runs[0]["report"]["methods"][-1]["phases"]
    return {name: statistics.median(run["report"]["methods"][-1]["phases"][name] for run in runs) for name in names}


def results(rows, files, size, words):
    """One result for each pair of a way to run Penstock and something it is compared with: whole program against whole program."""
    out = []
    for name in ("penstock-gpu", "penstock-cpu"):
        ours = rows.get(name)
        if not ours or "failed" in ours:
            continue
        runtime = ours["report"]["runtime"]
        for other_name in ("cpu", "cuda", "grep", "rg", "rg-inside"):
            other = rows.get(other_name)
            if not other or "failed" in other:
                continue
            parts = ", ".join(f"{key} {value:.3f} s" for key, value in ours["phases"].items())
            same = "equal matches" if other["matches"] == ours["matches"] else f"it counts {other['matches']} matches, we {ours['matches']}"
            out.append({"goal": "S17", "case": f"{words} words in {files} files, {size} bytes, warm, whole program", "backend": name[len("penstock-"):],
                        "page_bytes": runtime["page_bytes"], "value": round(ours["wall"], 3), "unit": "s", "baseline": ROWS[other_name],
                        "baseline_value": round(other["wall"], 3), "ratio": round(other["wall"] / ours["wall"], 3),
                        "cpu_cores_used": round(ours["cpu"] / ours["wall"], 2),
                        "note": f"search {ours['search']:.3f} s ({parts}); baseline's search {other['search']:.3f} s; {same}; "
                                f"median of {ours['runs']} runs, baseline {other['runs']}"})
    return out


def table(rows, files, size, words):
    lines = [f"{words} words in {files} files, {size / 1e6:.1f} MB, warm; medians",
             f"{'':<50}{'whole s':>9}{'search s':>10}{'CPU s':>8}{'files/s':>10}{'GB/s':>7}{'matches':>13}"]
    for name, what in ROWS.items():
        row = rows.get(name)
        if row is None:
            continue
        if "failed" in row:
            lines.append(f"{what:<50}  {row['failed'].splitlines()[-1][:80]}")
            continue
        search = f"{row['search']:>10.3f}" if row["report"] else f"{'-':>10}"
        lines.append(f"{what:<50}{row['wall']:>9.3f}{search}{row['cpu']:>8.2f}{files / row['search']:>10.0f}{size / row['search'] / 1e9:>7.2f}"
                     f"{row['matches']:>13}")
    return "\n".join(lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1])
    rows = {name: load(out, name) for name in ROWS}
    reports = [row["report"] for row in rows.values() if row and row.get("report")]
    if not reports:
        sys.exit("grep_report: no run of penstock-grep succeeded")
    about = reports[0]["files"], reports[0]["bytes"], reports[0]["words"]
    rows_json = ",\n".join(json.dumps(one) for one in results(rows, *about))
    (out / "grep.json").write_text('{"machine":' + json.dumps(machine_of(out, "GREP_COMMIT")) + ',\n"results":[\n' + rows_json + "\n]}\n", encoding="utf-8")
    text = table(rows, *about)
    (out / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
