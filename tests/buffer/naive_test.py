#!/usr/bin/env python3
"""The buffer's core against the naive one, step by step, with pins, shared blocks and tiny sizes:
naive_test.py PLAYER."""
import os
import random
import subprocess
import sys
import unittest

from naive_buffer import Buffer, Busy

PLAYER = os.path.abspath(sys.argv.pop(1))
STEPS = 400


def random_steps(dice, blocks, steps, shared=False, rests=False):
    """Lines for the player. Few pages and contents, so that everything happens often. Half of the
    blocks are alone, or hardly any. With `rests` the device rests now and then."""
    pages, contents = dice.choice([6, 12, 30]), dice.choice([3, 10, 40])
    pins, share_of_writes = [], dice.choice([0.0, 0.2, 0.6])

    def drawn():
        # A content of a page's own place now and then, or all blocks of a page could be equal.
        return [dice.choice([0] + [dice.randrange(1, contents)] * (20 if shared else 1))
                for _ in range(blocks)]

    for _ in range(steps):
        name = (dice.randrange(2), min(int(dice.expovariate(4 / pages)), pages - 1))
        draw = dice.random()
        if draw < 0.06:
            pins.append(name)
            yield "p", name, []
        elif draw < 0.12 and pins:
            yield "u", pins.pop(dice.randrange(len(pins))), []
        elif draw < 0.13:
            yield "f", name, []
        elif draw < 0.16 and rests:
            yield "d", (dice.randrange(2), 0), []
        elif dice.random() < share_of_writes:
            # One in three to a page that may be pinned.
            yield "w", dice.choice([name, name, pins[-1]]) if pins else name, drawn()
        else:
            yield "r", name, drawn()


def in_place(steps):
    """The same for GRAM: every block is alone, and writes are in place."""
    return [("m" if kind == "w" else kind, name, [0] * len(contents))
            for kind, name, contents in steps]


def text_of(steps):
    return "".join(f"{kind} {name[0]} {'' if kind == 'f' else name[1]} "
                   f"{' '.join(map(str, contents))}\n" for kind, name, contents in steps)


def naive_lines(steps, sizes, order):
    buffer = Buffer(*sizes[:2], blocks=sizes[2], table=sizes[3], order=order, absent=sizes[4])
    for kind, name, numbers in steps:
        contents = [number or None for number in numbers]
        at = "nowhere"
        try:
            if kind == "f":
                buffer.flush(name[0])
            elif kind == "d":
                buffer.demotes = name[0] != 0
            elif kind in "pu":
                (buffer.pin if kind == "p" else buffer.unpin)(name)
            elif kind == "r":
                at = buffer.read(name, contents)
            else:
                at = buffer.write(name, contents, in_place=kind == "m")
        except Busy:
            at = "busy"
        counts, end = buffer.counts, buffer.at_the_end()
        page = buffer.page((name[0], 0) if kind == "f" else name)
        yield " ".join([at, *(str(counts[key])
                              for key in ("demotions", "promotions", "fills", "write_backs",
                                          "written_from_device", "dropped_pages")),
                        str(end["pages"]), str(end["pages_with_sharing"]), str(end["blocks"]),
                        str(len(buffer.absent)),
                        *("a" if block.side == "absent" else f"{block.side[0]}{block.frame}"
                          for block in (page.blocks if page else []))])


def played_lines(steps, sizes, order, *more):
    ran = subprocess.run([PLAYER, *map(str, sizes), order, *more], input=text_of(steps),
                         capture_output=True, text=True, check=False, timeout=1000)
    return ran.returncode, ran.stderr, ran.stdout.splitlines()


def dice_and_sizes(seed, blocks):
    dice = random.Random(seed)
    host, device = dice.choice([1, 2, 5]), dice.choice([0, 1, 2, 6])
    return dice, [host, device, blocks, dice.choice([1, 3, host + device, 8 * (host + device)]), 0]


class Naive(unittest.TestCase):
    def compare(self, steps, sizes, order):
        steps = list(steps)
        status, errors, lines = played_lines(steps, sizes, order)
        self.assertEqual((status, errors), (0, ""))
        for number, (step, got, wanted) in enumerate(
                zip(steps, lines, naive_lines(steps, sizes, order), strict=True)):
            self.assertEqual(got, wanted, f"step {number}: {step}; sizes {sizes}, {order}")
        return lines

    def test_every_step_of_dedu(self):
        seen = set()
        for blocks in (1, 2, 4):
            for order in ("lru", "clock"):
                for seed in range(9):
                    dice, sizes = dice_and_sizes(seed, blocks)
                    with self.subTest(seed=seed, sizes=sizes, order=order):
                        seen.update(line.split()[0]
                                    for line in self.compare(
                                        random_steps(dice, blocks, STEPS), sizes, order))
        self.assertEqual(seen, {"host", "device", "nowhere", "busy"})

    def test_every_step_where_blocks_may_be_absent(self):
        seen = set()
        for blocks in (1, 2, 4):
            for order in ("lru", "clock"):
                for seed in range(100, 116):
                    dice, sizes = dice_and_sizes(seed, blocks)
                    pages = sizes[0] + sizes[1]
                    sizes[3:] = [dice.choice([pages + 2, 2 * pages, 8 * pages]),
                                 dice.choice([1, 3, blocks, pages * blocks, 2 * pages * blocks])]
                    with self.subTest(seed=seed, sizes=sizes, order=order):
                        lines = self.compare(
                            random_steps(dice, blocks, STEPS, shared=seed % 4 != 0), sizes, order)
                        seen.update(line.split()[0] for line in lines)
                        seen.update("absent" for line in lines if "a" in line.split()[11:])
        self.assertEqual(seen, {"host", "device", "nowhere", "busy", "absent"})

    def test_every_step_of_gram_and_native(self):
        for order in ("lru", "clock"):
            for seed in range(9):
                dice, sizes = dice_and_sizes(seed, 1)
                sizes[3] = sizes[0] + sizes[1] + 1
                with self.subTest(seed=seed, sizes=sizes, order=order):
                    self.compare(in_place(random_steps(dice, 1, STEPS)), sizes, order)

    def test_every_step_where_the_device_rests_now_and_then(self):
        for blocks in (1, 2):
            for order in ("lru", "clock"):
                for seed in range(200, 209):
                    dice, sizes = dice_and_sizes(seed, blocks)
                    pages = sizes[0] + sizes[1]
                    sizes[3] = pages + 1 if blocks == 1 else 2 * pages
                    with self.subTest(seed=seed, sizes=sizes, order=order):
                        steps = random_steps(dice, blocks, STEPS, rests=True)
                        self.compare(in_place(steps) if blocks == 1 else steps, sizes, order)

    def test_a_core_that_demotes_to_the_tail_is_found(self):
        found = 0
        for seed in range(4):
            steps, sizes = list(random_steps(random.Random(seed), 2, STEPS)), [2, 3, 2, 40, 0]
            found += (played_lines(steps, sizes, "lru", "tail")[2]
                      != list(naive_lines(steps, sizes, "lru")))
        self.assertGreaterEqual(found, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["naive_test.py"])
