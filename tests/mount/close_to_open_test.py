#!/usr/bin/env python3
"""Close-to-open on a shared file system: a writer on one machine, a reader on another.

close_to_open_test.py PROGRAM SERVER [--file-system own|moosefs|glusterfs] [--rounds N] [--rests N]
    [--rule now|before] [--trust auto|off|on] [--ahead MS] [--json FILE]

The machines are namespaces (mounts and network) of this one, each with a mount of its own. `own` is
shared_server, whose server dates changes by a clock that is AHEAD ms before the reader's; its
kernel keeps attributes for a second. `moosefs` and `glusterfs` have their servers in a third
namespace, and there the reader's clock is shifted. Needs root, FUSE and namespaces, else exit
status 77.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAMS = {
    "own": (), "moosefs": ("ip", "mfsmaster", "mfschunkserver", "mfsmount"),
    "glusterfs": ("ip", "glusterfsd", "glusterfs")
}
PORTS = {"loggers": 29419, "chunks": 29420, "clients": 29421, "data": 29422}
ADDRESS = "10.77.0.{}"


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def run(*command, check=True):
    return subprocess.run([str(word) for word in command], check=check, timeout=600,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE)


def wait_for(condition, what, process=None, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what}: ended with {process.returncode}")
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Machine:
    """A namespace in which a program has mounted something at `point`."""

    def __init__(self, command, point, log):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log)
        table = pathlib.Path(f"/proc/{self.process.pid}/mountinfo")

        def is_mounted():
            try:
                return f" {point} " in table.read_text()
            except OSError:  # it has ended
                return False

        wait_for(is_mounted, "mount", self.process)

    def inside(self, *command):
        words = [str(word) for word in command]
        return ["nsenter", "-t", str(self.process.pid), "-m", "-n", *words]

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class OwnServer:
    """Two machines of shared_server."""

    def __init__(self, folder, server, ahead_ms):
        self.clock_ms = 0  # the server's clock is shifted
        self.machines = []
        self.log = open(folder / "server.log", "w+", encoding="utf-8")
        source, self.point = folder / "source", folder / "point"
        source.mkdir()
        self.point.mkdir()
        for _ in range(2):
            self.machines.append(
                Machine(["unshare", "-m", "-n", "--propagation", "private", server]
                        + [source, self.point, ahead_ms, 1000], self.point, self.log))

    def end(self):
        for machine in self.machines:
            machine.end()


class Served:
    """Servers in one namespace, clients in two others, with links between them."""

    def __init__(self, folder, ahead_ms):
        self.clock_ms = -ahead_ms
        self.folder, self.machines, self.servers = folder, [], []
        self.names = [f"penstock{os.getpid()}{role}" for role in "sab"]
        self.log = open(folder / "server.log", "w+", encoding="utf-8")
        self.point = folder / "point"
        self.point.mkdir()
        try:
            self.make_network()
            self.start_servers()
            for name in self.names[1:]:
                self.start_client(name)
        except BaseException:
            self.end()
            raise

    def make_network(self):
        server = self.names[0]
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", server, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", server, "addr", "add", ADDRESS.format(1) + "/24", "dev", "bridge")
        run("ip", "-n", server, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names[1:], 2):
            here = f"to{number}"
            link = ["ip", "-n", server, "link"]
            run(*link, "add", here, "type", "veth", "peer", "net0", "netns", name)
            run(*link, "set", here, "master", "bridge", "up")
            run("ip", "-n", name, "addr", "add", ADDRESS.format(number) + "/24", "dev", "net0")
            run("ip", "-n", name, "link", "set", "net0", "up")

    def start_server(self, *command):
        self.servers.append(
            subprocess.Popen(["ip", "netns", "exec", self.names[0], *map(str, command)],
                             stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log))
        time.sleep(1)

    def start_client(self, name):
        command = ["ip", "netns", "exec", name, "unshare", "-m", "--propagation", "private"]
        machine = Machine(command + self.client_command(), self.point, self.log)
        self.machines.append(machine)
        # A server may take a while until it has told another of itself.
        file = self.point / "probe"
        probe = machine.inside("sh", "-c", f"echo x > {file} && test $(cat {file}) = x")
        wait_for(lambda: run("timeout", 5, *probe, check=False).returncode == 0, "a first file")

    def end(self):
        for machine in self.machines:
            machine.end()
        for server in reversed(self.servers):
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        for name in self.names:
            run("ip", "netns", "del", name, check=False)


class MooseFS(Served):
    """A master and a chunk server."""

    def start_servers(self):
        folder = self.folder
        for name in ("master", "chunks", "disk"):
            (folder / name).mkdir()
        shutil.copy("/var/lib/mfs/metadata.mfs.empty", folder / "master" / "metadata.mfs")
        (folder / "exports.cfg").write_text("* / rw,alldirs,maproot=0:0\n")
        (folder / "topology.cfg").write_text("")
        (folder / "disk.cfg").write_text(f"{folder / 'disk'}\n")
        common = "WORKING_USER = root\nWORKING_GROUP = root\nLOCK_MEMORY = 0\nNICE_LEVEL = 0\n"
        host = ADDRESS.format(1)
        (folder / "master.cfg").write_text(
            common
            + f"DATA_PATH = {folder / 'master'}\nEXPORTS_FILENAME = {folder / 'exports.cfg'}\n"
            + f"TOPOLOGY_FILENAME = {folder / 'topology.cfg'}\n"
            + "".join(f"{name}_LISTEN_HOST = {host}\n" for name in ("MATOML", "MATOCS", "MATOCL"))
            + f"MATOML_LISTEN_PORT = {PORTS['loggers']}\nMATOCS_LISTEN_PORT = {PORTS['chunks']}\n"
            + f"MATOCL_LISTEN_PORT = {PORTS['clients']}\n")
        (folder / "chunks.cfg").write_text(
            common + f"DATA_PATH = {folder / 'chunks'}\nHDD_CONF_FILENAME = {folder / 'disk.cfg'}\n"
            + f"MASTER_HOST = {host}\nMASTER_PORT = {PORTS['chunks']}\n"
            + f"CSSERV_LISTEN_HOST = {host}\nCSSERV_LISTEN_PORT = {PORTS['data']}\n"
            + "HDD_LEAVE_SPACE_DEFAULT = 64MiB\nHDD_FSYNC_BEFORE_CLOSE = 0\n")
        for program, settings in (("mfsmaster", "master.cfg"), ("mfschunkserver", "chunks.cfg")):
            self.start_server(program, "-f", "-c", folder / settings, "start")

    def client_command(self):
        return ["mfsmount", self.point, "-f", "-H", ADDRESS.format(1), "-P", PORTS["clients"]]


class GlusterFS(Served):
    """A brick, and clients without the translators and the option that keep bytes and times for a
    while, or write after the close: with them read(2) itself has old bytes after an open."""

    def start_servers(self):
        (self.folder / "brick").mkdir()
        brick = self.graph(
            "brick", ("storage/posix", {"directory": self.folder / "brick", "ctime": "on"}),
            ("features/locks", {}), ("performance/io-threads", {}), ("protocol/server", {
                "transport-type": "tcp", "transport.socket.bind-address": ADDRESS.format(1),
                "transport.socket.listen-port": PORTS["data"], "auth.addr.brick2.allow": "*"
            }))
        self.start_server("glusterfsd", "-N", "-f", brick, "-l", self.folder / "brick.log")

    def client_command(self):
        client = self.graph("client", ("protocol/client", {
            "transport-type": "tcp", "remote-host": ADDRESS.format(1), "remote-port": PORTS["data"],
            "remote-subvolume": "brick2"
        }), ("features/utime", {}))
        log = self.folder / "client.log"
        return ["glusterfs", "-N", "-f", client, "-l", log, "--fopen-keep-cache=off", self.point]

    def graph(self, name, *translators):
        """A file of translators, each on top of the one before."""
        text = ""
        for number, (kind, options) in enumerate(translators):
            below = f"  subvolumes {name}{number - 1}\n" if number else ""
            lines = "".join(f"  option {key} {value}\n" for key, value in options.items())
            text += f"volume {name}{number}\n  type {kind}\n{lines}{below}end-volume\n"
        path = self.folder / f"{name}.vol"
        path.write_text(text)
        return path


def check_machine(wanted):
    if os.geteuid() != 0:
        skip("only root can make namespaces and mounts")
    if not os.path.exists("/dev/fuse"):
        skip("there is no /dev/fuse")
    for program in ("unshare", "nsenter", *PROGRAMS[wanted]):
        if shutil.which(program) is None:
            skip(f"{program} is not there")
    tried = run("unshare", "-m", "-n", "--propagation", "private", "true", check=False)
    if tried.returncode != 0:
        skip(f"no namespaces here: {tried.stderr.decode().strip()}")


def take_turns(a, b, options, point, clock_ms):
    """The reader's exit status and report."""
    to_reader, to_writer = os.pipe(), os.pipe()
    common = [point / "data", options.rounds, options.rests]
    writer = subprocess.Popen(a.inside(options.program, "writer", *common), stdin=to_writer[0],
                              stdout=to_reader[1], stderr=subprocess.PIPE)
    reader = subprocess.Popen(
        b.inside(options.program, "reader", *common, clock_ms, options.rule, options.trust),
        stdin=to_reader[0], stdout=to_writer[1], stderr=subprocess.PIPE)
    for fd in to_reader + to_writer:
        os.close(fd)
    told = reader.communicate()[1].decode()
    writer_told = writer.communicate()[1].decode()
    if writer.returncode != 0 or "{" not in told:
        sys.exit(f"FAILED: writer {writer.returncode}: {writer_told}; reader: {told}")
    return reader.returncode, json.loads(told[told.index("{"):].splitlines()[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("server")
    parser.add_argument("--file-system", choices=tuple(PROGRAMS), default="own")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--rests", type=int, default=1)
    parser.add_argument("--rule", choices=("now", "before"), default="now")
    parser.add_argument("--trust", choices=("auto", "off", "on"), default="auto")
    parser.add_argument("--ahead", type=int, default=-2000)
    parser.add_argument("--json")
    options = parser.parse_args()
    check_machine(options.file_system)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-close-to-open-"))
    files = None
    try:
        files = (OwnServer(folder, options.server, options.ahead) if options.file_system == "own"
                 else {"moosefs": MooseFS, "glusterfs": GlusterFS}[options.file_system](
                     folder, options.ahead))
        code, report = take_turns(*files.machines, options, files.point, files.clock_ms)
    except RuntimeError as error:
        told = (folder / "server.log").read_text()
        if "not permitted" in told or "device not found" in told or "ermission denied" in told:
            skip(f"no FUSE in namespaces here: {told.strip()}")
        sys.exit(f"FAILED: {error}: {told}")
    finally:
        if files is not None:
            files.end()
        shutil.rmtree(folder, ignore_errors=True)
    report = {"file_system": options.file_system, "server_ahead_ms": options.ahead, **report}
    print(json.dumps(report))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report) + "\n", encoding="utf-8")
    if report["stale"]:
        print(f"FAILED: {report['stale']} stale reads of {report['reads']}")
    is_used_again = options.trust == "on" and options.rests != 0
    if options.rule == "now" and is_used_again != (report["reads_from_cache"] != 0):
        print(f"FAILED: {report['reads_from_cache']} reads came from the cache")
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
