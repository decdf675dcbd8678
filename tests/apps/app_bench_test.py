"""tools/app_bench.py on a little data, with CPU threads: its rows, samples and table, and what it
says when methods differ or fail, a tool is missing, or an argument cannot be used.

Usage: app_bench_test.py SCRIPT BIN_DIR APPLICATION
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from grep_support import require

SCRIPT, BIN_DIR = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.dirname(SCRIPT))
from bench_machine import significant  # noqa: E402  pylint: disable=wrong-import-position
SMALL = {
    "collage": ["tiles=300", "repeats=2"],
    "collage_devices": ["tiles=300", "repeats=2"],
    "collage_ways": ["tiles=300", "repeats=1"],
    "grep": ["repeats=2", "rg=no rg"],
    "match": ["images=300", "queries=40", "shape=8x8", "repeats=2"],
    "vector": ["cache=1MiB", "columns=333", "repeats=2", "products=2", "page=4KiB"],
    "product": ["cache=1MiB", "sizes=200x150x100 30x700x300", "repeats=2", "page=4KiB"]}
PROGRAMS = {"collage_devices": "penstock-collage", "collage_ways": "penstock-collage",
            "vector": "penstock-matrix", "product": "penstock-matrix"}  # others: their name


class Bench:
    """A folder with the input of an application, and the script run on it."""

    def __init__(self, application, folder):
        self.application, self.folder = application, pathlib.Path(folder)
        self.settings = list(SMALL[application])
        self.program = PROGRAMS.get(application, f"penstock-{application}")

    def run(self, out, *settings, bin_dir=BIN_DIR, backend="cpu", path=""):
        words = [sys.executable, "-B", SCRIPT, self.application, bin_dir, self.folder / "data",
                 self.folder / out, "--backend", backend, "--commit", "test", *self.settings,
                 *settings]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=1000, check=False,
                              env={**os.environ, "PATH": path + os.environ["PATH"]})
        return done.returncode, done.stdout.decode()

    def good(self, out, *settings):
        code, said = self.run(out, *settings)
        require(code == 0 and "all results are equal" in said, said)
        return said

    def report(self, out):
        path = self.folder / out / f"{self.application}.json"
        return json.loads(path.read_text(encoding="utf-8"))

    def rows(self, out, goal, count):
        """The rows of a report, after the checks that hold for each application."""
        report = self.report(out)
        machine, conditions = report["machine"], report["conditions"]
        require(machine["commit"] == "test" and machine["cpu"] and machine["file_system"], machine)
        require({"device", "driver", "cores", "kernel"} <= machine.keys(), machine)
        require(conditions["state"] == "warm" and conditions["backend"] == "cpu", conditions)
        rows = report["results"]
        require(len(rows) == count, rows)
        require(all(row["goal"] == goal and row["backend"] == "cpu" and row["value"] > 0
                    and row["ratio"] > 0 and row["page_bytes"] > 0 for row in rows), rows)
        for entry in report["samples"]:
            if "samples" in entry:
                require(entry["samples"].keys() == entry["medians"].keys(), entry)
                require(all(min(found) <= entry["medians"][name] <= max(found)
                            for name, found in entry["samples"].items()), entry)
        return rows

    def samples(self, out, case, method):
        return next(entry for entry in self.report(out)["samples"]
                    if entry["case"] == case and entry["method"] == method)

    def liar(self, body):
        """A folder with the program, followed by `body` (with $result set) where it writes one."""
        folder = self.folder / "liars"
        folder.mkdir(exist_ok=True)
        name = self.program
        (folder / name).write_text(
            f'#!/bin/sh\n"{BIN_DIR}/{name}" "$@" || exit 1\nresult=\n'
            'while [ $# -gt 0 ]; do case $1 in -o|--out) result=$2;; esac; shift; done\n'
            f'case $result in */result*) {body};; esac\n', encoding="utf-8")
        (folder / name).chmod(0o755)
        return folder

    def as_if_on_gpu(self, out, *settings):
        """All methods, each played by the same on CPU threads."""
        folder, name = self.folder / "played", self.program
        folder.mkdir()
        (folder / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: played'\n", encoding="utf-8")
        (folder / name).write_text(
            '#!/bin/bash\na=("$@"); a=("${a[@]/#gpu/cpu}"); a=("${a[@]/#cuda/cpu}")\n'
            f'exec "{BIN_DIR}/{name}" "${{a[@]}}"\n', encoding="utf-8")
        for path in folder.iterdir():
            path.chmod(0o755)
        code, said = self.run(out, *settings, bin_dir=folder, backend="gpu", path=f"{folder}:")
        require(code == 0 and "all results are equal" in said, said)

    def wrong(self, case, *settings):
        """A program that answers otherwise each time, one that fails, arguments that are wrong."""
        code, said = self.run("lies", *settings, bin_dir=self.liar('echo $$ >"$result"'))
        require(code == 1 and f"DIFFERENT: {case} by penstock" in said
                and "all results are equal" not in said, said)
        if self.application != "grep":
            code, said = self.run("fails", *settings, "page=3000")
            require(code == 1 and f"FAILED: {case} penstock 1" in said and "3000" in said, said)
            require(self.samples("fails", case, "penstock")["failures"], "no failure is noted")
        self.refused(f"build {self.program}", bin_dir=self.folder)
        self.refused("no method 'none' of", "--methods", "cpu,none")
        self.refused("method 'cuda' needs a GPU", "--methods", "cuda")
        self.refused("no setting 'sise=3'", "sise=3")
        self.refused("repeats '0' cannot be used", "repeats=0")
        if subprocess.run(["sh", "-c", "nvidia-smi -L"], capture_output=True,
                          check=False).returncode != 0:
            self.refused("no GPU here", backend="gpu")

    def is_in_memory(self):
        return subprocess.run(["stat", "-f", "-c", "%T", self.folder], check=True,
                              capture_output=True).stdout.strip() in (b"tmpfs", b"ramfs")

    def refused(self, text, *settings, **more):
        code, said = self.run("refused", *settings, **more)
        require(code == 2 and text in said, f"{code}, wanted '{text}': {said}")


def collage(bench):
    pictures = bench.folder / "pictures"
    pictures.mkdir()
    bench.settings.append(f"pictures={pictures}")
    for number in (1, 2):
        width, height = 192 * number, 128
        body = bytes((x * number * 5 + y * 3 + colour * 40 + x * y % 17) & 255
                     for y in range(height) for x in range(width) for colour in range(3))
        (pictures / f"p{number}.ppm").write_bytes(b"P6\n%d %d\n255\n" % (width, height) + body)
    require("library: making 300 tiles" in bench.good("good"), "no library was made")
    rows = bench.rows("good", "S16", 3)
    require(rows[0]["unit"] == "tiles/s" and "library of 300 tiles from 2" in rows[0]["case"], rows)
    require([row["case"] for row in rows[1:]]
            == [f"collage of p{n}, library of 300 tiles" for n in (1, 2)], rows)
    require(bench.samples("good", "p2", "penstock")["facts"]["blocks"] == 12 * 4, "blocks")
    if bench.is_in_memory():
        bench.refused("stays in memory", "--state", "cold")
    else:
        require("library: making" not in bench.good("cold", "--state", "cold"),
                "it was made again")
        require(bench.report("cold")["conditions"]["state"] == "cold", "the state is not noted")
    bench.wrong("p1")
    bench.refused("'nowhere' is no folder", "pictures=nowhere")


def collage_devices(bench):
    pictures = bench.folder / "pictures"
    maker = pathlib.Path(SCRIPT).parent / "make_pictures.py"
    for folder in (pictures, bench.folder / "again"):
        subprocess.run([sys.executable, "-B", maker, folder, "--pictures", "2", "--size",
                        "200x130"], check=True)
    for path in pictures.iterdir():
        require(path.read_bytes() == (bench.folder / "again" / path.name).read_bytes(),
                f"{path.name} differs from run to run")
    bench.settings += [f"pictures={pictures}", "cache=1MiB"]
    bench.good("good", "devices=0,1,2")
    rows = bench.rows("good", "R8", 4)
    text = "collage of 200x130-1 by 3 devices{}, {}, library of 300 tiles"
    require([row["case"] for row in rows]
            == [text.format(way, figure) for way in ("", ", links off")
                for figure in ("all of it", "kernels alone")], rows)
    require(all(row["baseline"] == "one device, a cache of the same size" for row in rows), rows)
    for method, devices in (("single", 1), ("linked", 3), ("unlinked", 3)):
        facts = bench.samples("good", "200x130-1", method)["facts"]
        require(len(facts["evaluations_by_device"]) == devices
                and sum(facts["evaluations_by_device"]) == facts["candidates"], facts)
        require(method == "linked" or facts["neighbour_loads"] == 0, f"{method}: {facts}")
    code, said = bench.run("lies", bin_dir=bench.liar('echo $$ >"$result"'))
    require(code == 1 and "DIFFERENT: 200x130-1 by linked" in said, said)
    bench.refused("devices '0' cannot be used", "devices=0")


def collage_ways(bench):
    pictures = bench.folder / "pictures"
    subprocess.run([sys.executable, "-B", pathlib.Path(SCRIPT).parent / "make_pictures.py",
                    pictures, "--pictures", "1", "--size", "200x130"], check=True)
    bench.settings += [f"pictures={pictures}", "cache=1MiB"]
    bench.good("good")
    rows = bench.rows("good", "S16", 9)
    ways = (", regions in place", ", all of it cached", ", by request")
    figures = ("all of it", "kernels alone", "with what is brought before")
    require([row["case"] for row in rows]
            == [f"collage of 200x130-1{way}, {figure}, library of 300 tiles" for way in ways
                for figure in figures], rows)
    pages = {method: bench.samples("good", "200x130-1", method)["facts"]["pages_read"]
             for method in ("regions", "cached", "penstock")}
    require(pages["cached"] == 0 < min(pages["penstock"], pages["regions"]), pages)


def grep(bench):
    tree = bench.folder / "data"
    (tree / "sub").mkdir(parents=True)
    for i in range(30):
        (tree / ("sub" if i % 2 else "") / f"f{i}").write_text("alpha beta_2 alphabet\n" * (i + 1),
                                                             encoding="utf-8")
    words = bench.folder / "words"
    words.write_text("alpha\nbeta_2\nabsent\n", encoding="utf-8")
    bench.settings.append(f"words={words}")
    matches = 2 * sum(range(1, 31))

    said = bench.good("good")
    require("missing: no rg" in said, said)
    rows = {row["baseline"]: row for row in bench.rows("good", "S17", 2)}
    require(set(rows) == {"all cores, same counting, plain reads", "GNU grep on all cores"}, rows)
    require(all("equal matches" in row["note"] for row in rows.values()), rows)
    # The last column: a speed may have the same digits in it.
    ends = [line.split()[-1] for line in said.splitlines() if line.split()]
    require(ends.count(str(matches)) == 3, f"{matches} in each row: {said}")

    liar = bench.folder / "rg"
    liar.write_text("#!/bin/sh\necho 5\n", encoding="utf-8")
    liar.chmod(0o755)
    bench.settings.append(f"rg={liar}")
    bench.good("other counts")
    notes = [row["note"] for row in bench.report("other counts")["results"]
             if row["baseline"] == "ripgrep"]
    require(len(notes) == 1
            and f"baseline counts 5 matches, Penstock {matches}" in notes[0], notes)
    liar.write_text("#!/bin/sh\nsleep 60\n", encoding="utf-8")
    said = bench.good("slow", "tool_timeout=1")
    require(said.count("took longer than 1 s") == 2, said)
    bench.wrong("tree", "tool_timeout=1")

    # A dictionary that is not there is made of words of the tree.
    bench.good("made words", f"words={bench.folder}/made", "--methods", "cpu,penstock")
    made = (bench.folder / "made").read_text(encoding="utf-8")
    require(made == "alpha\nalphabet\nbeta_2\n", made)


def match(bench):
    said = bench.good("good")
    require("data: making" in said, said)
    rows = bench.rows("good", "S18", 4)
    require([row["case"].split(":")[0] for row in rows]
            == ["no match, every pair compared to its end",
                "half of the queries match, every pair compared to its end", "no match",
                "every query matches the first image"], rows)
    every = 40 * 900
    facts = {case: bench.samples("good", case, "penstock")["facts"]
             for case in ("whole", "half-whole", "none", "first")}
    for case in ("whole", "none"):
        require(facts[case]["pairs_compared"] == facts[case]["pairs"] == every
                and facts[case]["numbers_compared"] == every * 64, facts[case])
    for case in ("half-whole", "first"):
        require(facts[case]["pairs_compared"] < facts[case]["pairs"] == every, facts[case])
    require(bench.samples("good", "none", "penstock")["runs"] == 2, "two processes of each")

    # What is there is used again, a part of the cases too, and not for another size.
    said = bench.good("again", "cases=none")
    require("data: making" not in said and "whole" not in said.split("image match")[1], said)
    require("data: making" in bench.good("other", "cases=none", "images=200"), "it was not made")
    bench.wrong("none", "cases=none", "images=200")
    bench.refused("no case 'nothing'", "cases=nothing")


def vector(bench):
    said = bench.good("good")
    require(said.count("data: making") == 3, said)
    require(not os.listdir(bench.folder / "data"), "matrices are left")
    rows = bench.rows("good", "S18", 6)
    for size, wanted in (("0.25", 197), ("1", 787), ("1.5", 1181)):
        of_size = [row for row in rows if f", {size} of the cache," in row["case"]]
        require(len(of_size) == 2 and all(f"{wanted} rows of 333" in row["case"]
                                          for row in of_size), f"{size}: {of_size}")
    entry = bench.samples("good", "x1_5", "cpu")
    require(entry["facts"]["check"]["greatest_deviation"] > 0, "the first result was not checked")
    require(len(entry["samples"]["seconds of again"]) == 2, entry)

    # What is kept is used again, and not for another size.
    require("data: making" in bench.good("kept", "sizes=1", "keep=1"), "it was not made")
    require("data: making" not in bench.good("again", "sizes=1", "keep=1"), "it was made again")
    require("data: making" in bench.good("other", "sizes=1", "columns=334"), "it was not made")
    bench.as_if_on_gpu("gpu", "sizes=1")
    require([entry["method"] for entry in bench.report("gpu")["samples"]]
            == ["cpu", "penstock", "windows", "region", "cuda"], "the methods of a GPU")
    cases = [row["case"].rsplit(", ", 1)[1] for row in bench.report("gpu")["results"]]
    require(cases == ["requests"] * 4 + ["windows"] * 6 + ["cuBLAS on regions"] * 4, cases)
    bench.wrong("x1", "sizes=1")
    bench.refused("'much'", "cache=much")
    bench.refused("'big'", "sizes=big")


def product(bench):
    said = bench.good("good")
    require(said.count("data: making") == 2, said)
    require(not os.listdir(bench.folder / "data"), "matrices are left")
    # Two times of each case against the only baseline without a GPU.
    rows = bench.rows("good", "S18", 4)
    require(all(row["unit"] == "TFLOP/s" for row in rows), rows)
    require(sum("200 x 100 by 100 x 150" in row["case"] for row in rows) == 2, rows)
    entry = bench.samples("good", "30x700x300", "cpu")
    require(entry["facts"]["check"]["rows"] == 30, "the first result was not checked")
    # The baseline makes one product, and stands beside the first of Penstock and those after it.
    require(entry["runs"] == 1 and "seconds of again" not in entry["samples"], entry)
    bench.wrong("200x150x100")
    bench.refused("'200x150'", "sizes=200x150")


def main():
    # Of a program that the system held up; a report that says 0 is of no use.
    require([significant(2 / 7e6), significant(-12345.6), significant(0)] == [2.857e-07, -12350, 0],
            "small numbers are nothing")
    application = sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        globals()[application](Bench(application, folder))
    print("the benchmark's rows are right, and what goes wrong is said")


if __name__ == "__main__":
    main()
