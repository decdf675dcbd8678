"""What penstock-matrix says to input it cannot use: exit status, one line that names the value, and
nothing left behind; and what `make-product` promises.

Usage: product_bad_input_test.py PROGRAM
"""
import json
import os
import sys
import tempfile

import matrix_support as support

SIZES = ["--m", "40", "--n", "30", "--k", "77"]


def check_usage(program, a, b, out):
    run, make = ["product", a, b, "-o", out], ["make-product", "-a", out, "-b", out + "b"]
    for arguments, names in [
            ([], ["--help"]), (["multiply"], ["'multiply'", "make-product"]),
            (["product"], ["--help"]),
            (["product", a, "-o", out, *SIZES], ["B"]), (["product", a, b, *SIZES], ["--out"]),
            ([*run, *SIZES[:4]], ["--k"]), ([*run, *SIZES[2:]], ["--m"]),
            ([*run, "--m", "0", *SIZES[2:]], ["--m", "'0'"]),
            ([*run, *SIZES[:4], "--k", "x"], ["--k", "'x'"]),
            ([*run, "--m", "1e3", *SIZES[2:]], ["'1e3'"]),
            ([*run, "--m", "4194304", "--n", "4194305", "--k", "1"],
             ["4194305", "17,592,186,044,416"]),
            ([*run, *SIZES, "--method", "magic"], ["--method", "'magic'"]),
            ([*run, *SIZES, "--repeat", "0"], ["--repeat", "'0'"]),
            ([*run, *SIZES, "--page", "3000"], ["3000", "power of two"]),
            (["make-product"], ["--help"]),
            ([*make, *SIZES[:4]], ["--k"]), ([*make, *SIZES, "--seed", "-1"], ["--seed", "'-1'"]),
            ([*make, "--m", "-4", *SIZES[2:]], ["'-4'"])]:
        support.refuse(program, arguments, names, status=2)


def check_files(program, folder, a, b):
    bad, out = os.path.join(folder, "bad"), os.path.join(folder, "out")

    def damaged(data, names_as_a, names_as_b):
        with open(bad, "wb") as file:
            file.write(data)
        for method in support.methods(program):
            flags = [*SIZES, "-o", out, *support.method_flags(method)]
            support.refuse(program, ["product", bad, b, *flags], ["bad'", *names_as_a])
            support.refuse(program, ["product", a, bad, *flags], ["bad'", *names_as_b])

    damaged(b"", ["empty"], ["empty"])
    damaged(b"abc", ["3 bytes"], ["3 bytes"])
    damaged(b"\0" * (40 * 77 * 4 - 4), ["12,316 bytes", "12,320", "40 rows of 77", "--m and --k"],
            ["12,316 bytes", "9,240", "77 rows of 30", "--k and --n"])
    damaged(b"\0" * (77 * 30 * 4 + 4), ["9,244 bytes"], ["9,244 bytes", "cut short"])
    for name, names in [("absent", ["absent", "ENOENT"]), (".", ["EISDIR"])]:
        path = os.path.join(folder, name)
        support.refuse(program, ["product", path, b, "-o", out, *SIZES], names)
        support.refuse(program, ["product", a, path, "-o", out, *SIZES], names)
    for path, names in [(os.path.join(folder, "no", "out"), ["no/out", "ENOENT"]),
                        (folder, ["EISDIR"]), ("/dev/full", ["/dev/full", "regular"]),
                        (a, ["a'", "input"]), (b, ["b'", "input"])]:
        support.refuse(program, ["product", a, b, "-o", path, *SIZES], names)
    if not support.on_gpu():
        support.refuse(program, ["product", a, b, "-o", out, *SIZES, "--method", "cuda"],
                       ["--method cuda", "penstock or cpu"])
    make = ["make-product", *SIZES, "-a", out, "-b"]
    support.refuse(program, [*make, out], ["-b", "out'", "another name"])
    support.refuse(program, [*make, os.path.join(folder, "no", "b")], ["no/b", "ENOENT"])


def check_made(program, folder):
    paths = [os.path.join(folder, name) for name in ("one", "two")]
    done = support.must_run(program, "make-product", "--m", 1100, "--n", 50, "--k", 1000,
                            "--seed", 5, "-a", paths[0], "-b", paths[1], "--json", "--quiet")
    report = json.loads(done.stdout)
    support.require((report["m"], report["n"], report["k"], report["bytes"])
                    == (1100, 50, 1000, 1150 * 1000 * 4),
                    str(report))
    for part, count in ((0, 1100 * 1000), (1, 50 * 1000)):
        support.check_made(paths[part], 5, part, count)


def check_full_disk(program, folder):
    a, b = (support.write_numbers(os.path.join(folder, name), [1.0] * 200) for name in ("a", "b"))
    before = sorted(os.listdir(folder))
    for method in support.methods(program):
        support.refuse(program,
                       ["product", a, b, "--m", "200", "--n", "200", "--k", "1", "-o",
                        os.path.join(folder, "c"), "--quiet", *support.method_flags(method)],
                       ["EFBIG", "make room"], lines=None, preexec_fn=support.limit_files)
    support.require(sorted(os.listdir(folder)) == before,
                    f"left {sorted(set(os.listdir(folder)) - set(before))}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        a = support.write_numbers(os.path.join(folder, "a"), [0.5] * 40 * 77)
        b = support.write_numbers(os.path.join(folder, "b"), [1.0] * 77 * 30)
        check_usage(program, a, b, os.path.join(folder, "out"))
        check_files(program, folder, a, b)
        support.require(not os.path.exists(os.path.join(folder, "out")),
                        "a refused product left its result")
    with tempfile.TemporaryDirectory() as folder:
        check_made(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_full_disk(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in "abc"]
        sizes = ["--m", 1500, "--n", 1500, "--k", 1500]
        support.must_run(program, "make-product", *sizes, "-a", names[0], "-b", names[1], "--quiet")
        support.check_interrupt(program, folder, ["product", *names[:2], *sizes], names[2])
    print("bad input is named and leaves nothing behind; made files are what the seed says")


if __name__ == "__main__":
    main()
