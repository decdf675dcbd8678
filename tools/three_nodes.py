#!/usr/bin/env python3
"""Three nodes and a file server on one machine, as network namespaces: how often the server gives
a file that three nodes read, how fast, and what happens when a node, an agent or the store's master
is killed (docs/guide/many-nodes.md).

  tools/three_nodes.py [--build DIR] [--python PYTHON] [CASE ...] [--out NAME]

The shared file system is MooseFS, mounted by each node for itself; the server's link has 100 Mbit/s
and those of the nodes 1 Gbit/s. Cases (default: all):

  load     three nodes read one file: without the store; with it, after each put a third into it;
           the same on agents that have not seen the file yet; with it, while each puts a third
           into it; with it and without any warm, all from the first block on
  kills    the same with the store, while an agent, the master, a link and a node fail; the server
           sends 1 Gbit/s
  ray      examples/python/many_nodes.py over the nodes by Ray, one of which is killed
  torchrun the same by torchrun, and nothing is killed

The package is that of the build folder (build/python there); PYTHON needs numpy, and the packages
of `pip install penstock-io[ray]`. --short is the form for tests: a small file, `load` alone, and no
figure is judged but that the store was of use. --out writes NAME.json and NAME.txt. Leaves nothing
behind, however it ends. Status 1 if a byte was wrong or, without --short, an aim was missed; 77,
with the reason, if the machine cannot."""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import bench_machine
import node_lab
from node_lab import PRIVATE, SHARED, Failed, Lab, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[1]
READER = ROOT / "tools/node_reader.py"
EXAMPLE = ROOT / "examples/python/many_nodes.py"
FILE = SHARED / "rows"
AGENT = str(PRIVATE / "agent")  # its socket
MASTER_PORT = 50051
EXAMPLE_ROWS = 60_000
SETTLE_SECONDS = 8  # files of network file systems are settled after that
MOST_FILES_OF_TESTS = 2  # of three, on whatever machine
MOST_FILES, LEAST_RATIO, MOST_STALL_MS = 1.1, 2.5, 1000
# Ray looks for dead nodes every 5 s by itself, and waits for 10 s.
RAY = {"RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "1000",
       "RAY_health_check_failure_threshold": "3", "RAY_health_check_initial_delay_ms": "3000",
       "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}


KINDS = {"without": "without the store", "warmed": "with the store, warmed before",
         "first": "the same, of a file that no agent knew", "meanwhile":
         "with the store, warmed meanwhile",
         "together": "with the store, not warmed, all from the first block on"}
SERVER_RATE = "100mbit"
# At 100 Mbit/s a block of 2 MiB that the server has to give takes 0.5 s if three nodes ask, so that
# the figures of kills would be those of the link.
SERVER_RATES = {"kills": "1gbit"}
# ms that a block is waited for, and half of it that a node waits for another one that reads it: at
# 100 Mbit/s with six readers and more that takes a second. What is killed must not cost as much.
WAITS_MS = {"kills": 250}
WAIT_MS = 2000
REST_SECONDS = 5  # after that the agents know that the file rests


class Run:
    """The cases over one lab, and what they found."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.python = wanted.python
        self.lines, self.results, self.missed = [], {}, []
        self.lab = Lab(mount_options=wanted.mount)
        self.environment = {
            "PYTHONPATH": str(pathlib.Path(wanted.build, "python")), "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PENSTOCK_TRUST_TIMES": "on"}  # the file does not change
        self.size = wanted.size << 20
        self.on(0, "make", FILE, wanted.size)
        self.say(f"three nodes, a file of {wanted.size} MiB on MooseFS, 100 Mbit/s from the "
                 f"server, 1 Gbit/s from each node; {platform.machine()}, {os.cpu_count()} "
                 "processors")
        time.sleep(SETTLE_SECONDS)

    def wait_for_blocks(self, wait_ms):
        self.environment["PENSTOCK_STORE_WAIT_MS"] = str(wait_ms)

    def living(self):
        return [node for node in self.lab.nodes if node.is_alive]

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def aim(self, name, value, is_met, text):
        if self.wanted.short:
            return
        self.results.setdefault("aims", {})[name] = {"value": value, "met": is_met}
        self.say(f"{'  met' if is_met else 'MISSED'}: {text}")
        if not is_met:
            self.missed.append(name)

    def on(self, index, verb, *words, more=None):
        """node_reader.py on that node; its output."""
        return self.lab.nodes[index].run(self.python, "-B", READER, verb, *words,
                                         env={**self.environment, **(more or {})})

    def store(self, node):
        """The environment of processes of a node that use the store."""
        return {**self.environment, "PENSTOCK_STORE": AGENT}

    def begin(self, verb, more=(), with_store=True, is_together=False):
        """node_reader.py on all nodes that live, at once: processes by the number of the node. Each
        begins at a place of its own, unless they are together."""
        living = self.living()
        return {node.name: node.start(
            verb, self.python, "-B", READER, verb, FILE, 0 if is_together else place, len(living),
            *more,
            env=self.store(node) if with_store else self.environment, output=subprocess.PIPE)
                for place, node in enumerate(living)}

    def end(self, readers, seconds=300):
        """What they said, by node; those of a node that was killed are left out."""
        found = {}
        for name, process in readers.items():
            text, _ = process.communicate(timeout=seconds)
            node = next(node for node in self.lab.nodes if node.name == name)
            if process.returncode and node.is_alive:
                raise Failed(f"{name}: {' '.join(process.args[-9:])}: status {process.returncode}: "
                             f"{(node.log('read') + node.log('warm'))[-600:]}")
            if process.returncode == 0:
                found[name] = json.loads(text.splitlines()[-1])
        return found

    def start_master(self):
        node = self.lab.nodes[0]
        program = pathlib.Path(self.python).with_name("mooncake_master")
        node.start("master", program, "--rpc_port", MASTER_PORT, "--metrics_port", MASTER_PORT + 1)
        wait_for("the store's master", lambda: node.run(
            "bash", "-c", f"echo >/dev/tcp/{node.address}/{MASTER_PORT}", check=False) is not None)

    def start_agent(self, node, watches=True):
        node.start("agent", self.python, "-B", "-m", "penstock.agent", "mooncake", "--master",
                   f"{self.lab.nodes[0].address}:{MASTER_PORT}", "--memory",
                   f"{max(self.wanted.size, 64)}MiB", "--host", node.address, "--socket",
                   AGENT, *(["--watch", FILE] if watches else []), env=self.environment)

    def start_store(self, watches=True):
        self.start_master()
        for node in self.lab.nodes:
            before = node.log("agent").count("ready")
            self.start_agent(node, watches)
            wait_for(f"{node.name}: its agent",
                     lambda node=node, before=before: node.log("agent").count("ready") > before)

    def stop_store(self):
        for node in self.living():
            node.kill_processes("penstock.agent")
        self.lab.nodes[0].kill_processes("mooncake_master")

    def check(self, found):
        wrong = {name: done["wrong_rows"] for name, done in found.items() if done["wrong_rows"]}
        if wrong:
            raise Failed(f"rows were wrong: {wrong}")

    def case_load(self):
        """Files that the server gave, and seconds until the last node had all."""
        found = {}
        for kind in KINDS:
            if kind in ("first", "together") and self.wanted.short:
                continue
            for node in self.lab.nodes:
                self.lab.forget(node)
            with_store = kind != "without"
            if with_store:  # agents run longer than jobs
                self.start_store(watches=kind != "first")
                time.sleep(REST_SECONDS)
            before, begin = self.lab.server.sent_bytes(), time.monotonic()
            warmed = self.end(self.begin("warm")) if kind in ("warmed", "first") else {}
            warm_seconds = time.monotonic() - begin if warmed else 0
            warming = self.begin("warm") if kind == "meanwhile" else {}
            done = self.end(self.begin("read", with_store=with_store,
                                       is_together=kind == "together"))
            seconds = time.monotonic() - begin
            warmed = warmed or self.end(warming)
            self.check(done)
            self.stop_store()
            files = (self.lab.server.sent_bytes() - before) / self.size
            longest = max(reader["longest_ms"] for reader in done.values())
            found[kind] = {"seconds": round(seconds, 2), "files": round(files, 3),
                           "warm_seconds": round(warm_seconds, 2), "warm": warmed, "nodes": done,
                           "longest_ms": longest}
            to_warm = f", {warm_seconds:.1f} of them to warm" if warm_seconds else ""
            self.say(f"{KINDS[kind]}: {files:.2f} files from the server in {seconds:.1f} s"
                     f"{to_warm}; longest call {longest:.0f} ms; all bytes right")
        self.results["load"] = found
        if found["warmed"]["files"] > MOST_FILES_OF_TESTS:
            raise Failed("the server gave the file as often as without the store")
        for kind in found.keys() - {"without"}:
            found[kind]["ratio"] = round(found["without"]["seconds"] / found[kind]["seconds"], 2)
        for kind in ("warmed", "meanwhile"):
            files, ratio = found[kind]["files"], found[kind]["ratio"]
            self.aim(f"files, {kind}", files, files <= MOST_FILES,
                     f"{KINDS[kind]}: {files:.2f} files, aim at most {MOST_FILES}")
            self.aim(f"ratio, {kind}", ratio, ratio >= LEAST_RATIO,
                     f"{KINDS[kind]}: {ratio:.2f} times as fast, aim at least {LEAST_RATIO}")

    def phase(self, name, act, seconds, with_store=True):
        """All living nodes read while act() does something to them. Before, the store has the file
        and the operating systems of the nodes have it not."""
        if act is not None:
            self.end(self.begin("warm"))
        for node in self.living():
            self.lab.forget(node)
        stop = node_lab.PLACE / "stop"
        stop.unlink(missing_ok=True)
        before = self.lab.server.sent_bytes()
        readers = self.begin("read", ["--stop", stop], with_store=with_store)
        time.sleep(seconds / 3)
        when = time.time()
        if act is not None:
            act()
        time.sleep(seconds * 2 / 3)
        stop.touch()
        done = self.end(readers)
        self.check(done)
        longest = max(reader["longest_ms"] for reader in done.values())
        rate = sum(reader["bytes"] / reader["seconds"] for reader in done.values()) / 1e6
        files = (self.lab.server.sent_bytes() - before) / self.size
        self.results.setdefault("kills", {})[name] = {
            "acted": round(when, 3), "longest_ms": longest, "MB_per_s": round(rate, 1),
            "files": round(files, 3), "nodes": done}
        self.say(f"{name}: {len(done)} readers, all bytes right, longest call {longest:.0f} ms, "
                 f"{rate:.0f} MB/s together, {files:.2f} files from the server")
        return longest

    def case_kills(self):
        # What the file system does by itself: no store can do better once it is gone.
        self.phase("without the store", None, self.wanted.seconds, with_store=False)
        self.start_store()
        nodes, seconds = self.lab.nodes, self.wanted.seconds
        second, third = nodes[1], nodes[2]
        self.phase("nothing fails", lambda: None, seconds)
        stalls = {}

        def kill_agent():
            second.kill_processes("penstock.agent")
            time.sleep(seconds / 3)
            self.start_agent(second)

        def kill_master():
            nodes[0].kill_processes("mooncake_master")
            time.sleep(seconds / 3)
            self.start_master()

        def cut_link():
            second.cut(True)
            time.sleep(5)
            second.cut(False)

        stalls["agent"] = self.phase("an agent is killed, and started again", kill_agent, seconds)
        stalls["master"] = self.phase("the master is killed, and started again", kill_master,
                                      seconds)
        if not self.wanted.short:
            # Its node has no file server for that time either, so its own readers wait for it.
            self.phase("a node's link is down for 5 s", cut_link, seconds + 5)
        stalls["node"] = self.phase("a node is killed", third.kill, seconds)
        stalls["after"] = self.phase("after that", None, seconds)
        self.stop_store()
        worst = max(stalls.values())
        self.aim("stall", worst, worst <= MOST_STALL_MS,
                 f"longest call {worst:.0f} ms, aim at most {MOST_STALL_MS}")

    def start_ray(self, node, head):
        where = ["--head", "--port=6379", "--include-dashboard=false",
                 f"--temp-dir={PRIVATE}/ray"] if node is head else [
                     f"--address={head.address}:6379"]
        node.start("ray", pathlib.Path(self.python).with_name("ray"), "start", "--block",
                   f"--node-ip-address={node.address}", "--num-cpus=1", "--disable-usage-stats",
                   "--object-store-memory=100000000", *where,
                   env={**self.environment, **RAY})

    def case_ray(self):
        """The example, and a node dies while it has tasks."""
        living = self.living()
        head, victim = living[0], living[-1]
        for node in living:
            self.start_ray(node, head)
            if node is head:
                wait_for("Ray's head", lambda: head.run(
                    "bash", "-c", f"echo >/dev/tcp/{head.address}/6379", check=False) is not None)
        table = SHARED / "table"
        wait_for("Ray's nodes", lambda: head.run(
            self.python, "-c", "import ray; ray.init('auto', log_to_driver=False); "
            f"raise SystemExit(sum(n['Alive'] for n in ray.nodes()) < {len(living)})",
            env={**self.environment, **RAY}, check=False) is not None)
        begin = time.monotonic()
        driver = head.start("driver", self.python, "-B", EXAMPLE, table, "--address", "auto",
                            "--socket", AGENT, "--rest", "0.2", "--memory", "128MiB",
                            "--rows", EXAMPLE_ROWS, env={**self.environment, **RAY},
                            output=subprocess.PIPE)
        lines = []
        for line in driver.stdout:
            if not line.startswith((b"epoch", b"warm", b"%d" % EXAMPLE_ROWS)):
                continue  # Ray's own
            lines.append(line.decode().rstrip())
            self.say(f"  {lines[-1]}")
            if lines[-1].startswith("epoch 0") and len(living) > 2:
                time.sleep(0.3)
                victim.kill()
                self.say(f"  {victim.name} is killed")
        status = driver.wait()
        seconds = time.monotonic() - begin
        self.results["ray"] = {"lines": lines, "status": status, "seconds": round(seconds, 1)}
        if status:
            raise Failed(f"the example by Ray: status {status}: {head.log('driver')[-1500:]}")
        self.say(f"the example by Ray: right, {seconds:.0f} s; its tasks ended on other nodes")
        for node in living:
            if node.is_alive:
                node.kill_processes("ray")

    def case_torchrun(self):
        """The example, by a launcher on each node."""
        living = self.living()
        self.start_store()
        begin = time.monotonic()
        ranks = {node.name: node.start(
            "torchrun", self.python, "-m", "torch.distributed.run", "--nnodes", len(living),
            "--node_rank", rank, "--nproc_per_node", 1, "--master_addr", living[0].address,
            "--redirects", 1, "--tee", 1,  # PyTorch 1.13 fails without them from Python 3.11 on
            "--master_port", 29500, EXAMPLE, SHARED / "table2",
            env={**self.store(node), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
            output=subprocess.PIPE) for rank, node in enumerate(living)}
        lines = []
        for name, process in ranks.items():
            text, _ = process.communicate(timeout=240)
            lines += [line.partition("]:")[2] for line in text.decode().splitlines()
                      if "]:" in line]
            if process.returncode:
                node = next(node for node in living if node.name == name)
                raise Failed(f"torchrun on {name}: {node.log('torchrun')[-1500:]}")
        for line in lines:
            self.say(f"  {line}")
        self.results["torchrun"] = {"lines": lines, "seconds": round(time.monotonic() - begin, 1)}
        self.stop_store()


def why_not(wanted):
    """What the interpreter lacks, or nothing."""
    modules = ["numpy", "penstock.agent", "mooncake.store"]
    modules += ["ray"] * ("ray" in wanted.cases) + ["torch"] * ("torchrun" in wanted.cases)
    probe = "; ".join(f"import {module}" for module in modules)
    tried = subprocess.run([wanted.python, "-B", "-c", probe], capture_output=True, text=True,
                           check=False, env={**os.environ, "PYTHONPATH": f"{wanted.build}/python"})
    return (tried.stderr.strip().split("\n")[-1] + f" ({wanted.python}, {wanted.build}/python; "
            "pip install numpy penstock-io[ray])") if tried.returncode else ""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--build", default=os.environ.get("PENSTOCK_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--size", type=int, help="MiB of the file")
    parser.add_argument("--seconds", type=float, help="of a phase of kills")
    parser.add_argument("--wait-ms", type=int, help="the longest wait for a block of the store")
    parser.add_argument("--mount", default=node_lab.MOUNT_OPTIONS, metavar="OPTIONS",
                        help="of mfsmount (default: %(default)s)")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--commit", default="")
    wanted = parser.parse_args()
    known = [name.removeprefix("case_") for name in vars(Run) if name.startswith("case_")]
    if unknown := set(wanted.cases) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: no such case; there are {', '.join(known)}")
    wanted.cases = wanted.cases or (["load"] if wanted.short else known)
    wanted.size = wanted.size or (16 if wanted.short else 128)
    wanted.seconds = wanted.seconds or (3 if wanted.short else 12)
    if wanted.short:
        wanted.wait_ms = wanted.wait_ms or 5000
    return wanted


def main():
    wanted = arguments()

    def inside():
        begin = time.monotonic()
        try:
            run = Run(wanted)
            for case in wanted.cases:
                run.lab.revive()
                run.lab.limit_server(SERVER_RATES.get(case, SERVER_RATE))
                run.wait_for_blocks(wanted.wait_ms or WAITS_MS.get(case, WAIT_MS))
                getattr(run, f"case_{case}")()
        except (Failed, subprocess.TimeoutExpired) as failed:
            print(f"FAILED: {failed}", file=sys.stderr)
            return 1
        run.say(f"three_nodes.py: {time.monotonic() - begin:.0f} s")
        if wanted.out:
            facts = {"machine": {
                **bench_machine.machine_of(ROOT, wanted.commit or bench_machine.commit_here()),
                "file_system": "MooseFS 3, by FUSE"}, "load_average": os.getloadavg()[1],
                     "file_bytes": run.size, "mount": wanted.mount,
                     "wait_ms": run.environment["PENSTOCK_STORE_WAIT_MS"],
                     **run.results}
            out = pathlib.Path(wanted.out)
            out.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
            out.with_suffix(".txt").write_text("\n".join(run.lines) + "\n")
        return 1 if run.missed else 0

    return node_lab.enter(inside, lambda: why_not(wanted))


if __name__ == "__main__":
    sys.exit(main())
