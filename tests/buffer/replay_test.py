#!/usr/bin/env python3
"""penstock replay --simulate counts exactly what the naive buffer counts, and says what is wrong
with what it is asked: replay_test.py PROGRAM."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps_penstock"))
from support import InFolder, penstock  # noqa: E402  (found through the path above)

from naive_buffer import Buffer  # noqa: E402
from naive_trace import Trace  # noqa: E402

ACCESSES = 2000
HEADER = b"penstock-trace 1\npage 512\nfile 0 100 some.file\n\n"


def naive(trace, policy, order, host, device, blocks, table=None, absent=None):
    """What penstock replay's object must have."""
    if policy == "dedu":
        buffer = Buffer(host, device, blocks, table or 8 * (host + device), order,
                        2 * (host + device) * blocks if absent is None else absent)
    else:
        buffer = Buffer(host, 0 if policy == "native" else device, order=order)
    at = {"reads": 0, "writes": 0, "flushes": 0, "host": 0, "device": 0, "nowhere": 0, "loads": 0}
    for kind, name, content in trace.accesses():
        if kind == "F":
            at["flushes"] += 1
            buffer.flush(name[0])
            continue
        contents = [None if content is None or policy != "dedu" else (content, i)
                    for i in range(buffer.d)]
        was = (buffer.read(name, contents) if kind == "R"
               else buffer.write(name, contents, in_place=policy != "dedu"))
        at[was] += 1
        at["reads" if kind == "R" else "writes"] += 1
        at["loads"] += kind == "R" and was == "nowhere"
    counts, block_bytes = buffer.counts, trace.page_bytes // buffer.d
    return {"accesses": at["reads"] + at["writes"], "host_hits": at.pop("host"),
            "device_hits": at.pop("device"), "misses": at.pop("nowhere"), **at,
            **{name: counts[name]
               for name in ("demotions", "promotions", "fills", "write_backs", "dropped_pages")},
            "bytes_to_device": counts["demotions"] * block_bytes,
            "bytes_from_device": (counts["promotions"] + counts["written_from_device"])
            * block_bytes,
            **buffer.at_the_end()}


class Replay(InFolder):
    def replay(self, trace, *arguments):
        ran = penstock("replay", trace, "--simulate", "--json", *arguments)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        return json.loads(ran.stdout)

    def compare(self, trace, policy, order, host, device, **more):
        blocks = trace.dice.choice([1, 2, 4, 8]) if policy == "dedu" else 1
        options = ["--policy", policy, "--order", order, "--ram", host * trace.page_bytes, "--gpu",
                   device * trace.page_bytes]
        options += (["--blocks", blocks,
                     *(word for name, value in more.items() for word in (f"--{name}", value))]
                    if policy == "dedu" else [])
        got = self.replay(self.make("trace", trace.text().encode()), *options)
        wanted = naive(trace, policy, order, host, device, blocks, **more)
        self.assertEqual({name: got[name] for name in wanted}, wanted)
        self.assertAlmostEqual(got["host_hit_share"] + got["device_hit_share"] + got["miss_share"],
                               1)
        self.assertAlmostEqual(got["device_hit_share"] * got["accesses"], got["device_hits"])
        self.assertAlmostEqual(got["sharing_ratio"] * got["pages"], got["pages_with_sharing"])
        return got

    def test_every_count_of_every_policy_is_the_naive_ones(self):
        seen = {"device_hits": 0, "write_backs": 0, "pages_with_sharing": 0, "flushes": 0,
                "absent_blocks": 0}
        for seed in range(12):
            trace = Trace(seed, ACCESSES, ["none", "plain", "images"][seed % 3])
            host, device, order = (trace.dice.randrange(2, 12), trace.dice.randrange(2, 20),
                                   ["lru", "clock"][seed // 3 % 2])
            for policy in ("native", "gram", "dedu"):
                with self.subTest(seed=seed, policy=policy, order=order, host=host, device=device):
                    got = self.compare(trace, policy, order, host, device)
                    seen = {name: count + got[name] for name, count in seen.items()}
        self.assertTrue(all(count > 20 for count in seen.values()), seen)

    def test_traces_that_penstock_makes(self):
        for seed, options in enumerate(
                ["--pages 90 --factor 3 --writes 20 --shared-writes 50 --flush-every 90",
                 "--pages 60 --factor 2.5 --pattern zipf",
                 "--pages 40 --machines 4 --common 60 --writes 10 --shared-writes 40"]):
            path = self.folder / "made"
            made = penstock("trace", "generate", "--out", path, "--text", "--quiet", "--accesses",
                            ACCESSES, "--seed", seed, *options.split())
            self.assertEqual((made.returncode, made.stderr), (0, b""))
            trace = Trace.read(path.read_text(), seed)
            path.unlink()
            for policy in ("native", "gram", "dedu"):
                with self.subTest(options=options, policy=policy):
                    self.assertEqual(self.compare(trace, policy, ["lru", "clock"][seed % 2], 10,
                                                  14)["accesses"],
                                     ACCESSES)

    def test_a_small_table_and_one_that_has_room_for_all(self):
        trace = Trace(77, ACCESSES, "plain")
        small = self.compare(trace, "dedu", "lru", 6, 6, table=9)
        large = self.compare(trace, "dedu", "lru", 200, 5000)
        self.assertEqual((small["pages"], large["dropped_pages"], large["demotions"]), (9, 0, 0))

    def test_as_many_blocks_are_absent_as_may_be(self):
        for seed in range(4):
            trace, order = (Trace(seed, ACCESSES, ["plain", "images"][seed % 2]),
                            ["lru", "clock"][seed // 2 % 2])
            for absent in ((0, 7), (1, 100))[seed % 2]:
                with self.subTest(seed=seed, absent=absent):
                    self.assertLessEqual(self.compare(trace, "dedu", order, 6, 8,
                                                      absent=absent)["absent_blocks"],
                                         absent)

    def test_under_lru_gram_hits_where_native_does_with_all_of_the_memory(self):
        trace = self.make("trace", Trace(5, ACCESSES, "none").text().encode())
        gram = self.replay(trace, "--policy", "gram", "--ram", "16KiB", "--gpu", "32KiB")
        native = self.replay(trace, "--policy", "native", "--ram", "48KiB")
        self.assertEqual(gram["host_hits"] + gram["device_hits"], native["host_hits"])
        self.assertGreater(gram["device_hits"], 50)
        self.assertEqual(native["bytes_to_device"], 0)
        self.assertEqual([(got["ram_bytes"], got["gpu_bytes"]) for got in (gram, native)],
                         [(16384, 32768), (49152, 0)])
        self.assertEqual(self.replay(trace, "--policy", "native", "--ram", "48KiB", "--gpu",
                                     "1GiB")["gpu_bytes"],
                         0)

    def test_a_trace_without_records(self):
        got = self.replay(self.make("trace", HEADER), "--policy", "dedu", "--ram", "1KiB", "--gpu",
                          "1KiB")
        self.assertEqual((got["accesses"], got["host_hit_share"], got["pages"],
                          got["blocks_per_page"]),
                         (0, 0, 0, 4))

    def test_text_says_where_the_pages_were_found(self):
        trace = self.make("trace",
                          HEADER + b"0 R 0 0 1\n1 R 0 0 1\n2 R 0 1 1\n3 R 0 2 1\n4 R 0 0 1\n")
        ran = penstock("replay", trace, "--simulate", "--policy", "gram", "--ram", "1KiB", "--gpu",
                       "1KiB")
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        for part in ("gram, lru: 5 accesses",
                     "1 host hits (20.00 %), 1 device hits (20.00 %), 3 misses (60.00 %)",
                     "2 blocks demoted, 1 promoted"):
            self.assertIn(part, ran.stdout.decode())
        self.assertEqual(penstock("replay", trace, "--simulate", "--policy", "gram", "--ram",
                                  "1KiB", "--gpu", "1KiB", "--quiet").stdout,
                         b"")

    def test_bad_input(self):
        trace, torn = (self.make("trace", HEADER + b"0 R 0 0 1\n"),
                       self.make("torn", HEADER + b"0 R 0 0 1\n0 X 0 0 1\n"))
        gram, dedu, sizes = (["--simulate", "--policy", "gram"], ["--simulate", "--policy", "dedu"],
                             ["--ram", "4KiB", "--gpu", "4KiB"])
        for status, arguments, parts in [
                (2, [trace, "--simulate", *sizes], ["--policy", "missing", "native, gram or dedu"]),
                (2, [trace, "--simulate", "--policy", "lru", *sizes],
                 ["--policy", "'lru'", "native, gram or dedu"]),
                (2, [trace, *gram, *sizes, "--order", "fifo"],
                 ["--order", "'fifo'", "lru or clock"]),
                (2, [trace, *gram, "--gpu", "4KiB"], ["--ram", "missing"]),
                (2, [trace, *gram, "--ram", "4KiB"], ["--gpu", "missing"]),
                (2, [trace, *gram, "--ram", "4KiBs", "--gpu", "4KiB"],
                 ["--ram", "'4KiBs'", "such as"]),
                (2, [trace, *gram, "--ram", "1000", "--gpu", "4KiB"],
                 ["--ram", "'1000'", "512", "multiple"]),
                (2, [trace, *gram, "--ram", "512", "--gpu", "4KiB"],
                 ["--ram", "'512'", "two", "1024"]),
                (2, [trace, *gram, "--ram", "4KiB", "--gpu", "0"], ["--gpu", "'0'", "two", "1024"]),
                (2, [trace, *gram, *sizes, "--blocks", "2"], ["--blocks", "only dedu"]),
                (2, [trace, *gram, *sizes, "--table", "20"], ["--table", "only dedu"]),
                (2, [trace, *gram, *sizes, "--absent", "20"], ["--absent", "only dedu"]),
                (2, [trace, *dedu, *sizes, "--absent", "-1"], ["--absent", "'-1'", "from 0"]),
                (2, [trace, *dedu, *sizes, "--blocks", "3"],
                 ["--blocks", "3 blocks", "512", "power of two"]),
                (2, [trace, *dedu, *sizes, "--blocks", "0"], ["--blocks", "'0'", "from 1 to 8"]),
                (2, [trace, *dedu, *sizes, "--blocks", "16"], ["--blocks", "'16'", "from 1 to 8"]),
                (2, [trace, *dedu, *sizes, "--table", "1"], ["--table", "'1'", "from 2"]),
                (1, [self.folder / "absent", *gram, *sizes], ["absent", "ENOENT"]),
                (1, [torn, *gram, *sizes], ["torn", "line 6", "X"])]:
            with self.subTest(arguments=arguments):
                ran = penstock("replay", *arguments, "--json")
                self.assertEqual((ran.returncode, ran.stdout), (status, b""), ran.stderr)
                self.assert_one_line(ran.stderr, *parts)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["replay_test.py"])
