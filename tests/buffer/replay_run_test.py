#!/usr/bin/env python3
"""penstock replay against files: it hits where the simulation does, reads what the trace says, and
leaves what was written: replay_run_test.py PROGRAM."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps_penstock"))
from support import FLAGS, PROGRAM, clean_environment, penstock  # noqa: E402  (the path above)
from trace_support import Traces, made_content, page_of  # noqa: E402

SAME = ["accesses", "reads", "writes", "flushes", "host_hits", "device_hits", "misses", "loads",
        "write_backs", "demotions", "promotions", "bytes_to_device", "bytes_from_device", "pages",
        "pages_with_sharing", "blocks", "block_references", "absent_blocks", "sharing_ratio"]
PAGE = 4096
SIZES = ["--ram", "160KiB", "--gpu", "240KiB"]


def bytes_read(process):
    with open(f"/proc/{process.pid}/io", encoding="ascii") as file:
        return int(file.readline().split()[1])  # rchar


def flags_of(policy):
    """native has no part on a device, and refuses a GPU."""
    return FLAGS if policy != "native" else ["--backend", "cpu"]


class Run(Traces):
    def generate(self, *options):
        """A trace and its file; what the header says of contents."""
        self.trace("generate", "--out", "trace", "--text", "--pages", 200, "--accesses", 3000,
                   "--factor", 2, "--data", "data", *options)
        return next(line.split() for line in (self.folder / "trace").read_text().split("\n")
                    if line.startswith("contents"))

    def replay(self, *arguments):
        ran = penstock("replay", "trace", "--json", *arguments, cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        return json.loads(ran.stdout)

    def refused_run(self, status, arguments, *parts):
        before = (self.folder / "data").read_bytes()
        ran = penstock("replay", *arguments, cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stdout), (status, b""), (arguments, ran.stderr))
        self.assert_one_line(ran.stderr, *parts)
        self.assertEqual((self.folder / "data").read_bytes(), before)

    def wait_until(self, process, has_begun):
        until = time.monotonic() + 60
        while not has_begun():
            self.assertIsNone(process.poll(), "it ended by itself")
            self.assertLess(time.monotonic(), until, "nothing was begun")
            time.sleep(0.002)

    def test_it_hits_where_the_simulation_does(self):
        for policy in ("native", "gram", "dedu"):
            for order in ("lru", "clock"):
                with self.subTest(policy=policy, order=order):
                    for path in self.folder.iterdir():
                        path.unlink()
                    self.generate("--writes", 30, "--shared-writes", 50, "--flush-every", 400,
                                  "--pattern", "zipf", "--seed", 3)
                    options = ["--policy", policy, "--order", order, *SIZES,
                               *(["--absent", 20] if (policy, order) == ("dedu", "clock") else [])]
                    simulated = self.replay(*options, "--simulate")
                    always = [f"--always-{policy}"] if policy != "native" else []
                    ran = self.replay(*options, *flags_of(policy), "--cached", "--writes",
                                      "--verify", *always)
                    self.assertEqual({name: ran[name] for name in SAME},
                                     {name: simulated[name] for name in SAME})
                    self.assertTrue(
                        all(ran[name] > 50 for name in ("host_hits", "misses", "write_backs")), ran)
                    self.assertEqual((ran["simulated"], ran["threads"], ran["verified"],
                                      ran["past_the_page_cache"]),
                                     (False, 1, True, False))
                    self.assertEqual(ran["absent_blocks"] != 0, policy == "dedu")
                    self.assertGreater(ran["ms_per_access"], 0)
                    self.assertAlmostEqual(ran["device_bytes_per_second"] * ran["seconds"]
                                           / (ran["bytes_to_device"] + ran["bytes_from_device"]
                                              or 1),
                                           float(policy != "native"))

    def test_what_was_written_is_in_the_file(self):
        _, distinct, seed = self.generate("--writes", 40, "--shared-writes", 100, "--seed", 4)
        contents = {"distinct": int(distinct), "seed": int(seed), "common_pages": 0,
                    "own_distinct": 0}
        held = [made_content(contents, 0, page) for page in range(200)]
        self.assertEqual((self.folder / "data").read_bytes(),
                         b"".join(page_of(content, PAGE) for content in held))
        self.replay("--policy", "gram", *SIZES, *FLAGS, "--cached", "--writes")
        for _, kind, _, page, pages, content in self.records("trace"):
            for i in range(pages if kind == "W" else 0):
                held[page + i] = content + i
        self.assertEqual((self.folder / "data").read_bytes(),
                         b"".join(page_of(content, PAGE) for content in held))

    def test_threads_read_what_the_trace_says(self):
        self.generate("--seed", 5)
        for policy, *options in (["native"], ["gram"], ["gram", "--batch", 2, "--batch-wait", 50],
                                 ["dedu"]):
            ran = self.replay("--policy", policy, *SIZES, *flags_of(policy), "--cached", "--verify",
                              "--threads", 8, *options)
            self.assertEqual((ran["accesses"], ran["threads"],
                              ran["host_hits"] + ran["device_hits"] + ran["misses"]),
                             (3000, 8, 3000))

    def test_signatures_of_either_kind_made_anywhere_find_the_same(self):
        self.generate("--seed", 10)
        found = []
        for options in ([], ["--signature", "md5"], ["--sign-on", "device"],
                        ["--signature", "md5", "--sign-on", "device", "--batch", 1,
                         "--batch-wait", 5]):
            ran = self.replay("--policy", "dedu", *SIZES, *FLAGS, "--cached", "--verify", *options)
            self.assertEqual((ran["signature"], ran["signed_on"], ran["differing_blocks"]),
                             ("md5" if "md5" in options else "quick",
                              "device" if "device" in options else "cpu", 0))
            self.assertGreater(ran["shared_blocks"], 100)
            found.append({name: ran[name] for name in (*SAME, "looked_blocks", "shared_blocks")})
        self.assertEqual(found[1:], [found[0]] * 3)

    def test_past_the_page_cache(self):
        self.generate("--seed", 6)
        ran = penstock("replay", "trace", "--json", "--policy", "gram", *SIZES, *FLAGS, "--verify",
                       cwd=self.folder)
        if ran.returncode == 1 and b"--cached" in ran.stderr:
            self.skipTest("this file system has no direct access")
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        self.assertTrue(json.loads(ran.stdout)["past_the_page_cache"])

    def test_a_file_that_is_not_the_traces_is_found_out(self):
        self.generate("--seed", 7)
        data = bytearray((self.folder / "data").read_bytes())
        data[77 * PAGE + 100] ^= 1
        (self.folder / "data").write_bytes(data)
        ran = penstock("replay", "trace", "--policy", "gram", *SIZES, *FLAGS, "--cached",
                       "--verify", cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stdout), (1, b""))
        self.assert_one_line(ran.stderr, "page 77", "'data'", "was the file made for this trace")

    def test_text_says_what_an_access_took(self):
        self.generate("--seed", 8)
        ran = penstock("replay", "trace", "--policy", "gram", *SIZES, *FLAGS, "--cached",
                       cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        self.assertRegex(ran.stdout.decode(),
                         r"gram, lru, on (cpu|gpu): 3,000 accesses in [0-9.]+ s, [0-9.]+ ms each\n"
                         r"[0-9,]+ host hits \([0-9.]+ %\), [0-9,]+ device hits(.*\n)+.* promoted; "
                         r"[0-9.]+ MB/s to and from the device\n"
                         r"([0-9,]+ not demoted, as the device would not pay\n)?$")

    def test_a_trace_of_fewer_pages_than_its_threads_need(self):
        """--ram is then larger than the files, and enough."""
        for pages in (1, 2):
            self.trace("generate", "--out", "trace", "--text", "--pages", pages, "--accesses", 20,
                       "--data", "data")
            for policy, threads in (("native", 1), ("gram", 1), ("gram", 3), ("dedu", 3)):
                with self.subTest(pages=pages, policy=policy, threads=threads):
                    ran = self.replay("--policy", policy, "--ram", "64KiB",
                                      *(["--gpu", "64KiB"] if policy != "native" else []),
                                      *flags_of(policy), "--threads", threads, "--cached",
                                      "--verify")
                    self.assertEqual((ran["host_hits"] + ran["device_hits"] + ran["misses"],
                                      ran["ram_bytes"]), (20, 65536))

    def test_bad_input(self):
        self.generate("--seed", 9)
        (self.folder
         / "writes").write_bytes((self.folder / "trace").read_bytes() + b"99999999999 W 0 5 1\n")
        (self.folder / "longer").write_bytes(
            (self.folder / "trace").read_bytes().replace(b"file 0 200 ", b"file 0 201 "))
        (self.folder / "elsewhere").write_bytes(
            (self.folder / "trace").read_bytes().replace(b" data\n", b" absent\n"))
        (self.folder / "plain").write_bytes(
            b"\n".join(line for line in (self.folder / "trace").read_bytes().split(b"\n")
                       if not line.startswith(b"contents")))
        gram = ["--policy", "gram", *SIZES, "--cached", *FLAGS]
        dedu = ["--policy", "dedu", *SIZES, "--cached", *FLAGS]
        for status, arguments, parts in [
                (1, ["writes", *gram], ["'writes'", "has writes", "--writes"]),
                (1, ["longer", *gram], ["'data'", str(200 * PAGE), str(201 * PAGE)]),
                (1, ["elsewhere", *gram], ["'absent'", "ENOENT"]),
                (1, ["plain", *gram, "--verify"], ["--verify", "leave it out"]),
                (1, ["trace", "--policy", "gram", "--ram", "16KiB", "--gpu", "8KiB", "--cached",
                     *FLAGS, "--threads", "2"],
                 ["4 pages", "give it 5", "--ram"]),
                (2, ["trace", *gram, "--threads", "0"], ["--threads", "'0'", "from 1"]),
                (2, ["trace", *gram, "--backend", "tpu"], ["--backend", "'tpu'", "cpu or gpu"]),
                (2, ["trace", *gram, "--simulate"], ["--cached", "--simulate"]),
                (2, ["trace", *dedu, "--always-gram"], ["--always-gram", "--policy gram"]),
                (2, ["trace", *gram, "--sign-on", "cpu"], ["--sign-on", "--policy dedu"]),
                (2, ["trace", "--policy", "native", "--ram", "64KiB", "--cached", "--batch", "5"],
                 ["--batch", "--policy gram"]),
                (2, ["trace", "--policy", "native", "--ram", "64KiB", "--cached", "--backend",
                     "gpu"],
                 ["--backend", "native", "--policy gram"]),
                (2, ["trace", *gram, "--batch", "0"], ["--batch", "'0'", "from 1"]),
                (2, ["trace", *dedu, "--batch", "0"], ["--batch", "'0'", "from 1"]),
                (2, ["trace", *dedu, "--sign-on", "gpu"], ["--sign-on", "'gpu'", "device"]),
                (2, ["trace", *dedu, "--signature", "crc"], ["--signature", "'crc'", "md5"]),
                (2, ["trace", *gram, "--verify", "--writes", "--threads", "2"],
                 ["--verify", "one thread"])]:
            with self.subTest(arguments=arguments):
                if arguments.count("--backend") == 2:
                    arguments = [a for i, a in enumerate(arguments)
                                 if not (a in FLAGS and i < len(arguments) - 2)]
                self.refused_run(status, arguments, *parts)


    def test_writes_that_name_no_content_give_no_two_pages_the_same(self):
        """Times and pages such that a number made of them by exclusive or would be one for all."""
        pages = 64
        lines = [f"{1 << 40 ^ page << 20 ^ page + 1} W 0 {page} 1" for page in range(pages)]
        (self.folder / "trace").write_text(f"penstock-trace 1\npage 4096\nfile 0 {pages} data\n\n"
                                           + "\n".join(lines) + "\n")
        for threads in (1, 8):
            with self.subTest(threads=threads):
                self.make("data", bytes(pages * PAGE))
                self.replay("--policy", "gram", "--ram", "256KiB", "--gpu", "256KiB", *FLAGS,
                            "--cached", "--writes", "--threads", threads)
                data = (self.folder / "data").read_bytes()
                self.assertEqual(len({data[at:at + PAGE] for at in range(0, len(data), PAGE)}),
                                 pages)

    def test_a_signal_ends_a_record_of_millions_of_pages(self):
        pages = 1 << 23
        (self.folder / "trace").write_text(f"penstock-trace 1\npage 512\nfile 0 {pages} data\n\n"
                                           + f"0 W 0 0 {pages}\n" * 50)
        data = self.make("data")
        os.truncate(data, pages * 512)
        before = data.stat().st_mtime_ns
        with subprocess.Popen([PROGRAM, "replay", "trace", "--policy", "native", "--ram", "4KiB",
                               "--cached", "--writes"], cwd=self.folder, env=clean_environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.wait_until(process, lambda: data.stat().st_mtime_ns != before)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=100)
        self.assertEqual((process.returncode, out), (1, b""))
        with data.open("rb") as file:
            file.seek(-512, os.SEEK_END)
            self.assertEqual(file.read(), bytes(512))  # the first record was not gone through
        self.assert_one_line(err, "interrupted; what was written so far is in the files")

    def test_a_page_that_cannot_be_written_back_is_named(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8 * PAGE, 8 * PAGE))
        (self.folder / "trace").write_text(
            "penstock-trace 1\npage 4096\nfile 0 100 data\nfile 1 50 other\n\n"
            + "0 W 0 90 1\n" + "".join(f"1 R 1 {page} 1\n" for page in range(50)))
        self.make("data", bytes(100 * PAGE))
        self.make("other", bytes(50 * PAGE))
        for policy in ("native", "gram", "dedu"):
            with self.subTest(policy=policy):
                ran = penstock("replay", "trace", "--policy", policy, "--ram", "40KiB",
                               *(["--gpu", "16KiB"] if policy != "native" else []), "--cached",
                               *flags_of(policy), "--writes", cwd=self.folder, preexec_fn=limit)
                self.assertEqual((ran.returncode, ran.stdout), (1, b""))
                self.assert_one_line(ran.stderr, "EFBIG", "ulimit -f",
                                     "not all that was written is in the files")
                if policy != "dedu":
                    self.assert_one_line(ran.stderr, "of 'other': page 90 of 'data' had to be "
                                         "written back")
        with open(self.folder / "trace", "a", encoding="ascii") as trace:
            trace.write("2 F 0 0 0\n")
        ran = penstock("replay", "trace", "--policy", "native", "--ram", "400KiB", "--cached",
                       "--writes", cwd=self.folder, preexec_fn=limit)
        self.assertEqual((ran.returncode, ran.stdout), (1, b""))
        self.assert_one_line(ran.stderr, "flushing 'data': page 90 of 'data' had to be written")

    def test_an_interrupt_does_not_hide_what_could_not_be_written(self):
        pages = 1 << 20
        (self.folder / "trace").write_text(
            f"penstock-trace 1\npage 512\nfile 0 {pages} data\n\n0 W 0 {pages - 1} 1\n"
            + f"0 R 0 0 {pages - 2}\n" * 50)
        self.make("data")
        os.truncate(self.folder / "data", pages * 512)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with subprocess.Popen([PROGRAM, "replay", "trace", "--policy", "native", "--ram", "1GiB",
                               "--cached", "--writes"], cwd=self.folder, env=clean_environment(),
                              preexec_fn=limit, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            self.wait_until(process, lambda: bytes_read(process) > 8 << 20)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 1)
        self.assert_one_line(err, "interrupted; not all that was written is in the files", "'data'",
                             "EFBIG")

    def test_a_trace_that_names_itself_is_not_written(self):
        text = "penstock-trace 1\npage 512\nfile 0 1 {}\n\n0 W 0 0 1\n" + "# more\n" * 100
        (self.folder / "link").hardlink_to(self.make("trace"))
        for name in ("trace", "./link"):
            with self.subTest(name=name):
                (self.folder / "trace").write_text(text.format(name))
                before = (self.folder / "trace").read_bytes()
                ran = penstock("replay", "trace", "--policy", "native", "--ram", "4KiB", "--cached",
                               "--writes", cwd=self.folder)
                self.assertEqual((ran.returncode, ran.stdout), (1, b""))
                self.assert_one_line(ran.stderr, f"'{name}' is the trace itself", "--writes")
                self.assertEqual((self.folder / "trace").read_bytes(), before)

    def test_two_names_of_one_file_are_refused(self):
        """Each of them would be another file to the buffer, and the last write-back would win."""
        self.generate("--seed", 10)
        (self.folder / "soft").symlink_to("data")
        (self.folder / "hard").hardlink_to(self.folder / "data")
        for name in ("./data", str(self.folder / "data"), "soft", "hard"):
            (self.folder / "twice").write_text("penstock-trace 1\npage 4096\nfile 0 200 data\n"
                                               f"file 1 200 {name}\n\n0 W 0 7 1 1\n1 W 1 7 1 2\n")
            for more in (["--writes"], ["--writes", "--backend", "cpu", "--threads", 4]):
                with self.subTest(name=name, more=more):
                    self.refused_run(1, ["twice", "--policy", "gram", *SIZES, "--cached", *more],
                                     f"'{name}' is the same file as 'data'", "of its own")
        simulated = penstock("replay", "twice", "--policy", "gram", *SIZES, "--simulate",
                             cwd=self.folder)
        self.assertEqual(simulated.returncode, 0, simulated.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["replay_run_test.py"])
