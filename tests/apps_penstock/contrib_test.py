#!/usr/bin/env python3
"""Files below contrib/ and the page for administrators name metrics, units and options that are
there: contrib_test.py PROGRAM."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

from support import FLAGS, PROGRAM, SMALL, InFolder, clean_environment, pattern, penstock

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTRIB = ROOT / "contrib"


class Contrib(InFolder):
    def metrics(self):
        """The names in the text of a running program; of a histogram those of its samples too."""
        path = self.make("data", pattern(100_000))
        environment = clean_environment(XDG_RUNTIME_DIR=str(self.folder))
        process = subprocess.Popen([PROGRAM, "keep", *FLAGS, *SMALL, "--json", "--share", "test",
                                    path], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        process.stdout.readline()
        text = penstock("stat", "--prometheus", process.pid, environment=environment
                        ).stdout.decode()
        return (set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
                | set(re.findall(r"^(penstock_\w+)", text, re.MULTILINE)), text)

    def test_metrics_that_are_named_exist(self):
        names, text = self.metrics()
        self.assertGreater(len(names), 12)
        for file in (CONTRIB / "prometheus/penstock.rules.yml", CONTRIB / "grafana/penstock.json",
                     ROOT / "docs/guide/operating.md"):
            named = set(re.findall(r"\bpenstock_[a-z_]+\b", file.read_text(encoding="utf-8")))
            self.assertGreater(len(named), 3, file)
            self.assertLessEqual(named, names, file)
            for value in re.findall(r'\b(?:where|for|source|way)="(\w+)"', file.read_text()):
                self.assertIn(f'="{value}"', text, file)

    def test_page_names_every_metric(self):
        page = (ROOT / "docs/guide/operating.md").read_text(encoding="utf-8")
        for name in set(re.findall(r"^# TYPE (\w+)", self.metrics()[1], re.MULTILINE)):
            self.assertIn(f"`{name}", page)

    def test_grafana_file_is_a_dashboard(self):
        board = json.loads((CONTRIB / "grafana/penstock.json").read_text(encoding="utf-8"))
        self.assertEqual(board["title"], "Penstock")
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))

    @unittest.skipIf(shutil.which("promtool") is None, "promtool is not installed")
    def test_promtool_accepts_rules_and_metrics(self):
        rules = subprocess.run(["promtool", "check", "rules",
                                CONTRIB / "prometheus/penstock.rules.yml"], check=False,
                               stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(rules.returncode, 0, rules.stdout + rules.stderr)
        metrics = subprocess.run(["promtool", "check", "metrics"], check=False,
                                 input=self.metrics()[1].encode(), capture_output=True)
        self.assertEqual((metrics.returncode, metrics.stderr), (0, b""))

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
    def test_systemd_accepts_the_units(self):
        unit = (CONTRIB / "systemd/penstock-mount@.service").read_text(encoding="utf-8")
        self.make("penstock-mount@x.service", unit.replace("/usr/bin/penstock", PROGRAM).encode())
        for file in (CONTRIB / "prometheus").glob("penstock-metrics.*"):
            self.make(file.name, file.read_bytes())
        units = [path for path in self.folder.iterdir()
                 if path.suffix in (".service", ".timer")]
        self.assertEqual(len(units), 3)
        judged = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], check=False,
                                stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual((judged.returncode, judged.stderr), (0, b""))

    def test_unit_gives_options_that_the_program_has(self):
        help_text = penstock("mount", "--help").stdout.decode()
        start, = re.findall(r"^ExecStart=(.*)", (CONTRIB / "systemd/penstock-mount@.service")
                            .read_text(encoding="utf-8"), re.MULTILINE)
        example = (CONTRIB / "systemd/penstock-mount.conf").read_text(encoding="utf-8")
        named = re.findall(r" (--[a-z][a-z-]*)", start) + re.findall(r"[ =](--[a-z-]+)", example)
        self.assertGreater(len(named), 3)
        for option in named:
            self.assertIn(f"  {option}", help_text)


    def test_options_of_the_example_may_stand_beside_those_of_the_unit(self):
        """The program looks for the source once it has accepted the options."""
        start, = re.findall(r"^ExecStart=\S+ (.*)", (CONTRIB / "systemd/penstock-mount@.service")
                            .read_text(encoding="utf-8"), re.MULTILINE)
        examples = re.findall(r"^#? ?OPTIONS=(.*)", (CONTRIB / "systemd/penstock-mount.conf")
                              .read_text(encoding="utf-8"), re.MULTILINE)
        self.assertGreater(len(examples), 1)
        for example in examples:
            command = start.replace("$OPTIONS", example).replace("${SOURCE}", "no/source")
            command = command.replace("${MOUNTPOINT}", str(self.folder))
            with self.subTest(command=command):
                ours = penstock(*shlex.split(command))
                self.assert_one_line(ours.stderr, "no/source", "ENOENT")
                self.assertEqual(ours.returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["contrib_test.py"])
