#!/usr/bin/env python3
"""The place of an agent: one process has it at a time, however agents start, end and are killed;
and what an agent does with clients, threads and files that fail it."""
import contextlib
import errno
import functools
import io
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest
from unittest import mock

import agent_test
import common
import memory_agent

import penstock
from penstock import _children, agent

SAYS_WHEN_IT_IS_MADE = """
import sys
from penstock import agent
def make():
    print("made an engine", flush=True)
    raise OSError(5, "no engine here")
sys.exit(agent.run(make, sys.argv[1]))
"""


class recorder(memory_agent.Memory):
    """Notes attach and detach. An attach goes on when the test lets it."""

    def __init__(self):
        super().__init__("honest")
        self.calls = []
        self.may_attach = threading.Event()
        self.is_attaching, self.is_detached = threading.Event(), threading.Event()

    def attach(self, address, size):
        self.calls.append(("attach", address))
        self.is_attaching.set()
        self.may_attach.wait(60)
        return 0

    def detach(self, address, size):
        self.calls.append(("detach", address))
        self.is_detached.set()


class places(common.Case):
    def setUp(self):
        super().setUp()
        self.socket = str(self.folder / "agent")

    def test_default_is_in_no_directory_of_another_user(self):
        with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(self.folder)):
            os.environ.pop("PENSTOCK_STORE", None)
            self.assertEqual(agent.default_socket(), str(self.folder / "penstock/agent"))
            other = os.geteuid() + 1
            with mock.patch.object(os, "geteuid", return_value=other):
                self.assertEqual(agent.default_socket(), f"/tmp/penstock-{other}/agent")

    def test_a_folder_that_others_may_write_is_refused(self):
        """Also a sticky one as /tmp: the first to come there keeps the name of the socket or that
        of the lock, and root's programs would ask it for blocks."""
        for mode in (0o770, 0o702, 0o1777):
            with self.subTest(mode=oct(mode)):
                self.folder.chmod(mode)
                with self.assertRaises(OSError) as refused:
                    agent.check_folder(self.socket)
                self.assertEqual(refused.exception.errno, errno.EPERM)
                self.assertIn(f"into '{self.folder}'", str(refused.exception))
                self.assertIn("give --socket a path in a directory of your own that no other user "
                              "may write", str(refused.exception))
        self.folder.chmod(0o755)
        agent.check_folder(self.socket)

    def serve(self, engine):
        served = agent.Agent(engine, self.socket)
        self.addCleanup(served.stop)
        threading.Thread(target=served.serve, daemon=True).start()
        return served

    def connect(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(client.close)
        client.settimeout(60)
        client.connect(self.socket)
        return client

    def stale_socket(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
            left.bind(self.socket)

    def test_an_agent_that_has_no_place_makes_no_engine(self):
        """A store would give blocks to it, and lose them when it ends."""
        self.serve(recorder())
        refused = self.child(SAYS_WHEN_IT_IS_MADE, self.socket)
        self.assertIn("an agent serves at", refused.stderr)
        self.assertEqual(refused.stdout, "")

    def test_an_engine_that_fails_leaves_nothing_behind(self):
        failed = self.child(SAYS_WHEN_IT_IS_MADE, self.socket)
        self.assertIn("made an engine", failed.stdout)
        self.assertIn("no engine here", failed.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_two_agents_take_a_stale_socket_away_one_after_the_other(self):
        """The second one starts between the look of the first at the stale socket and its end."""
        self.stale_socket()
        unlink, others = os.unlink, []

        def start_another_first(path, **options):
            if str(path) == self.socket and not others:
                others.append(None)
                with contextlib.suppress(OSError):
                    others[0] = agent.Agent(recorder(), self.socket)
            unlink(path, **options)

        with mock.patch("os.unlink", start_another_first):
            first = agent.Agent(recorder(), self.socket)
        self.addCleanup(first.stop)
        self.assertEqual(others, [None])

    def test_an_agent_that_ends_leaves_the_socket_of_another_one(self):
        first = agent.Agent(recorder(), self.socket)
        for name in os.listdir(self.folder):
            os.unlink(self.folder / name)
        second = agent.Agent(recorder(), self.socket)
        first.stop()
        self.assertTrue(os.path.lexists(self.socket))
        second.stop()
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_agent_that_was_killed_leaves_its_place(self):
        code = SAYS_WHEN_IT_IS_MADE.replace('raise OSError(5, "no engine here")',
                                            "import signal; signal.pause()")
        killed = subprocess.Popen([sys.executable, "-B", "-c", code, self.socket],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (killed.kill(), killed.communicate()))
        self.assertIn("made", killed.stdout.readline())
        with self.assertRaises(OSError) as refused:
            agent.Agent(recorder(), self.socket)  # at once: it waits for no other, in no program
        self.assertEqual(refused.exception.errno, errno.EADDRINUSE)
        killed.kill()
        killed.wait()
        agent.Place(self.socket).leave()
        self.assertEqual(os.listdir(self.folder), [])

    def test_memory_of_a_client_that_is_gone_is_given_back(self):
        engine = recorder()
        self.serve(engine)
        memory = agent_test.sealed_memory()
        client = self.connect()
        socket.send_fds(client, [agent_test.request(agent_test.HELLO)], [memory])
        os.close(memory)
        self.assertTrue(engine.is_attaching.wait(60))
        client.close()
        engine.may_attach.set()
        self.assertTrue(engine.is_detached.wait(60))
        self.assertEqual([call for call, _ in engine.calls], ["attach", "detach"])
        self.assertEqual(len({address for _, address in engine.calls}), 1)

    def test_an_agent_serves_again_after_no_thread_could_be_started(self):
        engine = recorder()
        engine.may_attach.set()
        self.serve(engine)
        start, failed = threading.Thread.start, []

        def fail_once(thread):
            if not failed and "_serve_connection" in thread.name:
                failed.append(thread)
                raise RuntimeError("can't start new thread")
            start(thread)

        with mock.patch("threading.Thread.start", fail_once):
            first = self.connect()
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(first.recv(1), b"")
            self.assertEqual(len(failed), 1)
            memory = agent_test.sealed_memory()
            second = self.connect()
            second.settimeout(60)
            socket.send_fds(second, [agent_test.request(agent_test.HELLO)], [memory])
            os.close(memory)
            self.assertEqual(agent_test.answer_of(second), 0)

    def test_watched_files_may_have_names_that_are_no_text(self):
        strange = os.fsdecode(os.fsencode(self.folder) + b"/\xff")
        pathlib.Path(strange).write_bytes(b"x")
        other = self.folder / "other"
        other.write_bytes(b"y")
        served = agent.Agent(None, self.socket)
        looked, noted = threading.Event(), []
        served.rests.note = lambda key: (noted.append(key), len(noted) == 2 and looked.set())
        thread = threading.Thread(target=served.watch, args=([strange, str(other)],))
        thread.start()
        self.assertTrue(looked.wait(60))
        served.stop()
        thread.join()

    def test_looks_at_a_socket_without_room_or_descriptors(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, \
                contextlib.ExitStack() as waiting:
            listener.bind(self.socket)
            listener.listen(0)
            with self.assertRaises(BlockingIOError):
                for _ in range(100):
                    client = waiting.enter_context(
                        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                    client.setblocking(False)
                    client.connect(self.socket)
            self.assertTrue(_children.answers(self.socket))
            file = self.folder / "rows"
            file.write_bytes(bytes(1 << 20))
            with self.assertRaises(TimeoutError):  # BlockingIOError speaks of the file
                agent.warm(file, socket=self.socket, wait_ms=1, retry_seconds=0.1)
        with mock.patch("socket.socket", side_effect=OSError(errno.EMFILE, "no descriptor")):
            self.assertFalse(_children.answers(self.socket))

    def test_an_agent_of_another_user_is_none(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.socket)
            listener.listen(9)
            for user, answers in ((os.geteuid(), True), (os.geteuid() + 1, False), (0, True)):
                with mock.patch("struct.unpack", return_value=(1, user, 1)):
                    self.assertEqual(_children.answers(self.socket), answers)

    def test_a_program_whose_parent_died_before_it_began_ends(self):
        for parent, status in ((os.getpid(), 3), (1 if os.getpid() != 1 else 2, 1)):
            child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"],
                                     preexec_fn=functools.partial(_children._die_with_parent,
                                                                  parent))
            self.assertEqual(child.wait(60), status)

    def test_a_program_that_could_not_be_started_is_tried_again(self):
        began, popen = threading.Event(), subprocess.Popen
        failures = [subprocess.SubprocessError("no memory"), OSError(errno.EAGAIN, "no process")]

        def start(*arguments, **options):
            if failures:
                raise failures.pop()
            began.set()
            return popen(*arguments, **options)

        with mock.patch("subprocess.Popen", start):
            kept = _children.Kept([sys.executable, "-c", "import signal; signal.pause()"])
            self.assertTrue(began.wait(60))
            for _ in range(3000):
                if kept.state()["process"]:
                    break
                signal.sigtimedwait([], 0.02)
        self.assertEqual((kept.state()["ends"], kept.state()["starts"]), (2, 1))

    def words_of(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = agent.main(["mooncake", "--memory", "1MiB", *arguments])
        self.assertEqual(status, 1)
        return said.getvalue()

    def test_messages_name_what_they_are_about(self):
        (self.folder / "file").touch()
        for path, words in ((self.folder / "file/agent", "file"),
                            (f"/proc/none{os.getpid()}/agent", "/proc/none")):
            with self.subTest(path=path):
                said = self.words_of("--master", "127.0.0.1:1", "--socket", str(path))
                self.assertIn(words, said)
        with self.assertRaises(OSError) as long:
            agent.Agent(None, str(self.folder / ("x" * 120)))
        self.assertEqual(long.exception.errno, errno.ENAMETOOLONG)
        for master in ("127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:²", ":5", "x"):
            with self.subTest(master=master), self.assertRaises(SystemExit), \
                    contextlib.redirect_stderr(io.StringIO()):
                agent.main(["mooncake", "--memory", "1MiB", "--master", master])

    def test_a_master_out_of_reach_is_named(self):
        unreachable = OSError(errno.ENETUNREACH, "Network is unreachable")
        unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        for failing, error, code in (("socket.socket.connect", unreachable, errno.ENETUNREACH),
                                     ("socket.getaddrinfo", unknown, errno.EHOSTUNREACH),
                                     ("socket.getaddrinfo", UnicodeError("label too long"),
                                      errno.EHOSTUNREACH)):
            with self.subTest(error=error), mock.patch(failing, side_effect=error), \
                    self.assertRaises(OSError) as refused:
                agent._address_towards("127.0.0.1:9")
            self.assertEqual(refused.exception.errno, code)
            self.assertIn("--master 127.0.0.1:9", str(refused.exception))

    def test_a_signal_ends_an_agent_whose_master_does_not_answer(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # refuses what connects
            command = [sys.executable, "-B", "-c",
                       "import socket, sys, time; from penstock import agent; "
                       "agent.MooncakeEngine = lambda *_: sys.exit('joined the store'); "
                       "slow = lambda *_, **__: time.sleep(600); "
                       "socket.getaddrinfo = slow if 'slow' in sys.argv[3] else socket.getaddrinfo;"
                       "sys.exit(agent.main(sys.argv[1:]))",
                       "mooncake", "--master", f"127.0.0.1:{closed.getsockname()[1]}",
                       "--memory", "1MiB", "--socket", self.socket]
            slow = [*command[:6], "slow:1", *command[7:]]  # a look-up of ten minutes
            for number, command in ((signal.SIGTERM, command), (signal.SIGINT, command),
                                    (signal.SIGTERM, slow)):
                with self.subTest(number=number, command=command):
                    waits = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
                    self.addCleanup(lambda waits=waits: (waits.kill(), waits.communicate()))
                    for _ in range(15000):
                        if os.path.exists(f"{self.socket}.lock") or waits.poll() is not None:
                            break
                        signal.sigtimedwait([], 0.02)
                    waits.send_signal(number)
                    said = waits.communicate(timeout=300)[1]
                    self.assertIn("a signal ended it", said)
                    self.assertEqual(waits.returncode, 1)
                    self.assertEqual(os.listdir(self.folder), [])


PAGE = pathlib.Path(__file__).parents[2] / "contrib" / "man" / "penstock-agent.1"


class page_of_the_manual(common.Case):
    def test_it_has_each_option_and_no_other(self):
        usage = subprocess.run([sys.executable, "-m", "penstock.agent", "mooncake", "--help"],
                               capture_output=True, text=True, check=True).stdout
        page = PAGE.read_text().replace("\\-", "-")
        self.assertIn(f'"Penstock {penstock.__version__}"', page)
        self.assertEqual(set(re.findall(r"^\\fB(--[a-z]+)", page, re.M)) | {"--help"},
                         set(re.findall(r"^ +(?:-h, )?(--[a-z]+)", usage, re.M)))

    @unittest.skipUnless(shutil.which("man"), "there is no man")
    def test_man_shows_it_without_warnings(self):
        shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", PAGE],
                               capture_output=True, text=True, check=True)
        self.assertEqual(shown.stderr, "")


if __name__ == "__main__":
    unittest.main()
