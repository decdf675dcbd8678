"""Every method writes the product that a second implementation finds, and those that add in the
documented order the same bits: vector_numbers_test.py PROGRAM."""
import array
import json
import math
import os
import sys
import tempfile

import matrix_support as support

# Rows and columns: one number, odd columns, rows that begin and end anywhere in pages and in 128
# numbers, bands that are begun and full, rows of one and several segments, one huge row.
SHAPES = [(1, 1), (1, 2), (2, 1), (3, 127), (3, 128), (5, 129), (17, 1001), (5000, 1), (4097, 3),
          (8193, 16), (33, 4099), (5, 65536), (3, 65537), (2, 131073), (1, 400001)]

FLAGS = {"cpu": [[], ["--workers", "3"]],
         "region": [[]],
         "cuda": [[], ["--workers", "1"]],
         "penstock": [[], ["--page", "4KiB", "--cache", "256KiB"],
                      ["--page", "512", "--cache", "64KiB", "--no-windows"],
                      ["--workers", "1", "--page", "2MiB", "--cache", "64MiB"]]}


def multiply(program, method, matrix, vector, out, *flags):
    done = support.must_run(program, "vector", matrix, vector, "-o", out, "--json", "--quiet",
                            *support.method_flags(method), *flags)
    return json.loads(done.stdout)


def check_all(program, folder, matrix, vector, case):
    """All methods with all flags on these numbers: results, as support.results_of has them."""
    paths = [support.write_numbers(os.path.join(folder, name), numbers)
             for name, numbers in (("A", matrix), ("x", vector))]
    out, rows = os.path.join(folder, "y"), len(matrix) // len(vector)

    def multiply_to_out(method, flags):
        report = multiply(program, method, *paths, out, *flags)
        support.require((report["m"], report["n"], report["k"]) == (rows, 1, len(vector)),
                        f"{case}: {report['m']} rows")

    results = support.results_of(program, FLAGS, multiply_to_out, out)
    for name, y, _ in results:
        support.require(len(y) == rows, f"{case} by {name}: {len(y)} results")
    return results


def check_shapes(program, folder, dice):
    for rows, columns in SHAPES:
        matrix, vector = (support.random_numbers(dice, rows * columns),
                          support.random_numbers(dice, columns))
        for name, y, in_order in check_all(program, folder, matrix, vector, f"{rows} x {columns}"):
            case = f"{rows} x {columns} by {name}"
            wrong = support.wrong_rows(y, matrix, vector, in_order)
            support.require(not wrong, f"{case}: rows {wrong[:5]} are wrong")
            # The judge must see a single wrong row, wherever it is.
            for row in {0, rows // 2, rows - 1}:
                broken = array.array("f", y)
                broken[row] += 4 * support.vector_tolerance(columns, in_order) * columns
                support.require(support.wrong_rows(broken, matrix, vector, in_order) == [row],
                                f"{case}: a wrong row {row} was not seen")


def check_order(program, folder, dice):
    """The documented order of additions, to the last bit, on numbers whose sizes differ much."""
    for rows, columns in [(4, 300), (3, 129), (2, 1000), (9, 7)]:
        matrix, vector = (array.array("f", [value * 2.0 ** dice.randrange(-20, 20)
                                            for value in support.random_numbers(dice, count)])
                          for count in (rows * columns, columns))
        y = check_all(program, folder, matrix, vector, f"order of {rows} x {columns}")[0][1]
        expected = array.array(
            "f", [support.ordered_sum(matrix[r * columns:(r + 1) * columns], vector, r * columns)
                  for r in range(rows)])
        support.require(y == expected,
                        f"order of {rows} x {columns}: {list(y)}, expected {list(expected)}")
    # Segments: whole numbers, but for the last of one, so that a sum shows where it was cut.
    columns = 65536 + 5
    matrix = array.array("f", [0.0] * columns)
    for i in (0, 1, 65535, 65536, 65540):
        matrix[i] = 1 + i * 2.0 ** -20
    vector = array.array("f", [1.0] * columns)
    y = check_all(program, folder, matrix, vector, "segments")[0][1]
    support.require(y[0] == support.ordered_sum(matrix, vector, 0), f"segments: {y[0]}")


def check_whole_numbers(program, folder, dice):
    """Sums that have no roundings are exact."""
    rows, columns = 700, 513
    matrix, vector = (array.array("f", [dice.randrange(-8, 9) for _ in range(count)])
                      for count in (rows * columns, columns))
    expected = [sum(a * x for a, x in zip(matrix[r * columns:(r + 1) * columns], vector))
                for r in range(rows)]
    for name, y, _ in check_all(program, folder, matrix, vector, "whole numbers"):
        wrong = [r for r in range(rows) if y[r] != expected[r]]
        support.require(list(y) == expected, f"whole numbers by {name}: rows {wrong[:5]} are wrong")


def check_not_numbers(program, folder, dice):
    rows, columns = 40, 301
    matrix, vector = (support.random_numbers(dice, rows * columns),
                      support.random_numbers(dice, columns))
    vector[7] = 1.0
    matrix[3 * columns + 7], matrix[5 * columns + 7], matrix[6 * columns + 7] = (
        math.nan, math.inf, -math.inf)
    for name, y, in_order in check_all(program, folder, matrix, vector, "no numbers"):
        support.require(math.isnan(y[3]) and y[5] == math.inf and y[6] == -math.inf,
                        f"no numbers by {name}: {y[3]}, {y[5]}, {y[6]}")
        wrong = [row for row in support.wrong_rows(y, matrix, vector, in_order)
                 if row not in (3, 5, 6)]
        support.require(not wrong, f"no numbers by {name}: rows {wrong} were disturbed")
    for method in support.methods(program):
        report = multiply(program, method, os.path.join(folder, "A"), os.path.join(folder, "x"),
                          os.path.join(folder, "y"), "--check")
        support.require(report["check"]["numbers_not_judged"] == 3, f"{method}: {report['check']}")


def check_repeats(program, folder, dice):
    """Again and again with one runtime: the same result, and a file that was there is replaced
    whole."""
    rows, columns = 900, 777
    matrix, vector = (support.random_numbers(dice, rows * columns),
                      support.random_numbers(dice, columns))
    paths = [support.write_numbers(os.path.join(folder, name), numbers)
             for name, numbers in (("A", matrix), ("x", vector))]
    out = os.path.join(folder, "long")
    texts = {}
    for method in support.methods(program):
        with open(out, "wb") as file:
            file.write(b"z" * 100000)
        os.chmod(out, 0o640)
        report = multiply(program, method, *paths, out, "--repeat", 3, "--check")
        support.require(len(report["seconds"]["runs"]) == 3 and min(report["seconds"]["runs"]) > 0,
                        f"{method}: {report['seconds']}")
        support.require(report["check"]["greatest_deviation"] <= report["check"]["tolerance"]
                        == support.vector_tolerance(columns, method in support.IN_ORDER),
                        f"{method}: {report['check']}")
        support.require(os.stat(out).st_mode & 0o777 == 0o640,
                        f"{method}: mode {os.stat(out).st_mode:o}")
        support.require(not support.wrong_rows(support.read_numbers(out), matrix, vector,
                                               method in support.IN_ORDER),
                        f"{method}: a repeated product is wrong")
        if method in support.IN_ORDER:
            with open(out, "rb") as file:
                texts[method] = file.read()
    support.require(len(set(texts.values())) == 1, "methods differ when they repeat")
    support.require(sorted(os.listdir(folder)) == ["A", "long", "x", "y"]
                    or sorted(os.listdir(folder)) == ["A", "long", "x"],
                    f"left {os.listdir(folder)}")


def check_loads(program, folder, dice):
    """A page is loaded once, in a cache far smaller than the matrix too: what is asked for ahead is
    not dropped before it is used."""
    rows, columns = 3000, 1000
    names = [os.path.join(folder, name) for name in ("A", "x", "y")]
    support.must_run(program, "make-vector", "--rows", rows, "--cols", columns, "--seed",
                     dice.randrange(1000), "-o", names[0], "-x", names[1], "--quiet")
    for page, cache in ((512, "128KiB"), (4096, "1MiB"), (65536, "8MiB")):
        report = multiply(program, "penstock", *names, "--workers", "2", "--page", page, "--cache",
                          cache, "--check")
        # A page that two items share may have to come twice.
        most = (rows + 1) * columns * 4 + (rows * columns * 4 // 65536 + 4) * page
        support.require(
            report["bytes_read"] <= most,
            f"pages of {page}: {report['bytes_read']} bytes were loaded, {most} at most are needed")


def main():
    program = sys.argv[1]
    dice = support.dice_from(int(sys.argv[2]) if len(sys.argv) > 2 else 11)
    for check in (check_shapes, check_order, check_whole_numbers, check_not_numbers, check_repeats,
                  check_loads):
        with tempfile.TemporaryDirectory() as folder:
            check(program, folder, dice)
    print(f"products by {', '.join(support.methods(program))} are the reference's; by "
          f"{', '.join(support.IN_ORDER)} with the same bits")


if __name__ == "__main__":
    main()
