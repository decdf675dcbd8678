#!/usr/bin/env python3
"""penstock bench prints one JSON object with sound figures for every case, refuses wrong usage with
one line, and leaves no file: bench_test.py PROGRAM."""
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import FLAGS, PROGRAM, InFolder, clean_environment, penstock

PLOTS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "plots.py"
HAS_FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK)
HAS_URING = {"what": "io_uring", "why": "", "works": True} in json.loads(
    penstock("info", "--json").stdout)["works"]
CASES = ["hit", "map", "element", "gather", "table", *(["table-cold"] if HAS_URING else []), "miss",
         "sequential", "cold", "request", "write", "close", "append", "fsync", "acquire",
         "in-place", "sharing", *(["peer", "mount"] if HAS_FUSE else []), "evict", "merge",
         "signature", "exchange", "buffer", "policy", "admission", "neighbours", "versions"]
# Simulations, which take long and which tests of their own run.
SIMULATIONS = {"policy", "admission", "neighbours"}
TINY = ["--file", "2MiB", "--repeats", "1", "--threads", "2", "--page", "4KiB"]
KEYS = {"goal", "case", "backend", "page_bytes", "value", "unit", "baseline", "baseline_value",
        "ratio", "cpu_cores_used", "note"}
MACHINE = {"device", "driver", "cpu", "cores", "kernel", "file_system", "commit"}
SMALLER_IS_BETTER = {"us", "ms", "s", "bytes loaded per byte asked for", "% of the file"}
# Where a file stays in memory when it is dropped, cases of cold files are left out.
IN_MEMORY = subprocess.run(["stat", "-f", "-c", "%T", tempfile.gettempdir()], check=True,
                           capture_output=True).stdout.strip() in (b"tmpfs", b"ramfs")
COLD = {"cold", "table-cold", "peer"}

# Arguments after "penstock bench"; what the line must contain.
WRONG_USAGE = [
    ([], ["CASE", "--help"]),
    (["hot"], ["'hot'", "hit, map", "all"]),
    (["hit", "--page", "1000"], ["--page", "'1000'", "powers of two"]),
    (["hit", "--page", "4KiB,256"], ["--page", "256", "512"]),
    (["hit", "--page", "4KiB,"], ["--page", "''", "such as"]),
    (["hit", "--page", "4MiB"], ["--page", "4194304", "2MiB"]),
    (["miss", "--cache", "0"], ["--cache", "'0'", "such as"]),
    (["miss", "--cache", "64KiB"], ["--cache", "64 KiB", "512 KiB or more"]),
    (["miss", "--cache", "lots"], ["--cache", "'lots'", "such as"]),
    (["hit", "--file", "1KiB"], ["--file", "'1KiB'", "2MiB or more"]),
    (["hit", "--file", "2MiB,4MiB"], ["--file", "'2MiB,4MiB'", "one, such as"]),
    (["hit", "--repeats", "0"], ["--repeats", "'0'", "1 to 1000"]),
    (["hit", "--repeats", "many"], ["--repeats", "'many'", "1 to 1000"]),
    (["hit", "--threads", "-1"], ["--threads", "'-1'", "1 to 1024"]),
    (["request", "--service-threads", "1,65"], ["--service-threads", "'65'", "1 to 64"]),
    (["request", "--service-threads", "1,,2"], ["--service-threads", "'1,,2'", "such as 1,2,4"]),
    (["hit", "--backend", "tpu"], ["--backend", "'tpu'", "auto, gpu or cpu"]),
    (["hit", "--dir", "/no/such/place"], ["--dir", "'/no/such/place'", "exists"]),
    (["hit", "--dir", "/etc/passwd"], ["--dir", "'/etc/passwd'", "exists"]),
    (["hit", "--nosuch"], ["--nosuch", "--help"]),
]


class Bench(InFolder):
    def bench(self, *arguments):
        ran = penstock("bench", *arguments, *FLAGS, "--dir", self.folder, "--commit", "abc1234",
                       "--quiet")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stderr, b"")
        self.assertEqual(os.listdir(self.folder), [], "a file was left behind")
        report = json.loads(ran.stdout)
        self.check(report)
        return report["results"]

    def check(self, report):
        self.assertEqual(set(report), {"machine", "results"})
        self.assertEqual(set(report["machine"]), MACHINE)
        self.assertEqual(report["machine"]["commit"], "abc1234")
        self.assertGreater(report["machine"]["cores"], 0)
        self.assertTrue(report["results"])
        for row in report["results"]:
            with self.subTest(case=row["case"]):
                self.check_row(row)

    def check_row(self, row):
        self.assertEqual(set(row), KEYS)
        for key in ("goal", "case", "unit", "baseline", "backend"):
            self.assertTrue(row[key], key)
        for key in ("value", "baseline_value", "ratio", "cpu_cores_used"):
            self.assertTrue(math.isfinite(row[key]), key)
            self.assertGreaterEqual(row[key], 0, key)
        self.assertGreater(row["baseline_value"], 0)
        # Only a policy may have no hit at all.
        if row["unit"] != "hit ratio":
            self.assertGreater(row["value"], 0)
        expected = row["value"] / row["baseline_value"]
        if row["unit"] in SMALLER_IS_BETTER:
            expected = 1 / expected
        self.assertTrue(math.isclose(row["ratio"], expected, rel_tol=1e-3, abs_tol=1e-9), row)

    def test_every_case_measures_something(self):
        on_gpu = "gpu" in FLAGS
        for case in CASES:
            if case in SIMULATIONS or (IN_MEMORY and case in COLD):
                continue
            if on_gpu and case == "evict":
                continue  # it has no form for a GPU, which the program says
            with self.subTest(case=case):
                self.bench(case, *TINY)

    def test_cases_come_in_the_order_asked_for(self):
        rows = self.bench("map", "element", "map", *TINY)
        goals = [row["goal"] for row in rows]
        self.assertEqual(goals, sorted(goals))
        self.assertEqual(set(goals), {"S2", "S3"})

    def test_what_is_varied_is_in_the_rows(self):
        rows = self.bench("request", "--file", "2MiB", "--repeats", "1", "--page", "512,4KiB",
                          "--cache", "64KiB,256KiB", "--service-threads", "1,2")
        seen = {(row["page_bytes"], row["case"]) for row in rows if row["unit"] == "GB/s"}
        self.assertEqual(
            seen,
            {(page, f"requests of random pages by {by}, {threads}, cache 1/{part} of the file")
             for page in (512, 4096) for threads in ("1 service thread", "2 service threads")
             for part in (32, 8) for by in ({"threads"} if "cpu" in FLAGS else {"warps"})})

    def test_gather_measures_rows_of_every_size(self):
        rows = self.bench("gather", "--file", "4MiB", "--repeats", "2", "--threads", "2", "--page",
                          "512,64KiB")
        self.assertEqual({row["goal"] for row in rows}, {"issue-3"})
        self.assertEqual({row["unit"] for row in rows}, {"million rows/s"})
        seen = {(row["page_bytes"], size) for row in rows if "4 MiB resident" in row["case"]
                for size in ("64 B", "512 B", "1 KiB", "4 KiB") if f"rows of {size}" in row["case"]}
        self.assertEqual(len(seen), 8, rows)
        for row in rows:
            self.assertIn("median of 2, spread ", row["note"])
            self.assertIn("all rows compared; misses 0" if "cpu" in FLAGS else "all compared",
                          row["note"])

    @unittest.skipUnless(os.access("/dev/shm", os.W_OK), "no file system in memory here")
    def test_a_file_that_stays_in_memory_is_not_called_cold(self):
        for case in ("cold", "region-cold", *(["table-cold"] if HAS_URING else []),
                     *(["peer"] if HAS_FUSE else [])):
            with self.subTest(case=case):
                ran = penstock("bench", case, *TINY, *FLAGS, "--dir", "/dev/shm", "--commit",
                               "abc1234", "--quiet")
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertEqual(json.loads(ran.stdout)["results"], [])
                self.assertRegex(ran.stderr.decode(), "left out: .* stayed in memory")

    def test_results_without_a_commit_are_told_of(self):
        ran = penstock("bench", "versions", *TINY, *FLAGS, "--dir", self.folder, "--quiet")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(b"--commit", ran.stderr)
        self.assertEqual(ran.stderr.count(b"\n"), 1, ran.stderr)

    def test_a_baseline_by_hand_names_its_threads_and_cores(self):
        for case in ("write", "close", "append"):
            for row in self.bench(case, "--file", "2MiB", "--repeats", "1", "--threads", "3",
                                  "--page", "4KiB"):
                if "nothing written behind" not in row["baseline"]:
                    self.assertRegex(row["baseline"],
                                     r"[13] threads?, the best of 1, 3; [0-9.]+ cores$")

    @unittest.skipUnless(HAS_URING and not IN_MEMORY, "there is no io_uring, or no disk")
    def test_cold_rows_stand_beside_the_best_depth_of_io_uring(self):
        rows = self.bench("table-cold", "--file", "4MiB", "--repeats", "2", "--threads", "2")
        for size, page in (("4 KiB", 4096), ("512 B", 512)):
            by_hand, tables = ([row for row in rows if f"cold rows of {size}" in row["case"]
                                and row["page_bytes"] == kind] for kind in (0, page))
            rates = {int(row["case"].rsplit(" ", 1)[1]): row["value"] for row in by_hand}
            self.assertLessEqual({32, 128, 256, 1024}, set(rates))
            best = max(rates.values())
            self.assertEqual({row["baseline_value"] for row in by_hand}, {best})
            disk = [row for row in tables if "the disk's best" in row["baseline"]]
            self.assertEqual({row["baseline_value"] for row in disk}, {best})
            self.assertEqual(len(disk), len([row for row in tables if "same depth" in row["case"]]))
            for row in tables:
                self.assertIn("all compared", row["note"])

    def test_append_counts_records_and_says_that_all_were_found(self):
        rows = self.bench("append", "--file", "8MiB", "--repeats", "2", "--threads", "2", "--page",
                          "4KiB,64KiB")
        self.assertEqual([(row["goal"], row["unit"], row["page_bytes"]) for row in rows],
                         [("append", "million/s", page) for page in (4096, 4096, 65536, 65536)])
        self.assertEqual(["512 records" in row["baseline"] for row in rows], [True, False] * 2)
        for row in rows:
            self.assertIn("each record found in the file", row["note"])

    def test_fsync_measures_few_and_many_pages_beside_another_file(self):
        rows = self.bench("fsync", "--file", "8MiB", "--repeats", "1", "--threads", "2", "--page",
                          "4KiB")
        self.assertEqual(
            [row["case"] for row in rows],
            [f"fsync of a file of 2048 pages, {count} of them dirty; another file has {others}"
             for others in ("no dirty page", "2048 dirty pages") for count in (1, 1000, 2048)])
        self.assertEqual({row["unit"] for row in rows}, {"us"})

    def test_acquire_fetches_what_was_changed_and_no_more(self):
        rows = self.bench("acquire", "--file", "8MiB", "--repeats", "2", "--threads", "2")
        self.assertEqual([row["case"] for row in rows],
                         ["acquire of a region, 0 % of its pages changed"]
                         + [f"acquire of a region, {part} % of its pages changed{by}"
                            for part in (0.1, 1, 10, 50, 75, 100)
                            for by in (" by another region of this device",
                                       ", which come from the file")]
                         + ["the caller's time in acquire_async, 0 % of the pages changed",
                            "the caller's time in acquire_async, 1 % of the pages changed by "
                            "another region of this device",
                            "release of a region of which nothing changed"])
        for row, pages in zip(rows, (0, 2, 2, 20, 20, 204, 204, 1024, 1024, 1536, 1536, 2048,
                                     2048)):
            self.assertIn(f"{pages} of 2048 pages, each found as released", row["note"])

    def test_a_region_is_filled_from_the_cache(self):
        rows = self.bench("region-cache", "--file", "8MiB", "--repeats", "2")
        self.assertEqual([row["page_bytes"] for row in rows], [4096, 65536])
        for row in rows:
            self.assertIn("2048 pages of 4096, 100.0 % of them from the cache", row["note"])

    @unittest.skipIf(IN_MEMORY, "there is no disk")
    def test_a_cold_region_is_measured_beside_the_reads_alone(self):
        rows = self.bench("region-cold", "--file", "8MiB", "--repeats", "2", "--threads", "2")
        self.assertEqual(rows[0]["case"], "mapping a cold region, read through host memory")
        self.assertIn("each byte range that was looked at is right", rows[0]["note"])

    @unittest.skipUnless(HAS_FUSE and not IN_MEMORY, "no FUSE here, or no disk")
    def test_reads_that_a_region_or_the_cache_may_answer(self):
        rows = self.bench("peer", "--file", "8MiB", "--repeats", "1", "--threads", "2")
        self.assertEqual([row["case"] for row in rows],
                         [f"a program reads {access}, {threads}, {part} % of the file {where}"
                          for where, parts in (("with a region", (0, 25, 50, 100)),
                                               ("in the cache of open and read", (25, 50, 100)))
                          for part in parts for access in ("4 KiB at random", "1 MiB in order")
                          for threads in ("1 thread", "2 threads")])
        self.assertTrue(all("0.0 % of what the kernel asked for came" in row["note"]
                            for row in rows[:4]),
                        rows[:4])

    def test_a_region_in_place_is_measured_beside_one_that_is_filled(self):
        rows = [row for row in self.bench("in-place", *TINY) if " by hand" not in row["case"]]
        self.assertEqual([row["case"] for row in rows],
                         ["1 % of the pages of a region in place",
                          *(f"a region in place mapped, {touched}, and closed"
                            for touched in ("1 % of its pages touched once",
                                            "10 % of its pages touched once",
                                            "100 % of its pages touched once",
                                            "100 % of its pages touched ten times"))])
        self.assertIn("512 pages a time", rows[-1]["note"])

    def test_shared_pages_have_every_count(self):
        rows = self.bench("sharing", "--repeats", "2", "--threads", "2")
        self.assertEqual([row["case"] for row in rows],
                         ["16 pages that a kernel and a program change in turns of 64 bytes, "
                          f"{rounds} times each word" for rounds in (10, 100, 1000, 10000)])
        for row in rows:
            self.assertIn("every count is right", row["note"])

    @unittest.skipUnless("cpu" in FLAGS, "the case is of the cpu")
    def test_closed_pages_go_before_clean_ones_and_dirty_ones_last(self):
        rows = self.bench("evict", "--file", "8MiB", "--repeats", "1", "--page", "512")
        kinds = ["pages of a closed file", "clean pages", "dirty pages"]
        self.assertEqual([row["case"] for row in rows],
                         [f"{kind} left, with {times} times as many pages as fit"
                          for times in ("1.25", "1.5", 2, 4, 8, 16, 32, 64) for kind in kinds])
        for closed, clean, dirty in zip(rows[0::3], rows[1::3], rows[2::3]):
            self.assertLessEqual(closed["value"], clean["value"])
            self.assertLessEqual(clean["value"], dirty["value"])
            self.assertLess(closed["value"], closed["baseline_value"])
            self.assertGreater(dirty["value"], dirty["baseline_value"])

    def test_a_case_after_one_that_changed_the_file_gets_a_new_one(self):
        self.bench("fsync", "map", "write", "hit", *TINY)

    def test_cold_says_how_cold_it_was_and_which_pread_was_better(self):
        for row in self.bench("cold", *TINY):
            self.assertRegex(row["note"],
                             r"[0-9.]+ % of the file stayed in the page cache when it was dropped")
            self.assertRegex(row["baseline"], r"^(O_DIRECT|buffered) pread, 2 threads")

    def test_repeats_and_spread_are_said(self):
        for row in self.bench("map", "--file", "2MiB", "--repeats", "3", "--page", "4KiB"):
            self.assertIn("median of 3, spread ", row["note"])

    def test_a_sweep_has_what_the_plots_need(self):
        rows = self.bench("miss", "--sweep", "--file", "4MiB", "--repeats", "1", "--threads", "2",
                          "--page", "4KiB,16KiB")
        self.assertTrue([row for row in rows if "clock shard" in row["case"]])
        waste = {row["page_bytes"]: row["value"] for row in rows
                 if row["case"] == "random records of 3 KiB, loaded"}
        self.assertEqual(sorted(waste), [4096, 16384])
        for page, value in waste.items():  # of a record no more than its page comes
            self.assertLessEqual(value, 1.05 * page / 3072)
        # A page enters the cache with each miss there. On a GPU most records are read through their
        # window, which loads no more than them, and how many pages enter is chance.
        if "gpu" not in FLAGS:
            self.assertGreater(waste[16384], 1.5 * waste[4096])

    def test_policies_stay_below_the_optimum(self):
        rows = self.bench("policy", "--file", "4MiB", "--repeats", "1")
        ratios = [row for row in rows if row["unit"] == "hit ratio"]
        self.assertEqual(len(ratios), 6 * 6 * 7)
        for row in ratios:
            self.assertLessEqual(row["value"], row["baseline_value"] * 1.0001, row["case"])

    def test_admission_costs_nothing_where_no_page_enters(self):
        rows = self.bench("admission", "--file", "2MiB", "--repeats", "1")
        never = [row for row in rows if row["case"].endswith(", never")]
        self.assertEqual(len(never), 16)
        for row in never:
            self.assertEqual(row["value"], 1, row["case"])
            self.assertIn("hit ratio 0.0000", row["note"])

    def test_placements_of_neighbours_keep_their_rules(self):
        rows = self.bench("neighbours", "--file", "2MiB", "--repeats", "1")
        self.assertEqual({row["goal"] for row in rows}, {"R13"})
        for row in rows:
            shares = dict(re.findall(r"(own|neighbour|host) ([0-9.]+)", row["note"]))
            self.assertEqual(len(shares), 3, row["note"])
            self.assertAlmostEqual(sum(map(float, shares.values())), 1, places=3, msg=row["case"])
            if ", private, " in row["case"]:
                self.assertEqual(shares["neighbour"], "0.0000", row["case"])
            # What fits into one cache is read from the host once, mostly before reads are counted.
            if ", read through only, " in row["case"] and ", 0.9 caches" in row["case"]:
                self.assertLess(float(shares["host"]), 0.001, row["case"])

    def test_versions_grow_with_what_changes(self):
        rows = self.bench("versions", "--file", "8MiB", "--repeats", "1")
        self.assertEqual({row["goal"] for row in rows}, {"versions"})
        share = {tuple(map(int, re.findall("[0-9]+", row["case"]))): row["value"] for row in rows}
        self.assertEqual(sorted(share), sorted((devices, one_in) for devices in (1, 2, 4, 8)
                                               for one_in in (2, 100, 1000)))
        for devices in (2, 4, 8):
            self.assertGreater(share[devices, 2], share[devices, 100])
            self.assertGreater(share[devices, 100], share[devices, 1000])
        for row in rows:
            settled = float(re.search(r"([0-9.]+) % once", row["note"])[1])
            self.assertLessEqual(settled, row["value"] + 1e-4)  # as it is printed
            self.assertLess(settled, row["baseline_value"] / 10, row["case"])

    def test_wrong_usage(self):
        for arguments, parts in WRONG_USAGE:
            with self.subTest(arguments=arguments):
                ran = penstock("bench", *arguments)
                self.assertEqual(ran.returncode, 2, ran.stderr)
                self.assertEqual(ran.stdout, b"")
                self.assert_one_line(ran.stderr, *parts)

    def test_a_wrong_variable(self):
        ran = penstock("bench", "map", environment=clean_environment(PENSTOCK_MAX_FILES="3"))
        self.assertEqual(ran.returncode, 2)
        self.assert_one_line(ran.stderr, "max_files", "16")

    def test_no_room_is_noticed_before_anything_is_written(self):
        ran = penstock("bench", "map", *FLAGS, "--file", "4000TiB", "--dir", self.folder, "--quiet")
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "--dir", "free", "4000 TiB", "smaller --file")
        self.assertEqual(os.listdir(self.folder), [])

    def test_gather_asks_for_memory_before_it_takes_any(self):
        if "gpu" in FLAGS:
            self.skipTest("there the file comes first")
        ran = penstock("bench", "gather", *FLAGS, "--file", "4000TiB", "--dir", self.folder,
                       "--quiet")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stdout, b"")
        self.assert_one_line(ran.stderr, "bench gather", "needs 8192000", "GiB are free",
                             "smaller --file")
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_error_leaves_no_file(self):
        ran = penstock("bench", "miss", *FLAGS, "--file", "2MiB", "--cache", "4000TiB", "--dir",
                       self.folder, "--quiet")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stdout, b"")
        self.assert_one_line(ran.stderr, "bench miss", "cache_bytes", "give less")
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_error_takes_no_row_of_the_cases_before_it(self):
        ran = penstock("bench", "versions", "miss", *FLAGS, "--file", "2MiB", "--cache", "4000TiB",
                       "--dir", self.folder, "--commit", "abc1234", "--quiet")
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "bench miss", "cache_bytes", "give less")
        report = json.loads(ran.stdout)
        self.check(report)
        self.assertIn("versions", report["results"][0]["case"])

    def test_rows_are_printed_as_they_are_measured(self):
        """So a signal takes those alone that are still to come."""
        running = subprocess.Popen([PROGRAM, "bench", "versions", "map", *FLAGS, "--file", "64MiB",
                                    "--repeats", "1000", "--dir", str(self.folder)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=clean_environment())
        first = [running.stdout.readline() for _ in range(3)]
        running.send_signal(signal.SIGTERM)
        rest = running.communicate(timeout=1000)[0]
        self.assertEqual(running.returncode, -signal.SIGTERM)
        self.assertFalse(rest.endswith(b"]}\n"), rest[-100:])
        rows = [line.rstrip(b",\n") for line in [*first, *rest.splitlines()]][2:]
        self.assertIn("versions", json.loads(rows[0])["case"])
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_signal_leaves_no_file(self):
        # The case fsync has two files at a time.
        for number, case in ((signal.SIGINT, "map"), (signal.SIGTERM, "fsync"),
                             (signal.SIGHUP, "append")):
            running = subprocess.Popen([PROGRAM, "bench", case, *FLAGS, "--file", "8MiB",
                                        "--repeats", "1000", "--dir", str(self.folder)],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       env=clean_environment())
            deadline = time.monotonic() + 600
            while (not os.listdir(self.folder) and running.poll() is None
                   and time.monotonic() < deadline):
                time.sleep(0.01)
            self.assertTrue(os.listdir(self.folder), "it made no file")
            time.sleep(0.2)  # in the middle of it
            running.send_signal(number)
            self.assertFalse(running.communicate(timeout=1000)[0].endswith(b"]}\n"))
            self.assertEqual(running.returncode, -number)
            self.assertEqual(os.listdir(self.folder), [])

    def plots(self, *arguments):
        return subprocess.run([sys.executable, PLOTS, *map(str, arguments)], capture_output=True,
                              text=True, check=False, timeout=1000)

    def test_plots_of_what_is_there(self):
        ran = penstock("bench", "policy", *FLAGS, "--file", "4MiB", "--repeats", "1", "--quiet")
        report = self.make("report.json", ran.stdout)
        drawn = self.plots(report, "-o", self.folder / "plots")
        if subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True,
                          check=False).returncode != 0:
            self.assertEqual(drawn.returncode, 1)
            self.assertIn("python3-matplotlib", drawn.stderr)
            return
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        self.assertEqual(os.listdir(self.folder / "plots"), ["systor-4.png"])
        self.assertIn("gpufs-10: left out", drawn.stdout)
        self.assertIn("1 figures drawn, 8 left out", drawn.stdout)

    def test_plots_of_what_is_no_report(self):
        for name, content in (("text", b"text"), ("list.json", b"[]"),
                              ("other.json", b'{"results": []}')):
            ran = self.plots(self.make(name, content), "-o", self.folder / "plots")
            self.assertEqual(ran.returncode, 1)
            self.assertIn(f"{name}' is no report of penstock bench", ran.stderr)
        self.assertIn("No such file", self.plots(self.folder / "absent", "-o", self.folder).stderr)
        self.assertEqual(self.plots("x").returncode, 2)

    def test_a_gpu_that_cannot_be_used(self):
        if "gpu" in FLAGS:
            self.skipTest("there is one")
        ran = penstock("bench", "map", "--backend", "gpu", "--dir", self.folder, "--quiet",
                       environment=clean_environment(CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "--backend", "'gpu'", "--backend cpu")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["bench_test.py"])
