"""What the tests of several programs share: running one, and what it says where it refuses."""
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def backend_flags():
    """Flags for the method penstock, so that the same tests run on a GPU:
    PENSTOCK_TEST_FLAGS="--backend gpu"."""
    return os.environ.get("PENSTOCK_TEST_FLAGS", "--backend cpu").split()


def on_gpu():
    return "gpu" in backend_flags()


def methods():
    """The methods to test; on a GPU also PENSTOCK_TEST_METHODS="penstock cpu cuda"."""
    return os.environ.get("PENSTOCK_TEST_METHODS", "penstock cpu").split()


def clean_environment(**more):
    """The environment without any PENSTOCK_* variable but those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**kept, **more}


def preloaded(name, folder, **more):
    """An environment in which programs load tests/apps/NAME.cpp before all others. The library is
    made in `folder`."""
    library = folder / f"{name}.so"
    source = pathlib.Path(__file__).with_name(f"{name}.cpp")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return clean_environment(LD_PRELOAD=str(library), ASAN_OPTIONS=options.lstrip(":"), **more)


def with_failing_close(folder, place):
    """An environment in which the close of a file that was written below `place` says that there
    was no room."""
    return preloaded("failing_close", folder, FAILING_CLOSE=f"{place}/")


def fail(message):
    print(f"FAILED: {message}")
    sys.exit(1)


def require(condition, message):
    if not condition:
        fail(message)


def run_program(program, *arguments, **more):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, check=False, **more)


def must_run(program, *arguments, **more):
    done = run_program(program, *arguments, **more)
    require(done.returncode == 0,
            f"{arguments}: exit status {done.returncode}, {done.stderr.decode(errors='replace')}")
    return done


def refuse(program, arguments, names, status=1, lines=1, said_by=None, **more):
    """The program ends so, with so many lines (None: any) that have all the names, and nothing
    else. `said_by`: its name, where `program` starts another."""
    done = run_program(program, *arguments, **more)
    shown = (f"{arguments}: exit status {done.returncode}, said "
             f"{done.stderr.decode(errors='replace')!r}")
    require(done.returncode == status, f"expected exit status {status}: {shown}")
    begin = (said_by or os.path.basename(program)).encode() + b": "
    require(done.stderr.startswith(begin) and (lines is None or done.stderr.count(b"\n") == lines),
            f"expected one line: {shown}")
    require(all(name.encode() in done.stderr for name in names), f"expected {names}: {shown}")
    require(done.stdout == b"", f"something on standard output: {shown}")


def limit_files():
    """In a child: no file may grow past 64 KiB, and the signal that says so is ignored. A disk that
    is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))


def wait_until_at_work(child):
    """A third of a second of its processor time is past: it has begun, however busy the machine
    is."""
    while child.poll() is None:
        with open(f"/proc/{child.pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        if int(fields[11]) + int(fields[12]) > 0.3 * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.01)


def dice_from(seed):
    print(f"seed {seed}")
    return random.Random(seed)
