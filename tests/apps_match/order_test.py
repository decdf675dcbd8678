"""The first match wins, and what has a match is not searched for any more: order_test.py
PROGRAM."""
import array
import math
import os
import sys
import tempfile

import match_support as support

FLOATS = 48
SHAPE = (6, 8, 1)
TILE = 64  # images that a CPU thread compares at a time


def check_first_wins(program, folder, dice):
    """A query that is in several databases, and several times in one, is found at the first place,
    however well others match."""
    queries = support.random_images(dice, 40, FLOATS)
    databases = [support.random_images(dice, 300, FLOATS) for _ in range(3)]
    expected = []
    for number, query in enumerate(queries):
        near = array.array("f", [value + 0.001 for value in query])
        places = sorted((dice.randrange(3), number * 7 + dice.randrange(7))
                        for _ in range(dice.randrange(1, 4)))
        for database, image in places:
            databases[database][image] = query
        databases[places[0][0]][places[0][1]] = near  # the first one matches least
        expected.append((*places[0], support.distance(query, near)))
    path = support.write_images(os.path.join(folder, "queries"), SHAPE, queries)
    paths = [support.write_images(os.path.join(folder, f"d{i}"), SHAPE, images)
             for i, images in enumerate(databases)]
    for method in support.methods():
        for order in ([0, 1, 2], [2, 0, 1]):
            right = support.first_matches(queries, [databases[i] for i in order], 0.01)
            if order == [0, 1, 2]:
                support.require([r[:2] for r in right] == [e[:2] for e in expected],
                                "the reference does not find what was planted")
            got, _, _ = support.search(program, method, path, [paths[i] for i in order], 0.01)
            support.check_lines(got, right, [paths[i] for i in order], FLOATS,
                                f"{method}, databases in the order {order}")


def pairs_of_one_worker(places, counts):
    """How many pairs are compared when tiles are searched strictly one after the other."""
    total = 0
    for place in places:
        for database, count in enumerate(counts):
            for first in range(0, count, TILE):
                if place is None or (database, first) <= place:
                    total += min(TILE, count - first)
    return total


def check_early_stop(program, folder, dice):
    counts = [500, 1000]
    queries = support.random_images(dice, 50, FLOATS)
    databases = [support.random_images(dice, count, FLOATS) for count in counts]
    for name, planted in [("all in the first image", [(0, 0)] * 50),
                          ("all in the first database", [(0, 300 + i) for i in range(50)]),
                          ("half", [(0, 100 + i) if i % 2 else None for i in range(50)]),
                          ("none", [None] * 50)]:
        images = [list(database) for database in databases]
        if name == "all in the first image":
            wanted = [queries[0]] * 50
            images[0][0] = queries[0]
        else:
            wanted = queries
            for query, place in zip(queries, planted):
                if place:
                    images[place[0]][place[1]] = query
        path = support.write_images(os.path.join(folder, "q"), SHAPE, wanted)
        paths = [support.write_images(os.path.join(folder, f"e{i}"), SHAPE, database)
                 for i, database in enumerate(images)]
        for method in support.methods():
            # Without --whole too: how far a pair is compared must not matter to how many are.
            for flags in ([], ["--whole"]):
                got, report, _ = support.search(program, method, path, paths, 0.01, "--workers",
                                                "1", *flags)
                support.require([line and line[1] for line in got]
                                == [place and place[1] for place in planted],
                                f"{method} {name}: found {got}")
                pairs = report["pairs_compared"]
                if method == "cpu" or (method == "penstock" and not support.on_gpu()):
                    expected = pairs_of_one_worker(planted, counts)
                    support.require(pairs == expected,
                                    f"{method} {name}: {pairs} pairs compared, expected {expected}")
                    numbers = report["numbers_compared"]
                    support.require(
                        numbers == pairs * FLOATS,
                        f"{method} {name} {flags}: {numbers} numbers compared of {pairs} pairs")


def check_giving_up(program, folder, dice):
    """A pair is given up long before its end if nothing can come of it, and never with --whole."""
    floats = 4096
    paths = [support.write_images(os.path.join(folder, name), (64, 64, 1),
                                  support.random_images(dice, count, floats))
             for name, count in (("long queries", 3), ("long images", 70))]
    for method in support.methods():
        _, report, some = support.search(program, method, paths[0], paths[1:], 0.5)
        _, whole, every = support.search(program, method, paths[0], paths[1:], 0.5, "--whole")
        support.require(some == every, f"{method}: --whole changes the lines")
        support.require(whole["numbers_compared"] == 210 * floats,
                        f"{method} --whole: {whole['numbers_compared']} numbers")
        support.require(report["numbers_compared"] <= 210 * 128,
                        f"{method}: {report['numbers_compared']} numbers compared of 210 pairs")


def check_many(program, folder, dice):
    """Many thread blocks at a time: what matches in the first tile must keep most of the second
    database from being searched."""
    images = support.random_images(dice, 200, 16)
    path = support.write_images(os.path.join(folder, "many q"), (4, 4, 1), images[:100])
    paths = [support.write_images(os.path.join(folder, "many d"), (4, 4, 1), images),
             os.path.join(folder, "many e")]
    with open(paths[1], "wb") as file:
        file.write(support.header_bytes(400000, (4, 4, 1), 16).ljust(4096, b"\0"))
        file.truncate(4096 + 400000 * 64)
    for method in support.methods():
        got, report, _ = support.search(program, method, path, paths, 1e-6)
        support.require(got == [(paths[0], i, 0.0) for i in range(100)], f"{method}: found {got}")
        support.require(report["pairs_compared"] < report["pairs"] / 2,
                        f"{method}: {report['pairs_compared']} of {report['pairs']} pairs compared")


def check_not_numbers(program, folder, dice):
    """Values that are no numbers match nothing, and disturb no other match."""
    queries, images = (support.random_images(dice, 12, FLOATS),
                       support.random_images(dice, 100, FLOATS))
    for i in range(12):
        images[50 + i] = queries[i]
    for i in (3, 7):
        queries[i] = array.array("f", queries[i])
        queries[i][20] = math.nan
    images[10] = array.array("f", [math.nan] * FLOATS)
    images[11] = array.array("f", [math.inf] * FLOATS)
    paths = [support.write_images(os.path.join(folder, name), SHAPE, data)
             for name, data in (("nan q", queries), ("nan d", images))]
    for method in support.methods():
        got, _, _ = support.search(program, method, paths[0], paths[1:], 0.01)
        expected = [None if i in (3, 7) else (paths[1], 50 + i, 0.0) for i in range(12)]
        support.require(got == expected, f"{method}: {got}")


def main():
    program = sys.argv[1]
    dice = support.dice_from(int(sys.argv[2]) if len(sys.argv) > 2 else 8)
    with tempfile.TemporaryDirectory() as folder:
        check_first_wins(program, folder, dice)
        check_early_stop(program, folder, dice)
        check_giving_up(program, folder, dice)
        check_many(program, folder, dice)
        check_not_numbers(program, folder, dice)
    print("the first match wins, and ends the search for its query")


if __name__ == "__main__":
    main()
