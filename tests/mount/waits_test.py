#!/usr/bin/env python3
"""Programs that have to wait for the source hold up no others: waits_test.py PROGRAM.

Leases, files of /proc that have no bytes yet, a source that does not answer.
"""

import fcntl
import mmap
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import mounted

OPEN = "import os, sys; os.close(os.open(sys.argv[1], os.O_WRONLY))"
MAKE = "import os, sys; os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT))"
CUT = "import os, sys; os.truncate(sys.argv[1], 1)"
HASTY = "import os, sys; os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK))"
LOOK = "import os, sys; print(flush=True); os.stat(sys.argv[1])"
HOLD = "import os, sys, time; os.open(sys.argv[1], os.O_RDWR); print(flush=True); time.sleep(9999)"
READ = (
    "import os, sys; sys.stdin.readline();"
    "print(os.pread(os.open(sys.argv[1], os.O_RDONLY), 3, 500000), flush=True)"
)
FREEZE, THAW = 0xC0045877, 0xC0045878
STORE = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
page = mmap.mmap(fd, 4096)
page[0] = 1
print(flush=True)
sys.stdin.readline()
print(flush=True)
os.utime(fd)
"""
AHEAD = """
import os, sys, time
files = [os.open(f"{sys.argv[1]}/{i}", os.O_RDONLY) for i in range(16)]
print(flush=True)
sys.stdin.readline()
print(flush=True)
for fd in files:
    os.posix_fadvise(fd, 0, 65536, os.POSIX_FADV_WILLNEED)
time.sleep(9999)
"""
LONG = 15  # seconds in which a machine that is busy answers


class Waits(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()
        self.started = []
        self.addCleanup(self.end_all)

    def start(self, script, path, stdin=None):
        process = subprocess.Popen(
            [sys.executable, "-c", script, path],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def end_all(self):
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def answers(self, command, seconds=LONG):
        """In time, by a process that may be left behind."""
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            self.started.append(process)
            return False

    def lease(self, name):
        """A lease that this process does not give back when it is asked to."""
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGIO, before)
        fd = os.open(self.source / name, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as e:
            self.skipTest(f"no leases here: {e}")
        return fd

    def hold_by_lease(self, *flags):
        (self.source / "held").write_text("abc")
        (self.source / "free").write_text("abc")
        with mounted.Mount(self.source, self.point, *flags):
            begun = time.monotonic()
            (self.point / "held").stat()
            fd = self.lease("held")
            path = self.point / "held"
            waiting = [self.start(script, path) for script in [OPEN] * 6 + [MAKE] * 2]
            hasty = self.start(HASTY, path)
            self.assertEqual(hasty.wait(LONG), 1)
            self.assertIn(b"BlockingIOError", hasty.stderr.read())
            self.assertTrue(self.answers(["ls", self.point]))
            self.assertTrue(self.answers(["cp", self.point / "free", self.plain]))
            for killed in waiting[::2]:
                killed.kill()
                killed.wait(LONG)
            if time.monotonic() - begun > 30:
                self.skipTest("the machine is so busy that the lease may be over")
            self.assertEqual([each.poll() for each in waiting[1::2]], [None] * 4)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            self.assertEqual([each.wait(LONG) for each in waiting[1::2]], [0] * 4)

    def test_programs_that_wait_for_a_lease_hold_up_no_others(self):
        self.hold_by_lease()

    def test_programs_that_wait_for_a_lease_hold_up_no_others_where_one_thread_serves(self):
        self.hold_by_lease("--threads", "1")

    def test_a_cut_that_waits_for_a_lease_is_made_when_it_is_gone(self):
        (self.source / "held").write_text("abc")
        with mounted.Mount(self.source, self.point, "--threads", "1"):
            fd = self.lease("held")
            cuts = [self.start(CUT, self.point / "held") for _ in range(3)]
            time.sleep(0.5)
            self.assertTrue(self.answers(["ls", self.point]))
            self.assertEqual([each.poll() for each in cuts], [None] * 3)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            self.assertEqual([each.wait(LONG) for each in cuts], [0] * 3)
            self.assertEqual((self.source / "held").read_text(), "a")

    def test_the_end_of_a_mount_ends_programs_that_wait(self):
        (self.source / "held").write_text("abc")
        with mounted.Mount(self.source, self.point) as mount:
            self.lease("held")
            waiting = self.start(OPEN, self.point / "held")
            time.sleep(0.5)
            mount.end(lambda process: process.send_signal(signal.SIGTERM))
            self.assertEqual(waiting.wait(LONG), 1)

    def test_a_pipe_that_took_a_name_is_no_file_to_make(self):
        with mounted.Mount(self.source, self.point):
            makers = []
            for i in range(6):
                with self.assertRaises(FileNotFoundError):
                    (self.point / f"p{i}").stat()  # believed for a second
                os.mkfifo(self.source / f"p{i}")
                makers.append(self.start(MAKE, self.point / f"p{i}"))  # waits for a reader
            time.sleep(0.5)
            self.assertTrue(self.answers(["ls", self.point]))
            for i, maker in enumerate(makers):
                reader = os.open(self.point / f"p{i}", os.O_RDONLY | os.O_NONBLOCK)
                maker.wait(300)  # it may have begun late
                os.close(reader)

    def test_readers_of_proc_that_wait_hold_up_no_others(self):
        try:
            os.close(os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK))
        except OSError as e:
            self.skipTest(f"/proc/kmsg: {e}")
        with mounted.Mount("/proc", self.point, "--threads", "2") as mount:
            readers = [
                subprocess.Popen(["cat", self.point / "kmsg"], stdout=subprocess.DEVNULL)
                for _ in range(4)
            ]
            self.started += readers
            time.sleep(1)
            self.assertEqual([each.poll() for each in readers], [None] * 4)
            self.assertTrue(self.answers(["cat", self.point / "version"]))
            for reader in readers:
                reader.kill()
                reader.wait(LONG)
            self.assertTrue(self.answers(["cat", self.point / "version"]))
            mount.end()

    def mount_disk(self, at):
        """A file system that can be frozen: reads go on, and writes wait. Its root, open."""
        image = self.plain / "image"
        with open(image, "wb") as f:
            f.truncate(24 << 20)
        for command in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, at]):
            if not shutil.which(command[0]) or subprocess.run(command, check=False).returncode:
                self.skipTest(f"{command[0]} is not there, or not allowed")
        self.addCleanup(subprocess.run, ["umount", "-l", at], check=False)
        root = os.open(at, os.O_RDONLY)
        self.addCleanup(os.close, root)
        return root

    def rests(self, process):
        """It ended, or waits for something that no signal ends."""
        at = pathlib.Path(f"/proc/{process.pid}/stat")
        return process.poll() is not None or all(
            at.read_text().rpartition(")")[2].split()[0] == "D" and time.sleep(0.1) is None
            for _ in range(5)
        )

    def test_no_open_keeps_old_pages_while_another_open_drops_them(self):
        if os.geteuid() != 0:
            self.skipTest("only root mounts other file systems")
        root = self.mount_disk(self.source)
        (self.source / "f").write_bytes(bytes(1 << 20))
        served = [] if mounted.PASSING else ["--pass-through=off"]
        with mounted.Mount(self.source, self.point, *served):
            path = self.point / "f"
            # The first may be held up as it looks at the name, the next as it opens or reads.
            readers = [self.start(READ, path, subprocess.PIPE) for _ in range(4)]
            fd = os.open(path, os.O_RDWR)
            memory = mmap.mmap(fd, 1 << 20)
            self.assertEqual(path.read_bytes(), bytes(1 << 20))
            # The kernel writes it before it drops the page. A process that is started here would
            # have it written at once, by closing its copy of the descriptor.
            memory[0] = 1
            with open(self.source / "f", "r+b") as f:
                f.seek(500000)
                f.write(b"new")
            fcntl.ioctl(root, FREEZE, 0)
            try:
                for reader in readers:
                    reader.stdin.write(b"\n")
                    reader.stdin.close()
                    mounted.wait_until(lambda each=reader: self.rests(each), 60)
            finally:
                fcntl.ioctl(root, THAW, 0)
            self.assertEqual([each.stdout.readline() for each in readers], [b"b'new'\n"] * 4)
            for each in readers:
                each.wait(300)
            memory.close()
            os.close(fd)

    def use_stopped_source(self, mount, below, count):
        os.kill(below.process.pid, signal.SIGSTOP)
        time.sleep(1.2)  # how long names are believed
        waiting = [self.start(LOOK, self.point / "inner" / str(i)) for i in range(count)]
        for each in waiting:
            self.assertEqual(each.stdout.readline(), b"\n")
        time.sleep(1)  # from there to their call
        self.assertEqual({each.poll() for each in waiting}, {None})
        self.assertTrue(self.answers(["stat", self.point / "free"]))
        mount.process.send_signal(signal.SIGTERM)
        self.assertTrue(
            mounted.wait_until(lambda: not mounted.is_mounted(self.point), 30), "a dead mount stays"
        )
        return mount.process.stderr.read1().decode()  # leaves nothing in its buffer

    def test_a_source_that_does_not_answer_holds_up_those_that_use_it(self):
        inner, count = self.source / "inner", 2 * max(4, os.cpu_count() or 4)
        inner.mkdir()
        (self.source / "free").touch()
        for i in range(count):
            (self.plain / str(i)).touch()
        with mounted.Mount(self.plain, inner) as below:
            with mounted.Mount(self.source, self.point) as mount:
                for i in range(count):
                    (self.point / "inner" / str(i)).stat()
                # The source answers only once the program has told: it would end well else. A
                # process cannot end while its calls to the source wait.
                try:
                    told = self.use_stopped_source(mount, below, count)
                finally:
                    os.kill(below.process.pid, signal.SIGCONT)
                told += mount.process.communicate(timeout=60)[1].decode()
                self.assertEqual(mount.process.returncode, 1)
                self.assertIn("requests of programs still wait for the source", told)
                self.assertNotIn("stored to mapped pages", told)

    def test_a_file_that_is_open_to_write_in_such_a_source_does_not_keep_the_mount(self):
        inner = self.source / "inner"
        inner.mkdir()
        (self.source / "free").touch()
        (self.plain / "0").write_text("abc")
        served = [] if mounted.PASSING else ["--pass-through=off"]
        with mounted.Mount(self.plain, inner) as below:
            with mounted.Mount(self.source, self.point, *served) as mount:
                # Of another process: those that this one starts would wait in their closes.
                holder = self.start(HOLD, self.point / "inner" / "0")
                self.assertEqual(holder.stdout.readline(), b"\n")
                try:
                    told = self.use_stopped_source(mount, below, 1)
                finally:
                    os.kill(below.process.pid, signal.SIGCONT)
                told += mount.process.communicate(timeout=60)[1].decode()
                self.assertEqual(mount.process.returncode, 1)
                self.assertIn("requests of programs still wait for the source", told)
                self.assertIn("stored to mapped pages may not all have come", told)

    def use_beside_a_stopped_source(self, script, paths, used):
        """Programs of this script get as far as its second line, with a source that has stopped."""
        served = [] if mounted.PASSING else ["--pass-through=off"]
        with mounted.Mount(self.plain, self.source / "inner", *served) as below:
            with mounted.Mount(self.source, self.point, *served):
                fd = os.open(self.point / "free", os.O_RDWR)
                started = [
                    self.start(script, self.point / "inner" / path, subprocess.PIPE)
                    for path in paths
                ]
                for each in started:
                    self.assertEqual(each.stdout.readline(), b"\n")
                os.kill(below.process.pid, signal.SIGSTOP)
                try:
                    for each in started:
                        each.stdin.write(b"\n")
                        each.stdin.flush()
                        self.assertEqual(each.stdout.readline(), b"\n")
                    time.sleep(1)  # from there to their calls
                    self.assertTrue(self.answers([*used, self.point / "free"]))
                finally:
                    os.kill(below.process.pid, signal.SIGCONT)
                    self.end_all()
                    os.close(fd)

    def test_stores_that_cannot_be_written_back_hold_up_no_time_stamp_of_others(self):
        (self.source / "inner").mkdir()
        (self.source / "free").touch()
        for i in range(4):
            (self.plain / str(i)).write_bytes(bytes(4096))
        self.use_beside_a_stopped_source(STORE, map(str, range(4)), ["touch"])

    def test_reads_ahead_that_wait_hold_up_no_reads_of_others(self):
        (self.source / "inner").mkdir()
        (self.source / "free").write_bytes(bytes(1 << 20))
        for i in range(16):
            (self.plain / str(i)).write_bytes(bytes(1 << 20))
        self.use_beside_a_stopped_source(AHEAD, ["."], ["cat"])

    def test_an_attempt_that_waits_holds_up_no_others(self):
        """The server of a file stops while a program waits for another one's lease on the file."""
        (self.source / "inner").mkdir()
        (self.source / "free").write_text("abc")
        (self.plain / "held").write_text("abc")
        served = [] if mounted.PASSING else ["--pass-through=off"]
        with mounted.Mount(self.plain, self.source / "inner", *served) as below:
            with mounted.Mount(self.source, self.point, *served):
                held, fd = self.lease("inner/held"), self.lease("free")
                waiting = [self.start(OPEN, self.point / name) for name in ("inner/held", "free")]
                time.sleep(1)  # from their starts to their calls
                os.kill(below.process.pid, signal.SIGSTOP)
                try:
                    time.sleep(2)  # from there to the next attempts
                    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                    try:
                        self.assertEqual(waiting[1].wait(LONG), 0)
                    except subprocess.TimeoutExpired:
                        self.fail("an open of another file waits")
                finally:
                    os.kill(below.process.pid, signal.SIGCONT)
                    os.dup2(fd, held)  # it would keep the mount busy
                    self.end_all()


if __name__ == "__main__":
    mounted.need_fuse()
    unittest.main(verbosity=1)
