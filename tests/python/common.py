"""What the tests of the Python package share: a seed that is told, a folder, a small runtime."""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

import penstock as ps

SKIPPED = 77

# The signal comes where no handler of Python runs before the call has begun: between the two is C.
GATHER_AS_A_SIGNAL_COMES = """
import ctypes, functools, operator, signal, numpy as np, penstock as ps
from penstock import _frameworks

def gather_as_a_signal_comes(array):
    ids, out = np.array([1, 2]), np.empty((2, *array.shape[1:]), array.dtype)
    numbers = _frameworks.NUMPY.numbers(ids)
    rows = _frameworks.NUMPY.rows(out, out.shape, array.dtype, 1)
    come = ctypes.pythonapi.PyErr_SetInterrupt
    come.restype = None
    call = functools.partial(array._core.gather, numbers.address, numbers.type, numbers.size,
                             rows.address, rows.item_bytes, rows.stride, 0, None, -1, False)
    list(map(operator.methodcaller("__call__"), [come, call]))
"""


def seed_of_run():
    """PENSTOCK_SEED, or another each time; a failing test tells it."""
    return int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(1 << 32))


def small_runtime(**options):
    return ps.Runtime(**{"device": "cpu", "cache": "2MiB", "page": "4KiB", "log": None,
                         "worker_threads": 2, **options})


class Case(unittest.TestCase):
    """A test with a folder of its own, and a runtime that is closed at its end."""

    def setUp(self):
        self.seed = seed_of_run()
        self.random = random.Random(self.seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def runtime(self, **options):
        made = small_runtime(**options)
        self.addCleanup(made.close)
        return made

    def subTest(self, msg=None, **values):
        return super().subTest(msg, seed=self.seed, **values)

    def child(self, code, *arguments, seconds=60, **options):
        """Runs the text in an interpreter of its own."""
        return subprocess.run([sys.executable, "-B", "-W", "error", "-c", code, *arguments],
                              capture_output=True, text=True, timeout=seconds, check=False,
                              **options)


def need(*modules):
    """Ends the program as skipped if one of the modules is missing."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            print(f"skipped: {module} is not installed")
            sys.exit(SKIPPED)
