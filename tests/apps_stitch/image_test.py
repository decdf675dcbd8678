"""The image that penstock-stitch makes, beside one that is put together pixel by pixel:
image_test.py PROGRAM."""
import json
import os
import sys
import tempfile

import stitch_support as support


def read(path):
    with open(path, "rb") as file:
        return file.read()


def check(program, folder, path, tiles, convolutions, split, methods, *flags):
    """One run; returns its report. The file must be right for every line and every method."""
    out = os.path.join(folder, "out.pgm")
    done = support.must_run(program, "run", path, "-o", out, "--convolutions", convolutions,
                            "--split", split, "--method", methods, "--json", "--quiet",
                            *support.backend_flags(), *flags)
    label = (f"{os.path.basename(path)}, {convolutions} convolutions, split {split}, "
             f"{methods} {flags}")
    support.require(done.stdout.count(b"\n") == 1, f"{label}: more than one line of JSON")
    report = json.loads(done.stdout)
    found, expected = read(out), tiles.expected[convolutions]
    wrong = [i for i in range(min(len(found), len(expected))) if found[i] != expected[i]]
    support.require(found == expected, f"{label}: {len(found)} bytes, {len(expected)} expected, "
                                       f"{len(wrong)} wrong, the first at {wrong[:1]}")
    if split != "auto":
        support.require(report["split"]["column"] == int(float(split) * tiles.image[0] + 0.5),
                        f"{label}: {report['split']}")
    support.require(report["pages_shared"]
                    == support.pages_shared(tiles.image, report["split"]["column"]),
                    f"{label}: {report['pages_shared']} pages shared")
    return report


def check_made(program, folder, jitter):
    """A small grid, as `make` makes it, with every method by itself and all at once."""
    path = os.path.join(folder, f"made{jitter}")
    support.must_run(program, "make", "-o", path, "--rows", 3, "--columns", 4, "--tile", "40x30",
                     "--overlap", 20, "--jitter", jitter, "--seed", 5, "--quiet")
    tiles = support.read_tiles(path)
    tiles.expected = {count: support.image_of(tiles, count) for count in (0, 1, 3)}
    together = ",".join(support.methods())
    pairs = [(convolutions, split) for convolutions in tiles.expected
             for split in ("0", "0.5", "1", "0.3711", "0.9999", "auto")]
    # Every second pair, the others for the other set: a GPU takes a second to start.
    for convolutions, split in pairs[jitter % 2::2]:
        check(program, folder, path, tiles, convolutions, split, together)
    for method in support.methods():
        report = check(program, folder, path, tiles, 3, "0.613", method, "--repetitions", "2")
        support.require([run["method"] for run in report["methods"]] == [method]
                        and len(report["methods"][0]["seconds"]["totals"]) == 2,
                        f"{report['methods']}")
    check(program, folder, path, tiles, 1, "0.4", "penstock", "--merge", "pages", "--workers", "3")
    report = check(program, folder, path, tiles, 1, "auto", "all", "--workers", "1")
    support.require(set(report["speedup_over"]) == set(support.methods()) - {"penstock"},
                    str(report["speedup_over"]))


def check_sharing(program, folder, dice):
    """Every page but the last has bytes of both, and neither loses any."""
    tiles = support.random_tiles(dice, 67, 45, (301, 180), 60)
    tiles.expected = {2: support.image_of(tiles, 2)}
    path = tiles.write(os.path.join(folder, "random"))
    pages = support.up_to_page(len(tiles.expected[2])) // support.PAGE
    for split in ("0.25", "0.5", "0.77"):
        for merge in ("bytes", "pages"):
            report = check(program, folder, path, tiles, 2, split, ",".join(support.methods()),
                           "--merge", merge)
            support.require(report["pages_shared"] >= pages - 1,
                            f"only {report['pages_shared']} of {pages} pages are shared")
            region = report["methods"][-1]
            support.require(region["pages_released"] >= pages - 2 and region["bytes_released"] > 0,
                            f"the region released {region}")
            if merge == "bytes":
                most = 2 * report["left_pixels"]
                support.require(
                    region["bytes_released"] <= most,
                    f"{region['bytes_released']} bytes released of {most} that the kernel has")


def check_odd(program, folder, dice):
    """One pixel; one row; tiles that hide others altogether; more convolutions than a tile is
    wide."""
    for name, tiles in [("pixel", support.random_tiles(dice, 1, 1, (1, 1), 1)),
                        ("row", support.random_tiles(dice, 17, 1, (50, 3), 9)),
                        ("column", support.random_tiles(dice, 1, 19, (5, 40), 9)),
                        ("hidden", support.random_tiles(dice, 12, 9, (13, 10), 40))]:
        tiles.expected = {count: support.image_of(tiles, count) for count in (1, 32)}
        path = tiles.write(os.path.join(folder, name))
        for convolutions in tiles.expected:
            check(program, folder, path, tiles, convolutions, "0.5", ",".join(support.methods()))


def main():
    program = sys.argv[1]
    dice = support.dice_from(int(os.environ.get("PENSTOCK_TEST_SEED", "1")))
    with tempfile.TemporaryDirectory() as folder:
        for jitter in (0, 3):
            check_made(program, folder, jitter)
        check_sharing(program, folder, dice)
        check_odd(program, folder, dice)
        support.require(not [name for name in os.listdir(folder) if name.startswith(".")],
                        f"left {os.listdir(folder)}")
    print("images are right, wherever the line is")


if __name__ == "__main__":
    main()
