#!/usr/bin/env python3
"""penstock stat tells what running programs do: stat_test.py PROGRAM."""
import json
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
import unittest

from support import (FLAGS, SMALL, PROGRAM, InFolder, another_user, clean_environment, pattern,
                     penstock)

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

PAGES = 32
BYTES = PAGES * (64 << 10)


class Stat(InFolder):
    def environment(self, **more):
        return clean_environment(XDG_RUNTIME_DIR=str(self.folder), **more)

    def keeper(self, **environment):
        """A program that has read a file of 32 pages and runs on."""
        path = self.make("data", pattern(BYTES))
        process = subprocess.Popen([PROGRAM, "keep", *FLAGS, *SMALL, "--json", "--share", "test",
                                    path], env=self.environment(**environment),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        ready, _, _ = select.select([process.stdout], [], [], 120)
        self.assertTrue(ready, "it says nothing")
        process.stdout.readline()
        return process

    def stat(self, *arguments):
        return penstock("stat", *arguments, environment=self.environment())

    def caches(self, *arguments):
        ours = self.stat("--json", *arguments)
        self.assertEqual(ours.returncode, 0, ours.stderr)
        self.assertEqual(ours.stdout.count(b"\n"), 1)
        return json.loads(ours.stdout)["caches"]

    def test_json_tells_what_a_running_program_counted(self):
        process = self.keeper()
        mine, = [each for each in self.caches() if each["pid"] == process.pid]
        self.assertEqual([mine], self.same_but_time(self.caches(process.pid), mine))
        self.assertEqual(mine["program"], "penstock")
        self.assertTrue(mine["answers"])
        self.assertEqual(mine["page_bytes"], 64 << 10)
        self.assertEqual(mine["cache_pages"], 128)
        counted = mine["statistics"]
        self.assertEqual(counted["misses"], PAGES)
        self.assertEqual(counted["resident_pages"], PAGES)
        self.assertEqual(sum(counted[name] for name in (
            "request_loads", "window_loads", "tier_loads", "neighbour_loads")), PAGES)
        self.assertEqual(sum(counted["latency_ns"]) > 0, counted["requests"] > 0)

    @staticmethod
    def same_but_time(caches, like):
        return [{**each, "taken_ns": like["taken_ns"]} for each in caches]

    def test_table_has_a_line_of_79_columns(self):
        process = self.keeper()
        ours = self.stat(process.pid)
        head, line = ours.stdout.decode().splitlines()
        self.assertEqual(len(head), 79)
        self.assertEqual(len(line), 79)
        cells = dict(zip(head.split(), line.split()))
        self.assertEqual(cells["PID"], str(process.pid))
        self.assertEqual(cells["CACHE"], "25%")
        self.assertEqual(cells["REQUEST"], str(PAGES))

    def test_watch_prints_a_line_each_interval_until_the_program_ends(self):
        process = self.keeper()
        watching = subprocess.Popen([PROGRAM, "stat", "--interval", "0.1", str(process.pid)],
                                    env=self.environment(), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (watching.kill(), watching.communicate()))
        lines = [watching.stdout.readline().decode() for _ in range(3)]
        self.assertTrue(lines[0].lstrip().startswith("PID PROGRAM"), lines)
        for line in lines[1:]:
            self.assertEqual(len(line), 80, line)
            self.assertEqual(line.split()[0], str(process.pid))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        _, err = watching.communicate(timeout=120)
        self.assertEqual((watching.returncode, err), (0, b""))

    def test_watch_that_was_stopped_goes_on_as_before(self):
        """It does not make up for the lines that it missed. Judged by the times in the lines: how
        many there may be grows with those, however slow the machine is."""
        process = self.keeper()
        watching = subprocess.Popen([PROGRAM, "stat", "--watch", "--interval", "0.4", "--json",
                                     str(process.pid)], env=self.environment(),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (watching.kill(), watching.communicate()))
        times = []

        def look(lines):
            for _ in range(lines):
                told = json.loads(watching.stdout.readline())
                times.append(told["caches"][0]["taken_ns"] / 1e9)

        look(3)
        watching.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, watching.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(6)  # 15 lines, that a cache would answer in 1.5 seconds
        watching.send_signal(signal.SIGCONT)
        look(12)
        longest = max(after - before for before, after in zip(times, times[1:]))
        self.assertLess(len(times), (times[-1] - times[0] - longest) / 0.4 + 5, times)

    def test_watch_ends_with_a_signal(self):
        watching = subprocess.Popen([PROGRAM, "stat", "--watch", "--json"], env=self.environment(),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (watching.kill(), watching.communicate()))
        json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=120)
        self.assertEqual(watching.returncode, 0)

    def test_killed_program_leaves_nothing(self):
        process = self.keeper()
        self.assertEqual(len(self.caches(process.pid)), 1)
        process.kill()
        process.wait(timeout=120)
        self.assertEqual([each for each in self.caches() if each["pid"] == process.pid], [])
        ours = self.stat(process.pid)
        self.assertEqual(ours.returncode, 1)
        self.assert_one_line(ours.stderr, str(process.pid), "no process of this user")

    def test_stopped_program_is_told_by_its_last_counts(self):
        process = self.keeper()
        self.assertTrue(self.caches(process.pid)[0]["answers"])
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        mine, = self.caches(process.pid)
        self.assertFalse(mine["answers"])
        self.assertEqual(mine["statistics"]["misses"], PAGES)
        self.assertIn(b"no answer", self.stat(process.pid).stdout)
        process.send_signal(signal.SIGCONT)
        self.assertTrue(self.caches(process.pid)[0]["answers"])

    def test_too_few_descriptors_are_no_answer(self):
        self.keeper()
        for flags in ([], ["--prometheus"]):
            ours = penstock("stat", *flags, environment=self.environment(),
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
            self.assertEqual((ours.returncode, ours.stdout), (1, b""))
            self.assert_one_line(ours.stderr, "EMFILE", "ulimit -n")

    def test_option_keeps_statistics_private(self):
        process = self.keeper(PENSTOCK_STATISTICS="off")
        self.assertEqual([each for each in self.caches() if each["pid"] == process.pid], [])

    @unittest.skipUnless(os.geteuid() == 0, "takes root, which may become another user")
    def test_programs_of_other_users_are_not_shown(self):
        process = self.keeper()
        # Where the other user could read the keeper's files, so that the program itself must tell
        # them apart.
        with tempfile.TemporaryDirectory() as place:
            for folder in (place, self.folder):
                os.chmod(folder, 0o755)
            theirs = penstock("stat", "--json", environment=self.environment(),
                              **another_user(place))
        self.assertEqual(theirs.returncode, 0, theirs.stderr)
        self.assertEqual([each for each in json.loads(theirs.stdout)["caches"]
                          if each["pid"] == process.pid], [])

    def test_prometheus_text_has_the_counts(self):
        process = self.keeper()
        text = self.stat("--prometheus", process.pid).stdout.decode()
        label = f'pid="{process.pid}",program="penstock",device="'
        self.assertIn(f"penstock_misses_total{{{label}", text)
        self.assertIn("# TYPE penstock_request_seconds histogram\n", text)
        self.assertEqual(text.count("# TYPE penstock_hits_total counter\n"), 1)

    @unittest.skipIf(text_string_to_metric_families is None,
                     "prometheus_client is not installed")
    def test_prometheus_client_accepts_the_text(self):
        process = self.keeper()
        text = self.stat("--prometheus", process.pid).stdout.decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        for family in families.values():
            self.assertNotEqual(family.type, "unknown", family.name)
            self.assertTrue(family.documentation, family.name)
        misses = families["penstock_misses"].samples
        self.assertEqual({sample.labels["source"] for sample in misses},
                         {"window", "tier", "neighbour", "request"})
        self.assertEqual(sum(sample.value for sample in misses), PAGES)
        self.assertEqual(families["penstock_resident_pages"].samples[0].value, PAGES)
        buckets = [sample for sample in families["penstock_request_seconds"].samples
                   if sample.name.endswith("_bucket")]
        self.assertEqual(buckets[-1].labels["le"], "+Inf")
        values = [sample.value for sample in buckets]
        self.assertEqual(values, sorted(values))

    def test_wrong_usage_is_one_line(self):
        for status, arguments, parts in (
                (2, ["x"], ["PID", "'x'"]),
                (2, [""], ["PID", "''"]),
                (2, ["--interval", "0"], ["--interval", "0.1"]),
                (2, ["--json", "--prometheus"], ["--prometheus", "--json"]),
                (2, ["--watch", "--prometheus"], ["--prometheus"]),
                (1, ["1"], ["PID 1"])):
            with self.subTest(arguments=arguments):
                ours = self.stat(*arguments)
                self.assertEqual(ours.returncode, status)
                self.assert_one_line(ours.stderr, *parts)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["stat_test.py"])
