"""Penstock on the nodes of a Ray cluster: an agent and a keeper for each, tasks near their data.

    import ray, penstock.ray as pr

    ray.init("auto")
    nodes = pr.start(memory="512GiB", paths=["/lustre/features.bin"])
    pr.warm("/lustre/features.bin", over=nodes)
    ray.get([train.options(**nodes.near("/lustre/features.bin", part=i, of=16)).remote(i)
             for i in range(16)])

Every node must have the files under the same names, in one shared file system: that one decides
what their bytes are. Blocks lie in the memory of the nodes, in a Mooncake Store that the agents
reach (docs/guide/many-nodes.md). What dies costs time and no bytes: runtimes then read from the
file system."""
from __future__ import annotations

import argparse
import errno
import operator
import os
import shutil
import socket as sockets
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from . import _children, _core
from ._errors import Path, path_text
from ._seats import BLOCK_BYTES, Seats

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise ImportError("penstock.ray needs Ray: pip install penstock-io[ray]") from missing

_ray: Any = ray  # some of its functions have no types

__all__ = ["Nodes", "start", "warm"]


_LOOK_SECONDS = 1.0  # between two looks for nodes that came or went
_KEEPER_PAGE = 64 << 10
_MOST_SAID = 1024  # texts that a job remembers, to say each of them once
# For so long blocks cannot be put, at the most: an agent that died is started again, and Mooncake
# takes a node that is gone for one that is there for 10 s.
_WARM_SECONDS = 30.0


def _program(name: str) -> str:
    """A program that pip installed beside this interpreter, or of PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    found = beside if os.path.exists(beside) else shutil.which(name)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, f"{name} is not installed: "
                                "pip install penstock-io[ray]", name)
    return found


def _free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


class _Master:
    """An actor that runs the store's master, always at the same port."""

    def __init__(self, port: int, metrics_port: int) -> None:
        self._kept = _children.Kept([_program("mooncake_master"), "--rpc_port", str(port),
                                     "--metrics_port", str(metrics_port)])
        self._address = f"{_ray.util.get_node_ip_address()}:{port}"

    def address(self) -> str:
        return self._address

    def state(self) -> dict[str, int]:
        return self._kept.state()


class _Agent:
    """An actor that runs the agent of its node, and reads blocks for the store."""

    def __init__(self, socket: str, master: str, memory: str, more: Sequence[str],
                 env: Mapping[str, str]) -> None:
        os.environ.update(env)
        os.makedirs(os.path.dirname(socket), mode=0o700, exist_ok=True)
        self._socket = socket
        self._kept = _children.Kept(
            [sys.executable, "-m", "penstock.agent", "mooncake", "--master", master, "--memory",
             memory, "--socket", socket, "--host", _ray.util.get_node_ip_address(), *more],
            is_done_elsewhere=lambda: _children.answers(socket))

    def wait(self, seconds: float) -> None:
        """Until the agent answers."""
        until, before = time.monotonic() + seconds, self._kept.state()["ends"]
        while not _children.answers(self._socket):
            state = self._kept.state()
            if state["ends"] >= before + 3 or time.monotonic() > until:
                here = _ray.util.get_node_ip_address()
                raise TimeoutError(
                    errno.ETIMEDOUT, f"the agent of node {here} does not answer; it ended "
                    f"{state['ends']} times, the last time with status {state['status']}; Ray's "
                    "log of this actor has its words")
            time.sleep(0.05)

    def warm(self, path: str, blocks: Sequence[int]) -> dict[str, int]:
        from . import agent

        until = time.monotonic() + _WARM_SECONDS
        while True:
            try:
                return dict(agent.warm(path, blocks=blocks, socket=self._socket))
            except BlockingIOError:  # of the file, which changed a moment ago
                raise
            except OSError as error:
                if time.monotonic() > until or error.errno == errno.EOPNOTSUPP:
                    raise
                with open(path, "rb"):  # raises what is wrong with the file
                    self.wait(_WARM_SECONDS)
                time.sleep(_LOOK_SECONDS)

    def state(self) -> dict[str, int]:
        return self._kept.state()


class _Keeper:
    """An actor that does what `penstock keep` does, for the blocks of its node."""

    def __init__(self, options: Mapping[str, Any], shares: Mapping[str, Sequence[int]],
                 environment: Mapping[str, str]) -> None:
        from . import Runtime

        os.environ.update(environment)
        self._runtime = Runtime(**options)
        self._arrays: list[Any] = []
        self._kept_bytes = 0
        for path, blocks in shares.items():
            self._keep(path, blocks)

    def _keep(self, path: str, blocks: Sequence[int]) -> None:
        from . import open_array

        page = self._runtime.page_bytes
        rows = os.stat(path).st_size // page
        if rows == 0:
            return
        array = open_array(path, dtype="uint8", shape=(rows, page), runtime=self._runtime)
        self._arrays.append(array)
        room = _core.parse_size("cache", self._runtime.settings()["cache_bytes"])
        for block in blocks:
            first = block * BLOCK_BYTES // page
            last = min(first + BLOCK_BYTES // page, rows)
            if first >= last or self._kept_bytes + (last - first) * page > room:
                continue
            array.prefetch(slice(first, last))
            self._kept_bytes += (last - first) * page

    def kept_bytes(self) -> int:
        return self._kept_bytes

    def process(self) -> int:
        return os.getpid()


class Nodes:
    """The nodes of a cluster with their agents and keepers: what ``start`` gives.

    A thread of it looks every second for nodes that came or went, and gives each new one an agent
    and a keeper. Ray starts again what died on a node that lives. All of them end with ``stop``, at
    the end of a ``with`` statement, or with the job.

    Attributes: ``env`` has the environment for processes that are to use the store and the keepers;
    ``master`` the address of the store's master."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._paths = [os.path.abspath(path) for path in settings["paths"]]
        self._lock = threading.Lock()
        self._agents: dict[str, Any] = {}
        self._keepers: dict[str, Any] = {}
        self._stopped = threading.Event()
        self._said: set[str] = set()
        self._master: Any = None
        self.env: dict[str, str] = {"PENSTOCK_STORE": settings["socket"]}
        trust = settings["trust_times"] or os.environ.get("PENSTOCK_TRUST_TIMES")
        self._trust = {"PENSTOCK_TRUST_TIMES": trust} if trust else {}
        self.env.update(self._trust)
        if settings["wait_ms"] is not None:
            self.env["PENSTOCK_STORE_WAIT_MS"] = str(settings["wait_ms"])
        if self._paths:
            self.env["PENSTOCK_SHARE"] = settings["share"]
        self._seats = Seats(self._living_nodes())
        self.master = settings["master"] or self._start_master()
        self._watcher = threading.Thread(target=self._watch, name="penstock nodes", daemon=True)

    @staticmethod
    def _living_nodes() -> list[str]:
        return sorted(node["NodeID"] for node in _ray.nodes() if node["Alive"])

    def _start_master(self) -> str:
        here = _ray.get_runtime_context().get_node_id()
        self._master = _on(here, _Master).remote(_free_port(), _free_port())
        return str(_ray.get(self._master.address.remote()))

    def _start_agent(self, name: str) -> None:
        """The caller has the lock, or is alone."""
        settings = self._settings
        self._agents[name] = _on(name, _Agent, max_concurrency=4).remote(
            settings["socket"], self.master, str(settings["memory"]),
            [*settings["agent_options"], *(f"--watch={path}" for path in self._paths)],
            self._trust)

    def _start_keeper(self, name: str) -> None:
        """The caller has the lock, or is alone. OSError: a file is not there."""
        if not self._paths:
            return
        settings = self._settings
        shares = {path: self._seats.shares(path, os.stat(path).st_size, self._seats.names)[name]
                  for path in self._paths}
        options = {"cache": settings["cache"], "page": _KEEPER_PAGE, "share": settings["share"]}
        self._keepers[name] = _on(name, _Keeper, **settings["keeper_options"]).remote(
            options, shares, {key: self.env[key] for key in self.env if key != "PENSTOCK_SHARE"})

    def _begin(self, seconds: float) -> None:
        try:
            for name in self._seats.names:
                self._start_agent(name)
                self._start_keeper(name)
            _ray.get([agent.wait.remote(seconds) for agent in self._agents.values()])
        except BaseException:
            self.stop()
            raise
        self._watcher.start()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # Ray is ending: the next look will tell
                self._say(f"penstock.ray: looking for nodes: {error}")

    def _say(self, text: str) -> None:
        """What is so at each look is said once."""
        if text not in self._said:
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said.add(text)
            print(text, file=sys.stderr)

    def look(self) -> list[str]:
        """Looks for nodes that came or went, and gives the names of the living ones. Done every
        second by itself."""
        living = self._living_nodes()
        with self._lock:
            if not self._stopped.is_set():
                for gone in set(self._agents) - set(living):
                    self._agents.pop(gone, None)
                    self._keepers.pop(gone, None)
                self._seats.replace(living)
                for name in living:
                    if name not in self._agents:
                        self._start_agent(name)
                for name in living:
                    if name not in self._keepers:
                        self._start_missing_keeper(name)
            return [name for name in living if name in self._agents]

    def _start_missing_keeper(self, name: str) -> None:
        try:
            self._start_keeper(name)
        except OSError as error:  # the next look tries again
            self._say(f"penstock.ray: no keeper on node {name}: {error}")

    def near(self, path: Path, part: int, of: int) -> dict[str, Any]:
        """Options for a Ray task that works on part `part` of `of` equal parts of the file: it runs
        on the node that reads most of the part's blocks for the store, and on another one if that
        node is gone. The environment of the task names the store.

        ValueError: there is no such part. OSError: the file is not there."""
        name = os.path.abspath(path_text(path))
        size = os.stat(name).st_size
        living = self.look()
        with self._lock:
            node = self._seats.near(name, size, part, of, living)
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
                "runtime_env": {"env_vars": dict(self.env)}}

    def state(self) -> dict[str, dict[str, int]]:
        """For each node, by its Ray identifier: how often its agent was started and ended, and
        the status of the last end. A node that does not answer is left out."""
        with self._lock:
            agents = dict(self._agents)
        found = {}
        for name, agent in agents.items():
            try:
                found[name] = dict(_ray.get(agent.state.remote(), timeout=5))
            except _ray.exceptions.RayError:
                continue
        return found

    def stop(self) -> None:
        """Ends agents, keepers and master. Blocks that lay in them are gone."""
        self._stopped.set()
        with self._lock:
            actors = [*self._keepers.values(), *self._agents.values(), self._master]
            self._keepers.clear()
            self._agents.clear()
            self._master = None
        for actor in actors:
            if actor is not None:
                _ray.kill(actor)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def _warm(self, path: str) -> Counter[str]:
        size = os.stat(path).st_size
        left = set(range(-(-size // BLOCK_BYTES)))
        total: Counter[str] = Counter()
        error: Exception | None = None
        # Each round but the last loses a node, or an actor that Ray starts again.
        for _ in range(2 * len(self._seats) + 2):
            living = self.look()
            with self._lock:
                shares = self._seats.shares(path, size, living)
                agents = dict(self._agents)
            calls = [(blocks, agents[name].warm.remote(path, blocks))
                     for name, blocks in ((name, [b for b in share if b in left])
                                          for name, share in shares.items())
                     if blocks and name in agents]
            for blocks, call in calls:
                try:
                    total.update(_ray.get(call))
                    left.difference_update(blocks)
                except _ray.exceptions.RayTaskError:
                    raise
                except _ray.exceptions.RayError as failed:
                    error = failed
            if not left:
                return total
            time.sleep(_LOOK_SECONDS)
        raise OSError(errno.EIO, f"warm: {len(left)} blocks were read by no node; the last "
                      f"failure: {error}", path)


def _on(node: str, kind: type, **more: Any) -> Any:
    """A class of actors that live on this node and start again there."""
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, **more}
    return _ray.remote(kind).options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False), **options)


def _list_of(paths: Path | Iterable[Path] | None) -> list[str]:
    if paths is None:
        return []
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    return [path_text(path) for path in given]


def _checked_size(memory: int | str) -> int:
    from . import agent

    try:
        size = agent.size_of(memory) if isinstance(memory, str) else operator.index(memory)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"memory: {error}") from None
    if size < 1:
        raise ValueError(f"memory: {memory!r} is no size; give for instance 4GiB")
    return size


def start(memory: int | str, paths: Path | Iterable[Path] | None = None, *,
          cache: int | str | None = None, share: str = "ray",
          master: str | None = None, socket: str | None = None,
          wait_ms: int | None = None, trust_times: str | None = None,
          agent_options: Sequence[str] = (),
          keeper_options: Mapping[str, Any] | None = None, seconds: float = 60) -> Nodes:
    """An agent on each node of the cluster, and with ``paths`` a keeper; waits until all agents
    answer.

    memory
        Bytes that each node gives to the store: ``"512GiB"`` or a number.
    paths
        Files (or one) whose blocks the keepers hold in their caches, each those of its node, for
        processes of the node with ``PENSTOCK_SHARE``, as `penstock keep` does. None: no keepers.
        The agents look at them from now on, so that a job which begins 4 s later need not wait for
        their rest.
    cache
        Bytes of a keeper's cache; None: as ``Runtime`` chooses.
    share
        The name by which processes of a node find its keeper.
    master
        ``"host:port"`` of a mooncake_master that runs already. None: one is started on this node,
        and the blocks are gone when it ends.
    socket
        Where the agents answer, the same name on all nodes, in a directory of this user's that is
        not shared between nodes. None: ``/tmp/penstock-UID/ray-agent``. An agent that answers there
        already is used.
    wait_ms
        The longest time that a task waits for a block (``PENSTOCK_STORE_WAIT_MS``).
    trust_times
        Whether times of files are proof (``PENSTOCK_TRUST_TIMES``): ``"on"`` for files on FUSE that
        do not change. None: as in the environment of this process.
    agent_options, keeper_options
        More arguments of penstock-agent; more options of the keepers' actors, for instance
        ``{"num_gpus": 0.1}`` for a keeper in the memory of a GPU.

    ValueError: a value that cannot be used. FileNotFoundError: there is no mooncake_master, or no
    such file. What was started ends then. TimeoutError (in a RayTaskError): an agent did
    not answer within ``seconds``."""
    if not _ray.is_initialized():
        raise ValueError('start: Ray is not connected; call ray.init("auto") first')
    if socket is not None and not os.path.isabs(path_text(socket)):
        raise ValueError(f"socket: {socket!r} is another file in each working directory; give an "
                         "absolute path")
    settings = {"memory": _checked_size(memory), "paths": _list_of(paths), "cache": cache,
                "share": share, "master": master, "wait_ms": wait_ms,
                "trust_times": trust_times,
                "socket": socket or f"/tmp/penstock-{os.getuid()}/ray-agent",
                "agent_options": [str(word) for word in agent_options],
                "keeper_options": dict(keeper_options or {})}
    if master is None:
        _program("mooncake_master")
    nodes = Nodes(settings)
    nodes._begin(seconds)
    return nodes


def warm(paths: Path | Iterable[Path], over: Nodes) -> dict[str, int]:
    """Brings whole files into the store: each block is read from the file system by one node, and
    not at all if the store has it. Waits until that is done.

    Gives counts of blocks: ``blocks`` in all, ``had`` by the store already, ``put``, and ``full``
    where it had no room. The blocks of a node that dies meanwhile are read by the others. OSError:
    a file cannot be read (in a RayTaskError), or no node read a block."""
    total: Counter[str] = Counter()
    for name in _list_of(paths):
        total.update(over._warm(os.path.abspath(name)))
    return dict(total)
