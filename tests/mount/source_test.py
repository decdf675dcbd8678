#!/usr/bin/env python3
"""A mount whose source holds more than plain files: source_test.py PROGRAM. Needs root.

Other file systems, dead mounts, files of /proc, append-only files, time stamps that are set.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import multiprocessing
import os
import random
import shutil
import stat
import subprocess
import time
import unittest

import mounted
from lists_test import as_user

libc = ctypes.CDLL(None, use_errno=True)


def run(*command):
    done = subprocess.run([str(argument) for argument in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def code_of(call):
    try:
        call()
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def every_name(root):
    return sorted(
        os.path.relpath(os.path.join(at, name), root) for at, folders, files in os.walk(root)
        for name in folders + files)


class Sources(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()

    def mount_here(self, kind, at):
        at.mkdir(exist_ok=True)
        code, _, text = run("mount", "-t", kind, kind, at)
        if code != 0:
            self.skipTest(f"{kind} cannot be mounted here: {text.strip()}")
        self.addCleanup(run, "umount", "-l", at)

    def bind_here(self, origin, at):
        at.touch() if origin.is_file() else at.mkdir(exist_ok=True)
        code, _, text = run("mount", "--bind", origin, at)
        if code != 0:
            self.skipTest(f"no bind mounts here: {text.strip()}")
        self.addCleanup(run, "umount", "-l", at)

    def make_nested(self):
        """A small file system at the source, and in it others whose inode numbers are the same."""
        self.mount_here("tmpfs", self.source)
        for name in ("a", "b", "b/c"):
            self.mount_here("tmpfs", self.source / name)
        for name in ("", "a", "b", "b/c"):
            for i in range(20):
                folder = self.source / name / f"d{i % 4}"
                folder.mkdir(exist_ok=True)
                (folder / f"f{i}").write_text(f"{name} {i}")
        os.link(self.source / "a" / "d0" / "f0", self.source / "a" / "linked")
        self.bind_here(self.source / "a" / "d1", self.source / "b" / "bound")

    def test_nested_file_systems_have_numbers_of_their_own(self):
        self.make_nested()
        names = every_name(self.source)
        with mounted.Mount(self.source, self.point):
            self.assertEqual(every_name(self.point), names)
            numbers = {}
            for name in ["", *names]:
                here, there = os.lstat(self.point / name), os.lstat(self.source / name)
                numbers.setdefault(here.st_ino, set()).add((there.st_dev, there.st_ino))
            self.assertEqual([list(which) for which in numbers.values() if len(which) != 1], [])
            self.assertEqual(
                len(numbers),
                len({(os.lstat(self.source / name).st_dev, os.lstat(self.source / name).st_ino)
                     for name in ["", *names]}))
            self.assertEqual(
                os.lstat(self.point / "a/linked").st_ino,
                os.lstat(self.point / "a/d0/f0").st_ino)
            first = {name: os.lstat(self.point / name).st_ino for name in names}
            time.sleep(1.2)  # how long names are believed
            self.assertEqual({name: os.lstat(self.point / name).st_ino for name in names}, first)
            for folder in ("a/d0", "b/c/d1"):
                self.assertEqual(
                    {entry.name: entry.inode() for entry in os.scandir(self.point / folder)}, {
                        name: os.lstat(self.point / folder / name).st_ino
                        for name in os.listdir(self.point / folder)
                    })

    def test_an_empty_file_that_is_emptied_again_is_dated_as_in_the_source(self):
        def empty(path, way):
            path.touch()
            os.utime(path, (1, 1))
            if way == "open":
                os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
            elif way == "name":
                os.truncate(path, 0)
            else:
                fd = os.open(path, os.O_RDWR)
                os.ftruncate(fd, 0)
                os.close(fd)
            return os.stat(path).st_mtime == 1

        self.mount_here("tmpfs", self.source)
        with mounted.Mount(self.source, self.point):
            for way in ("open", "name", "descriptor"):
                here, there = (empty(at / way, way) for at in (self.point, self.source))
                self.assertEqual(here, there, way)

    def fill(self, path, way):
        """As much of the file system as another user gets."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if way == "allocated":
                for i in range(10000):
                    libc.posix_fallocate(fd, ctypes.c_long(i << 14), ctypes.c_long(1 << 14))
            if way == "stored":
                os.ftruncate(fd, 30 << 20)
                with mmap.mmap(fd, 30 << 20) as memory:
                    for at in range(0, 30 << 20, 1 << 16):
                        memory[at:at + (1 << 16)] = b"x" * (1 << 16)
                        memory.flush(at, 1 << 16)
            for bytes_ in (1 << 16, 1 << 12):
                with contextlib.suppress(OSError):
                    while way == "written":
                        os.write(fd, b"x" * bytes_)
            os.fsync(fd)
        finally:
            os.close(fd)

    def test_blocks_that_are_kept_for_root_are_not_for_other_users(self):
        image = self.plain / "image"
        with open(image, "wb") as f:
            f.truncate(24 << 20)
        made = ["mkfs.ext4", "-q", "-F", "-m", "20", "-O", "^has_journal", image]
        if not shutil.which("mkfs.ext4") or run(*made)[0] != 0:
            self.skipTest("mkfs.ext4 is not there")
        code, _, text = run("mount", "-o", "loop", image, self.source)
        if code != 0:
            self.skipTest(f"no loop devices here: {text.strip()}")
        self.addCleanup(run, "umount", "-l", self.source)
        (self.source / "open").mkdir()
        os.chmod(self.source / "open", 0o777)
        kept = os.statvfs(self.source)
        kept = kept.f_bfree - kept.f_bavail
        self.assertGreater(kept, 1000)
        with mounted.Mount(self.source, self.point):
            for way in ("written", "allocated", "stored"):
                child = os.fork()
                if child == 0:
                    try:
                        os.setgroups([])
                        os.setresgid(2000, 2000, 2000)
                        os.setresuid(2000, 2000, 2000)
                        self.fill(self.point / "open" / way, way)
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
                os.sync()
                now = os.statvfs(self.source)
                self.assertLess(now.f_bavail, 100, way)
                self.assertGreater(now.f_bfree, kept - 100, way)
                os.unlink(self.point / "open" / way)

    def test_programs_that_walk_go_everywhere(self):
        self.make_nested()
        with mounted.Mount(self.source, self.point):
            for command in (["find", "."], ["du", "-a", "--apparent-size", "."], ["ls", "-R", "."],
                            ["find", ".", "-type", "f", "-size", "-2", "-links", "1"]):
                seen = []
                for root in (self.source, self.point):
                    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, check=False, timeout=60)
                    seen.append(
                        (done.returncode, sorted(done.stdout.decode().split("\n")), done.stderr))
                self.assertEqual(seen[1], seen[0], command)
            code, _, text = run("cp", "-a", self.point, self.plain / "copy")
            self.assertEqual((code, text), (0, ""))
            self.assertEqual(every_name(self.plain / "copy"), every_name(self.source))
            code, _, text = run("chmod", "-R", "go-rwx", self.point)
            self.assertEqual((code, text), (0, ""))
            self.assertEqual([
                name for name in every_name(self.source)
                if stat.S_IMODE(os.lstat(self.source / name).st_mode) & 0o77
            ], [])

    def test_a_file_that_a_read_only_mount_also_shows_stays_read_only_there(self):
        (self.source / "open").mkdir()
        (self.source / "open" / "f").write_text("abc")
        self.bind_here(self.source / "open", self.source / "shut")
        self.assertEqual(run("mount", "-o", "remount,bind,ro", self.source / "shut")[0], 0)
        with mounted.Mount(self.source, self.point):
            (self.point / "open" / "f").write_text("abcd")
            self.assertEqual(code_of(lambda: os.open(self.point / "shut" / "f", os.O_WRONLY)),
                             "EROFS")
            self.assertEqual(
                code_of(lambda: os.open(self.point / "shut" / "g", os.O_WRONLY | os.O_CREAT)),
                "EROFS")
            self.assertEqual((self.point / "shut" / "f").read_text(), "abcd")
            self.assertEqual(
                os.stat(self.point / "shut" / "f").st_ino,
                os.stat(self.point / "open" / "f").st_ino)

    def test_a_buffer_hears_of_changes_by_either_of_two_ways_to_a_file(self):
        ways = [self.source / "open", self.source / "shut"]
        ways[0].mkdir()
        (ways[0] / "f").write_bytes(b"a" * 5000)
        self.bind_here(*ways)
        self.assertEqual(run("mount", "-o", "remount,bind,ro", ways[1])[0], 0)
        changed, read = (self.point / way.name / "f" for way in ways)
        with mounted.Mount(self.source, self.point, *mounted.buffer_flags("gram", "1MiB", "1MiB")):
            held = [os.open(path, os.O_RDONLY) for path in (changed, read)]
            for fd in held:
                os.close(fd)
                time.sleep(0.1)  # until the mount has heard of it
            with open(read, "rb", buffering=0) as f:
                self.assertEqual(f.read(9000), b"a" * 5000)
                os.truncate(changed, 4000)
                self.assertEqual(os.pread(f.fileno(), 9000, 0), b"a" * 4000)

    def test_programs_of_a_mount_that_forbids_them_do_not_run(self):
        folders = [self.source / name for name in ("may", "may not")]
        for folder in folders:
            self.mount_here("tmpfs", folder)
            shutil.copy("/bin/true", folder / "program")
        self.assertEqual(run("mount", "-o", "remount,noexec", folders[1])[0], 0)
        with mounted.Mount(self.source, self.point):
            for root in (self.source, self.point):
                self.assertEqual(run(root / "may" / "program"), (0, "", ""))
                self.assertEqual(code_of(lambda at=root: run(at / "may not" / "program")), "EACCES")
        self.bind_here(folders[0], self.source / "bound")
        self.assertEqual(run("mount", "-o", "remount,bind,noexec", self.source / "bound")[0], 0)
        with mounted.Mount(self.source, self.point):
            self.assertEqual(run(self.point / "may" / "program"), (0, "", ""))
            self.assertEqual(code_of(lambda: run(self.point / "bound" / "program")), "EACCES")
        self.mount_here("tmpfs", self.plain / "all")
        shutil.copy("/bin/true", self.plain / "all" / "program")
        run("mount", "-o", "remount,noexec", self.plain / "all")
        with mounted.Mount(self.plain / "all", self.point):
            self.assertEqual(code_of(lambda: run(self.point / "program")), "EACCES")

    def test_a_dead_mount_does_not_cut_the_listing(self):
        for i in range(60):
            (self.source / f"f{i}").touch()
        (self.source / "f30 dead").mkdir()
        with mounted.Mount(self.plain, self.source / "f30 dead") as dead:
            dead.process.kill()
            dead.process.communicate()
            self.assertIn(code_of(lambda: os.stat(self.source / "f30 dead")),
                          [errno.errorcode[code] for code in mounted.DEAD])
            with mounted.Mount(self.source, self.point):
                for listed in (os.listdir, lambda root: [entry.name for entry in os.scandir(root)],
                               lambda root: run("ls", root)[1].split("\n")[:-1]):
                    self.assertEqual(sorted(listed(self.point)), sorted(os.listdir(self.source)))
                self.assertEqual(code_of(lambda: os.stat(self.point / "f30 dead")), "ENOTCONN")
                self.assertEqual(run("ls", "-l", self.point)[1].count("\n"), 62)

    def read_by_all_means(self, path):
        """The bytes as programs read them: all at once, by small pieces, and by copying."""
        yield path.read_bytes()
        with open(path, "rb", buffering=0) as f:
            yield b"".join(iter(lambda: f.read(7), b""))
        shutil.copyfile(path, self.plain / "copy")  # sendfile
        yield (self.plain / "copy").read_bytes()
        self.assertEqual(run("cp", path, self.plain / "copy"), (0, "", ""))
        yield (self.plain / "copy").read_bytes()

    def false_sizes(self, *flags):
        self.mount_here("proc", self.source / "proc")
        self.mount_here("sysfs", self.source / "sys")
        me = os.getpid()
        with mounted.Mount(self.source, self.point, *flags):
            for name in ("proc/version", "proc/filesystems", "proc/devices", f"proc/{me}/cmdline",
                         f"proc/{me}/maps", "sys/kernel/mm/transparent_hugepage/enabled",
                         "sys/devices/system/cpu/possible"):
                if not (self.source / name).exists():
                    continue
                there = (self.source / name).read_bytes()
                self.assertGreater(len(there), 0, name)
                if name.endswith("maps"):  # reading changes it
                    self.assertIn(b"[stack]", (self.point / name).read_bytes())
                    continue
                for here in self.read_by_all_means(self.point / name):
                    self.assertEqual(here, there, name)
            score = f"proc/{me}/oom_score_adj"
            before = int((self.source / score).read_text())
            (self.point / score).write_text(str(before + 1))
            self.assertEqual(int((self.source / score).read_text()), before + 1)
            self.assertEqual(int((self.point / score).read_text()), before + 1)
            empty = self.point / "empty"
            empty.touch()
            self.assertEqual(empty.read_bytes(), b"")
            with open(empty, "r+b") as f:
                f.truncate(9000)  # a hole only: no blocks, and no lie
                with mmap.mmap(f.fileno(), 9000) as memory:
                    memory[8999] = 1
            self.assertEqual((self.source / "empty").read_bytes(), bytes(8999) + b"\1")

    def test_files_of_proc_are_read_to_their_end(self):
        self.false_sizes()

    def test_files_of_proc_are_read_to_their_end_beside_a_buffer(self):
        self.false_sizes(*mounted.buffer_flags("gram", "1MiB", "1MiB"))

    def use_proc(self, proc, other):
        """The answers that an ordinary user gets on a process of root and on the own one."""
        me = os.getpid()
        out = [
            code_of(lambda: (proc / str(other) / name).read_bytes())
            for name in ("maps", "environ", "io", "status", "cmdline", "auxv")
        ]
        out += [
            code_of(lambda: os.readlink(proc / str(other) / name))
            for name in ("exe", "cwd", "root")
        ]
        out.append([
            line.split()[25:29] for line in (proc / str(other) / "stat").read_text().split("\n")
            if line
        ])
        out.append(
            set((proc / "kallsyms").read_bytes()[:16]) if (proc / "kallsyms").exists() else None)
        out.append(code_of(lambda: (proc / str(me) / "oom_score_adj").write_text("-900")))
        shutil.copyfile(proc / "filesystems", self.plain / "open" / "copy")  # sendfile
        out.append((self.plain / "open" / "copy").read_bytes()[:16])
        return str(out)

    def test_files_of_proc_tell_each_user_what_the_source_tells(self):
        self.mount_here("proc", self.source / "proc")
        (self.plain / "open").mkdir()
        os.chmod(self.plain / "open", 0o777)
        sleeper = subprocess.Popen(["sleep", "600"])
        self.addCleanup(lambda: (sleeper.kill(), sleeper.wait()))
        with mounted.Mount(self.source, self.point):
            for root in (self.point, self.source):
                # Root's reading leaves pages of it in the kernel.
                shutil.copyfile(root / "proc" / "filesystems", self.plain / "copy")
            here, there = (as_user("stranger",
                                   lambda at=root: self.use_proc(at / "proc", sleeper.pid))
                           for root in (self.point, self.source))
            self.assertEqual(here, there)
            self.assertIn("EACCES", there)
            self.assertIn(b"sleep", (self.point / "proc" / str(sleeper.pid) / "maps").read_bytes())

    def old_bytes(self, *flags):
        """As by rsync --inplace -t or cp -p: new content, with the size and time that were
        there."""
        path = self.source / "f"
        path.write_bytes(b"a" * 5000)
        before = os.stat(path)
        with mounted.Mount(self.source, self.point, *flags):
            for letter in (b"a", b"b", b"c"):
                with open(path, "r+b") as f:
                    f.write(letter * 5000)
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
                self.assertEqual((os.stat(path).st_size, os.stat(path).st_mtime_ns),
                                 (5000, before.st_mtime_ns))
                self.assertEqual((self.point / "f").read_bytes(), letter * 5000)
                time.sleep(0.05)  # coarse clocks tell the next change apart

    def test_a_change_that_keeps_size_and_time_is_seen(self):
        self.old_bytes()

    def test_a_change_that_keeps_size_and_time_is_seen_through_a_buffer(self):
        self.old_bytes(*mounted.buffer_flags("gram", "1MiB", "1MiB"))

    def stamped(self, *flags):
        path = self.point / "f"
        (self.source / "f").write_bytes(bytes(20000))
        capability = bytes.fromhex("0100000200200000000000000000000000000000")
        with mounted.Mount(self.source, self.point, *flags):
            for round_ in range(10):
                wanted = 1_000_000_000_000_000_000 + round_
                fd = os.open(path, os.O_RDWR)
                memory = mmap.mmap(fd, 20000)
                memory[round_] = memory[9000] = round_ + 1
                os.utime(path, ns=(wanted, wanted))
                self.assertEqual((self.source / "f").read_bytes()[round_], round_ + 1)
                memory.close()
                os.close(fd)
                for root in (self.point, self.source):
                    self.assertEqual(os.stat(root / "f").st_mtime_ns, wanted, root)
            fd = os.open(path, os.O_RDWR)
            memory = mmap.mmap(fd, 20000)
            memory[77] = 1
            os.utime(path, ns=(5, 5))
            memory[78] = 2
            memory.flush()
            # A later store is a later change. Where the file is passed through it is as in the
            # source: a page that was changed before leaves no other time.
            if "--buffer" in flags or not mounted.passes_through():
                self.assertNotEqual(os.stat(path).st_mtime_ns, 5)
            memory[79] = 3
            os.setxattr(path, "security.capability", capability)
            os.chmod(path, 0o4755)
            memory.close()
            os.close(fd)
            self.assertEqual(os.getxattr(self.source / "f", "security.capability"), capability)
            self.assertEqual(stat.S_IMODE(os.stat(self.source / "f").st_mode), 0o4755)
            self.assertEqual((self.source / "f").read_bytes()[77:80], b"\1\2\3")

    def test_a_time_stamp_that_is_set_after_stores_stays(self):
        self.stamped()

    def test_a_time_stamp_stays_where_one_thread_serves(self):
        self.stamped("--threads", "1")

    def test_a_time_stamp_stays_beside_a_buffer(self):
        self.stamped(*mounted.buffer_flags("gram", "1MiB", "1MiB"))

    def change_at_random(self, seed):
        """Stores, writes, cuts and time stamps of one process, which meet in locks of the file."""
        r = random.Random(seed)
        fd = os.open(self.point / "f", os.O_RDWR)
        for _ in range(150):
            if r.random() < 0.2:
                os.ftruncate(fd, r.choice([8192, 20000, 65536]))
            if r.random() < 0.3:
                os.pwrite(fd, bytes([seed]) * 3000, r.randrange(60000))
            with mmap.mmap(fd, 4096) as memory:
                memory[r.randrange(4096)] = seed
                os.utime(fd, ns=(seed, r.randrange(1 << 60)))
                if r.random() < 0.1:
                    memory.flush()
                    os.fsync(fd)
        os.close(fd)

    def test_stamps_stores_and_cuts_of_many_at_once_come_to_an_end(self):
        (self.source / "f").write_bytes(bytes(65536))
        fork = multiprocessing.get_context("fork")
        with mounted.Mount(self.source, self.point, "--threads", "1") as mount:
            workers = [
                fork.Process(target=self.change_at_random, args=(seed,)) for seed in range(1, 5)
            ]
            for worker in workers:
                worker.start()
            all_ended = mounted.wait_until(lambda: not any(worker.is_alive() for worker in workers),
                                           120)
            if not all_ended:
                mount.clear()  # lets them go
            for worker in workers:
                worker.join()
            self.assertTrue(all_ended)
            self.assertEqual([worker.exitcode for worker in workers], [0] * 4)
            self.assertEqual((self.point / "f").read_bytes(), (self.source / "f").read_bytes())

    def use_append_only(self, path):
        """What a program meets at a file that can only be appended to."""
        out = [
            code_of(lambda: os.close(os.open(path, flags)))
            for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND | os.O_TRUNC,
                          os.O_WRONLY | os.O_CREAT, os.O_RDONLY)
        ]
        for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_APPEND,
                      os.O_WRONLY | os.O_APPEND | os.O_CREAT):
            fd = os.open(path, flags)
            out += [
                os.write(fd, b"abc"),
                os.write(fd, b"defg"),
                code_of(lambda: os.ftruncate(fd, 1)),
                os.fstat(fd).st_size
            ]
            before = os.stat(path).st_size
            if flags & os.O_ACCMODE == os.O_RDWR:
                out.append(os.pread(fd, 100, 0))
                out.append(self.is_stored(fd))
            self.drop_append(fd)
            os.close(fd)
            out.append(os.stat(path).st_size - before)
        out += [
            code_of(lambda: os.truncate(path, 1)),
            code_of(lambda: os.unlink(path)),
            path.read_bytes()
        ]
        return out

    @staticmethod
    def is_stored(fd):
        """A store to a mapping must not come into the file: the mapping or the store is refused."""
        try:
            with mmap.mmap(fd, 0, mmap.MAP_SHARED) as memory:
                memory[0] = 1
                memory.flush()
            return True
        except OSError:
            return False

    @staticmethod
    def drop_append(fd):
        """Refused in the source; on a mount, where the kernel does not know the file's nature, the
        write is refused."""
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_APPEND)
            os.pwrite(fd, b"over", 0)
        except OSError:
            pass

    def append_only(self, *flags):
        for name in ("mount", "source"):
            (self.source / name).write_text("begin")
            if run("chattr", "+a", self.source / name)[0] != 0:
                self.skipTest("this file system has no files that can only be appended to")
            self.addCleanup(run, "chattr", "-a", self.source / name)
        with mounted.Mount(self.source, self.point, *flags):
            self.assertEqual(self.use_append_only(self.point / "mount"),
                             self.use_append_only(self.source / "source"))

    def test_append_only_files_are_appended_to(self):
        self.append_only()

    def test_append_only_files_are_appended_to_beside_a_buffer(self):
        self.append_only(*mounted.buffer_flags("gram", "1MiB", "1MiB"))


if __name__ == "__main__":
    mounted.need_fuse()
    if os.geteuid() != 0:
        mounted.skip("only root can mount other file systems in the source")
    unittest.main(verbosity=1)
