"""penstock-grep against grep on files with zero bytes: near the edges of grep's reads, behind long
lines, behind holes.

Where grep stops printing depends on its read sizes, and with long lines on the address of its
buffer; that part is compared only with the grep that the model was measured on.

Usage: grep_binary.py PROGRAM [--rounds N] [--seed N]
"""
import argparse
import os
import platform
import random
import tempfile

import grep_support as support

READ = 98304
WORDS = [b"foo", b"needle", b"x", b"ab", b"tokens_1", b"foo-bar", b"q-", b"seventy", b"a-a",
         b"a--a"]


def line(rng, most):
    pieces = []
    size = 0
    target = rng.randint(0, most)
    while size < target:
        piece = (rng.choice([*WORDS, b"filler", b"zzz", b"foobar", b"-"])
                 + rng.choice([b" ", b" ", b"-", b""]))
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:target] + b"\n"


def text_of_lines(rng, size, most):
    # Of long lines only a few are used.
    blocks = [line(rng, most) for _ in range(min(60, 2 + 4 * size // (most + 1)))]
    out = []
    total = 0
    while total < size:
        out.append(rng.choice(blocks))
        total += len(out[-1])
    text = bytearray(b"".join(out))
    if text and rng.random() < 0.3:
        del text[-1]
    return text


def place_of_zero(rng, size):
    if size <= 1:
        return 0
    near_edge = (READ * rng.randint(1, max(1, size // READ))
                 + rng.choice([-4097, -4096, -2, -1, 0, 1, 2, 4095, 4096, 4097]))
    return min(max(rng.choice([near_edge, rng.randrange(size)]), 0), size - 1)


# Short lines in front of a zero byte behind grep's first reads: grep counts the file in part.
def write_cut_short(rng, path):
    text = text_of_lines(rng, 4 * READ, 80)
    text[rng.randrange(3 * READ, 4 * READ)] = 0
    with open(path, "wb") as file:
        file.write(text)


def write_file(rng, path, longest_line):
    size = rng.choice([0, 10, READ - 1, READ, READ + 1, 2 * READ, rng.randint(1, 8 * READ)])
    text = text_of_lines(rng, size, longest_line)
    if text and rng.random() < 0.9:
        text[place_of_zero(rng, len(text))] = 0
    with open(path, "wb") as file:
        file.write(text)
        # a hole makes a file binary from the start, if grep sees that it is one
        if rng.random() < 0.1:
            file.seek(rng.choice([4096, 200000]), os.SEEK_CUR)
            file.write(b"foo after the hole\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    measured_here = (support.grep_version() == "3.8" and platform.machine() == "x86_64"
                     and platform.libc_ver()[1] == "2.36")
    print(f"seed {asked.seed}, grep {support.grep_version()}, long lines "
          f"{'too' if measured_here else 'left out'}")
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as directory:
        dictionary = os.path.join(directory, "words")
        with open(dictionary, "wb") as file:
            file.write(b"\n".join(WORDS))
        matches = cut_short = 0
        for number in range(asked.rounds):
            longest_line = rng.choice([10, 80] + ([700, 5000, 30000, 150000, 400000]
                                                  if measured_here else []))
            path = os.path.join(directory, f"file{number}")
            # By chance alone no file might be cut short, and the comparison would tell nothing.
            if number % 10 == 0:
                write_cut_short(rng, path)
            else:
                write_file(rng, path, longest_line)
            arguments = [*support.backend_flags(), "--quiet", "--dict", dictionary, "--page",
                         rng.choice(["512", "64KiB"]),
                         "--cache", "4MiB", "--piece", rng.choice(["1000", "64KiB", "1MiB"]),
                         "--method", rng.choice(support.methods()), path]
            done = support.run_program(asked.program, arguments)
            support.require(done.returncode == 0, f"exit status {done.returncode}: {done.stderr!r}")
            expected = support.expected_counts(WORDS, [path])
            wrong = support.differences(expected, support.parse_lines(done.stdout))
            if wrong:
                kept = os.path.join(os.getcwd(), "grep_binary.failed")
                os.replace(path, kept)
                support.fail(f"round {number}, lines up to {longest_line}: {wrong[:2]}; the file "
                             f"is kept as {kept}")
            matches += sum(expected.values())
            with open(path, "rb") as file:
                text = file.read()
            cut_short += 0 in text and bool(expected)
            os.remove(path)
    support.require(cut_short * 10 >= asked.rounds,
                    f"only {cut_short} files were cut short at a zero byte")
    print(f"{asked.rounds} files, {matches} matches, {cut_short} files counted in part")


if __name__ == "__main__":
    main()
