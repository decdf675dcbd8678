#!/usr/bin/env python3
"""Measures an application beside its baselines, and checks that all its methods write the same.

  tools/app_bench.py APPLICATION BIN_DIR DATA_DIR OUT_DIR [--backend gpu|cpu] [--state warm|cold]
                     [--methods NAME,...] [--commit NAME] [SETTING=VALUE...]
  tools/app_bench.py --list

APPLICATION is a row of tools/app_bench_table.py: collage, collage_devices (several devices beside
one), collage_ways (regions, the whole library cached, reads by blocks), grep, match, or of
penstock-matrix vector or product. BIN_DIR holds the programs. DATA_DIR gets the input; input that
is there in the right size is used as it is. OUT_DIR gets APPLICATION.json (the form of
bench/results, and all samples), table.txt, and in runs/ the report of each process. --list names
the methods and the settings with their defaults.

Methods run in turns, each as often as the table says, and each in a process of its own. Before a
case its input is read into the operating system's page cache (--state warm: the disk is not
measured), or taken out of it before every process (--state cold). --backend cpu runs Penstock on
CPU threads and leaves out the methods that need a GPU.

Exit status 0 only if every process of the application ended well and all results are equal, but
for libraries that round otherwise, whose first result the program checks; 2 if an argument cannot
be used. A foreign program that is missing or too slow is a row that says so."""
import argparse
import filecmp
import functools
import json
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import app_bench_report
import bench_machine
from app_bench_table import APPLICATIONS, Application, Case, Method, UsageError, Values

MAKING_SECONDS = 600
BLOCK = 1 << 22


def expand(template: str, values: Values) -> list[str]:
    """The words of a command. A flag goes if its value is empty: the program's default holds."""
    words: list[str] = []
    for word in shlex.split(template):
        value = values.get(word[1:-1]) if word[:1] + word[-1:] == "{}" else None
        if isinstance(value, list):
            words += [str(part) for part in value]
            continue
        text = word.format(**values)
        if text == "" and words and words[-1].startswith("--"):
            words.pop()
        else:
            words.append(text)
    return words


def warm(path: pathlib.Path) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(BLOCK):
            pass


@functools.cache  # once for each file
def warn_of_unknown(path: pathlib.Path) -> None:
    print(f"{path}: of another user, so the system does not tell whether it is cold",
          file=sys.stderr)


def drop(path: pathlib.Path) -> None:
    """Takes a file out of the operating system's page cache; one that stays is not cold."""
    stayed = bench_machine.drop_from_page_cache(path)
    if stayed is None:
        warn_of_unknown(path)
    elif stayed > bench_machine.MOST_THAT_STAYS:
        raise UsageError(f"{path}: {100 * stayed:.1f} % of it stays in memory when it is dropped, "
                         "so it is not cold; name a DATA_DIR on a disk, or give --state warm")


def run_words(words: list[str], folder: pathlib.Path | None, limit: float, out: pathlib.Path,
              log: pathlib.Path, variables: tuple[str, ...] = ()) -> tuple[str, dict[str, float]]:
    """Runs a process and all that it starts. Why it failed (empty if it did not), and its times."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with open(out, "wb") as stdout, open(log, "wb") as stderr:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, start_new_session=True,
                                   env={**os.environ, "LC_ALL": "C",
                                        **dict(text.split("=", 1) for text in variables)})
        try:
            code, why = process.wait(limit), ""
        except subprocess.TimeoutExpired:
            code, why = 1, f"took longer than {limit:g} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if code < 0:
        why = f"was stopped by signal {-code}"
    elif code != 0 and not why:
        said = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
        why = said or f"it ended with status {code}"
    return why, {"wall": wall, "cpu": cpu, "cores": cpu / wall}


class Bench:
    """One run of the script: settings, folders, and the reports of all processes so far."""

    def __init__(self, application: Application, wanted: argparse.Namespace,
                 scratch: pathlib.Path) -> None:
        self.application, self.wanted, self.scratch = application, wanted, scratch
        self.settings: Values = settings_of(application, wanted)
        self.methods = methods_of(application, wanted)
        self.path = pathlib.Path(wanted.bin_dir).resolve() / application.program
        self.data, self.out = pathlib.Path(wanted.data_dir).resolve(), wanted.out
        self.runs: app_bench_report.Runs = {}
        self.made: list[Values] = []
        self.is_bad = False
        self.warmed: set[pathlib.Path] = set()

    def program(self, words: str, values: Values) -> Values:
        """Runs the application to make input, and returns its report; ends the script if that
        fails."""
        report, log = self.scratch / "made", self.out / "runs" / "make.log"
        why, _ = run_words([str(self.path), *expand(words, {**self.settings, **values})], None,
                           MAKING_SECONDS, report, log)
        if why:
            sys.exit(f"FAILED: {shlex.split(words)[0]}: {why}")
        self.made.append(json.loads(report.read_text(encoding="utf-8")))
        return self.made[-1]

    def measure(self) -> None:
        for case in self.application.cases(self):
            by = self.runs[case] = {}
            if self.wanted.state == "warm":
                for path in case.inputs:
                    if path not in self.warmed:
                        warm(path)
                self.warmed = set(case.inputs)
            for stage in (0, 1, 2):
                methods = [method for method in self.methods if method.stage == stage]
                for number in range(1, 1 + max(map(self.repeats_of, methods), default=0)):
                    for method in methods:
                        if number <= self.repeats_of(method):
                            by.setdefault(method, []).append(self.run(case, method, number))
            (self.scratch / "first").unlink(missing_ok=True)

    def repeats_of(self, method: Method) -> int:
        return int(self.settings.get(method.repeats, method.repeats))

    def command(self, case: Case, method: Method, number: int) -> list[str]:
        values = {**self.settings, **case.values, "backend": self.wanted.backend,
                  "result": self.scratch / self.application.result}
        if method.tool:
            return expand(method.flags, values)
        flags = f"{method.flags} {method.first_flags if number == 1 else ''}"
        return [str(self.path), *expand(f"{self.application.run} {flags}", values)]

    def run(self, case: Case, method: Method, number: int) -> Values:
        """The report of a process, with its times; only {"failed": why} if there is none."""
        tool = method.tool and self.settings[method.tool]
        if tool and not shutil.which(tool):
            return {"failed": f"missing: {tool}"}
        if self.wanted.state == "cold":
            for path in case.inputs:
                drop(path)
        stem = self.out / "runs" / f"{case.name}.{method.name}.{number}"
        out, result = pathlib.Path(f"{stem}.json"), self.scratch / self.application.result
        result.unlink(missing_ok=True)
        limit = float(self.settings["tool_timeout" if tool else "timeout"])
        why, times = run_words(self.command(case, method, number), case.folder, limit, out,
                               pathlib.Path(f"{stem}.log"), method.variables)
        # A foreign program prints numbers that are added up; it may end with any status.
        if tool and not why.startswith(("took longer", "was stopped")):
            total = sum(int(count) for count in out.read_text(encoding="utf-8").split())
            out.write_text(json.dumps({self.application.counted: total}), encoding="utf-8")
        elif why:
            out.unlink()
            if not tool:
                self.is_bad = True
                print(f"FAILED: {case.name} {method.name} {number}: {why}", flush=True)
            return {"failed": why}
        if not tool and not method.rounds_otherwise:
            self.compare(case, method)
        return {**json.loads(out.read_text(encoding="utf-8")), "process": times}

    def compare(self, case: Case, method: Method) -> None:
        """The first result of a case is kept; each later one must be equal to it."""
        result, first = self.scratch / self.application.result, self.scratch / "first"
        if not first.exists():
            result.rename(first)
        elif not filecmp.cmp(result, first, shallow=False):
            self.is_bad = True
            print(f"DIFFERENT: {case.name} by {method.name}", flush=True)

    def conditions(self) -> Values:
        return {"backend": self.wanted.backend, "state": self.wanted.state,
                "settings": self.settings,
                "methods": {method.name: {"repeats": self.repeats_of(method),
                                          "flags": method.flags,
                                          "variables": method.variables}
                            for method in self.methods}}


def settings_of(application: Application, wanted: argparse.Namespace) -> Values:
    settings = dict(application.settings)
    for text in wanted.settings:
        name, equals, value = text.partition("=")
        if not equals or name not in settings:
            raise UsageError(f"no setting '{text}' of {wanted.application}; there are "
                             f"{', '.join(f'{known}=' for known in settings)}")
        settings[name] = value
    for name, default in application.settings.items():
        value = settings[name]
        if default.isdigit() and not (value.isdigit() and int(value) > 0):
            raise UsageError(f"{name} '{value}' cannot be used; give a number above 0")
    return settings


def methods_of(application: Application, wanted: argparse.Namespace) -> list[Method]:
    has_gpu = wanted.backend == "gpu"
    known = {method.name: method for method in application.methods}
    names = wanted.methods.split(",") if wanted.methods else [
        name for name, method in known.items() if has_gpu or not method.needs_gpu]
    for name in names:
        if name not in known:
            raise UsageError(f"no method '{name}' of {wanted.application}; there are "
                             f"{', '.join(known)}")
        if known[name].needs_gpu and not has_gpu:
            raise UsageError(f"method '{name}' needs a GPU; give --backend gpu, or leave it out")
    return [method for name, method in known.items() if name in names]


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="app_bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("application", choices=APPLICATIONS)
    for name in ("bin_dir", "data_dir", "out_dir"):
        parser.add_argument(name)
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE")
    parser.add_argument("--backend", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--state", choices=("warm", "cold"), default="warm")
    parser.add_argument("--methods", help="of these, separated by commas (default: all)")
    parser.add_argument("--commit", help="what was built (default: asked of git)")
    wanted = parser.parse_intermixed_args(words)
    wanted.commit = wanted.commit or bench_machine.commit_here()
    return wanted


def list_table() -> None:
    for name, application in APPLICATIONS.items():
        print(f"{name} ({application.program})")
        print("  methods:", ", ".join(method.name for method in application.methods))
        print("  settings:", " ".join(f"{setting}={shlex.quote(value)}"
                                      for setting, value in application.settings.items()))


def main(words: list[str]) -> int:
    if words == ["--list"]:
        list_table()
        return 0
    wanted = arguments(words)
    application = APPLICATIONS[wanted.application]
    wanted.out = pathlib.Path(wanted.out_dir).resolve()
    program = pathlib.Path(wanted.bin_dir) / application.program
    try:
        if not (program.is_file() and os.access(program, os.X_OK)):
            raise UsageError(f"{program} is no program; build {application.program} and name its "
                             "folder")
        if wanted.backend == "gpu" and not bench_machine.said_by("nvidia-smi", "-L"):
            raise UsageError("no GPU here (nvidia-smi -L names none); give --backend cpu")
        for folder in (wanted.out / "runs", pathlib.Path(wanted.data_dir)):
            folder.mkdir(parents=True, exist_ok=True)
        for old in (wanted.out / "runs").iterdir():
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=wanted.out) as scratch:
            bench = Bench(application, wanted, pathlib.Path(scratch))
            bench.measure()
    except UsageError as error:
        print(f"app_bench: {error}", file=sys.stderr)
        return 2
    machine = bench_machine.machine_of(wanted.data_dir, wanted.commit)
    if not app_bench_report.write(wanted.application, bench, machine):
        print(f"app_bench: no process of {application.program} ended well", file=sys.stderr)
        return 1
    if bench.is_bad:
        return 1
    print("all results are equal")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
