#!/usr/bin/env python3
"""penstock info: info_test.py PROGRAM."""
import json
import pathlib
import re
import unittest

from support import FLAGS, InFolder, clean_environment, penstock

ROOT = pathlib.Path(__file__).resolve().parents[2]


def variables_of_document():
    return set(re.findall(r"^\| `\w+` \| `(PENSTOCK_[A-Z_]+)`",
                          (ROOT / "docs/guide/settings.md").read_text(), re.MULTILINE))


# Of CPU threads every number is a device; of GPUs a machine has few.
with_any_devices = unittest.skipIf("gpu" in FLAGS, "devices of any number are CPU threads")


class Info(InFolder):
    def report(self, *flags, **variables):
        ran = penstock("info", "--json", *FLAGS, *flags, environment=clean_environment(**variables))
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        return json.loads(ran.stdout)

    def test_every_option_is_there(self):
        rows = {row["environment"]: row for row in self.report()["options"]}
        self.assertEqual(set(rows), variables_of_document())

    def test_quiet_leaves_the_exit_status(self):
        for flags in (["--quiet"], ["--quiet", "."]):
            ran = penstock("info", *FLAGS, *flags)
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, b"", b""))
        ran = penstock("info", *FLAGS, "--quiet", "nothing", environment=clean_environment())
        self.assertEqual((ran.returncode, ran.stdout), (1, b""))
        self.assert_one_line(ran.stderr, "'nothing'")
        self.assertIn("works", self.report("--quiet"))

    def test_sources_of_values(self):
        rows = {row["name"]: row
                for row in self.report("--cache", "64MiB", PENSTOCK_PAGE="4KiB")["options"]}
        self.assertEqual((rows["cache_bytes"]["value"], rows["cache_bytes"]["source"]),
                         (64 << 20, "command line"))
        self.assertEqual((rows["page_bytes"]["value"], rows["page_bytes"]["source"]),
                         (4096, "environment"))
        self.assertEqual((rows["frame_wait_ms"]["value"], rows["frame_wait_ms"]["source"]),
                         (400, "default"))
        self.assertEqual(rows["staging_bytes"]["source"], "automatic")
        self.assertGreater(rows["staging_bytes"]["value"], 0)

    def test_what_does_not_work_says_why(self):
        report = self.report()
        self.assertGreaterEqual(len(report["works"]), 7)
        for finding in report["works"]:
            self.assertTrue(finding["works"] or finding["why"], finding)
        self.assertTrue(report["gpus"] or report["cuda"]["why_not"])

    def test_a_path_tells_its_file_system(self):
        (of_proc, here) = self.report("/proc", ".")["file_systems"]
        self.assertEqual((of_proc["name"], of_proc["mount_point"]), ("proc", "/proc"))
        self.assertFalse(of_proc["is_local"])
        self.assertIn("PENSTOCK_TRUST_TIMES=on", of_proc["pages"])
        self.assertTrue(here["name"] and here["times"] and here["writers"])
        on = self.report("/proc", PENSTOCK_TRUST_TIMES="on")["file_systems"][0]
        self.assertIn("rested for 4 s", on["pages"])
        ran = penstock("info", *FLAGS, "nothing", environment=clean_environment())
        self.assertEqual(ran.returncode, 1)
        self.assertIn(b"nothing", ran.stderr)

    def test_names_of_paths_make_no_lines(self):
        path = self.folder / "a\n\x1b[31mb"
        path.mkdir()
        ran = penstock("info", *FLAGS, path)
        self.assertIn(b"a\\n\\x1b[31mb'\n", ran.stdout)
        self.assertNotIn(b"\x1b", ran.stdout)
        ran = penstock("info", *FLAGS, "")
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "'': No such file")

    def test_a_forced_fall_back_is_named(self):
        self.assertEqual(self.report(PENSTOCK_IO="pread")["runtime"]["io"], "pread")

    def test_the_memory_that_the_runtime_allocated(self):
        report = self.report("--cache", "64MiB")
        table_bytes = {row["name"]: row["value"] for row in report["options"]}["table_bytes"]
        self.assertGreater(report["runtime"]["device_bytes"], (64 << 20) + table_bytes)

    @with_any_devices
    def test_each_device_and_each_pair_is_told(self):
        report = self.report("--cache", "64MiB", "--page", "4KiB", PENSTOCK_DEVICES="3,5,4",
                             PENSTOCK_BACKEND="cpu")
        runtime = report["runtime"]
        self.assertEqual([(d["number"], d["cache_bytes"]) for d in runtime["devices"]],
                         [(3, 64 << 20), (5, 64 << 20), (4, 64 << 20)])
        self.assertEqual(sum(d["device_bytes"] for d in runtime["devices"]),
                         runtime["device_bytes"])
        self.assertEqual([(link["from"], link["to"]) for link in runtime["links"]],
                         [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
        self.assertEqual({link["kind"] for link in runtime["links"]}, {"same memory"})
        rows = {row["name"]: row for row in report["options"]}
        self.assertEqual((rows["devices"]["value"], rows["devices"]["source"]),
                         ("3,5,4", "environment"))
        several = clean_environment(PENSTOCK_DEVICES="3,5", PENSTOCK_BACKEND="cpu")
        ran = penstock("info", *FLAGS, environment=several)
        text = ran.stdout.decode()
        self.assertRegex(text, r"made +on 2 devices, ")
        self.assertRegex(text, r"device 1 +CPU threads \(\d+\), number 5, a cache of ")
        self.assertRegex(text, r"link from 1 to 0 +same memory: both lie in memory of this")

    @with_any_devices
    def test_links_that_are_off_are_none(self):
        runtime = self.report(PENSTOCK_DEVICES="3,5", PENSTOCK_BACKEND="cpu",
                              PENSTOCK_LINKS="off")["runtime"]
        self.assertEqual([(link["kind"], link["reason"]) for link in runtime["links"]],
                         2 * [("none", "PENSTOCK_LINKS is off")])

    def test_one_device_has_no_links(self):
        runtime = self.report()["runtime"]
        self.assertEqual((len(runtime["devices"]), runtime["links"]), (1, []))
        self.assertEqual(runtime["devices"][0]["name"], runtime["device"])

    @with_any_devices
    def test_a_flag_for_one_device_counts_more_than_the_variable(self):
        runtime = self.report("--device", "2", PENSTOCK_DEVICES="3,5")["runtime"]
        self.assertEqual([d["number"] for d in runtime["devices"]], [2])

    @with_any_devices
    def test_the_flag_for_several_devices_counts_more_than_variables(self):
        runtime = self.report("--devices", "4,2", PENSTOCK_DEVICES="3,5,7", PENSTOCK_DEVICE="6",
                              PENSTOCK_BACKEND="cpu")["runtime"]
        self.assertEqual([d["number"] for d in runtime["devices"]], [4, 2])

    # The value of the one, and not what its own variable has, follows from the other.
    def test_device_and_devices_have_one_source(self):
        for flags, variables, device, devices, source in [
                (["--device", "3"], {"PENSTOCK_DEVICES": "0,1"}, 3, None, "command line"),
                (["--devices", "4,2"], {"PENSTOCK_DEVICE": "6"}, 4, "4,2", "command line"),
                (["--devices", "4"], {}, 4, "4", "command line"),
                ([], {"PENSTOCK_DEVICES": "4,5"}, 4, "4,5", "environment"),
                ([], {"PENSTOCK_DEVICES": "4,5", "PENSTOCK_DEVICE": "6"}, 4, "4,5", "environment")]:
            report = self.report(*flags, "--cache", "8MiB", PENSTOCK_BACKEND="cpu", **variables)
            rows = {row["name"]: row for row in report["options"]}
            with self.subTest(flags=flags, **variables):
                self.assertEqual((rows["device"]["value"], rows["device"]["source"]),
                                 (str(device), source))
                self.assertEqual((rows["devices"]["value"], rows["devices"]["source"]),
                                 (devices, source))

    def test_a_device_of_its_own_variable_names_no_devices(self):
        rows = {row["name"]: row for row in self.report(PENSTOCK_DEVICE="6")["options"]}
        self.assertEqual((rows["device"]["value"], rows["device"]["source"]), ("6", "environment"))
        self.assertEqual(rows["devices"]["source"], "default")

    def test_a_variable_of_no_option_is_named(self):
        own = {"PENSTOCK_PAGE": "4KiB", "PENSTOCK_INCLUDE": "/x", "PENSTOCK_NUMBA_LINK": "ptx"}
        self.assertEqual(self.report(**own)["other_variables"], [])
        wrong = {"PENSTOCK_PAEG": "4KiB", "PENSTOCK_CACHE_BYTES": "8MiB", "PENSTOCKING": "1"}
        self.assertEqual(sorted(self.report(**wrong)["other_variables"]),
                         ["PENSTOCK_CACHE_BYTES", "PENSTOCK_PAEG"])
        ran = penstock("info", *FLAGS, environment=clean_environment(PENSTOCK_PAEG="4KiB"))
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        self.assertIn(b"PENSTOCK_PAEG is set, and is the variable of no option\n", ran.stdout)

    def test_other_commands_refuse_several_devices(self):
        data = self.make("data", b"1234")
        several = clean_environment(PENSTOCK_DEVICES="3,5", PENSTOCK_BACKEND="cpu")
        for flags, environment, status in [([], several, 1),
                                           (["--devices", "3,5"], clean_environment(), 2)]:
            ran = penstock("cat", *flags, data, environment=environment)
            self.assertEqual((ran.returncode, ran.stdout), (status, b""))
            self.assert_one_line(ran.stderr, "this program uses one device", "PENSTOCK_DEVICES",
                                 "--device")
        ran = penstock("cat", "--devices", "3", "--backend", "cpu", data,
                       environment=clean_environment())
        self.assertEqual((ran.returncode, ran.stdout), (0, b"1234"))

    def test_help_names_the_flag_where_it_is_of_use(self):
        for command, is_there in [("info", True), ("cat", False)]:
            text = penstock(command, "--help").stdout
            self.assertEqual(b"--devices" in text, is_there, command)
            self.assertIn(b"--device ", text)

    def test_text_names_what_json_names(self):
        report = self.report()
        ran = penstock("info", *FLAGS)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        text = ran.stdout.decode()
        for row in report["options"]:
            self.assertIn(row["environment"], text)
        for finding in report["works"]:
            self.assertIn(finding["what"], text)
        self.assertRegex(text, r"device memory +[0-9.]+ [KMG]iB allocated")

    def test_a_runtime_that_cannot_be_made_is_reported_and_fails(self):
        ran = penstock("info", "--json", *FLAGS, "--cache", "8000TiB")
        self.assertEqual(ran.returncode, 1)
        report = json.loads(ran.stdout)
        self.assertFalse(report["runtime"]["made"])
        self.assertIsNone(report["runtime"]["device_bytes"])
        self.assertIn("8000 TiB", report["runtime"]["why_not"])
        self.assert_one_line(ran.stderr, "8000 TiB", "give less")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["info_test.py"])
