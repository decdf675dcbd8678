#!/usr/bin/env python3
"""What penstock.ray asks Ray for and what it refuses before that, with a Ray that only takes notes.
ray_test.py has a real cluster."""
import contextlib
import errno
import io
import os
import sys
import threading
import types
import unittest
from unittest import mock

import common


class ended(Exception):
    """RayError, and what is derived from it here."""


class unavailable(ended):
    """ActorUnavailableError: it is started again."""


class actor:
    """A started actor: its kind, its node, and the arguments that it was made with. Calls have what
    `answers` has; an exception there is what they fail with."""

    def __init__(self, notes, kind, node, arguments):
        self.notes, self.kind, self.node, self.arguments = notes, kind, node, arguments
        self.killed, self.session = False, notes.session
        self.answers = {"address": "127.0.0.1:1", "state": {"starts": 1}, "kept_bytes": 5}
        notes.actors.append(self)

    def __getattr__(self, name):
        def remote(*_):
            self.notes.touch(name)
            return self.answers.get(name)

        return types.SimpleNamespace(remote=remote)


class notes_of_ray:
    """`session` is None where Ray is not initialised: `touched` has the calls that would start a
    cluster then."""

    def __init__(self):
        self.nodes, self.actors = ["node a"], []
        self.session, self.touched, self.late = 1, [], []

    def touch(self, name):
        if self.session is None:
            self.touched.append(name)

    def module(self):
        made = types.ModuleType("ray")
        made.nodes = lambda: [{"NodeID": name, "Alive": True} for name in self.nodes]
        made.is_initialized = lambda: self.session is not None
        made.get, made.kill, made.wait = self.get, self.kill, self.wait
        made.exceptions = types.SimpleNamespace(
            RayError=ended, RayTaskError=ended, ActorUnavailableError=unavailable)
        made.get_runtime_context = self.context
        made.remote = lambda kind: types.SimpleNamespace(
            options=lambda scheduling_strategy, **_: types.SimpleNamespace(
                remote=lambda *given: self.make(kind.__name__, scheduling_strategy[0], given)))
        return made

    def make(self, kind, node, arguments):
        self.touch(kind)
        return actor(self, kind, node, arguments)

    def context(self):
        self.touch("get_runtime_context")
        return types.SimpleNamespace(get_node_id=lambda: "node a", get_job_id=lambda: self.session)

    def get(self, wanted, timeout=None):
        self.touch("get")
        if isinstance(wanted, Exception):
            raise wanted
        return wanted

    def wait(self, calls, timeout):
        self.touch("wait")
        return [call for call in calls if call not in self.late], []

    def kill(self, killed):
        self.touch("kill")
        if killed.session != self.session or killed.answers.get("kill"):
            raise ValueError("no such actor")
        killed.killed = True

    def living(self, kind):
        return [made.node for made in self.actors if made.kind == kind and not made.killed]


def penstock_ray(notes):
    """The module, with that Ray."""
    strategies = types.ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, soft: (node, soft)
    modules = {"ray": notes.module(), "ray.util": types.ModuleType("ray.util"),
               "ray.util.scheduling_strategies": strategies}
    sys.modules.pop("penstock.ray", None)
    with mock.patch.dict(sys.modules, modules):
        import penstock.ray as found
    sys.modules.pop("penstock.ray", None)
    return found


class nodes(common.Case):
    def setUp(self):
        super().setUp()
        self.ray = notes_of_ray()
        self.pr = penstock_ray(self.ray)
        self.path = self.folder / "rows"
        self.path.write_bytes(bytes(5 << 20))

    def start(self, *arguments, **options):
        made = self.pr.start(*arguments, **{"master": "127.0.0.1:1", **options})
        self.addCleanup(made.stop)
        return made

    def test_paths_are_none_or_one_or_many(self):
        for paths, keepers in ((None, 0), ((), 0), (self.path, 1), (str(self.path), 1),
                               (os.fsencode(self.path), 1), ([self.path], 1)):
            with self.subTest(paths=paths):
                self.ray.actors.clear()
                made = self.start("64MiB", paths)
                self.assertEqual(len(self.ray.living("_Agent")), 1)
                self.assertEqual(len(self.ray.living("_Keeper")), keepers)
                self.assertEqual(self.ray.actors[0].arguments[3],
                                 [f"--watch={self.path}"] * keepers)
                made.stop()

    def test_values_that_cannot_be_used_are_refused_before_anything_starts(self):
        for options, words in (({"memory": "lots"}, "memory"), ({"memory": "1.5"}, "memory"),
                               ({"memory": "0"}, "memory"), ({"memory": -5}, "memory"),
                               ({"memory": True}, "memory"), ({"memory": 1e9}, "memory"),
                               ({"memory": None}, "memory"), ({"socket": "agent"}, "absolute"),
                               ({"socket": "/" + "x" * 120}, "socket"),
                               ({"cache": "bogus"}, "cache"), ({"cache": 0}, "cache"),
                               ({"cache": True}, "cache"), ({"page": "3KiB"}, "page"),
                               ({"page": 256}, "page"), ({"page": "4MiB"}, "page"),
                               ({"share": "a/b"}, "share"), ({"share": ""}, "share"),
                               ({"share": None}, "share"), ({"share": "ray-agent"}, "share"),
                               ({"share": "ray-agent.lock"}, "share"),
                               ({"wait_ms": "soon"}, "wait_ms"),
                               ({"wait_ms": 0}, "wait_ms"), ({"wait_ms": 60001}, "wait_ms"),
                               ({"wait_ms": True}, "wait_ms"),
                               ({"trust_times": "perhaps"}, "trust_times"),
                               ({"seconds": "x"}, "seconds"), ({"seconds": -1}, "seconds"),
                               ({"seconds": float("nan")}, "seconds"),
                               ({"seconds": True}, "seconds"), ({"master": "here"}, "master"),
                               ({"master": 5}, "master"), ({"paths": self.folder}, "paths"),
                               ({"paths": [3.5]}, "paths"), ({"paths": 7}, "paths"),
                               ({"memory": 1 << 70}, "memory"),
                               ({"agent_options": 5}, "agent_options"),
                               ({"agent_options": None}, "agent_options"),
                               ({"agent_options": "--host=a"}, "agent_options")):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, words):
                self.start(**{"memory": "64MiB", **options})
        with self.assertRaises(FileNotFoundError) as missing:
            self.start("64MiB", [self.folder / "none"])
        self.assertEqual(missing.exception.errno, errno.ENOENT)
        self.assertEqual(self.ray.actors, [])

    def test_values_are_refused_where_a_runtime_refuses_them(self):
        values = self.pr._job_values
        for name, check, tries in (
                ("share", lambda share: values.share_of(share, "/run/ray-agent"),
                 ["a", "a/b", "a" * 64, "a" * 65, ".a", "a.b_c-d", "a b",
                  "_", "-", "\u00e9", "agent", "agent.lock", "agents"]),
                ("trust_times", values.trust_of, ["on", "off", "auto", "ON", "1", True, False]),
                ("block_store_wait_ms", values.wait_of, [1, 60000, 60001, 0, -1, "5", "5 ms", "x"]),
                ("page", lambda page: values.page_of(page, []),
                 [512, "4KiB", "2MiB", 256, 1000, "x", 4 << 20]),
                ("cache", values.cache_of, ["1MiB", "auto", "x", 0, 2 << 20])):
            for value in tries:
                with self.subTest(name=name, value=value):
                    self.assertEqual(self.is_refused(lambda: check(value)), self.is_refused(
                        lambda: common.small_runtime(**{"cache": "32MiB", name: value}).close()))

    @staticmethod
    def is_refused(call):
        try:
            call()
        except ValueError:
            return True
        return False

    def test_what_was_started_ends_if_a_keeper_cannot_be_started(self):
        with mock.patch.object(self.pr, "_program"), \
                mock.patch.object(self.pr.Nodes, "_start_keeper", side_effect=OSError), \
                self.assertRaises(OSError):
            self.start("64MiB", [self.path], master=None)
        self.assertEqual({made.kind for made in self.ray.actors}, {"_Master", "_Agent"})
        self.assertEqual([made.kind for made in self.ray.actors if not made.killed], [])

    def npy(self, rows):
        path = self.folder / "rows.npy"
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, 128), }}"
        head += " " * (117 - len(head)) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + head.encode() + bytes(rows * 1024))
        return path

    def test_a_keeper_holds_blocks_of_files_of_every_kind(self):
        for path in (self.path, self.npy(5 << 10)):
            size = os.stat(path).st_size // 4096 * 4096
            for blocks, kept in (([0], 2 << 20), ([0, 1, 2], size), ([2], size - (4 << 20))):
                with self.subTest(path=path, blocks=blocks):
                    keeper = self.pr._Keeper({"cache": "16MiB", "page": 4096, "device": "cpu"},
                                             {str(path): blocks}, {})
                    self.addCleanup(keeper._runtime.close)
                    self.assertEqual(keeper.kept_bytes(), kept)

    def test_a_keeper_waits_until_its_files_have_rested(self):
        """Until then no other process would get a page of a file of a network file system."""
        other, done = self.npy(640), []
        rests = {str(self.path): 0.0, str(other): 3.25}
        with mock.patch.object(self.pr._core, "rest_left_seconds", rests.__getitem__), \
                mock.patch.object(self.pr.time, "sleep", done.append):
            keeper = self.pr._Keeper({"cache": "16MiB", "page": 4096, "device": "cpu"},
                                     {str(self.path): [0], str(other): [0]}, {})
        keeper._runtime.close()
        self.assertEqual(done, [3.25])
        self.assertEqual(self.pr._core.rest_left_seconds(str(self.path)), 0.0)

    def test_a_keeper_has_room_for_its_whole_cache(self):
        """The size that people are shown is rounded, and may be no number of bytes at all."""
        for cache in (20_000_000, 300 * 4096):
            with self.subTest(cache=cache):
                keeper = self.pr._Keeper({"cache": cache, "page": 4096, "device": "cpu"},
                                         {str(self.path): [0, 1]}, {})
                self.addCleanup(keeper._runtime.close)
                self.assertEqual(keeper.kept_bytes(), 0 if cache < 2 << 20 else 4 << 20)

    def test_all_read_and_write_blocks_of_one_namespace(self):
        given = {"PENSTOCK_STORE_NAMESPACE": "two", "PENSTOCK_STORE_LOCAL": "1"}
        with mock.patch.dict(os.environ, given):
            made = self.start("64MiB", self.path)
        agent, keeper = self.ray.actors
        for environment in (made.env, agent.arguments[4], keeper.arguments[2]):
            self.assertEqual({name: environment.get(name) for name in given}, given)

    def test_a_keeper_that_others_do_not_find_fails(self):
        (self.folder / "penstock").mkdir(mode=0o700)
        (self.folder / "penstock" / "mine").write_bytes(b"")
        with mock.patch.dict(os.environ):
            for share in ("other", "mine"):
                options = {"cache": "16MiB", "page": 4096, "device": "cpu", "share": share}
                place = {"XDG_RUNTIME_DIR": str(self.folder)}
                with self.subTest(share=share):
                    if share == "mine":
                        with self.assertRaisesRegex(OSError, "do not find a keeper named 'mine'"):
                            self.pr._Keeper(options, {}, place)
                    else:
                        self.pr._Keeper(options, {}, place)._runtime.close()

    def test_tasks_and_keepers_have_pages_of_one_size(self):
        rows = self.npy(640)
        for paths, given, page in ((self.path, None, 65536), (self.path, "4KiB", 4096),
                                   (rows, None, 1024), ([self.path, rows], None, 65536),
                                   (rows, 8192, 8192)):
            with self.subTest(paths=paths, given=given):
                self.ray.actors.clear()
                made = self.start("64MiB", paths, page=given)
                keeper = self.ray.actors[-1]
                self.assertEqual(keeper.arguments[0]["page"], page)
                self.assertEqual(made.env["PENSTOCK_PAGE"], str(page))
                made.stop()
        self.assertNotIn("PENSTOCK_PAGE", self.start("64MiB").env)

    def looks_by_itself(self):
        self.pr._LOOK_SECONDS = threading.TIMEOUT_MAX / 2

    def test_nodes_do_nothing_of_ray_after_its_end(self):
        """Ray starts a cluster where a call finds none, and the next session has other actors."""
        self.looks_by_itself()
        calls = {"look": lambda made: self.assertEqual(made.look(), []),
                 "state": lambda made: self.assertEqual(made.state(), {}),
                 "stop": lambda made: made.stop(),
                 "with": lambda made: made.__exit__(None, None, None),
                 "near": lambda made: self.assertRaisesRegex(
                     ValueError, "ended", made.near, self.path, 0, 1),
                 "warm": lambda made: self.assertRaisesRegex(
                     ValueError, "ended", self.pr.warm, self.path, made)}
        for name, call in calls.items():
            for after in (None, 2):  # no session, another session
                with self.subTest(call=name, after=after):
                    self.ray.session = 1
                    made = self.start("64MiB", [self.path])
                    self.ray.actors.clear()
                    self.ray.session = after
                    self.ray.nodes = ["node a", "node of another session"]
                    call(made)
                    self.assertEqual((self.ray.touched, self.ray.actors), ([], []))
                    made._watcher.join(30)
                    self.assertFalse(made._watcher.is_alive())
                    self.ray.nodes = ["node a"]

    def test_the_thread_ends_with_the_session(self):
        self.pr._LOOK_SECONDS = 0.01
        for after in (None, 2):
            with self.subTest(after=after):
                self.ray.session = 1
                made = self.start("64MiB", [self.path])
                self.ray.actors.clear()
                self.ray.session = after
                made._watcher.join(30)
                self.assertFalse(made._watcher.is_alive())
                self.assertEqual((self.ray.touched, self.ray.actors), ([], []))

    def test_nodes_of_the_next_session_get_nothing(self):
        """The session ends while this one is asked for its nodes."""
        self.looks_by_itself()
        made = self.start("64MiB")
        self.ray.actors.clear()

        def next_session():
            self.ray.session = 2
            return ["node of another session"]

        with mock.patch.object(made, "_living_nodes", next_session):
            self.assertEqual(made.look(), [])
        self.assertEqual(self.ray.actors, [])

    def test_all_end_though_one_cannot_be_ended(self):
        self.looks_by_itself()
        self.ray.nodes += ["node b"]
        made = self.start("64MiB", [self.path])
        stuck = self.ray.actors[1]
        stuck.answers["kill"] = True
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            made.stop()
        self.assertEqual([one for one in self.ray.actors if not one.killed], [stuck])
        self.assertIn("no such actor", said.getvalue())

    def test_a_keeper_that_failed_is_told_of_and_tried_again(self):
        self.looks_by_itself()
        now = [1000.0]
        self.pr.time = types.SimpleNamespace(monotonic=lambda: now[0])
        made = self.start("64MiB", [self.path])
        keeper = self.ray.actors[-1]
        late = keeper.answers["kept_bytes"] = ended("died\n  in\nValueError: it has no room\n")
        self.ray.late = [late]
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for _ in range(3):  # waits for no keeper
                made.look()
            self.assertEqual(made.state()["node a"]["keeper_failures"], 0)
            self.ray.late = []
            for failures in range(1, 8):
                made.look()
                state = made.state()["node a"]
                self.assertEqual((state["keeper_failures"], state["kept_bytes"]), (failures, 0))
                rest = min(2 ** failures, 60)
                now[0] += rest - 0.5
                made.look()
                self.assertEqual(self.ray.actors[-1], keeper)
                now[0] += 0.5
                made.look()
                self.assertNotEqual(self.ray.actors[-1], keeper)
                keeper = self.ray.actors[-1]
                keeper.answers["kept_bytes"] = late
            keeper.answers["kept_bytes"] = unavailable("just now")
            made.look()
            self.assertEqual(made.state()["node a"]["kept_bytes"], 0)
            keeper.answers["kept_bytes"] = 9
            now[0] += 10
            made.look()
        self.assertEqual(made.state()["node a"], {"starts": 1, "kept_bytes": 9,
                                                  "keeper_failures": 7})
        self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())
        self.assertIn("ValueError: it has no room", said.getvalue())

    def test_an_agent_that_never_ended_is_not_said_to_have(self):
        for state, words in (({"ends": 0, "status": 0, "process": 9}, "it runs"),
                             ({"ends": 0, "status": 0, "process": 0}, "does not run"),
                             ({"ends": 2, "status": 7, "process": 9}, "2 times.*status 7")):
            agent = object.__new__(self.pr._Agent)
            agent._socket = str(self.folder / "none")
            agent._kept = types.SimpleNamespace(state=lambda state=state: state)
            self.pr._ray.util = types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")
            with self.subTest(state=state), self.assertRaisesRegex(TimeoutError, words) as raised:
                agent.wait(0)
            if state["ends"] == 0:
                self.assertNotIn("ended", str(raised.exception))

    def test_new_nodes_have_agents_while_a_file_is_away_and_keepers_after_that(self):
        self.looks_by_itself()
        made = self.start("64MiB", [self.path])
        self.ray.nodes += ["node b", "node c"]
        away = self.folder / "away"
        self.path.rename(away)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for _ in range(3):
                with contextlib.suppress(OSError):
                    self.assertEqual(made.look(), ["node a", "node b", "node c"])
        self.assertEqual(self.ray.living("_Agent"), ["node a", "node b", "node c"])
        self.assertEqual(self.ray.living("_Keeper"), ["node a"])
        lines = said.getvalue().splitlines()
        self.assertEqual(len(lines), 2, lines)  # once for each node
        self.assertIn(str(self.path), lines[0])
        away.rename(self.path)
        made.look()
        self.assertEqual(self.ray.living("_Keeper"), ["node a", "node b", "node c"])
        made.look()
        self.assertEqual(len(self.ray.actors), 6)


if __name__ == "__main__":
    unittest.main()
