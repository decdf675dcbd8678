#!/usr/bin/env python3
"""Which node reads which block of a file: each by one node, in equal stretches, and little changes
when a node is gone. Needs neither Ray nor a store."""
import unittest

import common  # noqa: F401  the package beside the module
from penstock._agent_client import _batches
from penstock._seats import BLOCK_BYTES, Seats

NAMES = [f"node{i}" for i in range(16)]
PATH = "/shared/features.bin"


class seats(unittest.TestCase):
    def shares(self, blocks, living, names=None):
        return Seats(names or NAMES).shares(PATH, blocks * BLOCK_BYTES, living)

    def test_each_block_has_one_reader_and_shares_are_equal(self):
        for blocks in (1, 15, 16, 1000):
            shares = self.shares(blocks, NAMES)
            self.assertEqual(sorted(b for share in shares.values() for b in share),
                             list(range(blocks)))
            sizes = [len(share) for share in shares.values()]
            self.assertLessEqual(max(sizes) - min(sizes), 1)

    def test_the_last_block_may_be_short(self):
        shares = Seats(["a"]).shares(PATH, 2 * BLOCK_BYTES + 1, ["a"])
        self.assertEqual(shares, {"a": [0, 1, 2]})
        self.assertEqual(Seats(["a"]).shares(PATH, 0, ["a"]), {"a": []})

    def test_only_the_blocks_of_a_node_that_is_gone_get_another_reader(self):
        before, gone = self.shares(1600, NAMES), NAMES[5]
        after = self.shares(1600, [name for name in NAMES if name != gone])
        for name, share in after.items():
            self.assertLessEqual(set(before[name]), set(share))
        moved = {name: len(share) - len(before[name]) for name, share in after.items()}
        self.assertEqual(sum(moved.values()), len(before[gone]))
        self.assertLess(max(moved.values()), len(before[gone]) // 3, "they went to few nodes")

    def test_a_new_node_takes_the_empty_seat_and_its_blocks(self):
        place = Seats(NAMES)
        before = place.shares(PATH, 160 * BLOCK_BYTES, NAMES)
        living = [name for name in NAMES if name != "node3"] + ["new"]
        self.assertEqual(place.replace(living), ["new"])
        after = place.shares(PATH, 160 * BLOCK_BYTES, living)
        self.assertEqual(after["new"], before["node3"])
        self.assertEqual(place.replace(living), [])

    def test_a_part_is_near_the_node_that_reads_it(self):
        place = Seats(NAMES)
        shares = place.shares(PATH, 160 * BLOCK_BYTES, NAMES)
        for part in range(16):
            node = place.near(PATH, 160 * BLOCK_BYTES, part, 16, NAMES)
            self.assertEqual(shares[node], list(range(part * 10, part * 10 + 10)))
        self.assertEqual(len({place.near(PATH, 160 * BLOCK_BYTES, part, 16, NAMES)
                              for part in range(16)}), 16)

    def test_blocks_that_do_not_divide_leave_each_part_its_own_node(self):
        for blocks in range(3, 40):
            place = Seats(NAMES[:3])
            self.assertEqual(len({place.near(PATH, blocks * BLOCK_BYTES - 7, part, 3, NAMES[:3])
                                  for part in range(3)}), 3, blocks)

    def test_a_part_smaller_than_a_block_and_an_empty_file_have_a_node_too(self):
        place = Seats(NAMES)
        for size in (0, 1, BLOCK_BYTES):
            self.assertIn(place.near(PATH, size, 99, 100, NAMES), NAMES)

    def test_any_numbers_of_blocks_are_rows_of_up_to_sixteen(self):
        for numbers in ([], [7], range(40), range(3, 100, 7), [0, 1, 2, 5, 9, 13, 14], [4, 90]):
            rows = list(_batches(list(numbers)))
            self.assertEqual([first + i * step for first, step, many in rows for i in range(many)],
                             list(numbers))
            self.assertTrue(all(1 <= many <= 16 and step > 0 for _, step, many in rows))
        self.assertEqual(len(list(_batches(range(160)))), 10)

    def test_first_stretches_of_files_go_to_different_nodes(self):
        place = Seats(NAMES)
        first = {place.owner(f"/shared/{i}", 0, 1, NAMES) for i in range(100)}
        self.assertGreater(len(first), 8)

    def test_wrong_parts_and_no_nodes_are_refused(self):
        place = Seats(NAMES)
        for part, of in ((-1, 4), (4, 4), (0, 0)):
            with self.assertRaisesRegex(ValueError, "part"):
                place.near(PATH, 1, part, of, NAMES)
        with self.assertRaisesRegex(ValueError, "nodes"):
            Seats([])
        with self.assertRaisesRegex(ValueError, "alive"):
            place.owner(PATH, 0, 1, [])


if __name__ == "__main__":
    unittest.main()
