"""What the tests of penstock-collage share: pictures made and read without any library, and running
the program."""
import os
import random
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "apps"))
from program_support import (  # noqa: F401, E402
    backend_flags, limit_files, must_run, refuse, require, run_program)


def methods():
    """The methods to test; on a GPU also PENSTOCK_TEST_METHODS="penstock cpu regions
    cuda"."""
    return os.environ.get("PENSTOCK_TEST_METHODS", "penstock cpu regions").split()


class Picture:
    """Rows of red, green, blue."""

    def __init__(self, width, height, rgb):
        self.width, self.height, self.rgb = width, height, bytes(rgb)

    def pixel(self, x, y):
        at = (y * self.width + x) * 3
        return self.rgb[at:at + 3]


def make_picture(width, height, seed):
    """Something like a photograph: slopes of colour, a few shapes, a little noise."""
    dice = random.Random(seed)
    base = [[dice.randrange(256) for _ in range(3)] for _ in range(4)]
    shapes = [(dice.randrange(width), dice.randrange(height), dice.randrange(4, 40),
               [dice.randrange(256) for _ in range(3)])
              for _ in range(12)]
    rgb = bytearray()
    for y in range(height):
        for x in range(width):
            u, v = x / width, y / height
            colour = [(1 - u) * (1 - v) * base[0][c] + u * (1 - v) * base[1][c]
                      + (1 - u) * v * base[2][c] + u * v * base[3][c]
                      for c in range(3)]
            for cx, cy, radius, fill in shapes:
                if abs(x - cx) + abs(y - cy) < radius:
                    colour = fill
            rgb.extend(min(255, max(0, int(value) + dice.randrange(-6, 7))) for value in colour)
    return Picture(width, height, rgb)


def write_ppm(path, picture):
    with open(path, "wb") as file:
        file.write(b"P6\n# made by a test\n%d %d\n255\n" % (picture.width, picture.height)
                   + picture.rgb)


def read_ppm(path):
    with open(path, "rb") as file:
        data = file.read()
    mark, size, most, pixels = data.split(b"\n", 3)
    width, height = map(int, size.split())
    require((mark, most, len(pixels)) == (b"P6", b"255", width * height * 3), f"{path} is no PPM")
    return Picture(width, height, pixels)


def png_bytes(width, height, colour_type, rows, depth=8, more=b""):
    """A PNG of raw rows, without filters. `more`: chunks before the pixels."""
    def chunk(kind, body):
        return (struct.pack(">I", len(body)) + kind + body
                + struct.pack(">I", zlib.crc32(kind + body)))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + head + more + pixels + chunk(b"IEND", b"")


def read_png(path):
    """Only what the program writes: 8 bits, RGB, not interlaced."""
    with open(path, "rb") as file:
        data = file.read()
    require(data.startswith(b"\x89PNG\r\n\x1a\n"), f"{path} is no PNG")
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            require((depth, colour, interlaced) == (8, 2, 0),
                    f"{path}: another kind of PNG than promised")
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    raw, stride, above, out = zlib.decompress(packed), width * 3, bytes(width * 3), bytearray()
    for y in range(height):
        line = raw[y * (stride + 1):(y + 1) * (stride + 1)]
        above = unfilter(line[0], line[1:], above)
        out += above
    return Picture(width, height, out)


def unfilter(kind, line, above):
    row = bytearray(line)
    for i, value in enumerate(row):
        left, up, corner = row[i - 3] if i >= 3 else 0, above[i], above[i - 3] if i >= 3 else 0
        guess = left + up - corner
        nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up),
                      (abs(guess - corner), 2, corner))[2]
        row[i] = (value + [0, left, up, (left + up) // 2, nearest][kind]) & 255
    return bytes(row)
