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

import errno
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

from . import _children, _core, _job_values
from ._agent_place import check_folder
from ._errors import Path, path_text
from ._runtime import Size
from ._seats import BLOCK_BYTES, Seats

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise ImportError("penstock.ray needs Ray: pip install ray") from missing

_ray: Any = ray  # some of its functions have no types

__all__ = ["Nodes", "start", "warm"]


_LOOK_SECONDS = 1.0  # between two looks for nodes that came or went
_ASK_SECONDS = 10.0  # between two questions to a keeper
_LONGEST_REST = 60.0  # before another keeper is started where they failed
_MOST_SAID = 1024  # texts that a job remembers, to say each of them once
# For so long blocks cannot be put, at the most: an agent that died is started again, and Mooncake
# takes a node that is gone for one that is there for 10 s.
_WARM_SECONDS = 30.0


def _plain(function: Any) -> Any:
    """A function of Ray without its wrapper, which starts a cluster where there is none."""
    return getattr(function, "__wrapped__", function)


def _session() -> tuple[str, str] | None:
    """What no other session of Ray has, in this process or another; None: there is none now. Nodes
    are made anew with a cluster, and a cluster numbers its jobs."""
    if not _ray.is_initialized():
        return None
    try:
        here = _plain(_ray.get_runtime_context)()
        return str(here.get_node_id()), str(here.get_job_id())
    except Exception:
        if _ray.is_initialized():
            raise
        return None  # it ended just now


def _program(name: str) -> str:
    """A program that pip installed beside this interpreter, or of PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    found = beside if os.path.exists(beside) else shutil.which(name)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, f"{name} is not installed: "
                                "pip install ray", name)
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
        check_folder(socket)
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
                how = "it runs" if state["process"] else "it does not run"
                if state["ends"]:
                    how = (f"it ended {state['ends']} times, the last time with status "
                           f"{state['status']}")
                raise TimeoutError(
                    errno.ETIMEDOUT, f"the agent of node {here} does not answer; {how}; Ray's log "
                    "of this actor has its words")
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
        share = options.get("share")
        if share and not self._runtime._core.is_shared:  # its log has the reason
            self._runtime.close()
            raise OSError(errno.EIO, f"other processes of this node do not find a keeper named "
                          f"{share!r}; make the directory of names this user's own")
        self._arrays: list[Any] = []
        self._kept_bytes = 0
        # Of a file that has not rested yet no other process would get a page.
        time.sleep(max((_core.rest_left_seconds(path) for path in shares), default=0))
        for path, blocks in shares.items():
            self._keep(path, blocks)

    def _keep(self, path: str, blocks: Sequence[int]) -> None:
        from . import open_array

        page = self._runtime.page_bytes
        rows = os.stat(path).st_size // page
        if rows == 0:
            return
        array = open_array(path, dtype="uint8", shape=(rows, page), offset=0,
                           runtime=self._runtime)  # 0: the bytes, also of a file with a header
        self._arrays.append(array)
        room = self._runtime._core.cache_bytes()
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


class _Answers:
    """What keepers say, by the names of their nodes, asked without waiting for them. The caller has
    the lock of their job."""

    def __init__(self) -> None:
        self.kept_bytes: dict[str, int] = {}
        self.failures: Counter[str] = Counter()
        self._calls: dict[str, Any] = {}  # that have no answer yet
        self._next: dict[str, float] = {}  # when to ask again, or to start another keeper

    def may_start(self, node: str) -> bool:
        return time.monotonic() >= self._next.get(node, 0.0)

    def ask(self, node: str, keeper: Any) -> Exception | None:
        """The error of a keeper that has ended, and that Ray does not start again."""
        if node not in self._calls:
            if not self.may_start(node):
                return None
            self._calls[node] = keeper.kept_bytes.remote()
        if not _plain(_ray.wait)([self._calls[node]], timeout=0)[0]:
            return None
        self._next[node] = time.monotonic() + _ASK_SECONDS
        self.kept_bytes[node] = 0
        try:
            self.kept_bytes[node] = int(_plain(_ray.get)(self._calls.pop(node)))
        except _ray.exceptions.ActorUnavailableError:  # it is started again just now
            pass
        except _ray.exceptions.RayError as error:
            self.failures[node] += 1
            rest = min(2.0 ** min(self.failures[node], 10), _LONGEST_REST)
            self._next[node] = time.monotonic() + rest
            failed: Exception = error
            return failed
        return None

    def forget(self, node: str) -> None:
        for known in (self.kept_bytes, self.failures, self._calls, self._next):
            known.pop(node, None)


class Nodes:
    """The nodes of a cluster with their agents and keepers: what ``start`` gives.

    A thread of it looks every second for nodes that came or went, and gives each new one an agent
    and a keeper. Ray starts again what died on a node that lives. All of them end with ``stop``, at
    the end of a ``with`` statement, or with the job: after ``ray.shutdown()`` this is as stopped,
    also in a later session of Ray.

    Attributes: ``env`` has the environment for processes that are to use the store and the keepers;
    ``master`` the address of the store's master."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._paths: list[str] = settings["paths"]
        self._session = _session()
        self._lock = threading.Lock()
        self._agents: dict[str, Any] = {}
        self._keepers: dict[str, Any] = {}
        self._answers = _Answers()
        self._stopped = threading.Event()
        self._said: set[str] = set()
        self._master: Any = None
        self.env: dict[str, str] = {"PENSTOCK_STORE": settings["socket"]}
        trust = settings["trust_times"]
        # Which blocks are those of a file: the same for all that read, warm and keep it.
        self._rules = {name: os.environ[name] for name in
                       ("PENSTOCK_STORE_NAMESPACE", "PENSTOCK_STORE_LOCAL") if name in os.environ}
        if trust:
            self._rules["PENSTOCK_TRUST_TIMES"] = trust
        self.env.update(self._rules)
        if settings["wait_ms"] is not None:
            self.env["PENSTOCK_STORE_WAIT_MS"] = str(settings["wait_ms"])
        if self._paths:
            self.env["PENSTOCK_SHARE"] = settings["share"]
            self.env["PENSTOCK_PAGE"] = str(settings["page"])
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
            self._rules)

    def _start_keeper(self, name: str) -> None:
        """The caller has the lock, or is alone. OSError: a file is not there."""
        if not self._paths:
            return
        settings = self._settings
        shares = {path: self._seats.shares(path, os.stat(path).st_size, self._seats.names)[name]
                  for path in self._paths}
        options = {"cache": settings["cache"], "page": settings["page"], "share": settings["share"]}
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
                if _ray.is_initialized():
                    self._say(f"penstock.ray: looking for nodes: {error}")

    def _say(self, text: str) -> None:
        """What is so at each look is said once."""
        if text not in self._said:
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said.add(text)
            print(text, file=sys.stderr)

    def _is_over(self) -> bool:
        """Whether these nodes were stopped, or their session of Ray has ended, and with it all that
        was started. Then a call of Ray would start a cluster, or disturb the next session."""
        if not self._stopped.is_set() and _session() != self._session:
            self._forget()
        return self._stopped.is_set()

    def _forget(self) -> list[Any]:
        """Ends the thread. The actors, of which none is known any more."""
        self._stopped.set()
        with self._lock:
            actors = [*self._keepers.values(), *self._agents.values(), self._master]
            self._keepers.clear()
            self._agents.clear()
            self._answers = _Answers()
            self._master = None
        return [actor for actor in actors if actor is not None]

    def _require_session(self, call: str) -> None:
        if self._is_over():
            raise ValueError(f"{call}: these nodes are stopped, or their session of Ray has ended; "
                             "call start again")

    def look(self) -> list[str]:
        """Looks for nodes that came or went, and gives the names of the living ones: none after
        ``stop``. Done every second by itself."""
        if self._is_over():
            return []
        try:
            living = self._living_nodes()
        except Exception:
            if self._is_over():
                return []
            raise
        if self._is_over():  # they may be of the next session
            return []
        with self._lock:
            if not self._stopped.is_set():
                for gone in set(self._agents) - set(living):
                    self._agents.pop(gone, None)
                    self._keepers.pop(gone, None)
                    self._answers.forget(gone)
                self._seats.replace(living)
                for name in living:
                    if name not in self._agents:
                        self._start_agent(name)
                for name in living:
                    self._look_for_keeper(name)
            return [name for name in living if name in self._agents]

    def _look_for_keeper(self, name: str) -> None:
        """The caller has the lock."""
        keeper = self._keepers.get(name)
        if keeper is None:
            if self._answers.may_start(name):
                self._start_missing_keeper(name)
            return
        error = self._answers.ask(name, keeper)
        if error is not None:
            del self._keepers[name]
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self._say(f"penstock.ray: the keeper of node {name} failed, and another is tried "
                      f"later: {lines[-1] if lines else type(error).__name__}")

    def _start_missing_keeper(self, name: str) -> None:
        try:
            self._start_keeper(name)
        except OSError as error:  # the next look tries again
            self._say(f"penstock.ray: no keeper on node {name}: {error}")

    def near(self, path: Path, part: int, of: int) -> dict[str, Any]:
        """Options for a Ray task that works on part `part` of `of` equal parts of the file: it runs
        on the node that reads most of the part's blocks for the store, and on another one if that
        node is gone. The environment of the task names the store, and with ``paths`` the keepers
        and the size of their pages.

        ValueError: there is no such part, or the nodes are stopped. OSError: the file is not
        there."""
        name = os.path.abspath(path_text(path))
        size = os.stat(name).st_size
        living = self.look()
        self._require_session("near")
        with self._lock:
            node = self._seats.near(name, size, part, of, living)
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
                "runtime_env": {"env_vars": dict(self.env)}}

    def state(self) -> dict[str, dict[str, int]]:
        """For each node, by its Ray identifier: how often its agent was started and ended, and
        the status of the last end. With ``paths`` also what its keeper said up to 10 s ago:
        ``kept_bytes``, 0 until it has read its blocks, and ``keeper_failures``, how many keepers
        ended with an error, which standard error has. A node whose agent does not answer is left
        out; after ``stop`` there is none."""
        if self._is_over():
            return {}
        with self._lock:
            agents, answers = dict(self._agents), self._answers
        found: dict[str, dict[str, int]] = {}
        for name, agent in agents.items():
            if self._is_over():
                return {}
            try:
                found[name] = dict(_plain(_ray.get)(agent.state.remote(), timeout=5))
            except _ray.exceptions.RayError:
                continue
            if self._paths:
                found[name].update(kept_bytes=answers.kept_bytes.get(name, 0),
                                   keeper_failures=answers.failures[name])
        return found

    def stop(self) -> None:
        """Ends agents, keepers and master. Blocks that lay in them are gone. Does nothing where the
        session of Ray has ended, and they with it."""
        if self._is_over():
            return
        for actor in self._forget():
            try:
                _plain(_ray.kill)(actor)
            except Exception as error:  # the others are to end all the same
                if _ray.is_initialized():
                    self._say(f"penstock.ray: ending {actor}: {error}")

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
            self._require_session("warm")
            with self._lock:
                shares = self._seats.shares(path, size, living)
                agents = dict(self._agents)
            calls = [(blocks, agents[name].warm.remote(path, blocks))
                     for name, blocks in ((name, [b for b in share if b in left])
                                          for name, share in shares.items())
                     if blocks and name in agents]
            for blocks, call in calls:
                try:
                    total.update(_plain(_ray.get)(call))
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


def start(memory: int | str, paths: Path | Iterable[Path] | None = None, *,
          cache: Size | None = None, page: Size | None = None, share: str = "ray",
          master: str | None = None, socket: Path | None = None,
          wait_ms: int | None = None, trust_times: str | bool | None = None,
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
    page
        Bytes of the keepers' pages: only a runtime with pages of that size finds what they hold.
        Give ``describe(path, ...).page_bytes`` for programs that call ``open_array`` without a
        runtime. None: that, if the first file is a ``.npy``; else 64 KiB, as ``Runtime()`` has.
        ``Nodes.env`` has it for runtimes of which no size of pages is said.
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
        do not change. None: as in the environment of this process, of which
        ``PENSTOCK_STORE_NAMESPACE`` and ``PENSTOCK_STORE_LOCAL`` count on all nodes too.
    agent_options, keeper_options
        More arguments of penstock-agent; more options of the keepers' actors, for instance
        ``{"num_gpus": 0.1}`` for a keeper in the memory of a GPU.

    ValueError: a value that cannot be used. FileNotFoundError: there is no mooncake_master, or no
    such file. What was started ends then. TimeoutError (in a RayTaskError): an agent did
    not answer within ``seconds``. A keeper that fails is told of on standard error and by
    ``state``, and another one is tried."""
    if not _ray.is_initialized():
        raise ValueError('start: Ray is not connected; call ray.init("auto") first')
    files = _job_values.files_of(paths)
    answers_at = _job_values.socket_of(socket)
    settings = {"memory": _job_values.memory_of(memory), "paths": files,
                "cache": _job_values.cache_of(cache), "page": _job_values.page_of(page, files),
                "share": _job_values.share_of(share, answers_at),
                "master": _job_values.master_of(master),
                "wait_ms": _job_values.wait_of(wait_ms),
                "trust_times": _job_values.trust_of(trust_times),
                "socket": answers_at,
                "agent_options": _job_values.words_of(agent_options),
                "keeper_options": dict(keeper_options or {})}
    seconds = _job_values.seconds_of(seconds)
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
    a file cannot be read (in a RayTaskError), or no node read a block. ValueError: the nodes are
    stopped."""
    total: Counter[str] = Counter()
    for name in _job_values.list_of(paths):
        total.update(over._warm(os.path.abspath(name)))
    return dict(total)
