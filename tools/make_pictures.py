#!/usr/bin/env python3
"""Makes pictures for penstock-collage where there are no photographs: waves of colour, shapes and
noise, as binary PPM, the same for the same arguments.

  tools/make_pictures.py DIR [--pictures N] [--size WIDTHxHEIGHT] [--seed N]

Needs nothing but Python, and a few seconds for a picture of 8192x6144. What is measured on them
compares with nothing that was measured on photographs: other blocks meet other candidates."""
import argparse
import pathlib
import random

CHANNELS = 3


def smooth(dice: random.Random, length: int, step: int, most: int) -> list[int]:
    """Numbers from 0 to `most` that change slowly: lines between random points, in a circle."""
    knots = [dice.randrange(most + 1) for _ in range(-(-length // step))]
    knots.append(knots[0])
    out: list[int] = []
    for first, second in zip(knots, knots[1:]):
        out += [first + (second - first) * i // step for i in range(step)]
    return out[:length]


class Layer:
    """A row of slowly changing pixels, shown at another place in each row of the picture."""

    def __init__(self, dice: random.Random, width: int, height: int, step: int, most: int) -> None:
        by_channel = [smooth(dice, width, step, most) for _ in range(CHANNELS)]
        pixels = bytes(value for pixel in zip(*by_channel) for value in pixel)
        self.twice, self.row_bytes = pixels + pixels, len(pixels)
        self.shift = smooth(dice, height, step, width - 1)

    def row(self, y: int) -> int:
        """As one large number, of which no byte carries into the next when layers are added."""
        at = self.shift[y] * CHANNELS
        return int.from_bytes(self.twice[at:at + self.row_bytes], "little")


def shapes_of(dice: random.Random, width: int,
              height: int) -> list[tuple[int, int, int, int, bytes]]:
    """Rectangles of a colour: left, right, top, bottom."""
    out = []
    for _ in range(40):
        left, top = dice.randrange(width), dice.randrange(height)
        right = min(width, left + dice.randrange(1, width // 6 + 2))
        bottom = min(height, top + dice.randrange(1, height // 6 + 2))
        out.append((left, right, top, bottom, dice.randbytes(CHANNELS)))
    return out


def write_picture(path: pathlib.Path, width: int, height: int, seed: int) -> None:
    dice = random.Random(seed)
    # The most of all layers and of the noise add up to 254.
    layers = [Layer(dice, width, height, step, most)
              for step, most in ((509, 127), (101, 64), (23, 48))]
    shapes = shapes_of(dice, width, height)
    low_bits = int.from_bytes(b"\x0f" * (width * CHANNELS), "little")
    with open(path, "wb") as file:
        file.write(b"P6\n%d %d\n255\n" % (width, height))
        for y in range(height):
            total = dice.getrandbits(8 * width * CHANNELS) & low_bits
            for layer in layers:
                total += layer.row(y)
            row = bytearray(total.to_bytes(width * CHANNELS, "little"))
            for left, right, top, bottom, colour in shapes:
                if top <= y < bottom:
                    # Every second pixel, so that what is below shows through.
                    begin, count = left * CHANNELS, (right - left + 1) // 2
                    for channel in range(CHANNELS):
                        row[begin + channel:right * CHANNELS:2 * CHANNELS] = (
                            colour[channel:channel + 1] * count)
            file.write(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--pictures", type=int, default=5, metavar="N")
    parser.add_argument("--size", default="8192x6144", metavar="WIDTHxHEIGHT")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    wanted = parser.parse_args()
    width, _, height = wanted.size.partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) > 0 and int(height) > 0):
        parser.error(f"--size '{wanted.size}' is no size; give WIDTHxHEIGHT, such as 8192x6144")
    folder = pathlib.Path(wanted.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(wanted.pictures):
        write_picture(folder / f"{wanted.size}-{number + 1}.ppm", int(width), int(height),
                      wanted.seed * 1000 + number)


if __name__ == "__main__":
    main()
