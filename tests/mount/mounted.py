"""A mount of a directory for a test, and its end. Exit status 77 where mounting is impossible, with
the reason."""
import atexit
import contextlib
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "penstock"
# so that the same tests run on a GPU: PENSTOCK_TEST_FLAGS="--backend gpu"
BACKEND = os.environ.get("PENSTOCK_TEST_FLAGS", "--backend cpu").split()[-1]
# so that the same tests run on a mount by a program that needs files to be passed through
SERVER = os.environ.get("PENSTOCK_TEST_SERVER")
# so that the same tests run without files that are passed through: PENSTOCK_TEST_PASSING=off
PASSING = ([f"--pass-through={os.environ['PENSTOCK_TEST_PASSING']}"]
           if "PENSTOCK_TEST_PASSING" in os.environ else [])

# What a mount answers whose server was killed: the second to a program that asks before the kernel
# has closed the server's last file.
DEAD = (errno.ENOTCONN, errno.ECONNABORTED)


def is_mounted(point):
    # as the kernel writes it
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in str(point))
    with open("/proc/self/mountinfo") as table:
        return any(line.split()[4] == escaped for line in table)


def wait_until(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def unmount(point):
    """What programs leave behind that have just ended may keep it busy for a moment."""
    # root needs no helper to mount, so it may not be installed
    command = (["fusermount3", "-u", str(point)] if shutil.which("fusermount3")
               else ["umount", str(point)])
    if not wait_until(lambda: subprocess.run(command, stderr=subprocess.DEVNULL,
                                             check=False).returncode == 0,
                      10):
        subprocess.run(command, check=True)


class Mount:
    """penstock mount of `source`; as a context it is there at `point`. `before` is called in the
    new process. `server` is a program that mounts in place of penstock."""

    def __init__(self, source, point, *flags, before=None, server=None):
        self.source, self.point = pathlib.Path(source), pathlib.Path(point)
        server = SERVER if server is None else server
        command = [server] if server else [PROGRAM, "mount", "--json", *PASSING, *flags]
        self.process = subprocess.Popen(
            [*command, str(source), str(point)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=before)
        atexit.register(self.clear)

    def __enter__(self):
        if not wait_until(lambda: is_mounted(self.point) or self.process.poll() is not None):
            raise AssertionError("the mount did not come")
        if self.process.poll() is not None:
            raise AssertionError(f"penstock mount ended: {self.process.communicate()}")
        self.wait_for_answer()
        return self

    def wait_for_answer(self):
        """The kernel lists a mount before its program has said a word, and a mount that goes before
        that is a failure of the program. The kernel holds this call back until then, and keeps no
        answer of it."""
        with contextlib.suppress(OSError):  # of a mount that other users may not look at
            os.statvfs(self.point)

    def __exit__(self, failed, *_):
        if failed:
            self.clear()
        elif self.process.poll() is None:
            self.end()

    def end(self, stop=None):
        """Takes the mount away, or calls `stop` for that; the report that the program printed."""
        if stop is None:
            unmount(self.point)
        else:
            stop(self.process)
        out, err = self.process.communicate(timeout=1000)
        if self.process.returncode != 0 or is_mounted(self.point):
            raise AssertionError(f"ended with {self.process.returncode}, mounted: "
                                 f"{is_mounted(self.point)}: {err.decode()}")
        return json.loads(out)

    def clear(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        if is_mounted(self.point):
            subprocess.run(["umount", "-l", str(self.point)], check=False)


def backend_of(policy):
    """native has no part on a device, and refuses a GPU."""
    return BACKEND if policy != "native" else "cpu"


def buffer_flags(policy, ram, gpu, *more):
    """Of a mount that reads through a buffer; its device's part lies in ordinary memory, unless the
    environment says gpu. As few threads as a small buffer has room for, on any machine."""
    return ["--buffer", policy, "--ram", ram, "--gpu", gpu, "--backend", backend_of(policy),
            "--threads", "4", *more]


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def need_fuse():
    """Mounts once for a look; a build without libfuse and a machine without /dev/fuse are no
    failures."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-mount-"))
    try:
        (folder / "from").mkdir()
        (folder / "to").mkdir()
        probe = subprocess.Popen([PROGRAM, "mount", "--quiet", str(folder / "from"),
                                  str(folder / "to")],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: is_mounted(folder / "to") or probe.poll() is not None)
        if probe.poll() is not None:
            why = probe.communicate()[1].decode().strip()
            known = "without libfuse" in why or "/dev/fuse" in why or "cannot be mounted" in why
            skip(why) if known else sys.exit(f"penstock mount: {why}")
        unmount(folder / "to")
        probe.communicate(timeout=1000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if SERVER:
        need_passing()


def need_program(name, package):
    found = shutil.which(name)
    return found or skip(f"{name} is not there (Debian: {package})")


def passes_through():
    """Does a mount of this user on this machine pass files through, by default?"""
    source, point, _ = folders()
    with Mount(source, point, server="") as mount:
        return mount.end()["passes_through"]


def need_passing():
    if not passes_through():
        skip("files cannot be passed through: that takes root, and Linux 6.9 or newer")


def folders():
    """A source, a mount point and a plain directory beside them, which go when the test ends."""
    folder = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-mount-")))
    os.chmod(folder, 0o755)
    atexit.register(shutil.rmtree, folder, True)
    for name in ("source", "point", "plain"):
        (folder / name).mkdir()
    return folder / "source", folder / "point", folder / "plain"
