"""Every method writes the product that a second implementation finds, and those that add in the
documented order the same bits: product_numbers_test.py PROGRAM."""
import array
import json
import math
import os
import sys
import tempfile

import matrix_support as support

SLAB = 512

# m, n, k: one number; tiles of every kind of group that are full and begun; rows that no multiple
# of anything fits; slabs that are begun and full; long and flat ones; rows of multiples of 4
# numbers that pages cut, and such that they do not.
SHAPES = [(1, 1, 1), (1, 3, 2), (5, 1, 33), (7, 9, 1), (128, 128, 32), (129, 130, 65),
          (97, 513, 40), (3, 5, 1025), (250, 257, 512), (2, 4000, 31), (2050, 3, 70), (17, 64, 513),
          (140, 264, 1036), (130, 140, 1024)]

FLAGS = {"cpu": [[], ["--workers", "3"]],
         "region": [[]],
         "cuda": [[], ["--workers", "1", "--cache", "1MiB"]],
         "penstock": [[], ["--page", "4KiB", "--cache", "512KiB"],
                      ["--page", "512", "--cache", "64KiB", "--no-windows"],
                      ["--workers", "1", "--page", "2MiB", "--cache", "64MiB"]]}


def multiply(program, method, folder, sizes, *flags):
    a, b, c = (os.path.join(folder, name) for name in "ABC")
    done = support.must_run(program, "product", a, b, "-o", c, *sizes, "--json", "--quiet",
                            *support.method_flags(method), *flags)
    return json.loads(done.stdout)


def check_all(program, folder, a, b, shape):
    """All methods with all flags on these numbers: results, as support.results_of has them."""
    m, n, k = shape
    support.write_numbers(os.path.join(folder, "A"), a)
    support.write_numbers(os.path.join(folder, "B"), b)

    def multiply_to_c(method, flags):
        report = multiply(program, method, folder, ["--m", m, "--n", n, "--k", k], *flags)
        support.require((report["m"], report["n"], report["k"]) == shape, f"{shape}: {report}")

    results = support.results_of(program, FLAGS, multiply_to_c, os.path.join(folder, "C"))
    for name, c, _ in results:
        support.require(len(c) == m * n, f"{shape} by {name}: {len(c)} results")
    return results


def tolerance_of(k, in_order):
    if not in_order:
        return support.any_order_tolerance(k)
    return (min(k, SLAB) + -(-k // SLAB) + 1) * 2.0 ** -24


def wrong_places(c, a, b, shape, rows, in_order=True):
    """Numbers of these rows that are further from the exact sum than roundings can bring them."""
    m, n, k = shape
    columns = [b[j::n] for j in range(n)]
    wrong = []
    for i in rows:
        row = a[i * k:(i + 1) * k]
        for j in range(n):
            products = [x * y for x, y in zip(row, columns[j])]
            if (not abs(c[i * n + j] - math.fsum(products))
                <= tolerance_of(k, in_order) * math.fsum(map(abs, products)) + k * 2.0 ** -149):
                wrong.append((i, j))
    return wrong


def check_shapes(program, folder, dice):
    for shape in SHAPES:
        m, n, k = shape
        a, b = support.random_numbers(dice, m * k), support.random_numbers(dice, k * n)
        # All of them, or rows of every tile.
        rows = (range(m) if m * n * k < 400000
                else sorted({*range(0, m, 60), *range(1, m, 97), m - 1}))
        for name, c, in_order in check_all(program, folder, a, b, shape):
            wrong = wrong_places(c, a, b, shape, rows, in_order)
            support.require(not wrong, f"{shape} by {name}: {wrong[:5]} are wrong")
            # The judge must see a single wrong number.
            i, j = rows[len(rows) // 2], n - 1
            broken = array.array("f", c)
            broken[i * n + j] += 4 * tolerance_of(k, in_order) * k
            support.require(wrong_places(broken, a, b, shape, rows, in_order) == [(i, j)],
                            f"{shape} by {name}: a wrong number was not seen")


def ordered_product(a, b, shape, i, j):
    """As every method must find it, bit by bit."""
    _, n, k = shape
    total = 0.0
    for begin in range(0, k, SLAB):
        part = 0.0
        for at in range(begin, min(begin + SLAB, k)):
            part = support.fused(a[i * k + at], b[at * n + j], part)
        total = support.plus(total, part)
    return total


def check_order(program, folder, dice):
    """The documented order of additions, to the last bit, on numbers whose sizes differ much."""
    for shape in [(3, 2, 100), (2, 3, 514), (1, 1, 1100)]:
        m, n, k = shape
        a, b = (array.array("f", [value * 2.0 ** dice.randrange(-20, 20)
                                  for value in support.random_numbers(dice, count)])
                for count in (m * k, k * n))
        c = check_all(program, folder, a, b, shape)[0][1]
        expected = array.array("f", [ordered_product(a, b, shape, i, j) for i in range(m)
                                     for j in range(n)])
        support.require(c == expected, f"order of {shape}: {list(c)}, expected {list(expected)}")


def check_whole_numbers(program, folder, dice):
    """Sums that have no roundings are exact, all of them."""
    shape = m, n, k = 140, 150, 70
    a, b = (array.array("f", [dice.randrange(-8, 9) for _ in range(count)])
            for count in (m * k, k * n))
    columns = [b[j::n] for j in range(n)]
    expected = [sum(x * y for x, y in zip(a[i * k:(i + 1) * k], columns[j]))
                for i in range(m) for j in range(n)]
    for name, c, _ in check_all(program, folder, a, b, shape):
        wrong = [(at // n, at % n) for at in range(m * n) if c[at] != expected[at]]
        support.require(not wrong, f"whole numbers by {name}: {wrong[:5]} are wrong")


def check_not_numbers(program, folder, dice):
    shape = m, n, k = 30, 40, 50
    a, b = support.random_numbers(dice, m * k), support.random_numbers(dice, k * n)
    a[3 * k + 7], a[5 * k + 7] = math.nan, math.inf
    for name, c, in_order in check_all(program, folder, a, b, shape):
        support.require(all(map(math.isnan, c[3 * n:4 * n]))
                        and all(map(math.isinf, c[5 * n:6 * n])),
                        f"rows with what is no number by {name}")
        wrong = wrong_places(c, a, b, shape, [row for row in range(m) if row not in (3, 5)],
                             in_order)
        support.require(not wrong, f"no numbers by {name}: {wrong[:5]} were disturbed")


def check_repeats(program, folder, dice):
    """Again and again with one runtime, and checked: the same result, and a file that was there is
    replaced whole."""
    shape = m, n, k = 300, 200, 600
    a, b = support.random_numbers(dice, m * k), support.random_numbers(dice, k * n)
    support.write_numbers(os.path.join(folder, "A"), a)
    support.write_numbers(os.path.join(folder, "B"), b)
    texts = {}
    for method in support.methods(program):
        with open(os.path.join(folder, "C"), "wb") as file:
            file.write(b"z" * 1000000)
        report = multiply(program, method, folder, ["--m", m, "--n", n, "--k", k], "--repeat", 3,
                          "--check")
        support.require(len(report["seconds"]["runs"]) == 3 and min(report["seconds"]["runs"]) > 0,
                        f"{method}: {report['seconds']}")
        check = report["check"]
        support.require(0 < check["greatest_deviation"] <= check["tolerance"]
                        == tolerance_of(k, method in support.IN_ORDER) and check["rows"] == m,
                        f"{method}: {check}")
        c = os.path.join(folder, "C")
        support.require(not wrong_places(support.read_numbers(c), a, b, shape, [0, 150, 299],
                                         method in support.IN_ORDER),
                        f"{method}: a repeated product is wrong")
        if method in support.IN_ORDER:
            with open(c, "rb") as file:
                texts[method] = file.read()
    support.require(len(set(texts.values())) == 1, "methods differ when they repeat")
    support.require(sorted(os.listdir(folder)) == ["A", "B", "C"], f"left {os.listdir(folder)}")


def check_rows_go_home(program, folder, dice):
    """A result of twice the cache: rows of tiles go to the file as they are complete, so no frame
    has to be won from pages that are dirty."""
    shape = m, n, k = 3840, 128, 16
    a, b = support.random_numbers(dice, m * k), support.random_numbers(dice, k * n)
    support.write_numbers(os.path.join(folder, "A"), a)
    support.write_numbers(os.path.join(folder, "B"), b)
    counts = multiply(program, "penstock", folder, ["--m", m, "--n", n, "--k", k], "--page", "4KiB",
                      "--cache", "1MiB")["runtime"]["statistics"]
    support.require(counts["write_backs"] >= m * n * 4 // 4096 and counts["dirty_victims"] == 0,
                    f"rows that were not written when they were complete: {counts}")
    support.require(not wrong_places(support.read_numbers(os.path.join(folder, "C")), a, b, shape,
                                     [0, 2000, m - 1]),
                    "a result that is larger than the cache is wrong")


def main():
    program = sys.argv[1]
    dice = support.dice_from(int(sys.argv[2]) if len(sys.argv) > 2 else 12)
    for check in (check_shapes, check_order, check_whole_numbers, check_not_numbers, check_repeats,
                  check_rows_go_home):
        with tempfile.TemporaryDirectory() as folder:
            check(program, folder, dice)
    print(f"products by {', '.join(support.methods(program))} are the reference's; by "
          f"{', '.join(support.IN_ORDER)} with the same bits")


if __name__ == "__main__":
    main()
