"""What the tests of penstock-matrix share: files of numbers without any package, sums in the order
that docs/apps/matrix.md gives, and running the program."""
import array
import fractions
import functools
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "apps"))
from program_support import (  # noqa: F401, E402
    backend_flags, dice_from, limit_files, must_run, on_gpu, refuse, require, run_program)

SEGMENT, PARTS = 65536, 128

# Where more is built and tested than there are processors, a thread may stand still for longer than
# the default allows.
os.environ.setdefault("PENSTOCK_HOST_WAIT_MS", "20000")

# Methods that add in the order of docs/apps/matrix.md. Libraries add in orders of their own.
IN_ORDER = ("penstock",)


@functools.cache
def methods(program):
    """The methods to test: of those wanted, the ones whose library was there when the program was
    built. On a GPU also PENSTOCK_TEST_METHODS="penstock cpu cuda"."""
    wanted = os.environ.get("PENSTOCK_TEST_METHODS", "penstock cpu").split()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        a, x = (write_numbers(os.path.join(folder, name), [1.0]) for name in "ax")
        for method in dict.fromkeys([*wanted, "region"]):
            said = run_program(program, "vector", a, x, "-o",
                               os.path.join(folder, "y"), *method_flags(method)).stderr.decode()
            if "was built without" in said or "install libopenblas0" in said:
                print(f"not tested: {said.strip()}")
            else:
                found.append(method)
    require(set(IN_ORDER) & set(found), f"no method of {wanted} adds in order")
    return tuple(found)


def results_of(program, flags_of, multiply, path):
    """Results of all methods with all of their flags, as (name, numbers, in_order). `multiply`
    writes one to `path`. Those that add in order must have the same bits, and are one result."""
    out, ordered = [], {}
    for method in methods(program):
        for flags in flags_of[method]:
            multiply(method, flags)
            if method not in IN_ORDER:
                out.append((f"{method} {flags}", read_numbers(path), False))
                continue
            with open(path, "rb") as file:
                ordered[method, *flags] = without_payloads(file.read())
            numbers = read_numbers(path)
    require(len(set(ordered.values())) == 1,
            f"results of {len(set(ordered.values()))} kinds: {sorted(ordered)}")
    return [("in order", numbers, True), *out]


def without_payloads(numbers):
    """float32 values as bytes, with every NaN the same: what its other bits are, a processor
    chooses."""
    found = array.array("f", numbers)
    for i, number in enumerate(found):
        if math.isnan(number):
            found[i] = math.nan
    return found.tobytes()


def method_flags(method, *for_penstock):
    return ["--method", method,
            *([*backend_flags(), *for_penstock] if method in ("penstock", "region") else [])]


def check_interrupt(program, folder, run, out):
    """Ctrl-C ends what would take very long, which leaves nothing, and keeps the result that was
    there."""
    with open(out, "w", encoding="utf-8") as file:
        file.write("as it was")
    before = sorted(os.listdir(folder))
    for method in methods(program):
        child = subprocess.Popen([program, *map(str, run), "-o", out, "--repeat", "1000",
                                  *method_flags(method, "--page", "4KiB", "--cache", "1MiB",
                                                "--no-windows")],
                                 stderr=subprocess.PIPE)
        # It has begun when its result is there under a passing name.
        deadline = time.monotonic() + 600
        while (not any(name.startswith(".penstock.") for name in os.listdir(folder))
               and time.monotonic() < deadline):
            time.sleep(0.01)
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=1000)
        require(child.returncode == 1 and b"interrupted" in said,
                f"{method} interrupted: {child.returncode}, {said!r}")
        with open(out, encoding="utf-8") as file:
            require(file.read() == "as it was",
                    f"{method}: an interrupted product wrote its result")
        require(sorted(os.listdir(folder)) == before, f"{method}: left {os.listdir(folder)}")


def mix(x):
    """The finaliser of SplitMix64, as penstock/base/hash.hpp has it."""
    mask = 2 ** 64 - 1
    x ^= x >> 30
    x = x * 0xbf58476d1ce4e5b9 & mask
    x ^= x >> 27
    x = x * 0x94d049bb133111eb & mask
    return x ^ x >> 31


def made_number(seed, part, place):
    """What `make` puts there."""
    return 2 * ((mix(mix(seed + part) + place & 2 ** 64 - 1) >> 40) * 2.0 ** -24) - 1


def check_made(path, seed, part, count):
    numbers = read_numbers(path)
    require(len(numbers) == count, f"{path}: {len(numbers)} numbers")
    for place in {0, 1 % count, count // 2, 1048575 % count, 1048576 % count, count - 1}:
        require(numbers[place] == made_number(seed, part, place),
                f"{path}: number {place} is {numbers[place]}")


def write_numbers(path, numbers):
    with open(path, "wb") as file:
        array.array("f", numbers).tofile(file)
    return path


def read_numbers(path):
    numbers = array.array("f")
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    return numbers


def random_numbers(dice, count):
    """Even from -1 to 1, as single precision has them."""
    return array.array("f", [2 * dice.random() - 1 for _ in range(count)])


def rounded(exact):
    """The single-precision number next to a fraction, ties to the even one."""
    near = struct.unpack("<f", struct.pack("<f", float(exact)))[0]
    bits = struct.unpack("<i", struct.pack("<f", near))[0]
    around = [(struct.unpack("<f", struct.pack("<i", bits + step))[0], (bits + step) % 2)
              for step in (-1, 0, 1) if bits + step >= 0 or bits < 0]
    return min(((abs(fractions.Fraction(value) - exact), odd, value) for value, odd in around
                if math.isfinite(value)))[2]


def plus(a, b):
    return rounded(fractions.Fraction(a) + fractions.Fraction(b))


def tree(sums):
    """Those that lie 16 apart, 8, 4, 2, 1."""
    apart = len(sums) // 2
    while apart:
        sums = [plus(sums[i], sums[i + apart]) for i in range(apart)]
        apart //= 2
    return sums[0]


def fused(a, b, c):
    return rounded(fractions.Fraction(a) * fractions.Fraction(b) + fractions.Fraction(c))


def ordered_sum(matrix_row, vector, first_place):
    """A row's sum as every method must find it, bit by bit. `first_place`: of its first number in
    the file."""
    segments = []
    for begin in range(0, len(vector), SEGMENT):
        parts = [0.0] * PARTS
        for i in range(begin, min(begin + SEGMENT, len(vector))):
            part = (first_place + i) % PARTS
            parts[part] = fused(matrix_row[i], vector[i], parts[part])
        segments.append(tree([plus(plus(parts[4 * i], parts[4 * i + 1]),
                                   plus(parts[4 * i + 2], parts[4 * i + 3]))
                              for i in range(PARTS // 4)]))
    if len(segments) == 1:
        return segments[0]
    sums = [0.0] * (PARTS // 4)
    for i, segment in enumerate(segments):
        sums[i % len(sums)] = plus(sums[i % len(sums)], segment)
    return tree(sums)


def any_order_tolerance(k):
    return (k + 1) * 2.0 ** -24


def vector_tolerance(columns, in_order=True):
    if not in_order:
        return any_order_tolerance(columns)
    segments = -(-columns // SEGMENT)
    return (-(-min(columns, SEGMENT) // PARTS) + 1 + 7
            + (0 if segments == 1 else -(-segments // 32) + 5) + 1) * 2.0 ** -24


def wrong_rows(y, matrix, vector, in_order=True):
    """Rows that are further from the exact sum than roundings can bring them. Every row is
    judged."""
    columns, limit, wrong = len(vector), vector_tolerance(len(vector), in_order), []
    for row in range(len(matrix) // columns):
        products = [a * x for a, x in zip(matrix[row * columns:(row + 1) * columns], vector)]
        if (not abs(y[row] - math.fsum(products))
            <= limit * math.fsum(map(abs, products)) + columns * 2.0 ** -149):
            wrong.append(row)
    return wrong
