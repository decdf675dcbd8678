#!/usr/bin/env python3
"""What is wrong is said before anything is mounted, and a mount ends clean: ends_test.py
PROGRAM."""
import errno
import os
import shlex
import signal
import subprocess
import threading
import time
import unittest

import mounted


def penstock(*arguments, **more):
    return subprocess.run([mounted.PROGRAM, "mount", *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False,
                          timeout=1000, **more)


class Ends(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()

    def refused(self, *arguments, status=1, parts=()):
        done = penstock(*arguments)
        text = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (status, b""), text)
        for part in parts:
            self.assertIn(str(part), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertFalse(mounted.is_mounted(self.point))

    def test_bad_sources_and_mount_points(self):
        file = self.plain / "file"
        file.write_text("x")
        inside = self.source / "deep" / "inside"
        inside.mkdir(parents=True)
        link = self.plain / "link"
        link.symlink_to(inside)
        self.refused(self.plain / "absent", self.point,
                     parts=["source", "absent", "No such file", "name a directory"])
        self.refused(file, self.point, parts=["source", file, "not a directory"])
        self.refused(self.source, self.plain / "absent",
                     parts=["mount point", "absent", "No such file"])
        self.refused(self.source, file, parts=["mount point", file, "not a directory"])
        self.refused(self.source, self.plain, parts=["mount point", self.plain, "not empty"])
        self.refused(self.source, self.source, parts=["lies in the source"])
        self.refused(self.source, inside, parts=["lies in the source", inside])
        self.refused(self.source, link, parts=["lies in the source"])
        for flags, parts in (
                (["--threads", "0"], ["--threads", "from 1 to 1024"]),
                (["--threads", "x"], ["--threads", "'x'"]),
                (["--read-ahead", "far"], ["--read-ahead", "'far'", "such as"]),
                (["--read-ahead", "2GiB"], ["--read-ahead", "2GiB", "give at most 1 GiB"]),
                (["--json", "--background"], ["--json", "--background"]),
                (["--allow-other", "--only-me"], ["--allow-other", "--only-me"])):
            self.refused(self.source, self.point, *flags, status=2, parts=parts)
        self.refused(self.source, status=2, parts=["MOUNTPOINT"])

    def test_bad_buffers(self):
        for flags, parts in (
                (["--buffer", "lru"], ["--buffer", "'lru'", "give native, gram or dedu"]),
                (["--ram", "1MiB"], ["--ram", "give --buffer gram"]),
                (["--buffer", "gram", "--gpu", "1MiB"], ["--ram is missing"]),
                (["--buffer", "gram", "--ram", "1MiB"], ["--gpu is missing"]),
                (["--buffer", "gram", "--ram", "much", "--gpu", "1MiB"], ["--ram", "'much'"]),
                (["--buffer", "gram", "--ram", "1MiB", "--gpu", "8191"],
                 ["--gpu", "two pages", "give at least 8 KiB"]),
                (["--buffer", "gram", "--ram", "32KiB", "--gpu", "1MiB", "--threads", "4"],
                 ["--ram", "4 threads", "give at least 36 KiB"]),
                (["--buffer", "gram", "--ram", "1MiB", "--gpu", "1MiB", "--page", "5000"],
                 ["--page", "power of two"]),
                (["--buffer", "gram", "--ram", "1MiB", "--gpu", "1MiB", "--backend", "tpu"],
                 ["--backend", "'tpu'"]),
                (["--buffer", "native", "--ram", "1MiB", "--backend", "gpu"],
                 ["--backend", "native", "--buffer gram"])):
            self.refused(self.source, self.point, *flags, status=2, parts=parts)
        self.refused(self.source, self.point,
                     *mounted.buffer_flags("gram", "9MiB", "900TiB", "--page", "1MiB"),
                     parts=["--gpu", "900 TiB", "give less"])
        self.refused(self.source, self.point,
                     *mounted.buffer_flags("gram", "900TiB", "2MiB", "--page", "1MiB"),
                     parts=["--ram", "900 TiB", "give less"])

    def test_mounted_already(self):
        with mounted.Mount(self.source, self.point):
            done = penstock(self.plain, self.point)
            self.assertEqual(done.returncode, 1)
            self.assertIn("mounted already (fuse.penstock)", done.stderr.decode())
            self.assertIn(f"fusermount3 -u {self.point}", done.stderr.decode())

    def test_ends_by_signals_and_by_unmounting(self):
        for end_signal in (None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            mount = mounted.Mount(self.source, self.point)
            with mount:
                (mount.point / "file").write_text("abc")
                done = mount.end(None if end_signal is None else
                                 lambda process: process.send_signal(end_signal))
            self.assertEqual(done["bytes_written"], 0 if done["passes_through"] else 3)
            self.assertNotIn("buffer", done)
            self.assertEqual((self.source / "file").read_text(), "abc")
            self.assertEqual(os.listdir(self.point), [])

    def test_nohup_keeps_it_there(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        with mounted.Mount(self.source, self.point, before=ignore) as mount:
            mount.process.send_signal(signal.SIGHUP)
            self.assertFalse(mounted.wait_until(lambda: not mounted.is_mounted(self.point), 1))
            (mount.point / "file").write_text("abc")
            mount.end(lambda process: process.terminate())
            self.assertEqual((self.source / "file").read_text(), "abc")

    def test_a_killed_service_leaves_the_source_and_says_how_to_go_on(self):
        with mounted.Mount(self.source, self.point) as mount:
            (mount.point / "file").write_text("abc")
            mount.process.kill()
            mount.process.wait()
            with self.assertRaises(OSError) as caught:
                os.listdir(mount.point)
            self.assertIn(caught.exception.errno, mounted.DEAD)
            self.assertEqual((self.source / "file").read_text(), "abc")
            done = penstock(self.source, self.point)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"fusermount3 -u {self.point}", done.stderr.decode())
            subprocess.run(["fusermount3", "-u", str(self.point)], check=True)
            mount.process.communicate()
        with mounted.Mount(self.source, self.point) as again:
            self.assertEqual((again.point / "file").read_text(), "abc")

    @unittest.skipIf(os.geteuid() != 0, "only root mounts other file systems")
    def test_what_lies_over_the_mount_point_stays(self):
        with mounted.Mount(self.source, self.point) as mount:
            subprocess.run(["mount", "-t", "tmpfs", "none", str(self.point)], check=True)
            try:
                (self.point / "mark").touch()
                mount.process.terminate()
                told = mount.process.communicate(timeout=60)[1].decode()
                self.assertEqual(mount.process.returncode, 1, told)
                self.assertIn("another file system lies over it", told)
                self.assertNotIn("wait for the source", told)
                self.assertEqual(os.listdir(self.point), ["mark"])
            finally:
                for _ in range(2):
                    subprocess.run(["umount", "-l", str(self.point)], check=False)

    def test_read_only(self):
        (self.source / "file").write_text("abc")
        with mounted.Mount(self.source, self.point, "--read-only"):
            self.assertEqual((self.point / "file").read_text(), "abc")
            for call in (lambda: (self.point / "file").write_text("x"),
                         lambda: (self.point / "d").mkdir(),
                         lambda: os.unlink(self.point / "file")):
                with self.assertRaises(OSError) as caught:
                    call()
                self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_background(self):
        done = penstock("--background", self.source, self.point)
        try:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"fusermount3 -u {self.point}", done.stderr.decode())
            self.assertTrue(mounted.wait_until(lambda: mounted.is_mounted(self.point)))
            (self.point / "file").write_text("abc")
            self.assertEqual((self.source / "file").read_text(), "abc")
        finally:
            subprocess.run(["fusermount3", "-u", str(self.point)], check=True)

    def test_commands_that_are_said_work_for_names_of_all_kinds(self):
        for name in ("plain-1.2_3", "a b", "it's", "$HOME;x", "line\nend\ttab's", "\x1b[1mä\\n"):
            point = self.plain / name
            point.mkdir()
            self.addCleanup(subprocess.run, ["umount", "-q", "-l", str(point)], check=False)
            told = penstock("--background", self.source, point).stderr.decode()
            self.assertTrue(mounted.is_mounted(point), told)
            for more in (told.splitlines()[0],
                         penstock(self.source, point).stderr.decode().splitlines()[0]):
                command = "fusermount3 -u" + more.partition("fusermount3 -u")[2]
                done = subprocess.run(
                    ["bash", "-c", command.replace("fusermount3 -u", "printf %s", 1)],
                    stdout=subprocess.PIPE, check=True)
                self.assertEqual(done.stdout.decode(), str(point), command)
            self.assertNotIn("Ctrl-C", told)
            subprocess.run(["bash", "-c", command], check=True)
            self.assertFalse(mounted.is_mounted(point), command)
            if shlex.quote(str(point)) == str(point):
                self.assertIn(f"fusermount3 -u {point}", told)

    def test_in_the_background_what_is_wrong_is_said_before_the_program_returns(self):
        self.refused(self.source, self.point, "--background",
                     *mounted.buffer_flags("gram", "900TiB", "2MiB", "--page", "1MiB"),
                     parts=["--ram", "900 TiB", "give less"])

    def test_names_of_all_kinds(self):
        names = ["with blank", "comma,and\\backslash", "line\nend", "ä" * 100, "x" * 255]
        source, point = self.source / "so, me", self.point / "a b"
        source.mkdir()
        point.mkdir()
        with mounted.Mount(source, point):
            for name in names:
                (point / name).write_text(name)
            self.assertEqual(sorted(os.listdir(point)), sorted(names))
            self.assertEqual([(source / name).read_text() for name in names], names)
            with self.assertRaises(OSError) as caught:
                (point / ("x" * 256)).write_text("")
            self.assertEqual(caught.exception.errno, errno.ENAMETOOLONG)

    def test_what_others_change_in_the_source_is_seen(self):
        (self.source / "file").write_bytes(b"a" * 100000)
        with mounted.Mount(self.source, self.point):
            self.assertEqual((self.point / "file").read_bytes(), b"a" * 100000)
            (self.source / "file").write_bytes(b"b" * 100000)
            self.assertEqual((self.point / "file").read_bytes(), b"b" * 100000)
            (self.source / "other").write_bytes(b"c" * 5000)
            os.rename(self.source / "other", self.source / "file")
            time.sleep(1.2)  # how long names are believed
            self.assertEqual((self.point / "file").read_bytes(), b"c" * 5000)
            os.unlink(self.source / "file")
            time.sleep(1.2)
            self.assertFalse((self.point / "file").exists())

    def seen_at_an_open(self, *flags):
        sizes = [0, 1, 100, 4096, 9000]
        with mounted.Mount(self.source, self.point, *flags):
            for before, after in [(a, b) for a in sizes for b in sizes if a != b]:
                source, path = (at / f"{before} {after}" for at in (self.source, self.point))
                source.write_bytes(b"a" * before)
                self.assertEqual(path.stat().st_size, before)  # believed for a second
                source.write_bytes(b"b" * after)
                fd = os.open(path, os.O_RDWR)
                self.assertEqual(os.read(fd, 10000), b"b" * after, (before, after))
                os.close(fd)
                self.assertEqual(path.stat().st_size, after)
                with open(source, "ab") as end:
                    end.write(b"c" * 10)
                fd = os.open(path, os.O_RDWR)
                self.assertEqual(os.fstat(fd).st_size, after + 10)
                self.assertEqual(os.lseek(fd, 0, os.SEEK_END), after + 10, (before, after))
                os.write(fd, b"d")
                os.close(fd)
                self.assertEqual(source.read_bytes(), b"b" * after + b"c" * 10 + b"d")

    def test_an_open_sees_that_the_source_grew_or_shrank(self):
        self.seen_at_an_open()

    def test_an_open_sees_that_the_source_grew_or_shrank_beside_a_buffer(self):
        self.seen_at_an_open(*mounted.buffer_flags("gram", "1MiB", "1MiB"))

    def test_appended_records_of_many_and_of_others_in_the_source_are_all_there(self):
        def append(folder, user):
            with open(folder / "log", "ab", buffering=0) as out:
                for i in range(300):
                    out.write(f"{user:02} {i:05}\n".encode())
        with mounted.Mount(self.source, self.point):
            folders = [self.source] + 4 * [self.point]
            threads = [
                threading.Thread(target=append, args=(folder, user))
                for user, folder in enumerate(folders)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        lines = (self.source / "log").read_text().splitlines()
        expected = [f"{user:02} {i:05}" for user in range(5) for i in range(300)]
        self.assertEqual(sorted(lines), sorted(expected))

    def test_a_removed_file_that_is_open_lives_on(self):
        with mounted.Mount(self.source, self.point):
            with open(self.point / "file", "w+b") as held:
                held.write(b"abc")
                held.flush()
                os.unlink(self.point / "file")
                (self.point / "file").write_text("another")
                held.write(b"def")
                held.seek(0)
                self.assertEqual(held.read(), b"abcdef")
                self.assertEqual(os.fstat(held.fileno()).st_size, 6)
            self.assertEqual((self.source / "file").read_text(), "another")

    def test_many_files_in_one_directory(self):
        folder = self.source / "many"
        folder.mkdir()
        for i in range(3000):
            (folder / f"f{i}").touch()
        with mounted.Mount(self.source, self.point):
            here = self.point / "many"
            self.assertEqual(len(os.listdir(here)), 3000)
            self.assertEqual(sum(1 for entry in os.scandir(here)
                                 if entry.is_file() and entry.stat().st_size == 0),
                             3000)
            with os.scandir(here) as entries:  # removing while reading, as rm -r does
                for entry in entries:
                    os.unlink(entry.path)
            os.rmdir(here)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    mounted.need_fuse()
    unittest.main(verbosity=1)
