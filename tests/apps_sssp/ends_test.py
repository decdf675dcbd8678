"""A run that is ended by a signal leaves nothing mounted, no process, no temporary file, and the
result as it was.

Usage: ends_test.py PROGRAM
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

import sssp_support as support


def mounts_below(folder):
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        return [line.split()[4] for line in table if line.split()[4].startswith(folder)]


def processes_with(text):
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                if text.encode() in file.read():
                    found.append(number)
        except OSError:
            pass
    return found


def wait_until(condition, message):
    end = time.monotonic() + 600
    while not condition():
        support.require(time.monotonic() < end, message)
        time.sleep(0.01)


def check_signal(program, folder, number, delay, flags):
    data, temporary = os.path.join(folder, "data"), os.path.join(folder, "temporary")
    out = os.path.join(data, "dist")
    with open(out, "w", encoding="utf-8") as file:
        file.write("as it was")
    before, changed = sorted(os.listdir(data)), os.stat(os.path.join(data, "graph")).st_mtime_ns
    child = subprocess.Popen([program, "run", os.path.join(data, "graph"), "--updates", "30",
                              "--rounds", "1000", "-o", out, *flags, *support.backend_flags()],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**os.environ, "TMPDIR": temporary})
    if "--no-mount" not in flags:
        wait_until(lambda: mounts_below(folder) or child.poll() is not None, "nothing was mounted")
    else:
        graph = os.path.join(data, "graph")
        wait_until(lambda: os.stat(graph).st_mtime_ns != changed or child.poll() is not None,
                   "nothing was updated")
    time.sleep(delay)
    child.send_signal(number)
    said_out, said = child.communicate(timeout=1000)
    label = f"{flags} after {delay} s"
    support.require(child.returncode == 1 and b"interrupted" in said and said_out == b"",
                    f"{label}: {child.returncode}, {said!r}")
    support.require(mounts_below(folder) == [], f"{label}: left {mounts_below(folder)}")
    support.require(os.listdir(temporary) == [] and sorted(os.listdir(data)) == before,
                    f"{label}: left {os.listdir(temporary)}, {os.listdir(data)}")
    support.require(processes_with(folder + "/") in ([], [str(os.getpid())]),
                    f"{label}: left processes {processes_with(folder + '/')}")
    with open(out, encoding="utf-8") as file:
        support.require(file.read() == "as it was", f"{label}: wrote its result")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("data", "temporary", "point"):
            os.mkdir(os.path.join(folder, name))
        support.must_run(program, "make", "-o", os.path.join(folder, "data", "graph"), "--vertices",
                         20000, "--edges", 400000, "--quiet")
        if support.has_fuse():
            check_signal(program, folder, signal.SIGTERM, 0, [])
            check_signal(program, folder, signal.SIGTERM, 0.3,
                         ["--mount", os.path.join(folder, "point")])
            check_signal(program, folder, signal.SIGINT, 0.37, ["--update-by", "store"])
        check_signal(program, folder, signal.SIGINT, 0.1, ["--no-mount"])
        support.require(os.listdir(os.path.join(folder, "point")) == [],
                        "something was left at the mount point")
    print("signals leave nothing behind")


if __name__ == "__main__":
    main()
