"""Carries out the runs of a plan (buffer_paper.py): makes a workload's trace and files, plays
it, and keeps what each run reported or why it did not."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import bench_machine

ORDER, THREADS = "lru", 1  # the paper's; with one thread all runs of a trace have the same counts
LATE, STOPPED = "left out: the time limit was over", "left out: stopped before"


class Failed(Exception):
    """A run of the program did not end well. `usage`: it was refused, and nothing is broken."""

    def __init__(self, message, usage=False):
        super().__init__(message)
        self.usage = usage


class Late(Exception):
    """There is no time left."""


def put_on_disk(path):
    """What still is in memory, dirty, would have to go there while it is measured."""
    stayed = bench_machine.drop_from_page_cache(path)
    if stayed is None:
        print(f"{path}: of another user, so the system does not tell what of it stays in memory "
              "when it is dropped: these times may not be a disk's", file=sys.stderr)
    elif stayed > bench_machine.MOST_THAT_STAYS:
        print(f"{path}: {100 * stayed:.1f} % of it stays in memory when it is dropped: these "
              "times are not a disk's", file=sys.stderr)


class Outcome:
    """What came of one run: a report for each time it went well, and what was said where it did
    not."""

    def __init__(self):
        self.reports, self.messages, self.failed, self.refused = [], [], False, False

    def message(self):
        return self.messages[0] if self.messages else None


class Runner:
    """`settings`: as given on the command line. `save` is called whenever a workload is through."""

    def __init__(self, settings, save):
        self.settings, self.save = settings, save
        self.outcomes, self.distinct, self.stopped = {}, {}, False
        self.begin = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.begin

    def left(self):
        """Seconds, or None if they are not limited."""
        if self.settings.time_limit is None:
            return None
        rest = self.settings.time_limit - self.seconds()
        if rest <= 0:
            raise Late
        return rest

    def call(self, *arguments):
        command = [self.settings.program, *map(str, arguments), "--json"]
        try:
            ran = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, timeout=self.left(), check=False)
        except subprocess.TimeoutExpired as error:
            raise Late from error
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from error
        if ran.returncode != 0:
            said = (ran.stderr.strip().split("\n")[-1]
                    or f"ended with {ran.returncode} and said nothing")
            raise Failed(said, usage=ran.returncode == 2)
        try:
            return json.loads(ran.stdout)
        except ValueError as error:
            raise Failed(f"{' '.join(command)}: printed no JSON object") from error

    def make(self, load):
        """The trace, and its files unless no byte of them is needed."""
        self.clear()
        self.call("trace", "generate", "-o", "trace", "--binary", "--seed", self.settings.seed,
                  *load.arguments(), *([] if self.settings.simulate else ["--data", "data"]))
        for path in [] if self.settings.cached else self.folder.glob("data*"):
            put_on_disk(path)
        if load not in self.distinct:
            self.distinct[load] = self.call("trace", "show", "trace")["distinct_pages"]

    def clear(self):
        for path in self.folder.iterdir():
            path.unlink()

    def replay(self, run):
        flags = ([*run.arguments(), "--order", ORDER]
                 + (["--blocks", self.settings.blocks] if run.policy == "dedu" else []))
        if self.settings.simulate:
            return self.call("replay", "trace", *flags, "--simulate")
        more = ["--threads", THREADS]
        if self.settings.backend and run.policy != "native":  # which has no part on a device
            more += ["--backend", self.settings.backend]
        more += ["--cached"] if self.settings.cached else []
        more += ["--always-gram"] if self.settings.always_gram and run.policy == "gram" else []
        more += ["--writes"] if run.workload.writes else []
        return self.call("replay", "trace", *flags, *more)

    def play(self, load, runs):
        made, wrong = False, None
        for run in runs:
            outcome = self.outcomes[run]
            try:
                if wrong is not None:
                    raise wrong
                if not made:
                    try:
                        self.make(load)
                    except Failed as error:
                        wrong = error
                        raise
                outcome.reports.append(self.replay(run))
                # What a run wrote takes away the equal pages of the next one's files.
                made = self.settings.simulate or load.writes == 0
            except Failed as error:
                outcome.messages.append(str(error))
                outcome.failed |= not error.usage
                outcome.refused |= error.usage
                made = made and load.writes == 0

    def leave_out(self, why):
        for outcome in self.outcomes.values():
            if not outcome.reports and not outcome.messages:
                outcome.messages.append(why)

    def measure(self, plan):
        """Does all runs once, then all again: a user that stops it early has some of everything.

        However it ends, the files are gone then."""
        by_load = plan.runs()
        self.outcomes = {run: Outcome() for runs in by_load.values() for run in runs}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-figures-",
                                                    dir=self.settings.data))
        try:
            for _ in range(self.settings.repeats):
                for load, runs in by_load.items():
                    self.play(load, [run for run in runs if not self.outcomes[run].refused])
                    self.save(self)
        except Late:
            self.leave_out(LATE)
        except KeyboardInterrupt:
            self.stopped = True
            self.leave_out(STOPPED)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
