"""Several nodes on one machine: network namespaces behind a bridge, with links of limited rate and
a shared file system, for tools/three_nodes.py.

Everything lies in namespaces of one child: its processes, mounts, links and files, which are on a
file system in memory. The kernel takes all of it away when that child dies, and the child dies with
its parent, however that one ends. So nothing is left to be cleaned up.

  enter(main)   runs main() in that child, and gives its exit status
  Lab           the bridge, the file server and the nodes
  Node          one of them: run, start, kill, cut off"""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

INSIDE = "PENSTOCK_NODE_LAB"
PLACE = pathlib.Path("/mnt")  # of the child alone: a file system in memory is mounted there
SHARED = PLACE / "shared"  # where each node has its own mount of the shared file system
PRIVATE = PLACE / "private"  # a folder of each node, under the same name on all of them
NEEDED = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
          "ip": "iproute2", "tc": "iproute2", "mfsmaster": "moosefs-master",
          "mfschunkserver": "moosefs-chunkserver", "mfsmount": "moosefs-client"}
NETWORK = "10.77.0"
ALONE = ["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc",
         "--propagation", "private"]
# Takes in the orphans of a node. It is process 1 of it, so a node dies with it.
INIT = "trap exit TERM; while :; do sleep 3600 & wait $!; done"
WAIT_SECONDS = 60
SKIPPED = 77
# By default MooseFS reads a MiB and more ahead of a reader that went on for 10 MiB, and reads some
# of it twice: three readers then fill the server's link, and a call of 256 KiB waits for 2 s.
MOUNT_OPTIONS = "mfsioretries=15,mfsreadaheadleng=131072,mfsreadaheadtrigger=10485760"


class Failed(Exception):
    """A step of the lab that did not work, in words."""


def why_not():
    """Why there can be no nodes on this machine, or nothing."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    missing = sorted({package for program, package in NEEDED.items() if not shutil.which(program)})
    if os.geteuid() != 0:
        return "nodes need root: they are network namespaces with mounts of their own"
    if missing:
        return f"packages are missing; install them: apt-get install {' '.join(missing)}"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse, so no shared file system can be mounted"
    tried = subprocess.run(["unshare", *ALONE, "sh", "-c",
                            "ip link add lab0 type veth peer name lab1 && "
                            "tc qdisc add dev lab0 root tbf rate 1gbit burst 256kb latency 100ms"],
                           capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no namespace with a limited link: {(tried.stderr or '?').strip()}"
    return ""


def enter(main, why_not_more=lambda: ""):
    """Runs main() in namespaces of its own, and returns its exit status; in that child it is the
    call itself that runs main(). 77, and a line that says why, where there can be none."""
    if os.environ.get(INSIDE):
        call("mount", "-t", "tmpfs", "-o", "mode=755", "lab", PLACE)
        return main()
    if reason := why_not() or why_not_more():
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    ended = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: ended.append(got))
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *ALONE, sys.executable,
                              "-B", *sys.argv], env={**os.environ, INSIDE: "1"},
                             start_new_session=True, stdin=subprocess.DEVNULL)
    while child.poll() is None and not ended:
        time.sleep(0.05)
    if ended:
        child.kill()  # of unshare, whose child the kernel then kills, with all processes in there
        child.wait()
        return 128 + ended[0]
    return child.returncode


def call(*command, **more):
    """Runs it; what it printed. Failed, with its last words, if its status is not 0."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **more)
    if done.returncode:
        text = (done.stderr or done.stdout).strip().split("\n")[-1]
        raise Failed(f"{' '.join(str(word) for word in command)}: {text}")
    return done.stdout


def wait_for(what, is_there, seconds=WAIT_SECONDS):
    """Until is_there() is true; its value."""
    until = time.monotonic() + seconds
    while True:
        found = is_there()
        if found:
            return found
        if time.monotonic() > until:
            raise Failed(f"{what}: not there after {seconds} s")
        time.sleep(0.05)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Node:
    """A machine: an address, mounts and processes of its own, and a link of limited rate."""

    def __init__(self, number, name, rate):
        self.number, self.name, self.rate = number, name, rate
        self.address = f"{NETWORK}.{number}"
        self.folder = PLACE / name
        self.folder.mkdir(exist_ok=True)
        for folder in ("shm", "log", "private", "private/ray"):
            (self.folder / folder).mkdir(mode=0o700, exist_ok=True)
        self.holder, self.init = None, None
        self.is_alive = False
        self.boot()

    def boot(self):
        self.holder = subprocess.Popen(["unshare", *ALONE, "bash", "-c", INIT],
                                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        self.init = int(wait_for(f"{self.name}: its first process",
                                 lambda: children.read_text().split())[0])
        wait_for(f"{self.name}: its namespaces", lambda: os.readlink(
            f"/proc/{self.init}/ns/net") != os.readlink("/proc/self/ns/net"))
        self.is_alive = True
        outer, inner = f"{self.name}-out", "eth0"
        call("ip", "link", "add", outer, "type", "veth", "peer", "name", inner,
             "netns", str(self.init))
        call("ip", "link", "set", outer, "master", "bridge", "up")
        # fq_codel shares a full link between the nodes; not every kernel has it.
        limit = (f"tc qdisc add dev %s root handle 1: tbf rate {self.rate} burst 256kb latency "
                 "50ms; tc qdisc add dev %s parent 1:1 fq_codel 2>&1 || true")
        call("sh", "-c", limit % (outer, outer))
        wait_for(f"{self.name}: its /proc", lambda: self.run("true", check=False) == "")
        self.run("sh", "-c", f"hostname {self.name} && ip link set lo up && "
                             f"ip address add {self.address}/24 dev {inner} && "
                             f"ip link set {inner} up && "
                             f"{limit % (inner, inner)}")
        self.run("sh", "-c", f"mount --bind {self.folder}/shm /dev/shm && "
                             f"mount --bind {self.folder}/private {PRIVATE}")

    def inside(self, *command):
        return ["nsenter", "-t", str(self.init), "--net", "--mount", "--pid", "--uts", "--",
                *(str(word) for word in command)]

    def environment(self, more):
        return {**os.environ, "XDG_RUNTIME_DIR": str(PRIVATE), **(more or {})}

    def run(self, *command, env=None, check=True, timeout=300):
        """Runs it there and waits; what it printed."""
        try:
            return call(*self.inside(*command), env=self.environment(env), timeout=timeout)
        except Failed:
            if check:
                raise
            return None

    def start(self, name, *command, env=None, output=None):
        """Starts it there; a Popen, whose output goes to a file of the node or to `output`."""
        log = (self.folder / "log" / name).open("ab")
        return subprocess.Popen(self.inside(*command), env=self.environment(env),
                                stdin=subprocess.DEVNULL, stdout=output or log, stderr=log,
                                preexec_fn=die_with_parent)

    def log(self, name):
        path = self.folder / "log" / name
        return path.read_text(errors="replace") if path.exists() else ""

    def sent_bytes(self):
        """What its link has carried away from it so far, with all headers."""
        shown = json.loads(self.run("ip", "-s", "-j", "link", "show", "dev", "eth0"))
        return shown[0]["stats64"]["tx"]["bytes"]

    def processes(self, words):
        """Numbers, as the lab has them, of processes there with these words in their command."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if os.readlink(folder / "ns/pid") == space and words in command:
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def kill_processes(self, words):
        """SIGKILL; how many there were."""
        found = self.processes(words)
        for number in found:
            os.kill(number, signal.SIGKILL)
        return len(found)

    def kill(self):
        """As if its power failed: all its processes at once, its mounts and its link."""
        os.kill(self.init, signal.SIGKILL)
        self.holder.wait()
        self.is_alive = False

    def restart(self):
        """A node that was killed begins anew, with nothing in memory."""
        link = pathlib.Path(f"/sys/class/net/{self.name}-out")
        wait_for(f"{self.name}: the end of its link", lambda: not link.exists())
        self.boot()

    def cut(self, is_cut):
        """Takes its link down, or up again."""
        call("ip", "link", "set", f"{self.name}-out", "down" if is_cut else "up")


class Lab:
    """A file server and nodes, all on one bridge."""

    def __init__(self, nodes=3, server_rate="100mbit", node_rate="1gbit", folder_bytes=4 << 30,
                 mount_options=MOUNT_OPTIONS):
        self.mount_options = mount_options
        call("mount", "-o", f"remount,size={folder_bytes}", str(PLACE))
        SHARED.mkdir()
        PRIVATE.mkdir()
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        call("ip", "link", "set", "bridge", "up")
        call("ip", "address", "add", f"{NETWORK}.254/24", "dev", "bridge")
        self.server = Node(1, "files", server_rate)
        self.serve()
        self.nodes = [Node(11 + i, f"node{i + 1}", node_rate) for i in range(nodes)]
        for node in self.nodes:
            self.mount(node)
        wait_for("space of the shared file system", lambda: int(self.nodes[0].run(
            "stat", "-f", "-c", "%b", SHARED)) > 0)

    def limit_server(self, rate):
        """Another rate for what the server sends."""
        self.server.run("tc", "qdisc", "change", "dev", "eth0", "root", "handle", "1:", "tbf",
                        "rate", rate, "burst", "256kb", "latency", "50ms")

    def serve(self):
        """MooseFS: a master and a chunk server, both on the server."""
        data = self.server.folder
        for folder in ("etc", "master", "chunks", "disk"):
            (data / folder).mkdir()
        common = "WORKING_USER = root\nWORKING_GROUP = root\nLOCK_MEMORY = 0\n"
        (data / "etc/exports").write_text("* / rw,alldirs,admin,maproot=0:0\n* . rw\n")
        (data / "etc/disks").write_text(f"{data}/disk\n")
        (data / "etc/master").write_text(
            f"{common}DATA_PATH = {data}/master\nEXPORTS_FILENAME = {data}/etc/exports\n"
            "CHUNKS_LOOP_MIN_TIME = 60\nOPERATIONS_DELAY_INIT = 1\n")
        (data / "etc/chunks").write_text(
            f"{common}DATA_PATH = {data}/chunks\nHDD_CONF_FILENAME = {data}/etc/disks\n"
            f"MASTER_HOST = {self.server.address}\nHDD_LEAVE_SPACE_DEFAULT = 1MiB\n"
            "HDD_FSYNC_BEFORE_CLOSE = 0\n")
        (data / "master/metadata.mfs").write_text("MFSM NEW")
        self.server.start("master", "mfsmaster", "-c", data / "etc/master", "-f", "start")
        self.server.start("chunks", "mfschunkserver", "-c", data / "etc/chunks", "-f", "start")

    def mount(self, node):
        """The shared file system, by a mount of that node alone: so it has a page cache of its
        own."""
        node.start("mount", "mfsmount", SHARED, "-f", "-H", self.server.address, "-o",
                   self.mount_options)
        try:
            wait_for(f"{node.name}: the shared file system", lambda: node.run(
                "mountpoint", "-q", SHARED, check=False) is not None)
        except Failed as failed:
            raise Failed(f"{failed}; {node.log('mount')[-400:]}") from None

    def revive(self):
        """Nodes that were killed begin anew."""
        for node in self.nodes:
            if not node.is_alive:
                node.restart()
                self.mount(node)

    def forget(self, node):
        """Mounts again, so that the node's operating system has none of the files in memory."""
        node.run("umount", SHARED)
        self.mount(node)
