#!/usr/bin/env python3
"""Kills agents and the master of a store between nodes while a program reads through it:
block_store_kills.py [--megabytes N] [--json FILE]

One machine stands for two nodes: a master of Mooncake Store, two agents, and a reader that gathers
rows of a file again and again, of which the operating system has nothing. While it reads, the other
node's agent, its own agent and the master are killed by SIGKILL and started again, each in the
middle of a pass. The reader compares every row, and notes how long the longest gather took in each
phase, and the longest in which a call of the store failed: the others are as long as the machine
makes them, which may have other work. Needs the package penstock, numpy, and Mooncake
(mooncake-transfer-engine-non-cuda); without them it ends with 77."""
import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

try:
    import mooncake.store  # noqa: F401
    import numpy as np
    import penstock as ps
    from penstock import agent
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROW, PAUSE = 4096, 11  # seconds: the store is left alone for 10


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Parts:
    """The processes of the store."""

    def __init__(self, folder):
        self.folder = folder
        self.port, self.metrics = free_port(), free_port()
        self.running = {}

    def start_master(self):
        self.running["master"] = subprocess.Popen(
            ["mooncake_master", f"--rpc_port={self.port}", f"--metrics_port={self.metrics}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise TimeoutError("the master does not start")

    def start_agent(self, name, memory):
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.agent", "mooncake", "--master",
             f"127.0.0.1:{self.port}", "--memory", str(memory), "--socket", self.socket(name)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if not process.stdout.readline().startswith("penstock-agent: ready"):
            raise RuntimeError(f"agent {name} did not start")
        self.running[name] = process

    def socket(self, name):
        return str(self.folder / f"agent-{name}")

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def kill_all(self):
        for name in list(self.running):
            self.kill(name)


class Reader:
    """Gathers all rows of a file, pass by pass, and compares them."""

    def __init__(self, folder, megabytes):
        self.rows = np.random.default_rng(35).integers(0, 256, (megabytes << 8, ROW),
                                                       dtype=np.uint8)
        self.path = folder / "rows"
        self.rows.tofile(self.path)
        self.lines = []

    def forget(self):
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def passes(self, path_of_socket, happen, count, wait_ms):
        """A runtime for `count` passes; happen(pass, part) is called between gathers."""
        longest, failing, wrong = 0.0, 0.0, 0
        with ps.Runtime(device="cpu", cache="4MiB", page="64KiB", windows=0,
                        roots=[self.path.parent], block_store=path_of_socket,
                        block_store_local=True, block_store_wait_ms=wait_ms,
                        log=self.lines.append) as runtime, \
                ps.open_array(self.path, dtype="uint8", shape=self.rows.shape,
                              runtime=runtime) as table:
            step = 64
            parts = range(0, len(self.rows), step)
            for number in range(count):
                self.forget()
                for part, first in enumerate(parts):
                    happen(number, part / len(parts))
                    wanted = np.arange(first, min(first + step, len(self.rows)))
                    errors = ps.stats(runtime).store_errors
                    begun = time.monotonic()
                    got = table.gather(wanted)
                    took = time.monotonic() - begun
                    longest = max(longest, took)
                    if ps.stats(runtime).store_errors != errors:
                        failing = max(failing, took)
                    wrong += int((got != self.rows[wanted]).any(axis=1).sum())
            counted = ps.stats(runtime)
        store = {name: getattr(counted, name) for name in
                 ("store_hits", "store_misses", "store_errors", "store_bad_blocks", "store_puts",
                  "store_pauses")}
        return {"passes": count, "load": os.getloadavg()[0],
                "longest_gather_ms": round(longest * 1000, 1),
                "longest_failing_gather_ms": round(failing * 1000, 1),
                "wrong_rows": wrong, **store}


def once(at, action):
    """For passes(): does it in the middle of pass `at`."""
    done = []

    def happen(number, part):
        if number == at and part >= 0.5 and not done:
            done.append(True)
            action()
    return happen


def run(arguments, folder):
    parts, reader = Parts(folder), Reader(folder, arguments.megabytes)
    memory = 2 * arguments.megabytes << 20
    phases = {}

    def phase(name, happen, passes=4):
        phases[name] = reader.passes(parts.socket("mine"), happen, passes, arguments.wait_ms)
        print(name, json.dumps(phases[name]), flush=True)

    try:
        parts.start_master()
        for name in ("mine", "other"):
            parts.start_agent(name, memory)
        time.sleep(1)
        agent.warm(reader.path, socket=parts.socket("other"))
        phases["without a store"] = reader.passes("", lambda number, part: None, 4, 50)
        phase("nothing happens", lambda number, part: None)
        phase("the other node's agent is killed", once(1, lambda: parts.kill("other")))
        parts.start_agent("other", memory)
        agent.warm(reader.path, socket=parts.socket("other"))
        phase("its own agent is killed", once(1, lambda: parts.kill("mine")))
        phase("its own agent comes back", once(1, lambda: (parts.start_agent("mine", memory),
                                                         time.sleep(PAUSE))))
        phase("its own agent is stopped by SIGSTOP",
              once(1, lambda: parts.running["mine"].send_signal(signal.SIGSTOP)))
        parts.running["mine"].send_signal(signal.SIGCONT)
        time.sleep(PAUSE)
        phase("the master is killed", once(1, lambda: parts.kill("master")))
        phase("the master comes back", once(1, lambda: (parts.start_master(),
                                                       time.sleep(PAUSE))))
    finally:
        parts.kill_all()
    return {"phases": phases, "log": sorted(set(reader.lines))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=192)
    parser.add_argument("--wait-ms", type=int, default=50)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-kills-"))
    try:
        found = run(arguments, folder)
        kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True,
                              check=True).stdout.strip()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    cpu = next((line.split(":", 1)[1].strip() for line in
                pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
                if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "describe", "--always",
                             "--dirty"], capture_output=True, text=True, check=False).stdout.strip()
    result = {"commit": commit, "cpu": cpu, "cores": os.cpu_count(), "file_system": kind,
              "kernel": platform.release(),
              "file_megabytes": arguments.megabytes, "wait_ms": arguments.wait_ms, **found}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    wrong = sum(phase["wrong_rows"] for phase in found["phases"].values())
    slowest = max(phase["longest_gather_ms"] for phase in found["phases"].values())
    print(f"{wrong} wrong rows; the longest gather took {slowest} ms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
