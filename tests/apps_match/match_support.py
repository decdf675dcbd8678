"""What the tests of penstock-match share: files of images written and read without any package, a
second implementation of the search, and running the program."""
import array
import json
import math
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "apps"))
from program_support import (  # noqa: F401, E402
    backend_flags, dice_from, limit_files, methods, must_run, on_gpu, refuse, require,
    run_program, wait_until_at_work)

HEADER = struct.Struct("<8sIIQIIIIQ16x")
FIRST_BYTE = 4096


def header_bytes(count, shape, stride, first_byte=FIRST_BYTE, magic=b"PIMAGES1", version=1,
                 size=64):
    return HEADER.pack(magic, version, size, count, *shape, stride, first_byte)


def padded(floats):
    return (floats + 15) // 16 * 16


def write_images(path, shape, images, stride=None, first_byte=FIRST_BYTE):
    """`images`: lists of numbers."""
    floats = math.prod(shape)
    stride = stride or padded(floats)
    data = array.array("f")
    for image in images:
        data.extend(image)
        data.extend([0.0] * (stride - floats))
    if sys.byteorder == "big":
        data.byteswap()
    with open(path, "wb") as file:
        file.write(header_bytes(len(images), shape, stride, first_byte).ljust(first_byte, b"\0"))
        data.tofile(file)
    return path


def read_images(path):
    with open(path, "rb") as file:
        whole = file.read()
    magic, version, size, count, width, height, channels, stride, first_byte = HEADER.unpack(
        whole[:HEADER.size])
    require((magic, version, size) == (b"PIMAGES1", 1, 64), f"{path}: header {whole[:64]!r}")
    floats = width * height * channels
    require(len(whole) == first_byte + count * stride * 4, f"{path}: {len(whole)} bytes")
    data = array.array("f", whole[first_byte:])
    require(all(value == 0 for i in range(count)
                for value in data[i * stride + floats:(i + 1) * stride]),
            f"{path}: padding is not zero")
    return (width, height, channels), [data[i * stride:i * stride + floats] for i in range(count)]


def random_images(dice, count, floats):
    """As single precision has them, so that the program and the reference see the same numbers."""
    return [array.array("f", [dice.random() for _ in range(floats)]) for _ in range(count)]


def distance(a, b):
    return math.fsum((x - y) * (x - y) for x, y in zip(a, b))


def first_matches(queries, databases, threshold):
    """For each query (database, image, distance) or None. `databases`: lists of images."""
    found = []
    for query in queries:
        places = ((d, i, distance(query, image)) for d, images in enumerate(databases)
                  for i, image in enumerate(images))
        found.append(next((place for place in places if place[2] < threshold), None))
    return found


def threshold_between(queries, databases, fraction):
    """A threshold that this fraction of all distances is below and that none is near, so that
    rounding cannot matter."""
    all_of_them = sorted(distance(q, image) for q in queries for images in databases
                         for image in images)
    if not all_of_them:
        return 1.0
    at = min(int(len(all_of_them) * fraction), len(all_of_them) - 1)
    nearby = [(b - a, (a + b) / 2)
              for a, b in zip([0.0, *all_of_them], all_of_them)][max(0, at - 5):at + 6]
    return max(max(nearby)[1], 1e-30)


def search(program, method, queries, databases, threshold, *flags):
    """The lines, as (database path, image, distance) or None, and the report."""
    out = queries + ".out"
    backend = backend_flags() if method == "penstock" else []
    done = must_run(program, queries, *databases, "--threshold", repr(threshold), "--out", out,
                    "--method", method, "--json", "--quiet", *backend, *flags)
    with open(out, encoding="utf-8") as file:
        text = file.read()
    lines = []
    for number, line in enumerate(text.splitlines()):
        query, path, image, squared = line.split("\t")
        require(query == str(number), f"line {number} is about query {query}")
        lines.append(None if path == "-" else (path, int(image), float(squared)))
    return lines, json.loads(done.stdout), text


def check_lines(got, expected, paths, floats, label):
    require(len(got) == len(expected), f"{label}: {len(got)} lines for {len(expected)} queries")
    for query, (line, right) in enumerate(zip(got, expected)):
        if right is None or line is None:
            require(line is None and right is None,
                    f"{label}: query {query}: found {line}, expected {right}")
            continue
        require(line[:2] == (paths[right[0]], right[1]),
                f"{label}: query {query}: found {line}, expected {right}")
        # Each of the roundings is wrong by at most half of the last place of 24 bits.
        require(abs(line[2] - right[2]) <= (floats + 4) * 2.0 ** -24 * right[2] + 1e-30,
                f"{label}: query {query}: distance {line[2]}, expected {right[2]}")
