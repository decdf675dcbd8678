#!/usr/bin/env python3
"""The agent of a store between nodes: what goes over its socket, what it refuses, that it may be
killed at any time; and Mooncake Store behind it, where that is installed."""
import argparse
import array
import errno
import fcntl
import importlib.util
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import _core, agent  # noqa: E402

MEMORY_AGENT = pathlib.Path(__file__).with_name("memory_agent.py")
ROW, BLOCK = 4096, 2 << 20
HELLO, GET, PUT, REST = 1, 2, 3, 4


def request(operation, number=1, size=BLOCK + 64, key=b"k" * 32, wait_ms=1000, flag=0):
    return struct.pack("<IIQ32sQII", 0x31425350, operation, number, key, size, wait_ms, flag)


def sealed_memory():
    memory = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, BLOCK + 64)
    fcntl.fcntl(memory, 1033, 2 | 4)  # F_ADD_SEALS: no other size
    return memory


def answer_of(client):
    return struct.unpack("<IIQq", client.recv(24))[3]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Case(common.Case):
    def setUp(self):
        super().setUp()
        self.socket = str(self.folder / "agent")
        self.rows = np.random.default_rng(self.seed).integers(0, 256, (1300, ROW), dtype=np.uint8)
        self.path = self.folder / "rows"
        self.rows.tofile(self.path)
        self.forget()

    def forget(self):
        """The operating system has nothing of the file any more."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def start(self, *command):
        """A process that says that it is ready."""
        process = subprocess.Popen([sys.executable, "-B", *map(str, command)], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        line = process.stdout.readline()
        self.assertTrue(line.startswith("penstock-agent: ready"),
                        line or process.communicate()[1])
        return process

    def start_memory(self, manner="honest"):
        return self.start(MEMORY_AGENT, self.socket, manner)

    def connect_with(self, memory):
        """A client of the agent, as a runtime is one."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(client.close)
        client.settimeout(60)
        client.connect(self.socket)
        socket.send_fds(client, [request(HELLO, number=7)], [memory])
        self.assertEqual(struct.unpack("<IIQq", client.recv(100)), (0x32425350, 0, 7, 0))
        return client

    def store_runtime(self, **options):
        return common.small_runtime(**{
            "roots": [self.folder], "windows": 0, "block_store": self.socket,
            "block_store_local": True, "block_store_wait_ms": 60000, **options})

    def check_rows(self, runtime):
        with ps.open_array(self.path, dtype="uint8", shape=self.rows.shape,
                           runtime=runtime) as table:
            for first in range(0, len(self.rows), 64):
                wanted = np.arange(first, min(first + 64, len(self.rows)))
                self.assertTrue((table.gather(wanted) == self.rows[wanted]).all())

    def need_a_disk(self):
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.folder], capture_output=True,
                              text=True, check=False).stdout.strip()
        if kind in ("tmpfs", "ramfs"):
            self.skipTest("the folder for tests lies in memory, all of it")


class agents(Case):
    def test_what_a_node_warmed_another_does_not_read(self):
        self.need_a_disk()
        self.start_memory()
        first = agent.warm(self.path, part=0, of=2, socket=self.socket)
        second = agent.warm(self.path, part=1, of=2, socket=self.socket)
        self.assertEqual(first, {"blocks": 2, "had": 0, "put": 2, "full": 0})
        self.assertEqual(second, {"blocks": 1, "had": 0, "put": 1, "full": 0})
        self.assertEqual(agent.warm(self.path, socket=self.socket)["had"], 3)
        self.forget()
        with self.store_runtime() as runtime:
            self.check_rows(runtime)
            counted = ps.stats(runtime)
        self.assertEqual((counted.store_hits, counted.store_misses, counted.store_bad_blocks),
                         (3, 0, 0))
        self.assertEqual(counted.file_read_bytes, 0)

    def test_an_agent_is_killed_and_another_takes_its_place(self):
        killed = self.start_memory()
        with self.store_runtime() as runtime:
            self.check_rows(runtime)
            killed.kill()
            killed.wait()
            self.forget()
            self.check_rows(runtime)
            self.start_memory()  # in the place of a socket that is stale
            self.forget()
            self.check_rows(runtime)

    def test_a_lie_is_found(self):
        self.need_a_disk()
        self.start_memory("flips")
        agent.warm(self.path, socket=self.socket)
        self.forget()
        with self.store_runtime() as runtime:
            self.check_rows(runtime)
            counted = ps.stats(runtime)
        self.assertGreater(counted.store_bad_blocks, 0)

    def test_an_agent_that_hangs_or_fails_costs_no_byte(self):
        self.need_a_disk()
        for manner in ("hangs", "fails"):
            with self.subTest(manner=manner):
                process = self.start_memory(manner)
                with self.store_runtime(block_store_wait_ms=20) as runtime:
                    self.forget()
                    self.check_rows(runtime)
                    counted = ps.stats(runtime)
                self.assertGreater(counted.store_errors, 0)
                self.assertEqual(counted.store_hits, 0)
                process.kill()
                process.wait()

    def test_it_knows_since_when_files_rest(self):
        rests = agent.Rests(most_files=2)
        one, other = b"f" * 16 + b"1" * 16, b"f" * 16 + b"2" * 16
        self.assertEqual(rests.note(one), 0)
        self.assertGreater(rests.note(one), 0)
        self.assertEqual(rests.note(other), 0)  # the file has changed
        self.assertEqual(rests.note(one), 0)
        for number in range(9):
            rests.note(bytes([number]) * 32)
        self.assertEqual(rests.note(one), 0)  # forgotten
        self.start_memory()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(self.socket)
            memory = sealed_memory()
            socket.send_fds(client, [request(HELLO)], [memory])
            os.close(memory)
            self.assertEqual(answer_of(client), 0)
            known = []
            for facts in (one, one, other, other):
                client.send(request(REST, key=facts))
                known.append(answer_of(client))
        self.assertEqual((known[0], known[2]), (0, 0))
        self.assertGreater(min(known[1], known[3]), 0)

    def test_it_watches_files_that_are_there_and_those_that_come(self):
        watched = [str(self.path), str(self.folder / "later")]
        served = agent.Agent(None, self.socket)
        self.addCleanup(served.stop)
        looked = threading.Event()
        note = served.rests.note
        served.rests.note = lambda key: (note(key), looked.set())
        thread = threading.Thread(target=served.watch, args=(watched,))
        thread.start()
        self.assertTrue(looked.wait(60))
        self.assertGreater(note(_core.facts_of(watched[0])), 0)
        served.stop()
        thread.join()

    def test_it_ends_by_a_signal_and_takes_its_socket_away(self):
        process = self.start_memory()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(300), 0)
        self.assertFalse(os.path.lexists(self.socket))

    def test_a_second_agent_is_refused_and_the_first_goes_on(self):
        self.start_memory()
        second = subprocess.run([sys.executable, "-B", MEMORY_AGENT, self.socket], text=True,
                                capture_output=True, timeout=300, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("an agent serves at", second.stderr)
        self.assertEqual(agent.warm(self.path, socket=self.socket)["put"], 3)

    def test_what_is_no_socket_is_left_where_it_is(self):
        pathlib.Path(self.socket).write_text("precious", encoding="utf-8")
        refused = subprocess.run([sys.executable, "-B", MEMORY_AGENT, self.socket], text=True,
                                 capture_output=True, timeout=300, check=False)
        self.assertIn("no socket", refused.stderr)
        self.assertEqual(pathlib.Path(self.socket).read_text(encoding="utf-8"), "precious")

    def test_wrong_requests_end_their_connection_only(self):
        self.start_memory()
        sealed = sealed_memory()
        unsealed = os.dup(os.memfd_create("unsealed", os.MFD_ALLOW_SEALING))
        os.ftruncate(unsealed, BLOCK + 64)
        wrong = [(b"short", []), (request(GET), []), (request(HELLO), []),
                 (request(HELLO), [unsealed]), (request(HELLO, size=1 << 40), [sealed]),
                 (request(HELLO, size=0), [sealed]), (b"\0" * 64, [sealed]),
                 (request(HELLO), [sealed, sealed])]
        for number, (text, fds) in enumerate(wrong):
            with self.subTest(number=number), \
                    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(60)
                client.connect(self.socket)
                client.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                         array.array("i", fds))] if fds else [])
                try:
                    self.assertEqual(client.recv(100), b"")
                except ConnectionResetError:
                    pass
        with self.connect_with(sealed) as client:
            client.send(request(GET, number=8))
            self.assertEqual(struct.unpack("<IIQq", client.recv(100))[2:], (8, -2))
            client.send(request(GET, number=9, size=1 << 40))
            self.assertEqual(struct.unpack("<IIQq", client.recv(100))[2:], (9, -90))
        os.close(sealed)

    def test_no_agent_is_an_error_of_warm_that_names_the_cure(self):
        with self.assertRaisesRegex(OSError, "penstock-agent"):
            agent.warm(self.path, socket=self.socket)
        with self.assertRaises(ValueError):
            agent.warm(self.path, part=2, of=2)
        with self.assertRaises(FileNotFoundError):
            agent.warm(self.folder / "none", socket=self.socket)

    def test_warm_refuses_what_it_cannot_do(self):
        self.start_memory()
        for options, words in (({"wait_ms": -1}, "wait_ms"), ({"wait_ms": 0}, "wait_ms"),
                               ({"wait_ms": 1 << 63}, "wait_ms"), ({"blocks": [0, -1]}, "blocks"),
                               ({"namespace": "a\0b"}, "namespace"),
                               ({"part": -1, "of": 2}, "part")):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, f"^{words}"):
                agent.warm(self.path, socket=self.socket, **options)
        self.assertEqual(agent.warm(self.path, socket=self.socket, blocks=[2, 0, 3, 1 << 70],
                                    namespace=os.fsdecode(b"\xff"))["put"], 2)

    def test_warm_takes_only_regular_files_and_sockets_as_a_runtime_does(self):
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder, self.folder / "pipe", "/dev/zero"):
            with self.subTest(path=path), \
                    self.assertRaisesRegex(ValueError, "no file with a size; name a regular file"):
                agent.warm(path, socket=self.socket)
        for path in ("agent", "/" + 107 * "a"):
            with self.subTest(path=path), \
                    self.assertRaisesRegex(ValueError, "^socket: .* give an absolute path"):
                agent.warm(self.path, socket=path)

    def test_warm_goes_on_when_the_store_does(self):
        self.start_memory("falters")
        self.assertEqual(agent.warm(self.path, socket=self.socket),
                         {"blocks": 3, "had": 0, "put": 3, "full": 0})

    def test_warm_says_so_when_the_store_fails_for_good(self):
        self.start_memory("refuses")
        with self.assertRaisesRegex(OSError, "penstock-agent") as caught:
            agent.warm(self.path, socket=self.socket, retry_seconds=0.1)
        self.assertEqual(caught.exception.errno, errno.EIO)

    def test_warm_goes_on_with_an_agent_in_the_place_of_a_killed_one(self):
        killed = self.start_memory("refuses")
        found = []
        warming = threading.Thread(
            target=lambda: found.append(agent.warm(self.path, socket=self.socket)))
        warming.start()
        self.assertIn("refused", killed.stdout.readline())
        killed.kill()
        killed.wait()
        self.start_memory()
        warming.join()
        self.assertEqual(found, [{"blocks": 3, "had": 0, "put": 3, "full": 0}])

    def nices(self, process):
        """Of the threads of a process. One may end between two looks."""
        found = []
        for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
            try:
                found.append(int((task / "stat").read_text().rpartition(")")[2].split()[16]))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def test_calls_go_behind_other_work_and_long_ones_far_behind(self):
        process = self.start_memory("hangs")
        before = os.nice(0)
        self.assertEqual(set(self.nices(process)), {before})
        memory = sealed_memory()
        with self.connect_with(memory) as stuck, self.connect_with(memory) as other:
            behind = max(before, 10)
            self.assertEqual(sorted(self.nices(process))[-2:], [behind, behind])
            stuck.send(request(GET))
            until = time.monotonic() + 60
            while self.nices(process).count(19) == 0:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
            other.send(request(PUT))
            self.assertEqual(answer_of(other), 0)
            self.assertEqual(self.nices(process).count(19), 1)
        os.close(memory)

    def test_sizes(self):
        self.assertEqual([agent.size_of(text) for text in
                          ("1", "2K", "3 MiB", "4GB", "1TiB", "1.5GiB", ".5k", "1.5KB", "7B")],
                         [1, 2048, 3 << 20, 4 * 10 ** 9, 1 << 40, 3 << 29, 512, 1500, 7])
        for text in ("", "x", "1.1GiB", "-1", "4 Gi B", "0", "0.0GiB", "9999999TiB", ".", "1iB"):
            with self.subTest(text=text), self.assertRaises(argparse.ArgumentTypeError):
                agent.size_of(text)


@unittest.skipUnless(importlib.util.find_spec("mooncake") and shutil.which("mooncake_master"),
                     "Mooncake is not installed")
class mooncake(Case):
    def test_two_nodes_share_blocks_and_a_killed_master_stops_none(self):
        self.need_a_disk()
        port = free_port()
        master = subprocess.Popen(["mooncake_master", f"--rpc_port={port}",
                                   f"--metrics_port={free_port()}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (master.kill(), master.wait()))
        for attempt in range(3000):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                self.assertLess(attempt, 2999)
                signal.sigtimedwait([], 0.02)
        for number in (0, 1):
            self.start("-m", "penstock.agent", "mooncake", "--master", f"127.0.0.1:{port}",
                       "--memory", "64MiB", "--socket", f"{self.socket}{number}")
        self.assertEqual(agent.warm(self.path, socket=f"{self.socket}0")["put"], 3)
        self.forget()
        with self.store_runtime(block_store=f"{self.socket}1") as runtime:
            self.check_rows(runtime)
            self.assertEqual(ps.stats(runtime).store_hits, 3)
        master.kill()
        with self.store_runtime(block_store=f"{self.socket}1",
                                block_store_wait_ms=50) as runtime:
            self.forget()
            self.check_rows(runtime)


if __name__ == "__main__":
    unittest.main()
