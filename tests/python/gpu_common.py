"""What the gpu_*.py scripts share. Each runs checks and prints one JSON line with a verdict each;
exit status 1 if a check failed, 77 if there is nothing to run on.

    python3 tests/python/gpu_torch.py            # on the current GPU
    python3 tests/python/gpu_torch.py cpu        # what needs no GPU, on CPU threads

A check is a function that returns None (ok) or a figure for the line, or raises; it raises Skip
with a reason where something is missing. With --only NAME,... the others are left out."""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import traceback


class Skip(Exception):
    """The reason why a check does not run here."""


class DroppedPages:
    """While it is entered, a thread asks the operating system again and again to drop the pages of
    a file from memory."""

    def __init__(self, path, seconds=0.05):
        self.path, self.seconds, self.rounds = path, seconds, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._drop)

    def _drop(self):
        fd = os.open(self.path, os.O_RDONLY)
        try:
            while not self._end.wait(self.seconds):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                self.rounds += 1
        finally:
            os.close(fd)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


@contextlib.contextmanager
def folder():
    """A folder on a disk, if there is one that is named: a tmpfs has no pages that can leave."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("PENSTOCK_TEST_FOLDER")) as name:
        yield pathlib.Path(name)


def equal(got, wanted, text="rows differ"):
    import torch
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise AssertionError(f"{text}: {got.shape} {got.dtype} for {wanted.shape} {wanted.dtype}")
    same = got.view(torch.uint8) == wanted.view(torch.uint8) if got.numel() else got == wanted
    if not bool(same.all()):
        raise AssertionError(f"{text}: {int((~same).sum())} bytes of {same.numel()}")


def expect(kind, call, words=""):
    """Calls, and expects an exception of that kind, whose text has these words."""
    try:
        call()
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"'{words}' is not in '{error}'") from error
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def counts(runtime):
    """Some statistics of a runtime."""
    found = json.loads(runtime._core.statistics())
    return {name: found[name] for name in ("misses", "evictions", "requests", "through_reads")}


def arguments(script):
    parser = argparse.ArgumentParser(script)
    parser.add_argument("device", nargs="?", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", default="")
    return parser.parse_args()


def describe_machine(device):
    import torch

    import penstock as ps
    facts = {"penstock": ps.__version__, "torch": torch.__version__}
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def run(script, checks, wanted, facts):
    """Runs the checks, each `(name, function)`, prints the line and ends the process."""
    begin, verdicts, figures, failed = time.monotonic(), {}, {}, False
    only = {name for name in wanted.only.split(",") if name}
    for name, check in checks:
        if only and name not in only:
            continue
        start = time.monotonic()
        try:
            figure = check()
            verdicts[name] = "ok"
            if figure is not None:
                figures[name] = figure
        except Skip as reason:
            verdicts[name] = f"skipped: {reason}"
        except Exception as error:
            failed = True
            verdicts[name] = f"FAILED: {type(error).__name__}: {error}"
            traceback.print_exc()
        print(f"{name}: {verdicts[name]} ({time.monotonic() - start:.1f} s)", file=sys.stderr)
    print(json.dumps({"script": script, "device": wanted.device, **facts, "verdicts": verdicts,
                      "figures": figures, "seconds": round(time.monotonic() - begin, 1)}),
          flush=True)
    sys.exit(1 if failed else 0)


def need_gpu(wanted, script):
    """Ends with 77 where a GPU is wanted and there is none."""
    try:
        import torch
        there = wanted.device == "cpu" or torch.cuda.is_available()
        why = "torch finds no GPU"
    except ImportError as error:
        there, why = False, str(error)
    if not there:
        print(json.dumps({"script": script, "verdicts": {}, "skipped": why}))
        sys.exit(77)
