"""Every method finds the first match that a second implementation finds, with the same bits:
search_test.py PROGRAM."""
import math
import os
import sys
import tempfile

import match_support as support

# Shape, queries, images of each database: tiles and groups that are full, nearly full and begun;
# images of one number and of many pages; databases without images.
CASES = [((1, 1, 1), 1, [1]), ((5, 3, 1), 7, [64, 0, 65]), ((4, 4, 1), 130, [63, 130]),
         ((17, 3, 1), 6, [0, 200]), ((33, 7, 3), 5, [40, 70, 1]), ((16, 8, 1), 129, [129]),
         ((40, 64, 1), 3, [20, 9]), ((2, 2, 2), 0, [10]), ((3, 1, 1), 4, [0])]

FLAGS = {"cpu": [[], ["--workers", "3"], ["--whole"]],
         "cuda": [[], ["--whole"]],
         "penstock": [[], ["--whole"], ["--page", "4KiB", "--cache", "16MiB"],
                      ["--page", "512", "--cache", "8MiB", "--whole"],
                      ["--page", "1KiB", "--cache", "8MiB", "--no-windows"],
                      ["--workers", "1", "--page", "2MiB", "--cache", "512MiB"]]}


def check(program, folder, dice, case, fraction):
    shape, query_count, counts = case
    floats = math.prod(shape)
    queries = support.random_images(dice, query_count, floats)
    databases = [support.random_images(dice, count, floats) for count in counts]
    threshold = support.threshold_between(queries, databases, fraction)
    expected = support.first_matches(queries, databases, threshold)
    # Images may lie further apart than they need, and begin later.
    stride = support.padded(floats) + dice.choice([0, 16, 48])
    path = support.write_images(os.path.join(folder, "queries"), shape, queries, stride)
    paths = [support.write_images(os.path.join(folder, f"database {i}"), shape, images,
                                  support.padded(floats) + dice.choice([0, 32]),
                                  dice.choice([4096, 8192]))
             for i, images in enumerate(databases)]
    texts = {}
    for method in support.methods():
        for flags in FLAGS[method]:
            label = f"{method} {flags} {case} threshold {threshold}"
            got, report, texts[label] = support.search(program, method, path, paths, threshold,
                                                       *flags)
            support.check_lines(got, expected, paths, floats, label)
            matched = sum(place is not None for place in expected)
            support.require(report["matched"] == matched,
                            f"{label}: {report['matched']} matched, expected {matched}")
            support.require(report["pairs_compared"] <= report["pairs"]
                            == query_count * sum(counts),
                            f"{label}: {report['pairs_compared']} pairs compared")
    support.require(len(set(texts.values())) == 1,
                    f"{case}: the lines of {len(set(texts.values()))} kinds: {sorted(texts)}")


def check_compare(program, folder, dice):
    queries, images = support.random_images(dice, 20, 48), support.random_images(dice, 100, 48)
    paths = [support.write_images(os.path.join(folder, name), (6, 8, 1), data)
             for name, data in (("q", queries), ("d", images))]
    _, report, _ = support.search(program, "penstock", *paths[:1], paths[1:], 7.0, "--compare")
    names = [method["method"] for method in report["compared"]]
    support.require(names
                    == (["cpu", "cuda", "penstock"] if support.on_gpu() else ["cpu", "penstock"]),
                    f"compared: {names}")
    done = support.must_run(program, *paths, "--threshold", "7", "--json", "--quiet",
                            *support.backend_flags())
    matches = support.json.loads(done.stdout)["matches"]
    expected = support.first_matches(queries, [images], 7.0)
    support.require([m and m["image"] for m in matches] == [e and e[1] for e in expected],
                    f"matches in the object: {matches}")
    lines = support.must_run(program, *paths, "--threshold", "7", "--quiet",
                             *support.backend_flags()).stdout.decode().splitlines()
    support.require(len(lines) == 20 and all(line.count("\t") == 3 for line in lines),
                    f"lines on standard output: {lines}")


def main():
    program = sys.argv[1]
    dice = support.dice_from(int(sys.argv[2]) if len(sys.argv) > 2 else 4)
    for case in CASES:
        # Each run on a GPU makes a runtime, which takes most of a second.
        for fraction in (0.02,) if support.on_gpu() else (0.0, 0.02, 0.5, 1.0):
            with tempfile.TemporaryDirectory() as folder:
                check(program, folder, dice, case, fraction)
    with tempfile.TemporaryDirectory() as folder:
        check_compare(program, folder, dice)
    print(f"matches by {', '.join(support.methods())} are the reference's, with the same bits")


if __name__ == "__main__":
    main()
