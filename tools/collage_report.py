#!/usr/bin/env python3
"""What tools/collage-bench.sh measured, as bench/results has it and as a table like figure 9 of the SYSTOR paper.

collage_report.py OUT_DIR: reads OUT_DIR/runs, writes OUT_DIR/collage.json and OUT_DIR/table.txt."""
import collections
import json
import pathlib
import statistics
import sys

from bench_machine import machine_of

PARTS = ("order", "upload", "compute", "download")


def load(out):
    """{(blocks, picture): {name: [report]}}, small pictures first."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted((out / "runs").glob("*.json")):
        picture, name, _, _ = path.name.rsplit(".", 3)  # PICTURE.METHOD.RUN.json
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        runs[(report["blocks"], picture)][name].append(report)
    return dict(sorted(runs.items()))


def per_block_us(reports):
    return statistics.median(report["seconds"]["collage"] / report["blocks"] * 1e6 for report in reports)


def median_of(reports, *keys):
    def pick(report):
        for key in keys:
            report = report[key]
        return report
    return statistics.median(pick(report) for report in reports)


def parts_of(reports):
    return ", ".join(f"{part} {median_of(reports, 'collage_parts', part) * 1e3:.2f} ms" for part in PARTS)


def result(case, reports, baseline, others):
    value, other = per_block_us(reports), per_block_us(others)
    one = reports[0]
    page = one["runtime"]["page_bytes"] if one["runtime"] else 4096
    misses = one["runtime"]["statistics"] if one["runtime"] else {"hits": 0, "misses": 0}
    note = (f"collage {median_of(reports, 'seconds', 'collage'):.4f} s of {one['blocks']} blocks ({parts_of(reports)}; baseline: "
            f"{parts_of(others)}); windows "
            f"{median_of(reports, 'seconds', 'windows'):.3f} s and start {median_of(reports, 'seconds', 'start'):.3f} s besides; "
            f"{one['evaluations']} candidates, {one['unique_tiles']} tiles, redundancy {one['redundancy']:.1f}; "
            f"{one['pages_read']} pages read, {misses['hits']} hits; baseline read {others[0]['pages_read']} pages; cache "
            f"{one['runtime']['cache_bytes']} of {one['library']['bytes']} bytes; median of {len(reports)}")
    return {"goal": "S16", "case": case, "backend": one["backend"], "page_bytes": page, "value": round(value, 3), "unit": "us/block",
            "baseline": name_of(baseline), "baseline_value": round(other, 3), "ratio": round(other / value, 3),
            "cpu_cores_used": round(median_of(reports, "cpu_cores_used"), 2), "note": note}


def name_of(baseline):
    return {"cpu": "all cores with SIMD, memory maps", "cuda": "CUDA: two kernels, all cores stage each tile once a batch"}[baseline]


def index_result(out):
    path = out / "index.json"
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    seconds, tiles = report["seconds"], report["library"]["tiles"]
    note = f"{seconds['total']:.2f} s with {report['threads']} threads: " + ", ".join(
        f"{phase} {seconds[phase]:.2f} s" for phase in ("find", "cut", "width", "tables"))
    promised = 2000000 / 120
    return [{"goal": "S16", "case": f"index: library of {tiles} tiles from {report['pictures']} pictures", "backend": "cpu",
             "page_bytes": 4096, "value": round(tiles / seconds["total"], 1), "unit": "tiles/s",
             "baseline": "two million tiles in two minutes", "baseline_value": round(promised, 1),
             "ratio": round(tiles / seconds["total"] / promised, 3),
             "cpu_cores_used": round(report["cpu_seconds"] / seconds["total"], 2), "note": note}]


def table(runs):
    names = [name for name in ("penstock", "cpu", "cuda", "penstock-cpu") if any(name in by for by in runs.values())]
    lines = ["collage: microseconds per block of 32 x 32 pixels, median; ratio of each baseline to penstock in brackets",
             f"{'picture':<16}{'blocks':>8}{'candidates':>12}{'redundancy':>12}" + "".join(f"{name:>22}" for name in names)]
    for (blocks, picture), by in runs.items():
        if "penstock" not in by:
            continue
        one, base = by["penstock"][0], per_block_us(by["penstock"])
        line = f"{picture:<16}{blocks:>8}{one['candidates_per_block']:>12.0f}{one['redundancy']:>12.1f}"
        for name in names:
            cell = "-" if name not in by else f"{per_block_us(by[name]):.2f}"
            if name in by and name != "penstock":
                cell += f" ({per_block_us(by[name]) / base:.2f}x)"
            line += f"{cell:>22}"
        lines.append(line)
    lines.append("parts of that, in milliseconds, medians: " + ", ".join(PARTS))
    for (blocks, picture), by in runs.items():
        line = f"{picture:<16}{blocks:>8}"
        for name in (name for name in names if name in by):
            cell = " ".join(f"{median_of(by[name], 'collage_parts', part) * 1e3:.2f}" for part in PARTS)
            line += f"   {name}: {cell}"
        lines.append(line + f"   {by['penstock'][0]['pages_read']} pages loaded" if "penstock" in by else line)
    return "\n".join(lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1])
    runs = load(out)
    if not runs:
        sys.exit("collage_report: no run succeeded")
    results = index_result(out)
    for (_, picture), by in runs.items():
        for baseline in ("cpu", "cuda"):
            if "penstock" in by and baseline in by:
                tiles = by["penstock"][0]["library"]["tiles"]
                results.append(result(f"collage of {picture}, library of {tiles} tiles", by["penstock"], baseline, by[baseline]))
    rows = ",\n".join(json.dumps(one) for one in results)
    (out / "collage.json").write_text('{"machine":' + json.dumps(machine_of(out, "COLLAGE_COMMIT")) + ',\n"results":[\n' + rows + "\n]}\n", encoding="utf-8")
    text = table(runs)
    (out / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
