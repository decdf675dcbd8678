#!/usr/bin/env python3
"""The lab of tools/node_lab.py: its nodes are machines to what runs there, and nothing of it is
left behind, however it ends. Skipped where it cannot be."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import node_lab  # noqa: E402

WAIT_SECONDS = 60
MARK = "PENSTOCK_LAB_TEST"  # in the environment of all that a test starts
DONE, WRONG = 0, 3


def check(what, is_right):
    if not is_right:
        print(f"WRONG: {what}", flush=True)
        sys.exit(WRONG)


def nodes():
    """Runs in the lab."""
    lab = node_lab.Lab(nodes=2, folder_bytes=1 << 30)
    first, second = lab.nodes
    path = node_lab.SHARED / "file"
    first.run("sh", "-c", f"head -c 8388608 /dev/urandom > {path}")
    sums = [node.run("md5sum", path) for node in (first, second)]
    check("a node reads other bytes than one that wrote them", sums[0] == sums[1])
    second.run("sh", "-c", f"head -c 100 /dev/zero > {node_lab.PRIVATE}/own")
    check("a folder of a node is seen by another", first.run(
        "test", "-e", f"{node_lab.PRIVATE}/own", check=False) is None)

    # What a node reads comes over the server's link, at its rate.
    lab.forget(second)
    before, begin = lab.server.sent_bytes(), time.monotonic()
    second.run("md5sum", path)
    seconds, sent = time.monotonic() - begin, lab.server.sent_bytes() - before
    check(f"{sent} bytes were sent of a file of 8 MiB", sent >= 8 << 20)
    # 256 KiB go at once, and the rest at 100 Mbit/s.
    check(f"{sent} bytes were sent in {seconds} s", seconds > (sent - (1 << 18)) * 8 / 1e8 * 0.9)

    # A node that dies takes its processes along, and no other node.
    child = second.start("sleep", "sleep", "1000")
    second.kill()
    child.wait(timeout=WAIT_SECONDS)
    check("the other node reads no more", first.run("md5sum", path) == sums[0])
    print("ready", flush=True)
    if "wait" in sys.argv:
        time.sleep(1000)
    return DONE


class lab(unittest.TestCase):
    def start(self, *words):
        self.mark = uuid.uuid4().hex
        process = subprocess.Popen([sys.executable, "-B", __file__, "inside", *words],
                                   env={**os.environ, MARK: self.mark}, stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def processes(self):
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(folder.name)
            except OSError:
                continue
        return found

    def assert_nothing_is_left(self, mounts):
        until = time.monotonic() + WAIT_SECONDS
        while self.processes():
            self.assertLess(time.monotonic(), until, f"processes are left: {self.processes()}")
            time.sleep(0.05)
        self.assertEqual(pathlib.Path("/proc/self/mounts").read_text().count("mfs#"), mounts)

    def test_nodes_are_machines_and_nothing_is_left(self):
        mounts = pathlib.Path("/proc/self/mounts").read_text().count("mfs#")
        process = self.start()
        said, _ = process.communicate(timeout=200)
        self.assertEqual(process.returncode, DONE, said)
        self.assert_nothing_is_left(mounts)

    def test_a_signal_leaves_nothing(self):
        mounts = pathlib.Path("/proc/self/mounts").read_text().count("mfs#")
        for number in (signal.SIGINT, signal.SIGKILL):
            process = self.start("wait")
            self.assertEqual(process.stdout.readline(), b"ready\n")
            self.assertTrue(self.processes())
            process.send_signal(number)
            process.wait(timeout=WAIT_SECONDS)
            self.assert_nothing_is_left(mounts)


if __name__ == "__main__":
    if "inside" in sys.argv:
        sys.exit(node_lab.enter(nodes))
    if reason := node_lab.why_not():
        print(f"skipped: {reason}")
        sys.exit(node_lab.SKIPPED)
    unittest.main()
