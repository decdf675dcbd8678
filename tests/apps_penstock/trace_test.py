#!/usr/bin/env python3
"""penstock trace generate, convert and show, against docs/apps/traces.md as trace_support.py has
it: trace_test.py PROGRAM."""
import collections
import hashlib
import json
import os
import resource
import signal
import subprocess
import time
import unittest

from support import PROGRAM, at_most, clean_environment, penstock
from trace_support import Traces, made_content, page_of

PAGES, ACCESSES = 500, 40_000


class Generate(Traces):
    def make(self, *more, name="t", pages=PAGES, accesses=ACCESSES):
        report = self.trace("generate", "-o", name, "--pages", pages, "--accesses", accesses, *more)
        return report, self.records(name) if "--binary" not in more else None

    def test_the_seed_alone_decides(self):
        shape = ["--pattern", "zipf", "--writes", 20, "--shared-writes", 50, "--flush-every", 7,
                 "--machines", 2, "--common", 30]
        for name, seed in (("one", 3), ("two", 3), ("other", 4)):
            self.make(*shape, "--seed", seed, "--file", "image", name=name, accesses=2000)
        first, second, other = ((self.folder / name).read_bytes()
                                for name in ("one", "two", "other"))
        self.assertEqual(first, second)
        self.assertNotEqual(first.split(b"\n\n")[1], other.split(b"\n\n")[1])

    def test_uniform_is_even_and_writes_are_as_many_as_asked(self):
        report, records = self.make("--writes", 30, "--shared-writes", 25, "--rate", 2000,
                                    "--flush-every", 100)
        accesses = [r for r in records if r[1] != "F"]
        times = collections.Counter(r[3] for r in accesses)
        mean = ACCESSES / PAGES
        chi = sum((times[page] - mean) ** 2 / mean for page in range(PAGES))
        # 499 degrees of freedom: mean 499, deviation 31.6. Too even would be as wrong.
        self.assertTrue(499 - 130 < chi < 499 + 130, chi)
        writes = [r for r in accesses if r[1] == "W"]
        self.assertAlmostEqual(len(writes) / ACCESSES, 0.3, delta=0.012)
        self.assertAlmostEqual(sum(r[5] is not None for r in writes) / len(writes), 0.25,
                               delta=0.02)
        self.assertTrue(all(r[5] is None or r[5] < report["contents"]["distinct"] for r in records))
        self.assertEqual([r[0] for r in accesses], [i * 500_000 for i in range(ACCESSES)])
        self.assertEqual(len(records) - len(accesses), len(writes) // 100)
        self.assertEqual((report["reads"], report["writes"], report["flushes"]),
                         (ACCESSES - len(writes), len(writes), len(writes) // 100))

    def test_zipf_gives_the_ranks_their_shares(self):
        skew = 1.1
        _, records = self.make("--pattern", "zipf", "--skew", skew)
        times = [count for _, count in collections.Counter(r[3] for r in records).most_common()]
        total = sum(k ** -skew for k in range(1, PAGES + 1))
        for first, end in ((1, 2), (2, 4), (4, 16), (16, 64), (64, PAGES + 1)):
            share = sum(k ** -skew for k in range(first, end)) / total
            self.assertAlmostEqual(sum(times[first - 1:end - 1]) / ACCESSES, share, delta=0.02)
        hot = [page for page, _ in collections.Counter(r[3] for r in records).most_common(20)]
        self.assertGreater(max(hot) - min(hot), PAGES // 3)

    def test_loop_goes_round(self):
        _, records = self.make("--pattern", "loop", accesses=2 * PAGES + 10)
        self.assertEqual([r[3] for r in records], [i % PAGES for i in range(2 * PAGES + 10)])

    def test_the_file_has_exactly_the_distinct_pages(self):
        for factor, page in ((1, 4096), (2.5, 512), (4, 4096), (7, 1024), (10, 4096)):
            report, _ = self.make("--factor", factor, "--page", page, "--data", "data", "--seed", 9,
                                  accesses=1)
            distinct = max(int(PAGES / factor + 0.5), 1)
            self.assertEqual(report["contents"]["distinct"], distinct)
            data = (self.folder / "data").read_bytes()
            self.assertEqual((len(data), report["data_bytes"]), (PAGES * page, PAGES * page))
            pages = [data[at:at + page] for at in range(0, len(data), page)]
            copies = collections.Counter(hashlib.sha256(data).digest() for data in pages)
            self.assertEqual(len(copies), distinct)
            self.assertTrue(set(copies.values()) <= {PAGES // distinct, PAGES // distinct + 1})
            for number in (0, 1, distinct - 1, PAGES - 1):
                self.assertEqual(pages[number],
                                 page_of(made_content(report["contents"], 0, number), page))

    def test_any_number_of_threads_makes_the_same_file(self):
        for workers in (1, 2, 5):
            self.make("--data", f"data{workers}", "--factor", 3, "--workers", workers, pages=5000,
                      accesses=1)
        alone, two, five = ((self.folder / f"data{workers}").read_bytes() for workers in (1, 2, 5))
        self.assertTrue(alone == two == five)

    def test_machines_share_the_common_pages_and_nothing_else(self):
        report, records = self.make("--machines", 3, "--common", 40, "--factor", 2, "--data",
                                    "image", "--writes", 10, "--pattern", "zipf")
        contents = report["contents"]
        self.assertEqual([f["path"] for f in report["files"]], ["image.0", "image.1", "image.2"])
        self.assertEqual((contents["common_pages"], contents["common_distinct"],
                          contents["own_distinct"], contents["distinct"]),
                         (200, 100, 150, 550))
        images = []
        for file in range(3):
            data = (self.folder / f"image.{file}").read_bytes()
            images.append([data[at:at + 4096] for at in range(0, len(data), 4096)])
        self.assertTrue(images[0][:200] == images[1][:200] == images[2][:200])
        own = [set(image[200:]) for image in images]
        self.assertEqual([len(distinct) for distinct in own], [150] * 3)
        self.assertEqual(len(set(images[0][:200]).union(*own)), 550)
        self.assertEqual(images[2][321], page_of(made_content(contents, 2, 321), 4096))
        self.assertTrue(all(r[3] >= 200 for r in records if r[1] == "W"))
        reads = [r for r in records if r[1] == "R"]
        self.assertAlmostEqual(sum(r[3] < 200 for r in reads) / len(reads), 0.4, delta=0.015)
        hottest = [collections.Counter(r[3] for r in reads
                                       if r[2] == file and r[3] < 200).most_common(1)[0][0]
                   for file in range(3)]
        self.assertEqual(len(set(hottest)), 1)
        for file in range(3):
            self.assertAlmostEqual(sum(r[2] == file for r in records) / ACCESSES, 1 / 3,
                                   delta=0.015)


class ConvertAndShow(Traces):
    def test_there_and_back_gives_the_same_bytes(self):
        self.trace("generate", "-o", "text", "--pages", 70, "--accesses", 5000, "--writes", 50,
                   "--shared-writes", 50, "--flush-every", 3, "--machines", 2, "--common", 50)
        self.assertEqual(self.trace("convert", "text", "-o", "binary", "--binary")["records"],
                         len(self.records("text")))
        self.trace("convert", "binary", "-o", "again", "--text")
        self.trace("convert", "again", "-o", "binary2", "--binary")
        for name, other in (("text", "again"), ("binary", "binary2")):
            self.assertEqual((self.folder / name).read_bytes(), (self.folder / other).read_bytes())
        self.assertEqual((self.folder / "binary").stat().st_size % 8, 0)
        shown = [self.trace("show", name) for name in ("text", "binary")]
        self.assertEqual([report.pop("format") for report in shown], ["text", "binary"])
        self.assertEqual([report.pop("trace") for report in shown], ["text", "binary"])
        self.assertEqual(*shown)

    def test_show_counts_what_python_counts(self):
        lines = ["penstock-trace 1", "page 512", "file 0 3000 a", "file 1 10 b", "", "7 R 0 0 3000"]
        lines += ([f"{8 + i} R 0 5 1" for i in range(97)]
                  + ["200 W 1 9 1", "200 W 1 9 1 5", "300 F 1 0 0", ""])
        (self.folder / "t").write_text("\n".join(lines))
        found = self.trace("show", "t")
        expected = {"records": 101, "reads": 98, "writes": 2, "flushes": 1,
                    "writes_with_content": 1, "pages_read": 3097, "pages_written": 2,
                    "distinct_pages": 3001, "first_ns": 7, "last_ns": 300, "duration_ns": 293,
                    "page_bytes": 512, "contents": None,
                    "files": [{"path": "a", "pages": 3000}, {"path": "b", "pages": 10}]}
        self.assertEqual({name: found[name] for name in expected}, expected)
        # 30 pages are 1 % of 3001: one of 98 accesses, one of 2, the others of 1. 300 are 10 %.
        self.assertAlmostEqual(found["hottest_1_percent_share"], 128 / 3099)
        self.assertAlmostEqual(found["hottest_10_percent_share"], 398 / 3099)
        ran = penstock("trace", "show", "t", cwd=self.folder)
        self.assertIn(b"3,001 distinct pages; the hottest 1 % take 4.1 %", ran.stdout)

    def test_a_short_trace_of_many_pages_takes_little_memory(self):
        """Nor does it fail: all else is told."""
        count, wide = 6000, 65536
        lines = ["penstock-trace 1", "page 4096", f"file 0 {count * wide} a", "",
                 *(f"{i} R 0 {i * wide} {wide}" for i in range(count)), ""]
        (self.folder / "t").write_text("\n".join(lines))
        limit = (1 << 29, 1 << 29)
        ran = penstock("trace", "show", "t", "--json", cwd=self.folder,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        found = json.loads(ran.stdout)
        self.assertEqual((found["records"], found["pages_read"], found["distinct_pages"]),
                         (count, count * wide, None))

    def test_a_trace_is_read_from_a_pipe(self):
        self.trace("generate", "-o", "t", "--pages", 70, "--accesses", 50_000, "--binary")
        with subprocess.Popen(["cat", self.folder / "t"], stdout=subprocess.PIPE) as cat:
            ran = subprocess.run([PROGRAM, "trace", "show", "/dev/stdin"], stdin=cat.stdout,
                                 capture_output=True, check=False, timeout=1000,
                                 env=clean_environment())
        self.assertIn(b"50,000 records", ran.stdout, ran.stderr)

    def test_malformed_traces_are_refused_and_nothing_is_made(self):
        text = "penstock-trace 1\npage 4096\nfile 0 10 a\n\n0 R 0 1 1\n"
        for bad, *parts in (
                (text + "1 R 0 9 2\n", "'t' line 6: ",
                 "2 pages from page 9 on lie beyond the end of file 0, which has 10"),
                (text + "x\n", "line 6", "TIME_NS 'x'"), (text + "1 R 0 1", "line 6", "cut short"),
                ("hello\n", "line 1", "expected 'penstock-trace 1'"), ("", "line 1", "empty")):
            (self.folder / "t").write_text(bad)
            for command in (["show", "t"], ["convert", "t", "-o", "out", "--binary"]):
                self.refused(1, command, *parts, left=["t"])
        (self.folder / "t").write_text(text)
        self.trace("convert", "t", "-o", "b", "--binary")
        whole = (self.folder / "b").read_bytes()
        (self.folder / "t").write_bytes(whole[:-40])
        self.refused(1, ["convert", "t", "-o", "b", "--text"], "cut short", left=["t", "b"])
        self.assertEqual((self.folder / "b").read_bytes(), whole)
        (self.folder / "b").unlink()
        (self.folder / "t").write_text(text)
        self.refused(1, ["convert", "t", "-o", "./t", "--binary"], "'./t': is the input 't'",
                     left=["t"])
        self.assertEqual((self.folder / "t").read_text(), text)
        self.refused(1, ["show", "."], "EISDIR", left=["t"])
        self.refused(1, ["show", "absent"], "absent", "ENOENT", left=["t"])

    def test_wrong_usage_is_refused_and_nothing_is_made(self):
        make = ["generate", "-o", "t", "--pages", 10, "--accesses", 10]
        for arguments, *parts in ((["generate"], "--out"),
                                  (["generate", "-o", "t", "--pages", 0, "--accesses", 1],
                                   "--pages", "'0'", "from 1"),
                                  ([*make, "--pattern", "odd"], "'odd'", "uniform, zipf or loop"),
                                  ([*make, "--writes", 101], "--writes", "'101'", "0 to 100"),
                                  ([*make, "--factor", 0.5], "--factor", "'0.5'", "from 1"),
                                  ([*make, "--factor", "nan"], "--factor", "'nan'"),
                                  ([*make, "--page", 1000], "--page", "'1000'", "power of two"),
                                  ([*make, "--common", 5], "--common", "--machines"),
                                  ([*make, "--skew", 2], "--skew", "zipf"),
                                  ([*make, "--shared-writes", 50], "--shared-writes", "--writes"),
                                  ([*make, "--flush-every", 5], "--flush-every", "--writes"),
                                  ([*make, "--text", "--binary"], "--text", "--binary"),
                                  ([*make, "--data", "a", "--file", "b"], "--data", "--file"),
                                  ([*make, "--machines", 300], "--machines", "256"),
                                  (["convert", "t", "-o", "u"], "--text or --binary"),
                                  ([], "no command", "generate, convert or show", "--help"),
                                  (["--odd"], "--odd", "not expected"),
                                  (["show", "--odd"], "--odd", "not expected"),
                                  (["import", "x"], "'import'", "convert or show", "--help")):
            with self.subTest(arguments=arguments):
                self.refused(2, arguments, *parts)
        self.refused(1, [*make, "--data", "t"], "'t' is the trace too")
        self.refused(1, [*make, "--data", "no/where"], "no/where", "directory that exists")
        self.refused(1, ["generate", "-o", "/dev/full", "--pages", 10, "--accesses", 100_000],
                     "/dev/full", "ENOSPC")

    def test_what_has_no_room_is_not_begun(self):
        self.refused(1, ["generate", "-o", "t", "--pages", 1 << 40, "--accesses", 1, "--data", "d",
                         "--page", "2MiB"], "'d'", "free", "--pages")

    def test_a_trace_without_room_for_its_end_leaves_the_old_data(self):
        """The data fit below the limit, and the trace, which is written at its end, does not."""
        (self.folder / "d").write_bytes(b"older")
        ran = penstock("trace", "generate", "-o", "t", "--pages", 10, "--page", 512, "--accesses",
                       1000, "--data", "d", "--quiet", cwd=self.folder, preexec_fn=at_most(8192))
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assert_one_line(ran.stderr, "'t'", "EFBIG")
        self.assertEqual(os.listdir(self.folder), ["d"])
        self.assertEqual((self.folder / "d").read_bytes(), b"older")

    def test_one_output_does_not_hold_trace_and_report(self):
        (self.folder / "t").write_text("penstock-trace 1\npage 512\nfile 0 1 a\n\n0 R 0 0 1\n")
        for command in (["convert", "t", "--text"],
                        ["generate", "--pages", 10, "--accesses", 10]):
            self.refused(2, [*command, "-o", "/dev/stdout", "--json"], "/dev/stdout",
                         "standard output", left=["t"])
        ran = penstock("trace", "convert", "t", "--text", "-o", "/dev/stdout", cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stdout),
                         (0, (self.folder / "t").read_bytes()))

    def test_an_interrupt_leaves_nothing(self):
        with subprocess.Popen([PROGRAM, "trace", "generate", "-o", "t", "--pages", "10",
                               "--accesses", "10000000000", "--data", "d"],
                              cwd=self.folder, stderr=subprocess.PIPE) as process:
            while process.poll() is None and not os.listdir(self.folder):
                time.sleep(0.01)
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            self.assertIn(b"interrupted", process.communicate(timeout=1000)[1])
        self.assertEqual((process.returncode, os.listdir(self.folder)), (1, []))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["trace_test.py"])
