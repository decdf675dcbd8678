"""Names of files with tabs, line ends and backslashes: a line stays a line, and --null gives them
as they are.

Usage: grep_names_test.py PROGRAM
"""

import os
import sys
import tempfile

import grep_support as support

NAMES = [
    b"plain", b"tab\there", b"line\nend", b"back\\slash", b"back\\tslash", b"back\\\tslash", b"\n",
    b"\\", b"\\n", b"one\ttwo\t3", b"not utf \xff\xfe"
]


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        top, words = os.path.join(os.fsencode(folder), b"top"), os.path.join(folder, "words")
        os.mkdir(top)
        with open(words, "wb") as file:
            file.write(b"one\none\tone\n")
        expected = {}
        for number, name in enumerate(NAMES):
            path = os.path.join(top, name)
            with open(path, "wb") as file:
                file.write(b"one \n" * (number + 1) + b"one\tone \n")
            expected |= {(path, b"one"): number + 3, (path, b"one\tone"): 1}
        for method in support.methods():
            flags = [*support.backend_flags(), "--method", method, "--quiet", "--dict", words, top]
            lines = support.run_program(program, flags)
            support.require(lines.returncode == 0 and lines.stdout.count(b"\n") == len(expected),
                            f"{method}: {lines}")
            support.require(
                support.parse_lines(lines.stdout) == expected, f"{method}: {lines.stdout!r}")
            raw = support.run_program(program, ["--null", *flags]).stdout.split(b"\0")
            support.require(raw[-1] == b"" and len(raw) == 3 * len(expected) + 1,
                            f"{method}: {raw}")
            found = {(raw[i + 1], raw[i]): int(raw[i + 2]) for i in range(0, len(raw) - 1, 3)}
            support.require(found == expected, f"{method}: {found}")
    print("names are shown so that they can be read back")


if __name__ == "__main__":
    main()
