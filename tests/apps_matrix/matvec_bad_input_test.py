"""What penstock-matvec says to input it cannot use: exit status, one line that names the value, and nothing left behind.

Usage: matvec_bad_input_test.py PROGRAM
"""
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

import matrix_support as support


def refuse(program, arguments, names, status=1, lines=1, **more):
    done = support.run_program(program, *arguments, **more)
    shown = f"{arguments}: exit status {done.returncode}, said {done.stderr.decode(errors='replace')!r}"
    support.require(done.returncode == status, f"expected exit status {status}: {shown}")
    support.require(done.stderr.startswith(b"penstock-matvec: ") and (lines is None or done.stderr.count(b"\n") == lines), f"expected one line: {shown}")
    support.require(all(name.encode() in done.stderr for name in names), f"expected {names}: {shown}")
    support.require(done.stdout == b"", f"something on standard output: {shown}")


def check_usage(program, matrix, vector, out):
    run, make = ["run", matrix, vector, "-o", out], ["make", "--rows", "2", "--cols", "3", "-o", out, "-x", out + "x"]
    for arguments, names in [
            ([], ["--help"]), (["multiply"], ["subcommand"]), (["run"], ["--help"]), (["run", matrix, "-o", out], ["X"]), (["run", matrix, vector], ["--out"]),
            ([*run, "--method", "magic"], ["--method", "'magic'"]), ([*run, "--repeat", "0"], ["--repeat", "'0'"]), ([*run, "--repeat", "1001"], ["'1001'"]),
            ([*run, "--repeat", "2x"], ["'2x'"]), ([*run, "--repeat", ""], ["--repeat"]), ([*run, "--backend", "tpu"], ["'tpu'"]),
            ([*run, "--page", "3000"], ["3000", "power of two"]), ([*run, "--cache", "0"], ["--cache", "'0'"]),
            (["make"], ["--help"]), (["make", "--cols", "3", "-o", out, "-x", out], ["--rows"]), ([*make[:1], "--rows", "0", *make[3:]], ["--rows", "'0'"]),
            ([*make[:1], "--rows", "-3", *make[3:]], ["--rows", "'-3'"]), ([*make[:3], "--cols", "1e3", *make[5:]], ["--cols", "'1e3'"]),
            ([*make[:1], "--rows", "17592186044416", *make[3:]], ["--rows", "17,592,186,044,416"]), ([*make, "--seed", "x"], ["--seed", "'x'"])]:
        refuse(program, arguments, names, status=2)


def check_files(program, folder, matrix, vector):
    bad, out = os.path.join(folder, "bad"), os.path.join(folder, "out")

    def damaged(data, names, as_vector=True):
        with open(bad, "wb") as file:
            file.write(data)
        for method in support.methods():
            flags = ["--method", method, *(support.backend_flags() if method == "penstock" else [])]
            refuse(program, ["run", bad, vector, "-o", out, *flags], ["bad'", *names])
            if as_vector:
                refuse(program, ["run", matrix, bad, "-o", out, *flags], ["bad'", *names])

    damaged(b"", ["empty"])
    damaged(b"abc", ["3 bytes", "copy it again"])
    damaged(b"\0" * (40 * 77 * 4 - 2), ["12,318 bytes", "copy it again"])
    # Cut short by whole numbers: only the other file tells.
    damaged(b"\0" * (40 * 77 * 4 - 4), ["12,316 bytes", "77 columns (308 bytes)", "vector'", "copy the matrix again"], as_vector=False)
    refuse(program, ["run", matrix, support.write_numbers(bad, [1.0] * 76), "-o", out], ["matrix'", "12,320 bytes", "76 columns (304 bytes)", "bad'", "vector that belongs"])
    os.mkfifo(os.path.join(folder, "pipe"))
    for name, names in [("absent", ["absent", "ENOENT"]), (".", ["EISDIR"]), ("pipe", ["pipe", "no regular file"])]:
        path = os.path.join(folder, name)
        refuse(program, ["run", path, vector, "-o", out], names)
        refuse(program, ["run", matrix, path, "-o", out], names)
    for path, names in [(os.path.join(folder, "no", "out"), ["no/out", "ENOENT"]), (folder, ["EISDIR"]), ("/dev/full", ["/dev/full", "regular"]), (matrix, ["matrix'", "input"]),
                        (vector, ["vector'", "input"]), (os.path.join(folder, "link"), ["link'", "matrix'", "input"])]:
        if path.endswith("link"):
            os.symlink(matrix, path)
        refuse(program, ["run", matrix, vector, "-o", path], names)
    if not support.on_gpu():
        refuse(program, ["run", matrix, vector, "-o", out, "--method", "cuda"], ["--method cuda", "penstock or cpu"])
        refuse(program, ["run", matrix, vector, "-o", out, "--backend", "gpu"], ["--backend cpu"])
    make = ["make", "--rows", "2", "--cols", "3", "-o"]
    refuse(program, [*make, out, "-x", out], ["-x", "out'", "another name"])
    refuse(program, [*make, out, "-x", os.path.join(folder, "no", "x")], ["no/x", "ENOENT"])
    refuse(program, [*make, folder, "-x", out], ["EISDIR"])
    if os.geteuid() != 0:  # nothing is forbidden to root
        locked = os.path.join(folder, "locked")
        os.mkdir(locked, 0o555)
        refuse(program, ["run", matrix, vector, "-o", os.path.join(locked, "y")], ["locked/y", "EACCES"])
        os.chmod(locked, 0o755)


def check_full_disk(program, folder):
    """No file may grow past 64 KiB, and the signal that says so is ignored: a disk that is full."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    matrix, vector = (support.write_numbers(os.path.join(folder, name), [1.0] * count) for name, count in (("tall", 50000), ("one", 1)))
    before = sorted(os.listdir(folder))
    for method in support.methods():
        flags = ["--method", method, "--quiet", *(support.backend_flags() if method == "penstock" else [])]
        refuse(program, ["run", matrix, vector, "-o", os.path.join(folder, "y"), *flags], ["EFBIG", "make room"], lines=None, preexec_fn=limit)
    refuse(program, ["make", "--rows", "200", "--cols", "200", "-o", os.path.join(folder, "m"), "-x", os.path.join(folder, "v")], ["EFBIG", "make room"], preexec_fn=limit)
    support.require(sorted(os.listdir(folder)) == before, f"left {sorted(set(os.listdir(folder)) - set(before))}")


def check_interrupt(program, folder):
    """Ctrl-C ends a product, which leaves nothing, and keeps the result that was there."""
    names = [os.path.join(folder, name) for name in ("A", "x", "y")]
    support.must_run(program, "make", "--rows", 20000, "--cols", 1000, "-o", names[0], "-x", names[1], "--quiet")
    with open(names[2], "w", encoding="utf-8") as file:
        file.write("as it was")
    before = sorted(os.listdir(folder))
    for method in support.methods():
        flags = [*support.backend_flags(), "--page", "4KiB", "--cache", "1MiB", "--no-windows"] if method == "penstock" else []
        child = subprocess.Popen([program, "run", names[0], names[1], "-o", names[2], "--repeat", "1000", "--method", method, *flags], stderr=subprocess.PIPE)
        time.sleep(1.5)
        child.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, said = child.communicate(timeout=60)
        support.require(child.returncode == 1 and b"interrupted" in said, f"{method} interrupted: {child.returncode}, {said!r}")
        support.require(time.monotonic() - begun < 20, f"{method}: an interrupt took {time.monotonic() - begun:.1f} s")
        with open(names[2], encoding="utf-8") as file:
            support.require(file.read() == "as it was", f"{method}: an interrupted product wrote its result")
        support.require(sorted(os.listdir(folder)) == before, f"{method}: left {os.listdir(folder)}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        matrix = support.write_numbers(os.path.join(folder, "matrix"), [0.5] * 40 * 77)
        vector = support.write_numbers(os.path.join(folder, "vector"), [1.0] * 77)
        check_usage(program, matrix, vector, os.path.join(folder, "out"))
        check_files(program, folder, matrix, vector)
        support.require(not os.path.exists(os.path.join(folder, "out")), "a refused product left its result")
    with tempfile.TemporaryDirectory() as folder:
        check_full_disk(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_interrupt(program, folder)
    print("bad input is named and leaves nothing behind")


if __name__ == "__main__":
    main()
