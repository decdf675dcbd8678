#!/usr/bin/env python3
"""penstock keep holds files for other processes: keep_test.py PROGRAM."""
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import threading
import time
import unittest

from support import FLAGS, SMALL, PROGRAM, InFolder, clean_environment, pattern, penstock

KIB = 1 << 10


class Keep(InFolder):
    def environment(self, **more):
        return clean_environment(XDG_RUNTIME_DIR=str(self.folder), **more)

    def keep(self, *paths, flags=SMALL):
        process = subprocess.Popen([PROGRAM, "keep", *FLAGS, *flags, "--json", "--share", "test",
                                    *map(str, paths)], env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def line(self, process):
        ready, _, _ = select.select([process.stdout], [], [], 120)
        self.assertTrue(ready, "it says nothing")
        return json.loads(process.stdout.readline())

    def cat(self, path):
        """The bytes, and what the statistics say of where they came from."""
        ours = penstock("cat", *FLAGS, *SMALL, "--quiet", "--stats", path,
                        environment=self.environment(PENSTOCK_SHARE="test"))
        self.assertEqual(ours.returncode, 0, ours.stderr)
        return ours.stdout, json.loads(ours.stderr.decode().splitlines()[-1])

    def near(self, path, content):
        """Reads it through the keeper, without the file, in one of some tries: on a busy machine
        the programs may be linked a moment after they have started."""
        for _ in range(50):
            got, said = self.cat(path)
            self.assertTrue(got == content)
            if said["runtime"]["statistics"]["file_reads"] == 0:
                return
        self.fail(f"it was read from the file each time: {said}")

    def test_new_process_reads_what_is_kept(self):
        content = pattern(2_000_001)
        path = self.make("data", content)
        keeper = self.keep(path)
        said = self.line(keeper)
        self.assertEqual((said["files"], said["bytes"], said["kept_bytes"], said["share"]),
                         (1, len(content), len(content), "test"))
        self.near(path, content)
        keeper.send_signal(signal.SIGTERM)
        _, err = keeper.communicate(timeout=120)
        self.assertEqual(keeper.returncode, 0, err)
        self.assertTrue(self.cat(path)[0] == content)

    def test_help_says_what_is_printed(self):
        said = " ".join(penstock("keep", "--help").stdout.decode().split())
        self.assertIn("each time that the files have been read", said)
        self.assertNotIn("exactly one", said)

    def test_hangup_reads_what_changed(self):
        path, other = self.make("data", pattern(300_000)), self.make("other", pattern(1000, 2))
        keeper = self.keep(path, other)
        self.line(keeper)
        changed = pattern(500_000, 3)
        path.write_bytes(changed)
        keeper.send_signal(signal.SIGHUP)
        self.assertEqual(self.line(keeper)["bytes"], 501_000)
        time.sleep(0.1)
        self.near(path, changed)
        path.unlink()
        keeper.send_signal(signal.SIGHUP)
        said = self.line(keeper)
        self.assertEqual((said["bytes"], said["files"], said["left_out"]), (1000, 1, 1))
        keeper.send_signal(signal.SIGINT)
        _, err = keeper.communicate(timeout=120)
        self.assertEqual(keeper.returncode, 0)
        self.assertIn(b"it is left out", err)

    def test_report_that_cannot_be_printed_ends_no_cache(self):
        content = pattern(300_000)
        path = self.make("data", content)
        keeper = self.keep(path)
        self.line(keeper)
        keeper.stdout.close()
        for _ in range(2):
            keeper.send_signal(signal.SIGHUP)
            ready, _, _ = select.select([keeper.stderr], [], [], 120)
            self.assertTrue(ready, "it says nothing")
            said = keeper.stderr.readline()
            self.assertIn(b"EPIPE", said)
            self.assertIn(b"the files are kept all the same", said)
        self.near(path, content)
        keeper.send_signal(signal.SIGTERM)
        self.assertEqual(keeper.wait(timeout=120), 0)

    def test_no_more_than_the_cache_is_kept(self):
        a, b = self.make("a", pattern(6 << 20)), self.make("b", pattern(6 << 20, 2))
        said = self.line(self.keep(a, b))
        self.assertEqual(said["bytes"], 12 << 20)
        self.assertEqual(said["kept_bytes"], 8 << 20)

    def test_small_files_take_whole_pages(self):
        files = [self.make(f"{i:03}", pattern(100, i)) for i in range(20)]
        keeper = self.keep(*files, flags=["--cache", "512KiB", "--page", "64KiB"])
        said = self.line(keeper)
        self.assertEqual((said["files"], said["bytes"], said["kept_bytes"]), (20, 2000, 800))
        for path in files[:8]:  # the first ones, and all of them
            self.near(path, path.read_bytes())

    def test_file_of_several_names_counts_once(self):
        a, b = self.make("a", pattern(5 << 20)), self.make("b", pattern(3 << 20, 2))
        os.link(a, self.folder / "link")
        os.symlink(b, self.folder / "symbolic")
        said = self.line(self.keep(a, self.folder / "link", a, self.folder / "symbolic", b))
        self.assertEqual((said["files"], said["bytes"], said["kept_bytes"]),
                         (2, 8 << 20, 8 << 20))

    def test_hangup_reads_a_file_of_several_names_that_changed(self):
        path, hard, symbolic = self.make("data", pattern(300_000)), self.folder / "hard", \
            self.folder / "symbolic"
        os.link(path, hard)
        os.symlink(path, symbolic)
        for i, names in enumerate(([path, path], [path, hard], [symbolic, path])):
            with self.subTest(names=names):
                keeper = self.keep(*names)
                self.line(keeper)
                changed = pattern(400_000 + 1000 * i, i + 2)
                path.write_bytes(changed)
                keeper.send_signal(signal.SIGHUP)
                said = self.line(keeper)
                self.assertEqual((said["files"], said["bytes"], said["kept_bytes"]),
                                 (1, len(changed), len(changed)))
                self.near(path, changed)
                keeper.send_signal(signal.SIGTERM)
                _, err = keeper.communicate(timeout=120)
                self.assertEqual(keeper.returncode, 0, err)

    def test_file_that_is_cut_as_it_is_read_again_is_left_out(self):
        size = 128 << 20
        path, other = self.make("data", b""), self.make("other", pattern(1000, 2))
        os.truncate(path, size)
        keeper = self.keep(other, path, flags=["--cache", "160MiB", "--page", "64KiB"])
        self.line(keeper)
        left_out, read_before, read_after = 1000, size + 1000, 2000
        for wait_ms in 20 * list(range(0, 60, 4)):  # some of these are in the middle of the read
            keeper.send_signal(signal.SIGHUP)
            time.sleep(wait_ms / 1000)
            os.truncate(path, 1000)
            kept = self.line(keeper)["bytes"]
            self.assertIn(kept, (left_out, read_before, read_after))
            os.truncate(path, size)
            time.sleep(0.11)  # it counts as settled
            if kept == left_out:
                break
        else:
            self.fail("no cut came into a read")
        keeper.send_signal(signal.SIGHUP)
        self.assertEqual(self.line(keeper)["bytes"], size + 1000)

    def test_place_that_went_is_made_again(self):
        content = pattern(300_000)
        path = self.make("data", content)
        self.line(self.keep(path))
        shutil.rmtree(self.folder / "penstock")
        for _ in range(1200):
            if (self.folder / "penstock" / "test").exists():
                break
            time.sleep(0.1)
        self.near(path, content)

    def test_limit_on_files_is_named(self):
        path = self.make("data", b"x")
        ours = penstock("keep", *FLAGS, *SMALL, "--share", "test", path,
                        environment=self.environment(),
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        self.assertEqual(ours.returncode, 1)
        self.assertRegex(ours.stderr, rb"File too large \(EFBIG\); [a-z ]+\(ulimit -f")

    def test_folder_of_a_name_goes_with_its_last_process(self):
        path, base = self.make("data", pattern(300_000)), self.folder / "penstock"
        keeper = self.keep(path)
        self.line(keeper)
        self.cat(path)
        self.assertEqual(os.listdir(base), ["test"])
        keeper.send_signal(signal.SIGTERM)
        keeper.communicate(timeout=120)
        self.assertEqual(os.listdir(base), [])
        killed = self.keep(path)
        self.line(killed)
        killed.kill()
        killed.communicate(timeout=120)
        self.assertEqual(os.listdir(base), ["test"])  # with a socket that the next one removes
        self.cat(path)
        self.assertEqual(os.listdir(base), [])

    def test_processes_that_come_while_others_leave_find_a_folder(self):
        path = self.make("data", b"few bytes")
        failed = []

        def come_and_leave():
            for _ in range(25):
                ours = penstock("cat", *FLAGS, *SMALL, path,
                                environment=self.environment(PENSTOCK_SHARE="test"))
                wrong = [line for line in ours.stderr.decode().splitlines()
                         if " linked" not in line]  # as others leave while it comes
                if (ours.returncode, ours.stdout, wrong) != (0, b"few bytes", []):
                    failed.append((ours.returncode, wrong))

        threads = [threading.Thread(target=come_and_leave) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(os.listdir(self.folder / "penstock"), [])

    def test_wrong_usage_is_one_line(self):
        path = self.make("data", b"x")
        for status, arguments, parts in (
                (2, [path], ["--share", "PENSTOCK_SHARE"]),
                (2, ["--share", "a/b", path], ["'a/b' is no name"]),
                (1, ["--share", "test", self.folder / "none"], ["none", "No such file"]),
                (1, ["--share", "test", self.folder], ["directory"]),
                (1, ["--share", "test", "/dev/null"], ["leave this one out"]),
                (1, ["--share", "test", "/proc/cpuinfo"], ["leave this one out"])):
            with self.subTest(arguments=arguments):
                ours = penstock("keep", *FLAGS, *SMALL, *arguments, environment=self.environment())
                self.assertEqual(ours.returncode, status)
                self.assert_one_line(ours.stderr, *parts)

    def test_place_that_cannot_be_used_ends_it(self):
        path = self.make("data", b"x")
        (self.folder / "penstock").mkdir(mode=0o755)
        os.chmod(self.folder / "penstock", 0o755)
        ours = penstock("keep", *FLAGS, *SMALL, "--share", "test", path,
                        environment=self.environment())
        self.assertEqual(ours.returncode, 1)
        self.assertIn(b"may be entered by others", ours.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["keep_test.py"])
