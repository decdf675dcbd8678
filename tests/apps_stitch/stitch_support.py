"""What the tests of penstock-stitch share: files of tiles, and the image that they make, written
from docs/apps/stitch.md and without any package."""
import array
import os
import struct
import sys

sys.path.insert(0,
                os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "apps_matrix"))
from matrix_support import (  # noqa: F401, E402
    backend_flags, dice_from, limit_files, mix, must_run, on_gpu, refuse, require)

PAGE, HEADER = 4096, 64


def methods():
    """The methods to test; PENSTOCK_TEST_FLAGS="--backend gpu" tests the GPU's too."""
    return ["cpu", "managed", "private", "penstock"] if on_gpu() else ["cpu", "private", "penstock"]


def up_to_page(size):
    return -(-size // PAGE) * PAGE


class Tiles:
    """A file of tiles: pixels[i] is tile i, row by row; places[i] is its left upper corner."""

    def __init__(self, width, height, image, places, pixels):
        self.width, self.height, self.image, self.places, self.pixels = (
            width, height, image, places, pixels)

    def first(self):
        return PAGE + up_to_page(8 * len(self.places))

    def stride(self):
        return up_to_page(2 * self.width * self.height)

    def header(self, **changed):
        count = len(self.places)
        values = {"magic": b"PNSTITCH", "version": 1, "width": self.width, "height": self.height,
                  "count": count, "image_width": self.image[0], "image_height": self.image[1],
                  "first": self.first(), "stride": self.stride(),
                  "bytes": self.first() + count * self.stride()}
        values.update(changed)
        return struct.pack("<8s6I3Q", *values.values())

    def text(self, **changed):
        out = self.header(**changed).ljust(PAGE, b"\0")
        out += b"".join(struct.pack("<2I", *place)
                        for place in self.places).ljust(self.first() - PAGE, b"\0")
        return (out + b"".join(array.array("H", pixels).tobytes().ljust(self.stride(), b"\0")
                               for pixels in self.pixels))

    def write(self, path, **changed):
        with open(path, "wb") as file:
            file.write(self.text(**changed))
        return path


def read_tiles(path):
    with open(path, "rb") as file:
        text = file.read()
    _, _, width, height, count, image_width, image_height, first, stride, size = struct.unpack_from(
        "<8s6I3Q", text)
    require(size == len(text), f"{path} says {size} bytes and has {len(text)}")
    places = [struct.unpack_from("<2I", text, PAGE + 8 * i) for i in range(count)]
    pixels = [array.array("H", text[first + i * stride:first + i * stride + 2 * width * height])
              for i in range(count)]
    return Tiles(width, height, (image_width, image_height), places, pixels)


def random_tiles(dice, width, height, image, count):
    """Anywhere in the image, of any brightness, with flat parts and hard edges."""
    places = [(dice.randrange(image[0] - width + 1), dice.randrange(image[1] - height + 1))
              for _ in range(count)]
    pixels = [[dice.choice([0, 65535, 255, 256, dice.randrange(65536)])
               for _ in range(width * height)]
              for _ in places]
    return Tiles(width, height, image, places, pixels)


def sharpened(pixels, width, height):
    """One convolution of a tile."""
    out = [0] * (width * height)
    for y in range(height):
        rows = [width * max(y - 1, 0), width * y, width * min(y + 1, height - 1)]
        sums = [pixels[rows[0] + x] + 2 * pixels[rows[1] + x] + pixels[rows[2] + x]
                for x in range(width)]
        sums = [sums[0], *sums, sums[-1]]
        for x in range(width):
            pixel = pixels[rows[1] + x]
            out[rows[1] + x] = min(
                max(pixel + (16 * pixel - (sums[x] + 2 * sums[x + 1] + sums[x + 2]) + 128 >> 8), 0),
                65535)
    return out


def image_of(tiles, convolutions):
    """The whole file: a header of 64 bytes, then pixels with the high byte first. Later tiles lie
    over earlier ones."""
    width, height = tiles.image
    rows = [[0] * width for _ in range(height)]
    for (left, top), pixels in zip(tiles.places, tiles.pixels):
        for _ in range(convolutions):
            pixels = sharpened(pixels, tiles.width, tiles.height)
        for y in range(tiles.height):
            rows[top + y][left:left + tiles.width] = pixels[y * tiles.width:(y + 1) * tiles.width]
    sizes = f"{width} {height}\n65535\n".encode()
    header = b"P5\n# penstock-stitch".ljust(HEADER - 1 - len(sizes)) + b"\n" + sizes
    return header + b"".join(struct.pack(f">{width}H", *row) for row in rows)


def pages_shared(image, split):
    """Pages with bytes of both sides, by looking at every pixel."""
    left, right = set(), set()
    for y in range(image[1]):
        for x in range(image[0]):
            for byte in (0, 1):
                (left if x < split else right).add((HEADER + 2 * (y * image[0] + x) + byte) // PAGE)
    return len(left & right)
