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


class actor:
    """A started actor: its kind, its node, and the arguments that it was made with."""

    def __init__(self, notes, kind, node, arguments):
        self.kind, self.node, self.arguments, self.killed = kind, node, arguments, False
        notes.actors.append(self)

    def __getattr__(self, name):
        answers = {"address": "127.0.0.1:1", "state": {"starts": 1}}
        return types.SimpleNamespace(remote=lambda *_: answers.get(name))


class notes_of_ray:
    def __init__(self):
        self.nodes, self.actors = ["node a"], []

    def module(self):
        made = types.ModuleType("ray")
        made.nodes = lambda: [{"NodeID": name, "Alive": True} for name in self.nodes]
        made.is_initialized = lambda: True
        made.get = lambda wanted, timeout=None: wanted
        made.kill = lambda killed: setattr(killed, "killed", True)
        made.get_runtime_context = lambda: types.SimpleNamespace(get_node_id=lambda: "node a")
        made.remote = lambda kind: types.SimpleNamespace(
            options=lambda scheduling_strategy, **_: types.SimpleNamespace(
                remote=lambda *given: actor(self, kind.__name__, scheduling_strategy[0], given)))
        return made

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
        for options, words in (({"memory": "lots"}, "memory"), ({"memory": "1.5GiB"}, "memory"),
                               ({"memory": "0"}, "memory"), ({"memory": -5}, "memory"),
                               ({"memory": "64MiB", "socket": "agent"}, "absolute")):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, words):
                self.start(**options)
        with self.assertRaises(TypeError):
            self.start(1e9)
        self.assertEqual(self.ray.actors, [])

    def test_what_was_started_ends_if_a_file_is_missing(self):
        with mock.patch.object(self.pr, "_program"), \
                self.assertRaises(FileNotFoundError) as missing:
            self.start("64MiB", [self.folder / "none"], master=None)
        self.assertEqual(missing.exception.errno, errno.ENOENT)
        self.assertTrue(self.ray.actors)
        self.assertEqual([made.kind for made in self.ray.actors if not made.killed], [])

    def test_new_nodes_have_agents_while_a_file_is_away_and_keepers_after_that(self):
        self.pr._LOOK_SECONDS = threading.TIMEOUT_MAX / 2  # this test looks by itself
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
