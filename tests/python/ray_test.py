#!/usr/bin/env python3
"""penstock.ray on a cluster whose nodes are processes of this machine: all of them name one agent
here, which the first actor starts and the others find. Skipped where Ray or Mooncake is missing."""
import os
import signal
import time
import unittest

import common

common.need("numpy", "ray", "mooncake.store")
import numpy as np  # noqa: E402
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import penstock.ray as pr  # noqa: E402

BLOCK = 2 << 20
BLOCKS = 7
WAIT_SECONDS = 120


def wait_for(what, is_there):
    until = time.monotonic() + WAIT_SECONDS
    while not (found := is_there()):
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not after {WAIT_SECONDS} s")
        time.sleep(0.1)
    return found


def sum_of(path, part, of):
    """Reads a part of the blocks by a runtime of the task: its sum, and the node."""
    import penstock as ps

    with ps.Runtime(cache="4MiB", page="64KiB", log=None, device="cpu") as runtime:
        table = ps.open_array(path, dtype="uint64", shape=(-1, 8192), runtime=runtime)
        wanted = np.arange(len(table) * part // of, len(table) * (part + 1) // of)
        node = ray.get_runtime_context().get_node_id()
        return int(table.gather(wanted).sum()), os.environ["PENSTOCK_STORE"], node


class nodes_of_ray(common.Case):
    def setUp(self):
        super().setUp()
        os.environ["PENSTOCK_STORE_LOCAL"] = "1"
        self.path = self.folder / "rows"
        self.rows = np.random.default_rng(self.seed).integers(0, 1 << 40, BLOCKS * BLOCK // 8,
                                                              dtype=np.uint64)
        self.rows.tofile(self.path)
        old = time.time() - 100  # a file that changed a moment ago is not put
        os.utime(self.path, (old, old))
        common_arguments = {"num_cpus": 1, "object_store_memory": 80 << 20}
        self.cluster = Cluster(initialize_head=True, head_node_args={
            **common_arguments, "include_dashboard": False})
        self.addCleanup(self.cluster.shutdown)
        self.others = [self.cluster.add_node(**common_arguments) for _ in range(2)]
        self.more = common_arguments
        ray.init(self.cluster.address, log_to_driver=False)
        self.addCleanup(ray.shutdown)
        self.nodes = pr.start(memory="64MiB", paths=[self.path], cache="16MiB", wait_ms=5000,
                              share="ray-test", socket=str(self.folder / "agent"),
                              seconds=WAIT_SECONDS)
        self.addCleanup(self.nodes.stop)

    def expected(self, part, of):
        rows = self.rows.reshape(-1, 8192)
        return int(rows[len(rows) * part // of:len(rows) * (part + 1) // of].sum())

    def test_nodes_come_and_go(self):
        """One test: a cluster takes long to start."""
        warmed = pr.warm(self.path, over=self.nodes)
        self.assertEqual((warmed["blocks"], warmed["put"] + warmed["had"]), (BLOCKS, BLOCKS))
        again = pr.warm([self.path], over=self.nodes)
        self.assertEqual(again["had"], BLOCKS, again)

        # Tasks run near their parts, and read the right bytes.
        task = ray.remote(max_retries=5)(sum_of)
        options = [self.nodes.near(self.path, part=part, of=3) for part in range(3)]
        near = [option["scheduling_strategy"].node_id for option in options]
        self.assertEqual(len(set(near)), 3)
        got = ray.get([task.options(**option).remote(self.path, part, 3)
                       for part, option in enumerate(options)])
        self.assertEqual([answer[0] for answer in got], [self.expected(p, 3) for p in range(3)])
        self.assertEqual({answer[1] for answer in got}, {str(self.folder / "agent")})
        self.assertEqual([answer[2] for answer in got], near)

        # An agent that is killed is started again.
        running = [state for state in self.nodes.state().values() if state["process"]]
        self.assertTrue(running)
        for state in running:
            os.kill(state["process"], signal.SIGKILL)
        wait_for("another agent", lambda: any(
            state["process"] and state["process"] not in [old["process"] for old in running]
            for state in self.nodes.state().values()))
        wait_for("the agent's socket", lambda: pr._children.answers(str(self.folder / "agent")))
        warmed = pr.warm(self.path, over=self.nodes)
        self.assertEqual(warmed["blocks"], BLOCKS)

        # Keepers hold each block once, and a keeper that is killed begins anew.
        keepers = list(self.nodes._keepers.values())
        self.assertEqual(sum(ray.get([keeper.kept_bytes.remote() for keeper in keepers])),
                         BLOCKS * BLOCK)
        before, process = ray.get([keepers[0].kept_bytes.remote(), keepers[0].process.remote()])
        os.kill(process, signal.SIGKILL)

        def answer():
            try:
                return ray.get([keepers[0].kept_bytes.remote(), keepers[0].process.remote()])
            except ray.exceptions.RayError:
                return None

        self.assertEqual(wait_for("another keeper", answer)[0], before)

        # A node that dies leaves its blocks and its tasks to the others.
        victim = self.others.pop()
        dead = victim.node_id
        self.cluster.remove_node(victim, allow_graceful=False)
        got = ray.get([task.options(**option).remote(self.path, part, 3)
                       for part, option in enumerate(options)])
        self.assertEqual([answer[0] for answer in got], [self.expected(p, 3) for p in range(3)])
        self.assertNotIn(dead, [answer[2] for answer in got])
        wait_for("the end of the node", lambda: dead not in self.nodes.look())
        self.assertEqual(pr.warm(self.path, over=self.nodes)["blocks"], BLOCKS)

        # A new one takes its seat.
        self.cluster.add_node(**self.more)
        wait_for("the new node", lambda: len(self.nodes.look()) == 3)
        self.assertEqual(len({self.nodes.near(self.path, part=part, of=3)[
            "scheduling_strategy"].node_id for part in range(3)}), 3)

        with self.assertRaisesRegex(ValueError, "part"):
            self.nodes.near(self.path, part=3, of=3)
        with self.assertRaises(FileNotFoundError):
            pr.warm(self.folder / "none", over=self.nodes)
        self.check_the_next_job()

    def check_the_next_job(self):
        """The session's end ends all that it started. The next job of the cluster gets the socket,
        and nothing of the first job gets into it."""
        ray.shutdown()
        self.nodes.stop()
        self.assertEqual(self.nodes.state(), {})
        self.assertFalse(ray.is_initialized())
        self.nodes._watcher.join(WAIT_SECONDS)
        self.assertFalse(self.nodes._watcher.is_alive())
        ray.init(self.cluster.address, log_to_driver=False)
        with pr.start(memory="64MiB", paths=[self.path], cache="16MiB", share="ray-test",
                      socket=str(self.folder / "agent"), seconds=WAIT_SECONDS) as again:
            self.assertEqual(self.nodes.look(), [])
            self.assertEqual(pr.warm(self.path, over=again)["blocks"], BLOCKS)
            wait_for("the keepers", lambda: BLOCKS * BLOCK == sum(
                state["kept_bytes"] for state in again.state().values()))


if __name__ == "__main__":
    unittest.main()
