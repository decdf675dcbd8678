#!/usr/bin/env python3
"""tools/trace_import.py: texts in the forms of blkparse and fio's logs, with what they must give
worked out by hand, and a log that fio itself writes; penstock trace reads what it made:
trace_import_test.py PROGRAM."""
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

from support import COMPILER, penstock, with_failing_close
from trace_support import Traces

# What blkparse prints by default, with its summary. The trace that it gives is below.
BLKPARSE = """Input file sda.blktrace.0 added
  8,0    1        1     0.000000000  4162  A   R 2048 + 16 <- (8,1) 0
  8,0    1        2     0.000000123  4162  Q   R 2048 + 16 [fio]
  8,0    1        3     0.000001000  4162  G   R 2048 + 16 [fio]
  8,0    1        4     0.000001500  4162  P   N [fio]
  8,0    1        5     0.000002000  4162  I   R 2048 + 16 (     877) [fio]
  8,0    1        6     0.000002500  4162  U   N [fio] 1
  8,0    1        7     0.000004000  4162  D  RS 2048 + 16 (    3877) [fio]
  8,0    0        1     0.500000000     0  C  RS 2048 + 16 (  496000) [0]
  8,0    0        2     1.000000000    77  Q  WS 8 + 1 [kworker/0:1H two]
  8,0    0        3     1.000000001    77  Q WSM 15 + 2 [jbd2/sda1-8]
  8,0    0        4     1.500000000    77  Q FWS [jbd2/sda1-8]
  8,0    0        5     2.000000000    77  Q FWFSM 24 + 8 [jbd2/sda1-8]
  8,0    0        6     2.100000000    77  Q   D 4096 + 1024 [fstrim]
  8,0    0        7     2.200000000    77  Q   N [smartd]
  8,0    1        8     2.300000000    78  m   N cfq1234 insert_request
  8,0    1        9     2.050000000    78  Q  RA 0 + 8 [(null)]
259,10   1       10     2.400000000    78  X   R 0 / 8 [fio]
  8,0    1       11 12345.000000009    78  Q  WFS 80 + 8 [fio]
CPU0 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           4,       12KiB

Total (8,0):
 Reads Queued:           2,       12KiB\t Writes Queued:           5,       16KiB

Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,0): 18 entries
Skips: 0 forward (0 -   0.0%)
"""
# Sectors of 512 bytes, pages of 4096.
QUEUED = [(123, "R", 0, 256, 2, None), (1_000_000_000, "W", 0, 1, 1, None),
          (1_000_000_001, "W", 0, 1, 2, None), (1_500_000_000, "F", 0, 0, 0, None),
          (2_000_000_000, "F", 0, 0, 0, None), (2_000_000_000, "W", 0, 3, 1, None),
          (2_050_000_000, "R", 0, 0, 1, None), (12_345_000_000_009, "W", 0, 10, 1, None)]

FIO2 = """fio version 2 iolog
/data/a add
/data/b c add
/data/unused add
/data/a open
/data/b c open
/data/b c write 0 4096
/data/a read 4095 2
/data/a wait 150 0
/data/a read 8192 12288
/data/a wait 1000 0
/data/b c sync 0 0
/data/a datasync 12288 0
/data/a trim 0 4096
/data/a write 40960 1
/data/b c close
/data/a close
"""
FIO2_RECORDS = [(0, "W", 0, 0, 1, None), (0, "R", 1, 0, 2, None), (150_000, "R", 1, 2, 3, None),
                (1_150_000, "F", 0, 0, 0, None), (1_150_000, "F", 1, 0, 0, None),
                (1_150_000, "W", 1, 10, 1, None)]


SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "trace_import.py"


class Imports(Traces):
    def take_in(self, *arguments):
        """What the script reports, as JSON, after penstock trace read the trace."""
        ran = penstock("-B", SCRIPT, *arguments, "--json", program=sys.executable, cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        report, seen = json.loads(ran.stdout), self.trace("show", "t")
        for name in ("reads", "writes", "flushes", "files", "page_bytes"):
            self.assertEqual(seen[name], report[name], name)
        return report

    def refused(self, status, arguments, *parts, left=()):
        """One line with these parts, and nothing in the folder but the files in `left`."""
        ran = penstock("-B", SCRIPT, *arguments, program=sys.executable, cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stdout), (status, b""), (arguments, ran.stderr))
        self.assert_one_line(ran.stderr, *parts)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(left))


class Blkparse(Imports):
    def take(self, text, *more):
        (self.folder / "in").write_text(text)
        return self.take_in("--from", "blkparse", "in", "-o", "t", "--file", "disk", *more)

    def test_queued_events_become_records(self):
        report = self.take(BLKPARSE)
        self.assertEqual(self.records("t"), QUEUED)
        self.assertEqual(report["files"], [{"path": "disk", "pages": 258}])
        self.assertEqual((report["lines"], report["reads"], report["writes"], report["flushes"],
                          report["widened"], report["late"]),
                         (28, 2, 4, 2, 2, 0))
        self.assertEqual(report["skipped"],
                         {"lines for people": 8, "empty lines": 2, "other actions": 9,
                          "discards": 1, "without sectors": 1})
        self.assertEqual(self.trace("show", "t")["contents"], None)

    def test_other_actions_pages_and_sizes(self):
        self.take(BLKPARSE, "--action", "D", "--page", "1KiB", "--pages", 2000)
        self.assertEqual(self.records("t"), [(4000, "R", 0, 1024, 8, None)])
        self.assertEqual(self.take(BLKPARSE, "--action", "C")["reads"], 1)
        self.assertEqual(self.trace("show", "t")["first_ns"], 500_000_000)

    def test_zeros_before_a_number_say_nothing(self):
        zeros = "0" * 5000
        self.take(BLKPARSE.replace("R 2048", f"R {zeros}2048").replace("2.05", f"{zeros}2.05"))
        self.assertEqual(self.records("t"), QUEUED)

    def test_times_that_go_back_are_those_before(self):
        late = BLKPARSE.replace("2.050000000", "0.000000001")
        self.assertEqual(self.take(late)["late"], 1)
        self.assertEqual([r[0] for r in self.records("t")],
                         [2_000_000_000 if r[0] == 2_050_000_000 else r[0] for r in QUEUED])

    def test_one_device_of_several(self):
        text = BLKPARSE.replace("259,10   1       10     2.400000000    78  X   R 0 / 8",
                                "259,10   1       10     2.400000000    78  Q   R 8 + 8")
        (self.folder / "in").write_text(text)
        command = ["--from", "blkparse", "in", "-o", "t", "--file", "disk"]
        self.refused(1, command, "'in' line 18: ", "device 259,10 beside device 8,0", "--device",
                     left=["in"])
        report = self.take(text, "--device", "259,10")
        self.assertEqual(self.records("t"), [(2_400_000_000, "R", 0, 1, 1, None)])
        self.assertEqual(report["skipped"]["other devices"], 17)

    def test_malformed_text_is_refused(self):
        command = ["--from", "blkparse", "in", "-o", "t", "--file", "disk"]
        event = "  8,0    1        2     0.000000123  4162  Q   R 2048 + 16 [fio]"
        for line, *parts in (
                ("hello", "'hello' is no event"),
                (event.replace("0.000000123", "0.123"), "'0.123' is no time"),
                (event.replace("0.000000123", "9" * 5000 + ".000000123"), "is no time"),
                (event.replace("4162", "x"), "PID 'x'"),
                (event.replace("16 [", "1y ["), "are no sectors"),
                (event.replace("  R", "  Y"), "RWBS 'Y' is unknown"),
                (event.replace("2048", "99999999999999999999"), "are no sectors"),
                (event.replace("2048", "9007199254740993"), "2^62"), ("8,0 1", "SEQUENCE ''"),
                ("8,0 1 2 0.000000123 7 Q", "ends before ACTION"), (event + "\0", "NUL")):
            (self.folder / "in").write_text(event + "\n" + line + "\n")
            self.refused(1, command, "'in' line 2: ", *parts, left=["in"])
        (self.folder / "in").write_text(BLKPARSE + event + "\n")
        self.refused(1, command, "'in' line 29: ", "behind the summary", left=["in"])
        (self.folder / "in").write_text(BLKPARSE)
        self.refused(1, ["--from", "blkparse", "in", "-o", "in", "--file", "disk"],
                     "is the input", left=["in"])
        self.refused(1, [*command, "--action", "G", "--device", "8,1"],
                     "no read, write or flush with the action G", left=["in"])
        self.refused(1, [*command, "--pages", 257], "--pages", "257", "at least 258", left=["in"])
        self.refused(1, ["--from", "blkparse", "/dev/null", *command[3:]], "/dev/null",
                     "regular file", left=["in"])
        for wrong, *parts in ((["--action", "A"], "--action", "'A'"),
                              (["--from", "strace"], "'strace'", "blkparse or fio")):
            self.refused(2, [*command, *wrong] if wrong[0] != "--from"
                            else [*wrong, "in", "-o", "t"],
                         *parts, left=["in"])
        self.refused(2, command[:-2], "--file is needed", left=["in"])
        self.refused(2, ["in", "-o", "t"], "--from", left=["in"])
        self.refused(2, [*command, "--page", "3000"], "--page", "'3000'", left=["in"])


class Fio(Imports):
    def take(self, text, *more):
        (self.folder / "in").write_text(text)
        return self.take_in("--from", "fio", "in", "-o", "t", *more)

    def test_version_2(self):
        report = self.take(FIO2)
        self.assertEqual(self.records("t"), FIO2_RECORDS)
        self.assertEqual(report["files"],
                         [{"path": "/data/b c", "pages": 1}, {"path": "/data/a", "pages": 11}])
        self.assertEqual((report["widened"], report["skipped"]),
                         (2, {"add, open and close": 7, "trims": 1, "waits": 2}))

    def test_version_3(self):
        self.take("fio version 3 iolog\n7 /a add\n9 /a open\n12 /a write 4096 8192\n11 /a read 0 "
                  "1\n2000 /a sync 9 0\n2001 /a close\n",
                  "--file", "other")
        self.assertEqual(self.records("t"),
                         [(12_000, "W", 0, 1, 2, None), (12_000, "R", 0, 0, 1, None),
                          (2_000_000, "F", 0, 0, 0, None)])
        self.assertEqual(self.trace("show", "t")["files"], [{"path": "other", "pages": 3}])

    def test_malformed_logs_are_refused(self):
        two, three = "fio version 2 iolog\n/a add\n", "fio version 3 iolog\n1 /a add\n"
        for text, *parts in (("fio version 1 iolog\n", "line 1", "expected 'fio version 2 iolog'"),
                             (two + "/b open\n", "line 3", "'/b' was not added"),
                             (two + "/b read 0 1\n", "line 3", "'/b' was not added"),
                             (two + "/a jump 0 1\n", "line 3", "'jump' is no action"),
                             (two + "/a read 0\n", "line 3", "expected PATH ACTION"),
                             (two + "/a read 0 x\n", "line 3", "'x'"),
                             (two + "/a read -1 5\n", "line 3", "'-1' is no offset"),
                             (two + "/a read 4611686018427387904 5\n", "line 3", "2^62"),
                             (two + "/a read 0 99999999999999\n", "line 3",
                              "at most 4,294,967,295"),
                             (three + "x /a open\n", "line 3", "'x' is no time"),
                             (three + "9" * 5000 + " /a open\n", "line 3", "is no time"),
                             (three + "5 /a wait 5 0\n", "line 3", "a wait in version 3"),
                             (two, "no read, write or flush"), ("", "is empty"),
                             (two + "/a read 0 1", "line 3", "cut short")):
            (self.folder / "in").write_text(text)
            self.refused(1, ["--from", "fio", "in", "-o", "t"], "'in'", *parts,
                         left=["in"])
        (self.folder / "in").write_text(FIO2)
        self.refused(1, ["--from", "fio", "in", "-o", "t", "--file", "x"], "2 files",
                     "--file", left=["in"])
        self.refused(2, ["--from", "fio", "in", "-o", "t", "--action", "Q"], "--action",
                     "blkparse", left=["in"])

    @unittest.skipUnless(shutil.which("fio"),
                         "fio is not installed, so no real log of fio was imported")
    def test_a_log_that_fio_writes(self):
        log = self.folder / "log"
        subprocess.run(["fio", "--name=job", "--rw=randrw", "--bsrange=1k-12k", "--bs_unaligned",
                        "--size=512k", "--nrfiles=2", f"--directory={self.folder}", "--fsync=16",
                        "--ioengine=psync", "--randseed=5", f"--write_iolog={log}"],
                       check=True, stdout=subprocess.DEVNULL, timeout=1000, cwd=self.folder)
        report = self.take_in("--from", "fio", "log", "-o", "t")
        first, *rows = [line.split() for line in log.read_text().splitlines()]
        self.assertEqual(first, ["fio", "version", "3", "iolog"])
        names, expected, widened = [], [], 0
        for row in rows:
            if row[2] in ("add", "open", "close"):
                continue
            if row[1] not in names:
                names.append(row[1])
            time, file, offset, length = (int(row[0]) * 1000, names.index(row[1]), int(row[3]),
                                          int(row[4]))
            if row[2] == "sync":
                expected.append((time, "F", file, 0, 0, None))
                continue
            page, end = offset // 4096, -(-(offset + length) // 4096)
            widened += offset % 4096 != 0 or length % 4096 != 0
            expected.append((time, row[2][0].upper(), file, page, end - page, None))
        self.assertGreater(len([r for r in expected if r[1] == "R"]), 10)
        self.assertGreater(len([r for r in expected if r[1] == "F"]), 1)
        self.assertEqual(self.records("t"), expected)
        self.assertEqual([f["path"] for f in report["files"]], names)
        self.assertEqual((report["lines"], report["widened"]), (len(rows) + 1, widened))
        self.assertEqual(penstock("trace", "show", "t", cwd=self.folder).returncode, 0)


class Output(Imports):
    def setUp(self):
        super().setUp()
        (self.folder / "in").write_text(FIO2)
        self.assertEqual(self.run_it("in", "-o", "expected").returncode, 0)
        self.expected = (self.folder / "expected").read_bytes()

    def run_it(self, *arguments, **more):
        return penstock(SCRIPT, "--from", "fio", *arguments, program=sys.executable,
                        cwd=self.folder, **more)

    def test_links_are_followed_and_rights_stay(self):
        (self.folder / "link").symlink_to("there")
        for mode in (None, 0o600, 0o640):
            with self.subTest(mode=mode):
                if mode is not None:
                    self.make("there", b"old").chmod(mode)
                self.assertEqual(self.run_it("in", "-o", "link").returncode, 0)
                self.assertTrue((self.folder / "link").is_symlink())
                there = self.folder / "there"
                self.assertEqual(there.read_bytes(), self.expected)
                if mode is not None:
                    self.assertEqual(there.stat().st_mode & 0o777, mode)

    def test_a_pipe_is_written_and_stays(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            self.assertEqual(self.run_it("in", "-o", "pipe").returncode, 0)
            self.assertEqual(reader.communicate(timeout=100)[0], self.expected)
        self.assertTrue(pipe.is_fifo())
        ran = self.run_it("in", "-o", "pipe")  # that no program reads
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "'pipe'", "No such device")
        self.assertTrue(pipe.is_fifo())

    @unittest.skipUnless(os.geteuid() == 0, "only root makes devices")
    def test_a_device_is_written_and_stays(self):
        for name, number, status in (("nothing", 3, 0), ("full", 7, 1)):
            device = self.folder / name  # not the machine's own
            try:
                os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, number))
                device.open("r+b").close()
            except OSError as error:
                self.skipTest(f"no devices here: {error.strerror}")
            ran = self.run_it("in", "-o", name)
            self.assertEqual(ran.returncode, status, ran.stderr)
            if status:
                self.assert_one_line(ran.stderr, "'full'", "No space left")
            self.assertTrue(device.is_char_device())

    def test_standard_output_gets_trace_or_report(self):
        ran = self.run_it("in", "-o", "/dev/stdout")
        self.assertEqual((ran.returncode, ran.stdout), (0, self.expected))
        self.assert_one_line(ran.stderr, "/dev/stdout: ", "reads")
        ran = self.run_it("in", "-o", "/dev/stdout", "--json")
        self.assertEqual((ran.returncode, ran.stdout), (2, b""))
        self.assert_one_line(ran.stderr, "/dev/stdout", "standard output")

    def test_standard_output_that_is_a_socket_gets_the_trace(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ran = self.run_it("in", "-o", "/dev/stdout", stdout=theirs)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            theirs.close()
            with ours.makefile("rb") as got:
                self.assertEqual(got.read(), self.expected)

    def test_a_socket_whose_writes_do_not_wait_gets_all(self):
        lines = [b"fio version 3 iolog\n0 /a add\n"]
        lines += [b"%d /a read %d 4096\n" % (i, 4096 * i) for i in range(40_000)]
        self.make("long", b"".join(lines))
        ran = self.run_it("long", "-o", "whole")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        with ours, theirs, subprocess.Popen(
                [sys.executable, "-B", SCRIPT, "--from", "fio", "long", "-o", "/dev/stdout"],
                cwd=self.folder, stdout=theirs, stderr=subprocess.PIPE) as running:
            theirs.close()
            # Read once the socket is full, or the program gave up.
            for _ in range(3000):
                waiting = ours.recv(1 << 20, socket.MSG_PEEK)
                time.sleep(0.02)
                if running.poll() is not None or ours.recv(1 << 20, socket.MSG_PEEK) == waiting:
                    break
            with ours.makefile("rb") as got:
                self.assertEqual(got.read(), (self.folder / "whole").read_bytes())
            self.assertEqual(running.wait(), 0, running.stderr.read())

    def test_an_empty_name_is_wrong_usage(self):
        self.refused(2, ["--from", "fio", "in", "-o", ""], "-o", "''", left=["expected", "in"])

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_an_owner_that_a_user_namespace_lacks_costs_rights(self):
        apart = ["unshare", "--user", "--map-root-user"]
        if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("no user namespaces here")
        there = self.make("there", b"old")
        for mode, expected in ((0o646, 0o644), (0o666, 0o666)):
            with self.subTest(mode=oct(mode)):
                there.write_bytes(b"old")
                there.chmod(mode)
                os.chown(there, 1234, 1234)
                ran = penstock(*apart[1:], sys.executable, "-B", SCRIPT, "--from", "fio", "in",
                               "-o", "there", program=apart[0], cwd=self.folder)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertEqual(there.read_bytes(), self.expected)
                self.assertEqual(there.stat().st_mode & 0o777, expected)

    def test_a_report_that_is_lost_is_an_error(self):
        with open("/dev/full", "wb") as full:
            for options in ([], ["--json"], ["--help"]):
                ran = self.run_it("in", "-o", "t", *options, stdout=full)
                self.assertEqual(ran.returncode, 1, options)
                self.assert_one_line(ran.stderr, "standard output", "No space left")
        for options in ([], ["--json"]):
            ran = self.run_it("in", "-o", "t", *options, preexec_fn=lambda: os.close(1))
            self.assertEqual(ran.returncode, 1)
            self.assert_one_line(ran.stderr, "standard output", "Bad file descriptor")

    @unittest.skipUnless(COMPILER, "needs a compiler, for closes that fail")
    def test_a_close_that_says_that_there_was_no_room(self):
        place = self.folder / "place"
        place.mkdir()
        (place / "t").write_bytes(b"older")
        ran = self.run_it("in", "-o", place / "t",
                          environment=with_failing_close(self.folder, place))
        self.assertEqual((ran.returncode, ran.stdout), (1, b""), ran.stderr)
        self.assert_one_line(ran.stderr, "place/t'", "quota")
        self.assertEqual(os.listdir(place), ["t"])
        self.assertEqual((place / "t").read_bytes(), b"older")

    def test_errors_name_the_output(self):
        (self.folder / "folder").mkdir()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        for name, part, more in (("folder", "Is a directory", {}),
                                 ("no/where", "No such file", {}),
                                 ("t", "File too large", {"preexec_fn": limit})):
            with self.subTest(name=name):
                ran = self.run_it("in", "-o", name, **more)
                self.assertEqual((ran.returncode, ran.stdout), (1, b""))
                self.assert_one_line(ran.stderr, f"'{name}'", part)
                self.assertNotIn(b".penstock-trace", ran.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["expected", "folder", "in"])

    def test_errors_of_reading_name_the_input(self):
        ran = self.run_it("/proc/self/mem", "-o", "t")  # a regular file that cannot be read at 0
        self.assertEqual((ran.returncode, ran.stdout), (1, b""))
        self.assert_one_line(ran.stderr, "'/proc/self/mem'", "Input/output error")

    def test_pages_are_a_number_of_a_trace(self):
        left = ["expected", "in"]
        for pages in ("0", "-1", "x", "1_0", "99999999999999999999", 1 << 51):
            self.refused(2, ["--from", "fio", "in", "-o", "t", "--pages", pages], "--pages",
                         str(pages), left=left)
        self.take_in("--from", "fio", "in", "-o", "t", "--pages", 1 << 50)
        self.assertEqual(self.trace("show", "t")["files"][0]["pages"], 1 << 50)

    def test_a_signal_leaves_nothing(self):
        line = "/data/a read 0 4096\n"
        (self.folder / "long").write_text("fio version 2 iolog\n/data/a add\n" + 60_000 * line)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number), \
                    subprocess.Popen([sys.executable, SCRIPT, "--from", "fio", "long", "-o", "t"],
                                     cwd=self.folder, stderr=subprocess.PIPE) as process:
                while process.poll() is None and not list(self.folder.glob(".penstock-trace-*")):
                    time.sleep(0.005)
                process.send_signal(number)
                _, err = process.communicate(timeout=100)
                self.assertEqual(process.returncode, 128 + number)
                self.assert_one_line(err, "interrupted")
                self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                                 ["expected", "in", "long"])

    def test_a_signal_while_the_report_is_printed(self):
        out, full = os.pipe()
        with open(out, "rb"), open(full, "wb", buffering=0) as full:
            os.set_blocking(full.fileno(), False)
            while full.write(bytes(4096)) is not None:
                pass
            os.set_blocking(full.fileno(), True)
            with subprocess.Popen([sys.executable, SCRIPT, "--from", "fio", "in", "-o", "t"],
                                  cwd=self.folder, stdout=full, stderr=subprocess.PIPE) as process:
                status = pathlib.Path(f"/proc/{process.pid}/stat")
                until = time.monotonic() + 60
                while time.monotonic() < until and not (
                        (self.folder / "t").exists()
                        and status.read_text().rsplit(")", 1)[1].split()[0] == "S"):
                    time.sleep(0.005)
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assert_one_line(err, "interrupted")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["trace_import_test.py"])
