"""What penstock-stitch says to input it cannot use, and that nothing is left behind:
bad_input_test.py PROGRAM."""
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

import stitch_support as support


def check_usage(program, tiles, out):
    run, make = (["run", tiles, "-o", out],
                 ["make", "-o", out, "--rows", "2", "--columns", "3", "--tile", "8x8"])
    for arguments, names in [
            ([], ["--help"]), (["knit"], ["'knit'", "run or make"]), (["run"], ["--help"]),
            (["run", tiles], ["--out"]), (["run", "-o", out], ["TILES"]),
            ([*run, "--method", "magic"], ["--method", "'magic'"]),
            ([*run, "--method", "cpu,cpu"], ["twice"]), ([*run, "--method", "cpu,"], ["''"]),
            ([*run, "--convolutions", "33"], ["'33'"]), ([*run, "--convolutions", "-1"], ["'-1'"]),
            ([*run, "--split", "1.01"], ["--split", "'1.01'"]),
            ([*run, "--split", "-0.1"], ["--split"]), ([*run, "--split", "nan"], ["'nan'"]),
            ([*run, "--split", "half"], ["'half'"]), ([*run, "--merge", "x"], ["--merge"]),
            ([*run, "--repetitions", "0"], ["'0'"]), ([*run, "--backend", "tpu"], ["'tpu'"]),
            ([*make, "--overlap", "91"], ["--overlap", "'91'"]),
            ([*make, "--jitter", "1025"], ["--jitter"]), ([*make, "--seed", "x"], ["--seed"]),
            ([*make[:-1], "8"], ["--tile", "'8'"]), ([*make[:-1], "0x8"], ["--tile", "'0'"]),
            ([*make[:-1], "8x16385"], ["'16385'"]),
            ([*make[:-4], "1048577", *make[-2:]], ["--columns"]),
            ([*make[:-5], "1048576", *make[-4:]], ["--rows"])]:
        support.refuse(program, arguments, names, status=2)
    support.refuse(program, [*make[:-3], "300000", "--tile", "8x8"], ["2,097,152", "--columns"])


def check_files(program, folder, tiles, path, out):
    bad = os.path.join(folder, "bad")

    def damaged(names, cut=0, places=None, **changed):
        text = tiles.text(**changed)
        if places is not None:
            text = text[:support.PAGE] + struct.pack("<2I", *places) + text[support.PAGE + 8:]
        with open(bad, "wb") as file:
            file.write(text[:len(text) - cut])
        support.refuse(program, ["run", bad, "-o", out], ["bad'", *names])

    damaged(["no file of tiles", "make"], magic=b"PNSTITCK")
    damaged(["version 2", "make it again"], version=2)
    damaged(["tile width of 0"], width=0)
    damaged(["tile height of 16,385"], height=16385)
    damaged(["number of tiles of 0"], count=0)
    damaged(["number of tiles of 4,294,967,295"], count=2 ** 32 - 1)
    damaged(["image width of 2,097,153"], image_width=2 ** 21 + 1)
    damaged(["begin at 8,192", "copy it again"], count=1000)
    damaged(["apart"], stride=4095)
    damaged(["bytes and should have", "copy it again"], cut=1)
    damaged(["too short"], cut=len(tiles.text()) - 4095)
    damaged(["too short"], cut=len(tiles.text()))
    damaged(["tile 0 at 54, 0", "100 by 80"], places=(54, 0))
    damaged(["tile 0 at 0, 4,294,967,295"], places=(0, 2 ** 32 - 1))
    os.mkfifo(os.path.join(folder, "pipe"))
    for name, names in [("absent", ["absent", "ENOENT"]), (".", ["EISDIR"]),
                        ("pipe", ["no regular file"])]:
        support.refuse(program, ["run", os.path.join(folder, name), "-o", out], names)
    os.symlink(path, os.path.join(folder, "link"))
    for name, names in [("no/out", ["no/out", "ENOENT"]), (".", ["EISDIR"]), ("tiles", ["input"]),
                        ("link", ["input"]), ("pipe", ["regular"])]:
        support.refuse(program, ["run", path, "-o", os.path.join(folder, name)], names)
    support.refuse(program, ["make", "-o", os.path.join(folder, "no", "t"), "--rows", "1",
                             "--columns", "1", "--tile", "8x8"],
                   ["no/t", "ENOENT"])
    if not support.on_gpu():
        support.refuse(program, ["run", path, "-o", out, "--method", "managed"],
                       ["--method managed", "private"])
        support.refuse(program, ["run", path, "-o", out, "--backend", "gpu"], ["--backend cpu"])


def check_full_disk(program, folder, out):
    big = os.path.join(folder, "big")
    make = ["make", "-o", big, "--rows", "1", "--columns", "3", "--tile", "200x200"]
    support.refuse(program, make, ["EFBIG", "make room"], preexec_fn=support.limit_files)
    support.must_run(program, *make, "--quiet")
    for method in support.methods():
        support.refuse(program, ["run", big, "-o", out, "--method", method, "--quiet",
                                 *support.backend_flags()],
                       ["EFBIG", "make room"], preexec_fn=support.limit_files)


def interrupt(program, folder, arguments, which):
    """The program is ended by a signal while its result is there under a passing name, and leaves
    the folder as it was."""
    before = sorted(os.listdir(folder))
    child = subprocess.Popen([program, *map(str, arguments)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 600
    while (not any(name.startswith(".penstock.") for name in os.listdir(folder))
           and time.monotonic() < deadline):
        time.sleep(0.01)
    time.sleep(0.1)
    child.send_signal(which)
    _, said = child.communicate(timeout=1000)
    support.require(child.returncode == 1 and b"interrupted" in said,
                    f"{arguments} interrupted: {child.returncode}, {said!r}")
    support.require(sorted(os.listdir(folder)) == before, f"{arguments}: left {os.listdir(folder)}")


def check_interrupts(program, folder, out):
    """A signal ends what would take very long, and the image that was there stays."""
    interrupt(program, folder,
              ["make", "-o", out, "--rows", 100, "--columns", 100, "--tile", "1392x1040"],
              signal.SIGTERM)
    big = os.path.join(folder, "big")
    support.must_run(program, "make", "-o", big, "--rows", 3, "--columns", 3, "--tile", "600x400",
                     "--quiet")
    with open(out, "w", encoding="utf-8") as file:
        file.write("as it was")
    for method, which in zip(support.methods(),
                             [signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGTERM]):
        interrupt(program, folder, ["run", big, "-o", out, "--method", method, "--repetitions",
                                    1000, "--convolutions", 32, *support.backend_flags()],
                  which)
        with open(out, encoding="utf-8") as file:
            support.require(file.read() == "as it was",
                            f"{method}: an interrupted run wrote its image")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        tiles = support.random_tiles(support.dice_from(1), 47, 31, (100, 80), 3)
        path, out = tiles.write(os.path.join(folder, "tiles")), os.path.join(folder, "out")
        check_usage(program, path, out)
        check_files(program, folder, tiles, path, out)
        check_full_disk(program, folder, out)
        support.require(not os.path.exists(out)
                        and not [name for name in os.listdir(folder) if name.startswith(".")],
                        f"left {os.listdir(folder)}")
    with tempfile.TemporaryDirectory() as folder:
        check_interrupts(program, folder, os.path.join(folder, "out"))
    print("bad input is named and leaves nothing behind")


if __name__ == "__main__":
    main()
