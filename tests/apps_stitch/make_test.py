"""What penstock-stitch make promises, from the formulas in docs/apps/stitch.md: make_test.py
PROGRAM."""
import json
import os
import sys
import tempfile

import stitch_support as support

MASK = 2 ** 64 - 1


def wave(t, period):
    return t % period * (period - t % period)


def pixel_of(seed, tile, place, x, y):
    dice = support.mix((support.mix((seed + tile) & MASK) + place // 4) & MASK)
    noise = dice >> place % 4 * 6 & 63
    return 400 + ((wave(x, 509) >> 8) * (wave(y, 383) >> 7) >> 2) + wave(x + y, 97) + noise


def place_of(seed, number, column, row, steps, jitter):
    dice = support.mix((support.mix((seed - 1) & MASK) + number) & MASK)
    return (column * steps[0] + (dice & 0xffffffff) % (2 * jitter + 1),
            row * steps[1] + (dice >> 32) % (2 * jitter + 1))


def make(program, folder, name, *flags):
    path = os.path.join(folder, name)
    done = support.must_run(program, "make", "-o", path, "--json", "--quiet", *flags)
    return path, json.loads(done.stdout)


def check_grid(program, folder):
    flags = ["--rows", 3, "--columns", 5, "--tile", "97x41", "--overlap", 30, "--jitter", 4]
    path, report = make(program, folder, "one", *flags, "--seed", 9)
    tiles, steps = support.read_tiles(path), (97 * 70 // 100, 41 * 70 // 100)
    support.require(tiles.image == (4 * steps[0] + 97 + 8, 2 * steps[1] + 41 + 8)
                    == (report["image_width"], report["image_height"]),
                    f"{tiles.image}")
    support.require(len(tiles.places) == 15 and report["bytes"] == os.path.getsize(path),
                    str(report))
    for i, place in enumerate(tiles.places):
        support.require(place == place_of(9, i, i // 3, i % 3, steps, 4),
                        f"tile {i} lies at {place}")
        for at in range(0, 97 * 41, 7):
            expected = pixel_of(9, i, at, place[0] + at % 97, place[1] + at // 97)
            support.require(
                tiles.pixels[i][at] == expected,
                f"pixel {at} of tile {i} is {tiles.pixels[i][at]} and should be {expected}")
    support.require(len(set(tiles.places)) == 15
                    and any(place != place_of(9, i, i // 3, i % 3, steps, 0)
                            for i, place in enumerate(tiles.places)),
                    "no tile is displaced")
    with open(path, "rb") as file:
        text = file.read()
    support.require(text == tiles.text(), "the file is not as its format says")
    for name, same, more in [("again", True, ["--seed", 9, "--workers", 1]),
                             ("other", False, ["--seed", 10])]:
        with open(make(program, folder, name, *flags, *more)[0], "rb") as file:
            support.require((file.read() == text) == same, f"{name}: not as the seed alone says")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        check_grid(program, folder)
        path, _ = make(program, folder, "least", "--rows", 1, "--columns", 1, "--tile", "1x1")
        support.require(support.read_tiles(path).image == (1, 1), "the least image")
        support.require(sorted(os.listdir(folder)) == ["again", "least", "one", "other"],
                        f"left {os.listdir(folder)}")
    print("made tiles are what the seed says")


if __name__ == "__main__":
    main()
