"""What penstock-matrix make-vector promises: numbers that the seed alone decides:
vector_make_test.py PROGRAM."""
import json
import os
import sys
import tempfile

import matrix_support as support


def make(program, folder, name, rows, columns, *flags):
    paths = [os.path.join(folder, f"{name}.{role}") for role in ("A", "x")]
    done = support.must_run(program, "make-vector", "--rows", rows, "--cols", columns, "-o",
                            paths[0], "-x", paths[1], "--json", "--quiet", *flags)
    return paths, json.loads(done.stdout)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
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
    print("made files are what the seed says")


if __name__ == "__main__":
    main()
