"""A share in a store of blocks between nodes: the agent, and ``warm``.

The agent (``penstock-agent``) is a process of each node. Runtimes of its user that have
``PENSTOCK_STORE`` ask it for blocks over a Unix socket; it moves them between their memory and a
store, Mooncake Store. docs/protocol/block_store.md has what goes over the socket.
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import fcntl
import fractions
import mmap
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ._agent_claims import Claims, ClaimStore, Held
from ._agent_client import default_socket as default_socket
from ._agent_client import warm as warm
from ._agent_place import SIGNALS, START_SECONDS, Place, check_folder, pause
from ._errors import Path, path_text, shown_path

_REQUEST = struct.Struct("<IIQ32sQII")  # magic, operation, number, key, bytes, wait_ms, flag
_ANSWER = struct.Struct("<IIQq")  # magic, 0, number, result
_REQUEST_MAGIC, _ANSWER_MAGIC = 0x31425350, 0x32425350
_HELLO, _GET, _PUT, _REST = 1, 2, 3, 4
_LOOK_SECONDS = 2.0  # between two looks at a file that the agent watches
_MOST_BYTES = 16 << 20  # of a client's memory
_MOST_CONNECTIONS = 1024
_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2  # Linux; the module fcntl has names for them from 3.13 on
# Calls of an engine may poll until blocks are there: Mooncake's do. On two processors that took
# four tenths of them from the programs that the blocks were for. So other work goes first, and far
# more so if a call takes long.
_CALL_NICE, _LATE_NICE, _LATE_SECONDS = 10, 19, 1.0
_MASTER_SECONDS = 60.0  # for so long a new agent waits for the store's master


class Engine(ClaimStore, Protocol):
    """A store, as the agent uses it. Calls come from several threads, each with an address that
    was attached. Results are 0, a count of bytes, or a negative errno; ``-ENOENT``: the store does
    not have the object; ``-ENOSPC``: it has no room."""

    def attach(self, address: int, size: int) -> int:
        """Memory that objects go to and come from, until it is detached."""

    def detach(self, address: int, size: int) -> None:
        """No call uses the memory any more."""

    def get(self, key: str, address: int, room: int) -> int:
        """The object's bytes, which are at the address now."""

    def put(self, key: str, address: int, size: int, replaces: bool) -> int:
        """Keeps the object. Where the store has one of this key it keeps that, unless it
        ``replaces`` it."""

    def close(self) -> None:
        """The agent ends."""


class MooncakeEngine:
    """Mooncake Store: this node gives memory to the pool of all nodes."""

    # Codes of Mooncake's client. There is no such object, or none yet, or the node that has it does
    # not hand it out: it was lost, and the master does not know yet. There is one. No room.
    _ABSENT, _EXISTS, _FULL = {-702, -703, -704, -707, -800}, -705, -200

    # Connections to other nodes stay open between blocks, and a block of this node is copied by its
    # processor: without these settings each block has a TCP connection of its own.
    _SETTINGS = {"MC_TCP_ENABLE_CONNECTION_POOL": "1", "MC_STORE_MEMCPY": "1"}

    def __init__(self, master: str, memory: int, host: str, protocol: str = "tcp",
                 device: str = "") -> None:
        for name, value in self._SETTINGS.items():
            os.environ.setdefault(name, value)  # Mooncake reads them when it is set up
        try:
            from mooncake.store import MooncakeDistributedStore, ReplicateConfig
        except ImportError as error:
            raise OSError(errno.ENOPKG, f"Mooncake cannot be imported ({error}); pip install "
                          "mooncake-transfer-engine-non-cuda, or mooncake-transfer-engine for "
                          "GPU nodes") from error
        self._store = MooncakeDistributedStore()
        self._said: set[tuple[str, int]] = set()
        self._here = ReplicateConfig()
        code = self._store.setup(host, "P2PHANDSHAKE", memory, 16 << 20, protocol, device, master)
        if code != 0:
            raise OSError(errno.ECONNREFUSED, f"Mooncake's master at {master} took no share of "
                          f"{host} (code {code}); start mooncake_master there, and give --host an "
                          "address of this node that the others reach")
        self._here.preferred_segment = self._store.get_hostname()

    def attach(self, address: int, size: int) -> int:
        return 0 if self._store.register_buffer(address, size) == 0 else -errno.EIO

    def detach(self, address: int, size: int) -> None:
        self._store.unregister_buffer(address)

    def get(self, key: str, address: int, room: int) -> int:
        got = int(self._store.get_into(key, address, room))
        if got in self._ABSENT or got == 0:
            return -errno.ENOENT
        return got if got > 0 else self._failed("get", got)

    def put(self, key: str, address: int, size: int, replaces: bool) -> int:
        if replaces:
            self._store.remove(key, True)  # it was looked at just now, which would protect it
        code = int(self._store.put_from(key, address, size))
        if code in (0, self._EXISTS):
            return 0
        return -errno.ENOSPC if code == self._FULL else self._failed("put", code)

    def _failed(self, call: str, code: int) -> int:
        """Says each code once: Mooncake's own words go to its log."""
        if (call, code) not in self._said:
            self._said.add((call, code))
            print(f"penstock-agent: Mooncake failed a {call} with code {code}; programs use the "
                  "file system, and this is not said again", file=sys.stderr, flush=True)
        return -errno.EIO

    # A claim lies in the memory of its own node, and is never read: an agent that looks for it
    # asks the master alone, and waits for no node that died.
    def claim(self, key: str) -> bool:
        name = f"{key}.claim"
        if self._store.is_exist(name) == 1:
            return False
        self._store.put(name, b"1", self._here)
        return True

    def unclaim(self, key: str) -> None:
        self._store.remove(f"{key}.claim", True)

    def close(self) -> None:
        self._store.close()


class Rests:
    """Since when the file system has told the same facts of a file, as far as processes of this
    node asked it: a program need not wait for what another one has seen before."""

    def __init__(self, most_files: int = 65536) -> None:
        self._most_files = most_files
        self._lock = threading.Lock()
        self._young: dict[bytes, tuple[bytes, int]] = {}  # by file: facts, ns
        self._old: dict[bytes, tuple[bytes, int]] = {}

    def note(self, key: bytes) -> int:
        """A process was told these facts (``_core.facts_of``). For how many ns they are known."""
        file, facts = key[:16], key[16:]
        now = time.monotonic_ns()
        with self._lock:
            known = self._young.get(file) or self._old.get(file)
            since = known[1] if known is not None and known[0] == facts else now
            if len(self._young) >= self._most_files and file not in self._young:
                self._old, self._young = self._young, {}
            self._young[file] = facts, since
        return now - since


def _go_behind(thread: int, nice: int) -> None:
    """Other work of the machine goes before this thread, by the kernel's number, from now on."""
    with contextlib.suppress(OSError):  # where rules of the machine forbid it, or it is gone
        if os.getpriority(os.PRIO_PROCESS, thread) < nice:  # of this thread alone
            os.setpriority(os.PRIO_PROCESS, thread, nice)


class Calls:
    """Calls of the engine that are under way. Those that take long go behind all other work of the
    machine: a client of Mooncake polls until its transfer has ended, 60 s towards a node that is
    gone, and no runtime waits for it any more. On two processors six such threads left programs a
    tenth of their speed, and less."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._began: dict[int, float] = {}  # by the kernel's number of the thread
        self._late: set[int] = set()

    def run(self, call: Callable[[], int]) -> tuple[int, bool]:
        """What the call gives, and whether its thread went behind, from where it cannot come
        back."""
        me = threading.get_native_id()
        with self._changed:
            self._began[me] = time.monotonic()
            self._changed.notify()
        try:
            result = call()
        finally:
            with self._changed:
                del self._began[me]
                is_late = me in self._late
                self._late.discard(me)
        return result, is_late

    def goes_on(self) -> None:
        """The calling thread's call has only waited up to now, and polled nothing."""
        with self._changed:
            self._began[threading.get_native_id()] = time.monotonic()

    def watch(self) -> None:
        """Looks at the calls, for ever."""
        while True:
            with self._changed:
                while not self._began:
                    self._changed.wait()
                before = time.monotonic() - _LATE_SECONDS
                late = {number for number, began in self._began.items() if began < before}
                for number in late - self._late:
                    _go_behind(number, _LATE_NICE)
                self._late |= late
            time.sleep(_LATE_SECONDS / 4)


class Agent:
    """Serves runtimes at a socket until it is stopped, with a thread for each connection."""

    def __init__(self, engine: Engine, path: Path | Place) -> None:
        self._engine = engine
        self._place = path if isinstance(path, Place) else Place(path)
        self.path = self._place.path
        self.rests = Rests()
        self._calls = Calls()
        self._claims = Claims(engine)
        self._stopped = threading.Event()
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        try:
            self._listener = self._place.listen()
        except BaseException:
            self._place.leave()
            raise

    def serve(self) -> None:
        """Returns after stop()."""
        threading.Thread(target=self._calls.watch, daemon=True).start()
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if self._stopped.wait(0.1):
                    return
                continue  # no descriptor just now
            if not self._connections.acquire(blocking=False):
                client.close()
                continue
            try:
                threading.Thread(target=self._serve_connection, args=(client,),
                                 daemon=True).start()
            except RuntimeError:  # no thread just now: the client asks again
                client.close()
                self._connections.release()
                self._stopped.wait(0.1)

    def watch(self, paths: Sequence[str]) -> None:
        """Knows these files before a program asks, also those that change or come later. Returns
        after stop()."""
        from . import _core

        while True:
            for path in paths:
                try:
                    self.rests.note(_core.facts_of(path))
                except (OSError, ValueError, MemoryError):
                    pass  # not there just now
            if self._stopped.wait(_LOOK_SECONDS):
                return

    def stop(self) -> None:
        """Takes the socket away; what is under way ends with the process."""
        self._stopped.set()
        self._place.leave()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()

    def _serve_connection(self, client: socket.socket) -> None:
        try:
            with client:
                if _user_of(client) in (os.geteuid(), 0):
                    _go_behind(threading.get_native_id(), _CALL_NICE)
                    self._serve_client(client)
        except OSError:
            pass  # the client is gone
        except Exception:  # the others go on
            traceback.print_exc()
        finally:
            self._connections.release()

    def _serve_client(self, client: socket.socket) -> None:
        request = self._receive(client, 8)
        if request is None:
            return
        (operation, number, _, size, _, _), fds = request
        memory = None
        try:
            if operation == _HELLO and len(fds) == 1 and 0 < size <= _MOST_BYTES:
                memory = _map(fds[0], size)
        finally:
            for fd in fds:
                os.close(fd)
        if memory is None:
            return
        view = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(view)
        code = self._engine.attach(address, size)
        if code != 0:
            client.send(_ANSWER.pack(_ANSWER_MAGIC, 0, number, code))
            return
        held = Held(self._claims)
        try:
            client.send(_ANSWER.pack(_ANSWER_MAGIC, 0, number, code))
            while (request := self._receive(client, 8)) is not None:
                fields, fds = request
                for fd in fds:
                    os.close(fd)
                answer, is_late = self._calls.run(
                    lambda: self._answer(fields, address, size, held))
                client.send(_ANSWER.pack(_ANSWER_MAGIC, 0, fields[1], answer))
                if is_late:
                    return  # the next connection has a thread that is not so far behind
        finally:
            # No call is under way: each was waited for, also where its client was not there any
            # more. The memory is unmapped with its last reference.
            try:
                self._engine.detach(address, size)
            finally:
                held.end()

    def _receive(self, client: socket.socket, most_fds: int,
                 ) -> tuple[tuple[int, int, bytes, int, int, int], list[int]] | None:
        text, fds, _, _ = socket.recv_fds(client, _REQUEST.size, most_fds)
        if len(text) == _REQUEST.size:
            magic, operation, number, key, size, wait_ms, flag = _REQUEST.unpack(text)
            if magic == _REQUEST_MAGIC:
                return (operation, number, key, size, wait_ms, flag), fds
        for fd in fds:
            os.close(fd)
        return None

    def _answer(self, fields: tuple[int, int, bytes, int, int, int], address: int, room: int,
                held: Held) -> int:
        operation, _, key, size, wait_ms, flag = fields
        if operation == _REST:
            return self.rests.note(key)
        if size > room:
            return -errno.EMSGSIZE
        try:
            if operation == _GET:
                held.end()  # what the client claimed before it did not put
                if flag != 1:
                    return self._engine.get(key.hex(), address, size)
                return self._get_or_claim(key.hex(), address, size, wait_ms / 2000, held)
            if operation == _PUT:
                try:
                    return self._engine.put(key.hex(), address, size, flag == 1)
                finally:
                    held.end()
        except Exception:
            traceback.print_exc()
            return -errno.EIO
        return -errno.EINVAL

    def _get_or_claim(self, key: str, address: int, size: int, seconds: float, held: Held) -> int:
        """-ENOENT: the client is to read the block from the file. Others that miss it meanwhile
        wait here, for so many seconds at most."""
        until = time.monotonic() + seconds
        while (got := self._engine.get(key, address, size)) == -errno.ENOENT:
            if held.take(key):
                # The one that had claimed it may have put it in between.
                got = self._engine.get(key, address, size)
                if got != -errno.ENOENT:
                    held.end()
                break
            left = until - time.monotonic()
            if left <= 0:
                break
            self._claims.wait(left)
            self._calls.goes_on()
        if got >= 0:
            self._claims.found(key)
        return got


def _user_of(client: socket.socket) -> int:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iII", credentials)[1])


def _map(fd: int, size: int) -> mmap.mmap | None:
    """Memory that its owner cannot make shorter, which would end this process with a signal."""
    if fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK == 0 or os.fstat(fd).st_size < size:
        return None
    return mmap.mmap(fd, size)


_MOST_SIZE = 9_200_000_000_000_000_000


def size_of(text: str) -> int:
    """Bytes, as of the options of a runtime: ``"1.5GiB"``, ``"4G"`` (powers of 1024), ``"4GB"``
    (powers of 1000), ``"1073741824"``. Not 0."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(?:([KMGT])(iB|B)?|B)?\s*", text,
                         re.IGNORECASE | re.ASCII)
    size = fractions.Fraction(0)
    if found is not None:
        step = 1000 if (found[3] or "").upper() == "B" else 1024
        power = "KMGT".index(found[2].upper()) + 1 if found[2] else 0
        size = fractions.Fraction(found[1].rstrip(".")) * step ** power
    if found is None or size >= _MOST_SIZE:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; give for instance 4GiB")
    if size.denominator != 1:
        below = int(size)
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number of bytes; give {below} or "
                                         f"{below + 1}")
    if size == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no usable size; give one, such as 4GiB")
    return int(size)


class _NoSuchMaster(OSError):
    """Says all of it already."""


def _addresses_of(master: str, kind: socket.SocketKind) -> list[tuple[int, int, Any]]:
    """Family, protocol and address, of each that the master's name has. A look-up may take half a
    minute, and no signal ends it; but one ends the wait for it. OSError: EHOSTUNREACH."""
    name, _, port = master.rpartition(":")
    found: list[tuple[int, int, Any]] = []
    failed: list[Exception] = []

    def look() -> None:
        try:
            for family, _, protocol, _, address in socket.getaddrinfo(name.strip("[]"), int(port),
                                                                      type=kind):
                found.append((family, protocol, address))
        except (OSError, UnicodeError) as error:  # UnicodeError: no name can be so
            failed.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(0.05)
    while thread.is_alive():
        pause(0.1)
    if failed:
        why = getattr(failed[0], "strerror", None) or str(failed[0])
        raise _NoSuchMaster(errno.EHOSTUNREACH, f"--master {master}: {why}; give a name or an "
                            "address that this node knows")
    return found


def _connected(addresses: Sequence[tuple[int, int, Any]],
               kind: socket.SocketKind) -> socket.socket:
    """To the first of the addresses that can be connected to. OSError: that of the last one."""
    failed = OSError(errno.EHOSTUNREACH, "its name has no address")
    for family, protocol, address in addresses:
        try:
            probe = socket.socket(family, kind, protocol)
        except OSError as error:  # a kernel without IPv6
            failed = error
            continue
        probe.settimeout(1)
        try:
            probe.connect(address)
            return probe
        except OSError as error:
            probe.close()
            failed = error
    raise failed


def _address_towards(master: str) -> str:
    """The address of this node from which it reaches the master."""
    try:
        with _connected(_addresses_of(master, socket.SOCK_DGRAM), socket.SOCK_DGRAM) as probe:
            return str(probe.getsockname()[0])
    except (InterruptedError, _NoSuchMaster):
        raise
    except OSError as error:
        raise OSError(error.errno, f"--master {master}: {error.strerror or error}; give --host an "
                      "address of this node from which it is reached") from None


def _wait_for_master(master: str) -> None:
    """Until something accepts connections there. Mooncake itself tries for longer, where no signal
    can end it."""
    until = time.monotonic() + _MASTER_SECONDS
    while True:
        try:
            _connected(_addresses_of(master, socket.SOCK_STREAM), socket.SOCK_STREAM).close()
            return
        except InterruptedError:
            raise
        except OSError as error:
            if time.monotonic() > until:
                if isinstance(error, _NoSuchMaster):  # retried till now: a name may appear
                    raise
                raise OSError(error.errno or errno.ETIMEDOUT, "nothing answered at --master "
                              f"{master} for {_MASTER_SECONDS:g} s ({error.strerror or error}); "
                              "start mooncake_master there") from None
        pause(0.2)


def _master(text: str) -> str:
    name, _, port = text.rpartition(":")
    if not name or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"'{text}' is no master; give HOST:PORT")
    return text


def _mooncake(arguments: argparse.Namespace) -> Engine:
    host = arguments.host or _address_towards(arguments.master)
    _wait_for_master(arguments.master)
    return MooncakeEngine(arguments.master, arguments.memory, host, arguments.protocol,
                          arguments.device)


def run(make_engine: Callable[[], Engine], path: str, watched: Sequence[str] = ()) -> int:
    """Serves an engine at a socket until SIGINT or SIGTERM, and looks at the watched files, as the
    program does. An agent whose place another one has makes no engine: blocks that came to it would
    be lost when it ends."""
    check_folder(path)
    # The signals are blocked in every thread, of the engine too, and are taken by this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    place = Place(path, START_SECONDS)
    try:
        engine = make_engine()
        try:
            agent = Agent(engine, place)
            threading.Thread(target=agent.serve, daemon=True).start()
            if watched:
                threading.Thread(target=agent.watch, args=(watched,), daemon=True).start()
            print(f"penstock-agent: ready {shown_path(path)}", flush=True)
            signal.sigwait(SIGNALS)
            agent.stop()
        finally:
            engine.close()
    finally:
        place.leave()
    return 0


def _words_of(error: OSError) -> str:
    """What went wrong, with the file that it is about."""
    text, name = error.strerror or str(error), error.filename
    if not isinstance(name, (str, bytes)) or shown_path(path_text(name)) in text:
        return text
    return f"'{shown_path(path_text(name))}': {text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The program ``penstock-agent``."""
    parser = argparse.ArgumentParser(prog="penstock-agent", description=(
        "Gives runtimes of this node a share in a store of blocks between nodes; they find it by "
        "PENSTOCK_STORE."))
    engines = parser.add_subparsers(dest="engine", required=True)
    mooncake = engines.add_parser("mooncake", help="Mooncake Store")
    mooncake.add_argument("--master", type=_master, required=True, metavar="HOST:PORT",
                          help="where mooncake_master is")
    mooncake.add_argument("--memory", type=size_of, required=True, metavar="SIZE",
                          help="memory of this node for blocks of all nodes, such as 64GiB")
    mooncake.add_argument("--host", metavar="ADDRESS",
                          help="of this node, for the other nodes (default: the address from which "
                          "it reaches the master)")
    mooncake.add_argument("--protocol", choices=("tcp", "rdma"), default="tcp")
    mooncake.add_argument("--device", default="", help="for rdma: names of devices, with commas")
    mooncake.add_argument("--socket", metavar="PATH", default=None,
                          help="for runtimes (default: the directory of Penstock for this user)")
    mooncake.add_argument("--watch", metavar="FILE", action="append", default=[],
                          help="of a network file system, which has then rested when a program "
                          "opens it; may be given again")
    mooncake.set_defaults(make=_mooncake)
    chosen = parser.parse_args(arguments)
    try:
        return run(lambda: chosen.make(chosen), os.path.abspath(chosen.socket or default_socket()),
                   [os.path.abspath(path) for path in chosen.watch])
    except OSError as error:
        print(f"penstock-agent: {_words_of(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
