#!/usr/bin/env python3
"""How the package behaves in a process: forks, spawned workers, ends without a close, exceptions,
Ctrl-C, and no numpy. manners_test.py [COMPILER] also tries calls that wait."""
import copy
import errno
import multiprocessing
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import _core  # noqa: E402
from penstock.device._paths import include_folder  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
COMPILER = sys.argv.pop() if shutil.which(sys.argv[-1]) and len(sys.argv) > 1 else None

OPEN = """
import sys, os, numpy as np, penstock as ps
rt = ps.Runtime("cpu", cache="2MiB", page="4KiB", writable=True, log=None)
t = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), mode="r+", runtime=rt)
w = ps.open_region(sys.argv[1], "r+", "int64", (-1, 8), runtime=rt)
"""

WRITES_BESIDE_CALLS = """
import sys, threading, time, numpy as np, penstock as ps
path, kind, end = sys.argv[1:]
N = 1 << 16
def opened(mode="r"):
    return ps.open_array(path, dtype="int64", shape=(N, 8), mode=mode, runtime=rt)
threading.excepthook = lambda *_: None  # the runtime of the thread is closed
rt = ps.Runtime("cpu", cache="64MiB", page="4KiB", writable=True, log=None)
w, r = opened("r+"), opened()
ids = np.random.default_rng(1).integers(0, N // 2, 50_000 if kind == "opens" else 3_000_000)
def read():
    while True:
        (opened() if kind == "opens" else r).gather(ids)
for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
time.sleep(.1)
w.scatter(np.arange(N // 2, N), np.full((N // 2, 8), 42))
if end:
    exec(end)
    found = np.fromfile(path, np.int64).reshape(N, 8)
    print(end.replace(" ", ""), (found[N // 2:] != 42).any(1).sum())
"""


def gather_in_worker(path):
    with common.small_runtime() as rt, \
            ps.open_array(path, dtype="int64", shape=(-1, 8), runtime=rt) as array:
        return array.gather([3, 5]).tolist()


class processes(common.Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "rows.bin")
        self.rows = np.arange(400, dtype=np.int64).reshape(-1, 8)
        self.rows.tofile(self.path)

    def test_ends_without_a_close(self):
        for code in ("", "rt = t = w = None", "del rt", "x = np.from_dlpack(w); a = np.asarray(w)",
                     "t.scatter([1], np.zeros((1, 8), np.int64))", "sys.exit(0)", "t.rt = rt",
                     "ps.default(); ps.open_array(sys.argv[1], dtype='int64', shape=(-1, 8))",
                     "rt2 = ps.Runtime('cpu', cache='2MiB', log='logging')"):
            with self.subTest(code=code):
                done = self.child(OPEN + code, self.path)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.child(OPEN + "raise RuntimeError('mine')", self.path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("RuntimeError: mine", done.stderr)

    def test_ends_beside_a_thread_that_is_in_a_call(self):
        code = OPEN + """
import threading
ids = np.random.default_rng(1).integers(0, len(t), 2_000_000)
began = threading.Event()
def gather():
    while True:
        began.set()
        t.gather(ids)
threading.Thread(target=gather, daemon=True).start()
began.wait()
print("the main program ends")
"""
        for _ in range(5):
            done = self.child(code, self.path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_end_writes_back_beside_threads_in_calls(self):
        """Each thread uses the runtime, so none of the ends here is its last use."""
        rows = 1 << 16
        for kind, end in (("opens", ""), ("gathers", ""), ("opens", "rt.close()"),
                          ("gathers", "rt.close()"), ("gathers", "w.close(); rt.close()")):
            for _ in range(2):
                with self.subTest(kind=kind, end=end):
                    np.zeros((rows, 8), np.int64).tofile(self.path)
                    done = self.child(WRITES_BESIDE_CALLS, self.path, kind, end)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    for when, left in [*map(str.split, done.stdout.splitlines()), ("exit", None)]:
                        if left is None:
                            found = np.fromfile(self.path, np.int64).reshape(-1, 8)
                            left = (found[rows // 2:] != 42).any(1).sum()
                        self.assertEqual((when, int(left)), (when, 0))

    def test_nothing_is_opened_while_the_runtime_closes(self):
        rt = common.small_runtime()
        self.addCleanup(rt.close)
        real, opened = rt._core, []

        class during_close:
            """The core, with an open of another thread just before its end."""

            def __getattr__(self, name):
                return getattr(real, name)

            def close(self):
                rt._core = real
                with self_test.assertRaisesRegex(ValueError, "closed"):
                    opened.append(ps.open_array(self_test.path, dtype="int64", shape=(-1, 8),
                                                runtime=rt))
                return real.close()

        self_test = self
        rt._core = during_close()
        rt.close()
        self.assertEqual((rt.closed, opened), (True, []))

    def test_a_close_that_was_interrupted_leaves_the_runtime_open(self):
        runtime = self.runtime()

        class interrupted:
            left = 1

            def close(self):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt

            def _check(self):
                pass

        user = interrupted()
        runtime._enter(user)
        with self.assertRaises(KeyboardInterrupt):
            runtime.close()
        self.assertFalse(runtime.closed)
        path = self.folder / "rows.bin"
        np.zeros((4, 8), np.int64).tofile(path)
        ps.open_array(str(path), dtype="int64", shape=(4, 8), runtime=runtime).close()
        runtime.close()
        self.assertTrue(runtime.closed)

    def test_a_process_without_proc_is_told(self):
        without = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if shutil.which("unshare") is None or subprocess.run(
                [*without, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("takes the right to a mount table of one's own")
        code = """
import errno, sys, penstock as ps
for call in (lambda: ps.Runtime("cpu", cache="2MiB", log=None),
             lambda: ps.Runtime("cpu", cache="2MiB", log=None, roots=["/"]),
             lambda: ps.open_array(sys.argv[1], dtype="int64")):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EUNATCH, error
        assert "/proc is not mounted" in str(error) and "mount -t proc" in str(error), error
    else:
        raise AssertionError("it was made")
"""
        done = subprocess.run([*without, sys.executable, "-B", "-W", "error", "-c", code,
                               self.path], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.stderr, done.returncode), ("", 0))

    def test_a_forked_child_is_told_and_ends(self):
        code = OPEN.replace("log=None", "log='logging'") + """
ps.default("8KiB")
child = os.fork()
if child == 0:
    told = []
    for call in (lambda: t.gather([1]), rt.check, w.acquire,
                 lambda: ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=rt)):
        try:
            call()
        except ChildProcessError as error:
            told.append("anew in the child" in str(error))
    with ps.Runtime("cpu", cache="2MiB", log=None) as own:
        a = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=own)
        rows = a.gather([1]).tolist()
    b = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=ps.default("8KiB"))
    assert b.gather([1]).tolist() == rows
    rt.close() if sys.argv[2] == "close" else None
    print(told, rows, flush=True)
    sys.exit(3)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 3, status
assert t.gather([1]).tolist() == [list(range(8, 16))]
"""
        for end in ("close", "leave"):
            with self.subTest(end=end):
                done = self.child(code, self.path, end)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(f"[True, True, True, True] {self.rows[1:2].tolist()}", done.stdout)

    def test_workers(self):
        for method in ("spawn", "fork"):
            with self.subTest(method=method):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    got = pool.apply(gather_in_worker, (self.path,))
                self.assertEqual(got, self.rows[[3, 5]].tolist())

    def test_a_runtime_is_not_sent_or_copied(self):
        with common.small_runtime() as rt:
            for send in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.subTest(send=send), self.assertRaisesRegex(TypeError, "make one there"):
                    send({"runtime": rt} if send is not copy.copy else rt)

    def test_a_subinterpreter_is_refused_and_the_main_one_goes_on(self):
        done = self.child("""
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import penstock as ps
run = getattr(interpreters, "exec", None) or interpreters.run_string
for i in range(2):
    other = interpreters.create()
    try:
        failure = run(other, "import penstock; print('imported')")
    except Exception as error:
        failure = error
    print("subinterpreter" in str(failure))
    interpreters.destroy(other)
with ps.Runtime("cpu", cache="2MiB", log=None) as rt:
    t = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=rt)
    print(t.gather([1])[0, 0])
""", self.path)
        self.assertEqual((done.stdout.split(), done.stderr), (["True", "True", "8"], ""))

    def test_import_needs_no_numpy_and_brings_no_framework(self):
        done = self.child("""
import sys
class none:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "torch", "cupy", "jax", "numba", "ml_dtypes"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, none())
import penstock as ps
with ps.Runtime("cpu", cache="2MiB", log=None) as rt:
    t = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=rt)
    assert t.shape == (50, 8)
    t.advise("random")
    w = ps.open_region(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=rt)
    assert w.nbytes == 3200
    ps.check(sys.argv[1])
    for call in (lambda: t.gather([1]), lambda: t[1], lambda: t.prefetch(slice(1, 3)),
                 lambda: ps.describe(sys.argv[1], dtype="<i8")):
        try:
            call()
        except ModuleNotFoundError as error:
            assert "pip install numpy" in str(error), str(error)
        else:
            raise AssertionError("numpy was not needed")
""", self.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_close_beside_calls_of_other_threads(self):
        for _ in range(10):
            rt = common.small_runtime()
            array = ps.open_array(self.path, dtype="int64", shape=(-1, 8), runtime=rt)
            failed = []

            def read(array=array, failed=failed):
                try:
                    while True:
                        if array.gather([1, 7]).tolist() != self.rows[[1, 7]].tolist():
                            failed.append("other rows")
                except ValueError as error:
                    if "closed" not in str(error):
                        failed.append(error)

            readers = [threading.Thread(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            rt.close()
            for reader in readers:
                reader.join()
            self.assertEqual(failed, [])

    def test_concurrent_gathers(self):
        rt = self.runtime()
        array = ps.open_array(self.path, dtype="int64", shape=(-1, 8), runtime=rt)
        wrong = []

        def read(seed):
            rng = np.random.default_rng(seed)
            for _ in range(200):
                ids = rng.integers(0, 50, 20)
                if array.gather(ids).tolist() != self.rows[ids].tolist():
                    wrong.append(ids)

        readers = [threading.Thread(target=read, args=(i,)) for i in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertEqual(wrong, [])


WAITING = """
import sys, signal, os, fcntl, numpy as np, penstock as ps
rt = ps.Runtime("cpu", cache="2MiB", page="4KiB", io="pread", windows=0, log=None)
t = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=rt)
slow = open(os.environ["SLOW_READS"], "w")
fcntl.flock(slow, fcntl.LOCK_EX)
handled = []
"""


@unittest.skipUnless(COMPILER, "needs a compiler, for reads that wait")
class calls_that_wait(common.Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "rows.bin")
        np.arange(400, dtype=np.int64).tofile(self.path)
        self.slow = self.folder / "slow"
        shim = self.folder / "slow_reads.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", shim, HERE / "slow_reads.cpp",
                        "-ldl"], check=True)
        self.environment = {**os.environ, "LD_PRELOAD": str(shim), "SLOW_READS": str(self.slow)}

    def start(self, code):
        started = subprocess.Popen([sys.executable, "-B", "-c", WAITING + code, self.path],
                                   env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, started)
        self.assertEqual(started.stdout.readline(), "waiting\n")
        time.sleep(0.3)  # the call has begun, or begins with the signal pending: both are tried
        return started

    def end(self, started):
        started.kill()
        started.communicate()

    def test_ctrl_c_ends_the_call_and_the_array_works_again(self):
        started = self.start("""
try:
    print("waiting", flush=True)
    t.gather([1])
    print("no interrupt")
except KeyboardInterrupt:
    slow.close()
    print(t.gather([2]).tolist())
""")
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=300)
        self.assertEqual((started.returncode, out), (0, f"[{list(range(16, 24))}]\n"), err)

    def test_a_handler_that_returns_lets_the_call_go_on(self):
        started = self.start("""
signal.signal(signal.SIGINT, lambda *_: (handled.append(1), slow.close()))
print("waiting", flush=True)
print(t.gather([2]).tolist(), handled)
""")
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=300)
        self.assertEqual((started.returncode, out), (0, f"[{list(range(16, 24))}] [1]\n"), err)

    def test_what_a_handler_chooses_as_the_call_begins_ends_the_call(self):
        started = self.start(common.GATHER_AS_A_SIGNAL_COMES + """
def first(*_):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("waiting", flush=True)
signal.signal(signal.SIGINT, first)
try:
    gather_as_a_signal_comes(t)
    print("no interrupt")
except KeyboardInterrupt:
    slow.close()
    print("interrupted")
""")
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=300)
        self.assertEqual((started.returncode, out), (0, "interrupted\n"), err)

    def test_ctrl_c_in_a_child_that_another_thread_made_during_a_call(self):
        """The parent's call has the handler of the signal, and does not go on in the child."""
        started = self.start("""
import threading, time
def fork():
    time.sleep(0.5)
    child = os.fork()
    if child != 0:
        os.waitpid(child, 0)
        slow.close()
        return
    code = 1
    try:
        own = ps.Runtime("cpu", cache="2MiB", page="4KiB", io="pread", windows=0, log=None)
        a = ps.open_array(sys.argv[1], dtype="int64", shape=(-1, 8), runtime=own)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        threading.Timer(20, os._exit, (2,)).start()
        a.gather([1])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        code = 0
    finally:
        os._exit(code)
forking = threading.Thread(target=fork)
forking.start()
print("waiting", flush=True)
print(t.gather([2]).tolist())
""")
        out, err = started.communicate(timeout=300)
        self.assertEqual((started.returncode, out),
                         (0, f"interrupted\n[{list(range(16, 24))}]\n"), err)

    def test_other_threads_run_meanwhile(self):
        started = self.start("""
import threading
threading.Timer(0.5, slow.close).start()
print("waiting", flush=True)
print(t.gather([2]).tolist())
""")
        out, err = started.communicate(timeout=300)
        self.assertEqual((started.returncode, out), (0, f"[{list(range(16, 24))}]\n"), err)


class errors(common.Case):
    def test_the_class_of_each_errno(self):
        from penstock._errors import error_of

        for code, kind in [(errno.ERANGE, IndexError), (errno.EINVAL, ValueError),
                           (errno.EBADF, ValueError), (errno.ENOMEM, MemoryError),
                           (errno.ENOENT, FileNotFoundError), (errno.EACCES, PermissionError),
                           (errno.EISDIR, IsADirectoryError), (errno.ETIMEDOUT, TimeoutError),
                           (errno.ECHILD, ChildProcessError), (errno.EIO, OSError),
                           (errno.EBADMSG, ps.FormatError), (errno.EOPNOTSUPP, ps.FormatError)]:
            error = error_of(code, "'f': text", "f")
            self.assertIs(type(error), kind)
            self.assertEqual((error.errno, error.filename), (code, "f"))
            self.assertIn("text", str(error))

    def test_headers_lie_beside_the_module_or_the_error_says_where_they_come_from(self):
        with unittest.mock.patch.object(_core, "__file__", str(self.folder / "_core.so")):
            with self.assertRaisesRegex(FileNotFoundError, "wheel, .* libpenstock-dev"):
                ps.get_include()
            (self.folder / "include").mkdir()
            self.assertEqual(ps.get_include(), str(self.folder / "include"))
            self.assertEqual(include_folder(), str(self.folder / "include"))


if __name__ == "__main__":
    unittest.main()
