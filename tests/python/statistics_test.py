#!/usr/bin/env python3
"""Statistics of a runtime, and the logs that go to Python."""
import dataclasses
import json
import logging
import os
import unittest
from unittest import mock

import common
import penstock as ps
from penstock import _core


class statistics(common.Case):
    def array(self, rt):
        path = self.folder / "rows.bin"
        path.write_bytes(bytes(range(256)) * 256)
        return ps.open_array(path, dtype="uint8", shape=(-1, 4096), runtime=rt)

    def test_every_count_of_the_library_has_a_field(self):
        rt = self.runtime()
        names = set(json.loads(rt._core.statistics()))
        self.assertEqual({f.name for f in dataclasses.fields(ps.Statistics)}, names)
        taken = ps.stats(rt)
        self.assertEqual(ps.Statistics.from_json(taken.to_json()), taken)
        self.assertEqual(ps.Statistics.from_json('{"hits": 3, "of_later": 4}').hits, 3)

    def test_pages_read_in_other_caches_are_accesses(self):
        text = str(ps.Statistics(neighbour_reads=990, misses=10))
        self.assertIn("1000 page accesses, 99.0 % without a load", text)
        self.assertIn("990 in other caches", text)

    def test_a_monitor_has_what_was_counted_meanwhile(self):
        rt = self.runtime()
        with self.array(rt) as array:
            array.prefetch(slice(0, 4)) if _has_numpy() else array.advise("willneed")
            with ps.monitor(rt) as seen:
                pass
            self.assertEqual(seen.statistics.misses, 0)
            self.assertIn("page accesses", str(seen))
            rt.close()
            self.assertEqual(seen.statistics.hits, 0)

    def test_prometheus_text_has_a_type_for_each_name_and_sums_that_agree(self):
        counted = ps.Statistics(misses=10, window_loads=3, tier_loads=2, request_loads=5,
                                latency_ns=(0, 4, 1), requests=5)
        text = counted.to_prometheus({"job": 'a "b"\\'})
        values, types = {}, set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                types.add(line.split()[2])
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            self.assertIn('job="a \\"b\\"\\\\"', name)
            values[name] = float(value)
            plain = name.partition("{")[0]
            for end in ("_bucket", "_sum", "_count"):
                plain = plain.removesuffix(end)
            self.assertIn(plain, types)
        misses = [v for k, v in values.items() if k.startswith("penstock_misses_total")]
        self.assertEqual(sum(misses), 10)
        buckets = [v for k, v in values.items() if "_bucket" in k]
        self.assertEqual((buckets, buckets[-1]), (sorted(buckets), 5))
        self.assertEqual(counted.latency_us(0.5), 0.004)
        self.assertIsNone(ps.Statistics().latency_us(0.5))


def _has_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


class logs(common.Case):
    def end_one(self, log):
        """A runtime that speaks on any machine: it has no folder to share its cache by."""
        with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(self.folder / "missing")):
            common.small_runtime(log=log, share="logs").close()

    def test_lines_reach_the_logger_and_functions_before_close_returns(self):
        with self.assertLogs("penstock", logging.INFO) as caught:
            self.end_one("logging")
        self.assertGreater(len(caught.output), 0)
        lines = []
        self.end_one(lines.append)
        self.assertEqual(len(lines), len(caught.output))

    def test_a_function_that_raises_ends_nothing(self):
        def fail(line):
            raise RuntimeError(line)

        with self.assertLogs("penstock", logging.ERROR) as caught:
            self.end_one(fail)
        self.assertIn("failed", caught.output[0])
        with self.assertRaisesRegex(ValueError, "log"):
            common.small_runtime(log=7)


class settings(common.Case):
    def test_values_are_those_of_the_options(self):
        rt = self.runtime(cache="8MiB", windows=0, admit_one_in=7, links=False)
        seen = rt.settings()
        self.assertEqual((seen["cache_bytes"], seen["admit_one_in"], seen["links"]),
                         ("8 MiB", "7", "off"))
        self.assertEqual((rt.page_bytes, rt.backend, rt.device_count), (4096, "cpu", 1))
        self.assertFalse(rt.writable)
        self.assertEqual(len(rt.ref_bytes()) > 0, True)
        for options, text in [({"cache": "8Gi"}, "cache: '8Gi'"), ({"page": 1000}, "page_bytes"),
                              ({"speed": 3}, "no option 'speed'"), ({"device": "tpu"}, "tpu"),
                              ({"cache": 1.5}, "cache")]:
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, text):
                self.runtime(**options)

    def test_several_caches(self):
        rt = self.runtime(device=[0, 1])
        self.assertEqual((rt.device_count, rt.device_numbers), (2, [0, 1]))
        self.assertEqual(len({rt.ref_bytes(0), rt.ref_bytes(1)}), 2)
        for call in (rt.ref_bytes, rt.settings, rt._core.device_name, rt._core.device_number):
            with self.assertRaisesRegex(ValueError, "no device 2"):
                call(2)

    def test_a_gpu_that_is_not_there_is_an_error(self):
        if not _core.with_cuda:
            with self.assertRaises(OSError):
                self.runtime(device="cuda:0")

    def test_findings(self):
        found = {f.name: f for f in ps.check(self.folder)}
        self.assertTrue(found["rows"].works, found["rows"])
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertFalse(next(f for f in ps.check(self.folder / "none") if f.name == "files").works)


if __name__ == "__main__":
    unittest.main()
