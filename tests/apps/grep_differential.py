"""penstock-grep against grep on random text over small alphabets, where words touch, overlap and
repeat all the time.

Usage: grep_differential.py PROGRAM [--rounds N] [--seed N]
"""
import argparse
import os
import random
import tempfile

import grep_support as support

ALPHABETS = [b"ab_.-\n", b"ab-\n\0", b"a.\n", b"ab \r\n", b"a\x80\xe9 \n", b"-:.\n", b"aA0_ \n",
             b"ab'\t,\n", bytes(b for b in range(256) if b != 0)]


def random_text(rng, alphabet, most):
    size = rng.choice([0, 1, 2, rng.randint(0, 40), rng.randint(0, most)])
    text = bytes(rng.choice(alphabet) for _ in range(size))
    # A stretch of one repeated piece makes long chains of overlapping places.
    if rng.random() < 0.3:
        piece = bytes(rng.choice(alphabet) for _ in range(rng.randint(1, 4)))
        text += piece * rng.randint(1, 400)
    return text if rng.random() < 0.5 else text + b"\n"


def random_words(rng, alphabet, texts, count):
    letters = [b for b in alphabet if b not in b"\n\0"]
    words = set()
    while len(words) < count:
        text = rng.choice(texts)
        if text and rng.random() < 0.5:  # cut out of a text, so that it occurs
            at = rng.randrange(len(text))
            word = text[at:at + rng.randint(1, 8)]
        else:
            word = bytes(rng.choice(letters) for _ in range(rng.randint(1, rng.choice([2, 4, 7]))))
        if word and b"\n" not in word and b"\0" not in word:
            words.add(word)
    return sorted(words, key=lambda _: rng.random())


def random_flags(rng):
    page = rng.choice([512, 1024, 4096, 8192, 16384, 65536])
    flags = ["--page", str(page), "--cache", str(page * rng.choice([8, 9, 64])), "--method",
             rng.choice(["penstock"] * 2 + support.methods())]
    if rng.random() < 0.7:
        flags += ["--piece", str(rng.choice([1, 3, 17, 100, 511, 512, 4096, 100000]))]
    if rng.random() < 0.3:
        flags += ["--result-buffer", str(rng.choice([1, 100, 2000]))]
    return flags


def one_round(program, rng, directory, number):
    alphabet = rng.choice(ALPHABETS)
    texts = [random_text(rng, alphabet, 20000) for _ in range(rng.randint(1, 6))]
    paths = []
    for i, text in enumerate(texts):
        path = os.path.join(directory, f"{number}.{i}")
        with open(path, "wb") as file:
            file.write(text)
        paths.append(path)
    words = random_words(rng, alphabet, texts, rng.randint(1, 12))
    dictionary = os.path.join(directory, f"{number}.words")
    with open(dictionary, "wb") as file:
        file.write(b"\n".join(words) + rng.choice([b"", b"\n"]))
    arguments = [*support.backend_flags(), "--quiet", "--dict", dictionary, *random_flags(rng),
                 *paths]
    done = support.run_program(program, arguments)
    shown = " ".join(arguments)
    support.require(done.returncode == 0,
                    f"exit status {done.returncode}: {done.stderr!r}: {shown}")
    expected = support.expected_counts(words, paths)
    wrong = support.differences(expected, support.parse_lines(done.stdout))
    support.require(not wrong, f"{len(wrong)} counts differ, first {wrong[:1]}: {shown}")
    for path in [*paths, dictionary]:
        os.remove(path)
    return len(words) * len(paths), sum(expected.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, grep {support.grep_version()}")
    pairs = matches = 0
    with tempfile.TemporaryDirectory() as directory:
        for number in range(asked.rounds):
            compared, found = one_round(asked.program, random.Random(asked.seed * 1000003 + number),
                                        directory, number)
            pairs += compared
            matches += found
    support.require(matches > 100 * min(asked.rounds, 10),
                    f"only {matches} matches in all: the test compared next to nothing")
    print(f"{pairs} counts compared, {matches} matches")


if __name__ == "__main__":
    main()
