"""What penstock-match says to input it cannot use: exit status, one line that names the value, and
nothing left behind.

Usage: bad_input_test.py PROGRAM
"""
import os
import signal
import subprocess
import sys
import tempfile

import match_support as support
from match_support import refuse

SHAPE = (8, 6, 1)


def check_usage(program, folder, queries, database):
    search = [queries, database, "--threshold", "1"]
    for arguments, names in [
            ([], ["--help"]), ([queries], ["--help"]), ([queries, database], ["--threshold"]),
            ([queries, database, "--threshold", "nan"], ["--threshold", "'nan'"]),
            ([queries, database, "--threshold", "inf"], ["--threshold", "'inf'"]),
            ([queries, database, "--threshold", "0"], ["--threshold", "'0'"]),
            ([queries, database, "--threshold=-1"], ["--threshold", "'-1'"]),
            ([queries, database, "--threshold", "1e39"], ["--threshold", "'1e39'"]),
            ([queries, database, "--threshold", "0.5x"], ["'0.5x'"]),
            ([queries, database, "--threshold", ""], ["--threshold"]),
            ([*search, "--method", "magic"], ["--method", "'magic'"]),
            ([*search, "--backend", "tpu"], ["'tpu'"]),
            ([*search, "--page", "3000"], ["3000", "power of two"]),
            ([*search, "--cache", "0"], ["--cache", "'0'"]), (["make"], ["--help"]),
            (["make", folder, "--shape", "8"], ["--shape", "'8'"]),
            (["make", folder, "--shape", "8x0"], ["--shape", "'8x0'"]),
            (["make", folder, "--shape", "8x8x99"], ["--shape", "'8x8x99'"]),
            (["make", folder, "--shape", "4096x4096"], ["--shape", "262,144"]),
            (["make", folder, "--shape", "8x8x"], ["--shape", "'8x8x'"]),
            (["make", folder, "--shape", "70000x70000x16"], ["--shape"]),
            (["make", folder, "--queries", "-1"], ["--queries", "'-1'"]),
            (["make", folder, "--images", "many"], ["--images", "'many'"]),
            (["make", folder, "--databases", "0"], ["--databases", "'0'"]),
            (["make", folder, "--matches", "1.5"], ["--matches", "'1.5'"]),
            (["make", folder, "--matches", "nan"], ["--matches", "'nan'"]),
            (["make", folder, "--noise", "-0.1"], ["--noise", "'-0.1'"]),
            (["make", folder, "--seed", "x"], ["--seed", "'x'"])]:
        refuse(program, arguments, names, status=2)


def check_files(program, folder, queries, database):
    bad = os.path.join(folder, "bad")
    with open(database, "rb") as file:
        good = file.read()

    def damaged(data, names):
        with open(bad, "wb") as file:
            file.write(data)
        for method in support.methods():
            flags = support.backend_flags() if method == "penstock" else []
            for files in ([queries, bad], [queries, database, bad], [bad, database]):
                refuse(program, [*files, "--threshold", "1", "--method", method, "--json", *flags],
                       ["bad'", *names])

    def header(count=70, shape=SHAPE, stride=48, **more):
        return support.header_bytes(count, shape, stride, **more) + good[64:]

    damaged(b"", ["0 bytes", "64"])
    damaged(good[:63], ["63 bytes"])
    damaged(good[:-1], ["17,535 bytes", "17,536"])
    damaged(good + b"\0", ["17,537 bytes", "17,536"])
    damaged(good[:4096], ["4,096 bytes", "17,536", "70 images of 8x6x1"])
    damaged(header(magic=b"PIMAGES2"), ["PIMAGES1"])
    damaged(b"\x89PNG\r\n\x1a\n" + good[8:], ["PIMAGES1"])
    damaged(header(version=2), ["version 2", "version 1"])
    damaged(header(size=128), ["128 bytes"])
    damaged(header(shape=(0, 6, 1)), ["0x6x1"])
    damaged(header(shape=(2 ** 31, 2 ** 31, 4)), ["2147483648x2147483648x4"])
    damaged(header(shape=(512, 513, 1)), ["512x513x1", "262,144"])
    damaged(header(shape=(8, 6, 17)), ["8x6x17", "channels"])
    damaged(header(stride=32), ["8x6x1", "32 numbers apart"])
    damaged(header(stride=50), ["50 numbers apart", "a multiple of 16"])
    damaged(header(stride=524304), ["524304 numbers apart", "at most 524,288"])
    damaged(header(first_byte=0), ["byte 0"])
    damaged(header(first_byte=2 ** 40 + 4096), ["byte 1099511631872", "at most 2^40"])
    damaged(header(first_byte=4100), ["byte 4100", "4096"])
    damaged(header(first_byte=2 ** 63), ["byte 9223372036854775808"])
    damaged(header(count=2 ** 40), ["1,099,511,627,776"])
    damaged(header(count=71), ["17,728"])
    other = support.write_images(os.path.join(folder, "other"), (6, 8, 1), [[0.5] * 48] * 3)
    search = ["--threshold", "1"]
    refuse(program, [queries, database, other, *search], ["other'", "6x8x1", "8x6x1", "queries'"])
    for name, names in [("absent", ["absent", "ENOENT"]), (".", ["EISDIR"])]:
        path = os.path.join(folder, name)
        refuse(program, [queries, path, *search], names)
        refuse(program, [path, database, *search], names)
    refuse(program, [queries, database, *search, "--out", os.path.join(folder, "no", "out")],
           ["no/out", "ENOENT"])
    refuse(program, [queries, database, *search, "--out", folder], ["EISDIR"])
    refuse(program, ["make", os.path.join(folder, "no", "folder")], ["no/folder", "ENOENT"])
    refuse(program, ["make", database, "--images", "1"], ["ENOTDIR"])
    if not support.on_gpu():
        refuse(program, [queries, database, *search, "--method", "cuda"],
               ["--method cuda", "penstock or cpu"])
    full = support.run_program(program, queries, database, *search, "--quiet",
                               *support.backend_flags(), "--out", "/dev/full")
    support.require(full.returncode == 1 and b"ENOSPC" in full.stderr, f"/dev/full: {full}")


def check_small_cache(program, folder):
    """On a GPU a thread block holds a tile in the cache, so a cache may be too small for any."""
    if not support.on_gpu():
        return
    paths = [support.write_images(os.path.join(folder, f"wide{i}"), (64, 64, 1),
                                  [[0.25] * 4096] * 200)
             for i in range(2)]
    refuse(program, [*paths, "--threshold", "1", *support.backend_flags(), "--page", "64KiB",
                     "--cache", "1MiB"],
           ["--cache", "128 images"])


def check_interrupt(program, folder):
    """Ctrl-C ends making, which leaves no half of a file, and a search, which prints nothing."""
    at = os.path.join(folder, "long")
    refuse(program, ["make", at, "--images", "100"], ["EFBIG", "make room"],
           preexec_fn=support.limit_files)
    support.require(os.listdir(at) == [], f"left {os.listdir(at)}")
    support.must_run(program, "make", at, "--queries", "2000", "--images", "2000", "--databases",
                     "1", "--matches", "0", "--quiet")
    for method in ("cpu", "penstock"):
        out = os.path.join(at, "out")
        flags = [*support.backend_flags(), "--no-windows"] if method == "penstock" else []
        # The database again and again, so that the search would take very long.
        child = subprocess.Popen([program, os.path.join(at, "queries.images"),
                                  *[os.path.join(at, "database-1.images")] * 5000, "--threshold",
                                  "0.1", "--whole", "--out", out, "--method", method, *flags],
                                 stderr=subprocess.PIPE)
        support.wait_until_at_work(child)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=1000)
        support.require(child.returncode == 1 and b"interrupted" in said,
                        f"{method} interrupted: {child.returncode}, {said!r}")
        support.require(not os.path.exists(out),
                        f"{method}: an interrupted search wrote its output")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        queries = support.write_images(os.path.join(folder, "queries"), SHAPE,
                                       [[i / 100] * 48 for i in range(5)])
        database = support.write_images(os.path.join(folder, "database"), SHAPE,
                                        [[i / 70] * 48 for i in range(70)])
        check_usage(program, folder, queries, database)
        check_files(program, folder, queries, database)
        check_small_cache(program, folder)
        check_interrupt(program, folder)
    print("bad input is named and leaves nothing behind")


if __name__ == "__main__":
    main()
