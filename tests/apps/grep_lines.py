"""penstock-grep --lines against grep -a -n -H -w -F on random files: the same bytes.

Usage: grep_lines.py PROGRAM [--rounds N] [--seed N]
"""
import argparse
import os
import random
import subprocess
import tempfile

import grep_support as support
from grep_differential import ALPHABETS, random_text, random_words

EVERY_BYTE = bytes(range(256))


def random_file(rng, alphabet):
    """Empty files, files without a line end at the end, bytes of every value, lines longer than a
    page and a piece, and thousands of lines that match."""
    kind = rng.randrange(6)
    if kind == 0:
        return b"" if rng.random() < 0.5 else b"\n" * rng.randint(1, 3000)
    if kind == 1:
        return bytes(rng.choice(EVERY_BYTE) for _ in range(rng.randint(1, 9000)))
    if kind == 2:  # long lines, with a word at one of their ends or in their middle
        lines = []
        for _ in range(rng.randint(1, 4)):
            line = bytearray(rng.choice([b"x", b"\0", b" "]) * rng.randint(1, 90000))
            at = rng.choice([0, len(line), rng.randint(0, len(line))])
            line[at:at] = b" a " if rng.random() < 0.7 else b"xax"
            lines.append(bytes(line))
        return b"\n".join(lines) + rng.choice([b"", b"\n"])
    if kind == 3:  # output longer than a group's buffer
        line = rng.choice([b"a", b"a b", b"b", b"-a" * rng.randint(1, 40)]) + b"\n"
        return line * rng.randint(1, 8000) + rng.choice([b"", b"a", b"x"])
    return random_text(rng, alphabet, 30000)


def random_flags(rng):
    page = rng.choice([512, 1024, 4096, 8192, 16384, 65536])
    flags = ["--page", str(page), "--cache", str(page * rng.choice([8, 9, 64])), "--method",
             rng.choice(["penstock"] * 5 + ["cpu"])]
    if rng.random() < 0.7:
        flags += ["--piece", str(rng.choice([17, 100, 511, 512, 4096, 16384, 100000]))]
    if rng.random() < 0.5:
        flags += ["--workers", str(rng.randint(1, 7))]
    return flags


def one_round(program, rng, directory, number):
    folder = os.path.join(directory, str(number))
    passing = os.path.join(directory, "passing")
    os.mkdir(folder)
    alphabet = rng.choice(ALPHABETS)
    texts = [random_file(rng, alphabet) for _ in range(rng.randint(1, 6))]
    paths = []
    for i, text in enumerate(texts):
        paths.append(os.path.join(folder, f"file {i}:\n" if rng.random() < 0.05 else f"{i}"))
        with open(paths[-1], "wb") as file:
            file.write(text)
    words = random_words(rng, alphabet, texts, rng.randint(1, 12)) + [b"a"]
    words = sorted({word.strip(b"\r") or b"a" for word in words})
    dictionary = os.path.join(directory, "words")
    with open(dictionary, "wb") as file:
        file.write(b"\n".join(words) + b"\n")
    null = ["--null"] if rng.random() < 0.2 else []
    flags = random_flags(rng)
    arguments = [*support.backend_flags(), *flags, "--lines", *null, "--quiet", "--dict",
                 dictionary]
    target = os.path.join(directory, "out")
    to_file = rng.random() < 0.3
    arguments += ["--out", target] if to_file else []
    environment = {**os.environ, "TMPDIR": passing}
    done = support.run_program(program, [*arguments, folder], env=environment)
    support.require(done.returncode == 0, f"{done.stderr!r}: {arguments}")
    found = done.stdout
    if to_file:
        with open(target, "rb") as file:
            found = file.read()
    sorted_paths = sorted(os.fsencode(path) for path in paths)
    wanted = subprocess.run(
        ["grep", "-a", "-n", "-H", "-w", "-F", *(["-Z"] if null else []), "-f", dictionary, "--",
         *sorted_paths], stdout=subprocess.PIPE, env=support.C_LOCALE, check=False).stdout
    if found != wanted:
        same = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b),
                    min(len(found), len(wanted)))
        support.fail(f"round {number}: byte {same} of {len(found)} (grep {len(wanted)}) differs: "
                     f"{found[max(0, same - 60):same + 60]!r}, grep "
                     f"{wanted[max(0, same - 60):same + 60]!r}: {arguments} {folder}")
    support.require(os.listdir(passing) == [], f"{os.listdir(passing)} was left behind")
    for path in paths:
        os.remove(path)
    return len(wanted)


def refuse(program, directory, flags, text):
    words = os.path.join(directory, "words")
    done = support.run_program(program, ["--lines", "--dict", words, *flags, words])
    support.require(done.returncode == 2 and text in done.stderr, f"{flags}: {done.stderr!r}")


def missing_room(program, directory):
    """A directory for the passing file that is not there costs one line and no output."""
    words = os.path.join(directory, "words")
    arguments = [*support.backend_flags(), "--lines", "--dict", words, words]
    done = support.run_program(program, arguments,
                               env={**os.environ, "TMPDIR": os.path.join(directory, "absent")})
    support.require(done.returncode == 1 and done.stdout == b"" and b"absent" in done.stderr,
                    f"{done.returncode}, {done.stderr!r}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, grep {support.grep_version()}")
    compared = 0
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "passing"))
        for number in range(asked.rounds):
            compared += one_round(asked.program, random.Random(asked.seed * 1000003 + number),
                                  directory, number)
        refuse(asked.program, directory, ["--compare"], b"--compare: ")
        refuse(asked.program, directory, ["--method", "cuda"], b"--method: ")
        refuse(asked.program, directory, ["--result-buffer", "1KiB"], b"--result-buffer: ")
        missing_room(asked.program, directory)
    support.require(compared > 1000 * asked.rounds,
                    f"only {compared} bytes in all: the test compared next to nothing")
    print(f"{compared} bytes of lines compared")


if __name__ == "__main__":
    main()
