"""What penstock-matrix says to input it cannot use: exit status, one line that names the value, and
nothing left behind; and what `make-vector` promises.

Usage: vector_bad_input_test.py PROGRAM
"""
import json
import os
import sys
import tempfile

import matrix_support as support


def check_usage(program, matrix, vector, out):
    run, make = (["vector", matrix, vector, "-o", out],
                 ["make-vector", "--rows", "2", "--cols", "3", "-o", out, "-x", out + "x"])
    for arguments, names in [
            ([], ["--help"]), (["multiply"], ["'multiply'", "make-vector"]),
            (["vector"], ["--help"]),
            (["vector", matrix, "-o", out], ["X"]), (["vector", matrix, vector], ["--out"]),
            ([*run, "--method", "magic"], ["--method", "'magic'"]),
            ([*run, "--repeat", "0"], ["--repeat", "'0'"]),
            ([*run, "--repeat", "1001"], ["'1001'"]), ([*run, "--repeat", "2x"], ["'2x'"]),
            ([*run, "--repeat", ""], ["--repeat"]), ([*run, "--backend", "tpu"], ["'tpu'"]),
            ([*run, "--page", "3000"], ["3000", "power of two"]),
            ([*run, "--cache", "0"], ["--cache", "'0'"]), (["make-vector"], ["--help"]),
            (["make-vector", "--cols", "3", "-o", out, "-x", out], ["--rows"]),
            ([*make[:1], "--rows", "0", *make[3:]], ["--rows", "'0'"]),
            ([*make[:1], "--rows", "-3", *make[3:]], ["--rows", "'-3'"]),
            ([*make[:3], "--cols", "1e3", *make[5:]], ["--cols", "'1e3'"]),
            ([*make[:1], "--rows", "17592186044416", *make[3:]], ["--rows", "17,592,186,044,416"]),
            ([*make, "--seed", "x"], ["--seed", "'x'"])]:
        support.refuse(program, arguments, names, status=2)


def check_files(program, folder, matrix, vector):
    bad, out = os.path.join(folder, "bad"), os.path.join(folder, "out")

    def damaged(data, names, as_vector=True):
        with open(bad, "wb") as file:
            file.write(data)
        for method in support.methods(program):
            flags = support.method_flags(method)
            support.refuse(program, ["vector", bad, vector, "-o", out, *flags], ["bad'", *names])
            if as_vector:
                support.refuse(program, ["vector", matrix, bad, "-o", out, *flags],
                               ["bad'", *names])

    damaged(b"", ["empty"])
    damaged(b"abc", ["3 bytes", "copy it again"])
    damaged(b"\0" * (40 * 77 * 4 - 2), ["12,318 bytes", "copy it again"])
    # Cut short by whole numbers: only the other file tells.
    damaged(b"\0" * (40 * 77 * 4 - 4),
            ["12,316 bytes", "77 columns (308 bytes)", "vector'", "copy the matrix again"],
            as_vector=False)
    support.refuse(program, ["vector", matrix, support.write_numbers(bad, [1.0] * 76), "-o", out],
                   ["matrix'", "12,320 bytes", "76 columns (304 bytes)", "bad'",
                    "vector that belongs"])
    os.mkfifo(os.path.join(folder, "pipe"))
    for name, names in [("absent", ["absent", "ENOENT"]), (".", ["EISDIR"]),
                        ("pipe", ["pipe", "no regular file"])]:
        path = os.path.join(folder, name)
        support.refuse(program, ["vector", path, vector, "-o", out], names)
        support.refuse(program, ["vector", matrix, path, "-o", out], names)
    for path, names in [(os.path.join(folder, "no", "out"), ["no/out", "ENOENT"]),
                        (folder, ["EISDIR"]), ("/dev/full", ["/dev/full", "regular"]),
                        (matrix, ["matrix'", "input"]), (vector, ["vector'", "input"]),
                        (os.path.join(folder, "link"), ["link'", "matrix'", "input"])]:
        if path.endswith("link"):
            os.symlink(matrix, path)
        support.refuse(program, ["vector", matrix, vector, "-o", path], names)
    if not support.on_gpu():
        support.refuse(program, ["vector", matrix, vector, "-o", out, "--method", "cuda"],
                       ["--method cuda", "penstock or cpu"])
        support.refuse(program, ["vector", matrix, vector, "-o", out, "--backend", "gpu"],
                       ["--backend cpu"])
    make = ["make-vector", "--rows", "2", "--cols", "3", "-o"]
    support.refuse(program, [*make, out, "-x", out], ["-x", "out'", "another name"])
    support.refuse(program, [*make, out, "-x", os.path.join(folder, "no", "x")], ["no/x", "ENOENT"])
    support.refuse(program, [*make, folder, "-x", out], ["EISDIR"])
    if os.geteuid() != 0:  # nothing is forbidden to root
        locked = os.path.join(folder, "locked")
        os.mkdir(locked, 0o555)
        support.refuse(program, ["vector", matrix, vector, "-o", os.path.join(locked, "y")],
                       ["locked/y", "EACCES"])
        os.chmod(locked, 0o755)


def make(program, folder, name, rows, columns, *flags):
    paths = [os.path.join(folder, f"{name}.{role}") for role in ("A", "x")]
    done = support.must_run(program, "make-vector", "--rows", rows, "--cols", columns, "-o",
                            paths[0], "-x", paths[1], "--json", "--quiet", *flags)
    return paths, json.loads(done.stdout)


def check_made(program, folder):
    """Numbers that the seed alone decides."""
    # More than one thread's piece of the matrix.
    rows, columns = 1103, 1901
    paths, report = make(program, folder, "one", rows, columns, "--seed", 9)
    support.require(
        [os.path.getsize(path) for path in paths] == [rows * columns * 4, columns * 4], "sizes")
    support.require(report["bytes"] == (rows + 1) * columns * 4
                    and (report["m"], report["n"], report["k"]) == (rows, 1, columns),
                    str(report))
    for part, path in enumerate(paths):
        support.check_made(path, 9, part, (rows * columns, columns)[part])
        numbers = support.read_numbers(path)
        support.require(-1 <= min(numbers) < -0.99 and 0.99 < max(numbers) <= 1,
                        f"{path}: from {min(numbers)} to {max(numbers)}")
    again, _ = make(program, folder, "again", rows, columns, "--seed", 9, "--workers", 1)
    other, _ = make(program, folder, "other", rows, columns, "--seed", 10)
    for first, same, different in zip(paths, again, other):
        texts = []
        for path in (first, same, different):
            with open(path, "rb") as file:
                texts.append(file.read())
        support.require(texts[0] == texts[1] != texts[2],
                        f"{first}: not as the seed alone says")
    make(program, folder, "least", 1, 1)
    support.require(len(os.listdir(folder)) == 8, f"left {os.listdir(folder)}")


def check_full_disk(program, folder):
    matrix, vector = (support.write_numbers(os.path.join(folder, name), [1.0] * count)
                      for name, count in (("tall", 50000), ("one", 1)))
    before = sorted(os.listdir(folder))
    for method in support.methods(program):
        flags = ["--quiet", *support.method_flags(method)]
        support.refuse(program, ["vector", matrix, vector, "-o", os.path.join(folder, "y"), *flags],
                       ["EFBIG", "make room"], lines=None, preexec_fn=support.limit_files)
    support.refuse(program, ["make-vector", "--rows", "200", "--cols", "200", "-o",
                             os.path.join(folder, "m"), "-x", os.path.join(folder, "v")],
                   ["EFBIG", "make room"], preexec_fn=support.limit_files)
    support.require(sorted(os.listdir(folder)) == before,
                    f"left {sorted(set(os.listdir(folder)) - set(before))}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        matrix = support.write_numbers(os.path.join(folder, "matrix"), [0.5] * 40 * 77)
        vector = support.write_numbers(os.path.join(folder, "vector"), [1.0] * 77)
        check_usage(program, matrix, vector, os.path.join(folder, "out"))
        check_files(program, folder, matrix, vector)
        support.require(not os.path.exists(os.path.join(folder, "out")),
                        "a refused product left its result")
    with tempfile.TemporaryDirectory() as folder:
        check_made(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_full_disk(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("A", "x", "y")]
        support.must_run(program, "make-vector", "--rows", 40000, "--cols", 1000, "-o",
                         names[0], "-x", names[1], "--quiet")
        support.check_interrupt(program, folder, ["vector", *names[:2]], names[2])
    print("bad input is named and leaves nothing behind; made files are what the seed says")


if __name__ == "__main__":
    main()
