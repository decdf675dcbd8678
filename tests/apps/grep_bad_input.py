"""What penstock-grep says to input it cannot use: exit status, exactly one line that names the
value, no output file.

Usage: grep_bad_input.py PROGRAM
"""
import os
import socket
import subprocess
import sys
import tempfile

import grep_support as support


def write(directory, name, content):
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(content)
    return path


def make_inputs(directory):
    names = {"words": b"foo\nbar-baz\n", "text": b"foo bar-baz\n", "blank": b"foo\n\nbar\n",
             "long": b"ok\n" + b"x" * 256 + b"\n", "zero": b"a\0b\n", "empty": b"",
             "twice": b"foo\nbar\nfoo\n", "blank_end": b"foo\n\n"}
    inputs = {name: write(directory, name, content) for name, content in names.items()}
    inputs["directory"] = os.path.join(directory, "directory")
    os.mkdir(inputs["directory"])
    inputs["pipe"] = os.path.join(directory, "pipe")
    os.mkfifo(inputs["pipe"])
    inputs["socket"] = os.path.join(directory, "socket")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(inputs["socket"])
    inputs["loop"] = os.path.join(directory, "loop")
    os.symlink("loop", inputs["loop"])
    inputs["absent"] = os.path.join(directory, "absent")
    inputs["secret"] = write(directory, "secret", b"foo\n")
    os.chmod(inputs["secret"], 0)
    return inputs


# flags, dictionary, paths, exit status, what the line must name
CASES = [
    ([], "absent", ["text"], 1, ["absent", "ENOENT"]),
    ([], "directory", ["text"], 1, ["directory", "EISDIR"]),
    ([], "empty", ["text"], 1, ["empty", "holds no words"]),
    ([], "blank", ["text"], 1, ["blank:2:", "''", "remove"]),
    ([], "blank_end", ["text"], 1, ["blank_end:2:", "''", "remove"]),
    ([], "long", ["text"], 1, ["long:2:", "xxxx", "256", "255"]),
    ([], "zero", ["text"], 1, ["zero:1:", "a\\x00b", "remove"]),
    (["--strict"], "twice", ["text"], 1, ["twice:3:", "'foo'", "line 1", "remove"]),
    ([], "words", ["absent"], 1, ["absent", "ENOENT"]),
    ([], "words", ["text", "absent"], 1, ["absent", "ENOENT"]),
    ([], "words", ["pipe"], 1, ["pipe", "regular file"]),
    ([], "words", ["socket"], 1, ["socket", "regular file"]),
    ([], "words", ["/dev/null"], 1, ["/dev/null", "regular file"]),
    ([], "words", ["loop"], 1, ["loop", "ELOOP"]),
    ([], "words", [], 2, ["PATH"]),
    (["--cache", "0"], "words", ["text"], 2, ["--cache", "'0'"]),
    (["--cache", "-1"], "words", ["text"], 2, ["--cache", "'-1'"]),
    (["--cache", "3 GiBs"], "words", ["text"], 2, ["--cache", "'3 GiBs'"]),
    (["--cache", "1000000TiB"], "words", ["text"], 1, ["1000000 TiB", "less"]),
    (["--cache", "4KiB"], "words", ["text"], 2, ["4 KiB", "512 KiB"]),
    (["--page", "3000"], "words", ["text"], 2, ["3000", "power of two"]),
    (["--page", "4MiB"], "words", ["text"], 2, ["4194304", "power of two"]),
    (["--page", "256"], "words", ["text"], 2, ["256", "power of two"]),
    (["--page", ""], "words", ["text"], 2, ["--page"]),
    (["--backend", "tpu"], "words", ["text"], 2, ["--backend", "'tpu'"]),
    (["--method", "magic"], "words", ["text"], 2, ["--method", "'magic'"]),
    (["--workers", "-3"], "words", ["text"], 2, ["--workers", "'-3'"]),
    (["--workers", "2000"], "words", ["text"], 2, ["2000", "1024"]),
    (["--device", "one"], "words", ["text"], 2, ["--device", "'one'"]),
    (["--devices", "0,1"], "words", ["text"], 2, ["this program uses one device", "--device"]),
    (["--devices", "0", "--device", "0"], "words", ["text"], 2, ["--device", "--devices"]),
    (["--piece", "2MiB"], "words", ["text"], 2, ["--piece", "2MiB"]),
    (["--result-buffer", "many"], "words", ["text"], 2, ["--result-buffer", "'many'"]),
    (["--colour"], "words", ["text"], 2, ["--colour"]),
    (["--dict", "again"], "words", ["text"], 2, ["--dict"]),
]


def check_case(program, inputs, case):
    flags, dictionary, paths, status, names = case
    out = os.path.join(os.path.dirname(inputs["text"]), "out.txt")
    backend = [] if "--backend" in flags else support.backend_flags()
    arguments = [*backend, *flags, "--dict", inputs[dictionary], "--out", out,
                 *[inputs.get(path, path) for path in paths]]
    done = support.run_program(program, arguments)
    shown = (f"{flags} {dictionary} {paths}: exit status {done.returncode}, said "
             f"{done.stderr.decode(errors='replace')!r}")
    support.require(done.returncode == status, f"expected exit status {status}: {shown}")
    support.require(done.stderr.count(b"\n") == 1 and done.stderr.endswith(b"\n"),
                    f"expected exactly one line: {shown}")
    support.require(done.stderr.startswith(b"penstock-grep: "),
                    f"the program does not name itself: {shown}")
    support.require(all(name.encode() in done.stderr for name in names),
                    f"expected {names}: {shown}")
    support.require(done.stdout == b"", f"something on standard output: {shown}")
    left = [name for name in os.listdir(os.path.dirname(out))
            if name.startswith((".penstock", "out.txt"))]
    support.require(not left, f"left behind {left}: {shown}")


def check_output_errors(program, inputs):
    """Output that cannot be written: one line, and a file that was there keeps its content."""
    words, text, directory = inputs["words"], inputs["text"], os.path.dirname(inputs["text"])
    base = [*support.backend_flags(), "--dict", words]
    kept = write(directory, "kept.txt", b"as it was\n")
    for arguments, names in [
            ([*base, "--out", os.path.join(directory, "no", "x"), text], [b"no/x", b"ENOENT"]),
            ([*base, "--out", inputs["directory"], text], [b"directory", b"EISDIR"]),
            ([*base, "--out", "/dev/full", text], [b"/dev/full", b"ENOSPC"]),
            ([*base, "--out", kept, inputs["absent"]], [b"absent"])]:
        done = support.run_program(program, arguments)
        support.require(done.returncode == 1 and done.stderr.count(b"\n") == 1,
                        f"{arguments}: {done}")
        support.require(all(name in done.stderr for name in names),
                        f"expected {names}: {done.stderr!r}")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([program, *base, text], stdout=full, stderr=subprocess.PIPE,
                              check=False)
    support.require(done.returncode == 1 and done.stderr.count(b"\n") == 1
                    and b"ENOSPC" in done.stderr,
                    f"{done}")
    with open(kept, "rb") as file:
        support.require(file.read() == b"as it was\n", "a failed run changed the output file")


def check_unreadable(program, inputs):
    """Permissions do not bind root, so root runs the program as another user."""
    more = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    directory = os.path.dirname(inputs["text"])
    os.chmod(directory, 0o755)
    try:
        support.run_program(program, ["--version"], cwd="/", **more)
    except PermissionError:
        print("the program's folder is closed to other users: unreadable files are not tested")
        return
    more["cwd"] = "/"
    base = [*support.backend_flags(), "--quiet", "--dict", inputs["words"]]
    for arguments in [[*base, inputs["secret"]], [*base[:-1], inputs["secret"], inputs["text"]]]:
        done = support.run_program(program, arguments, **more)
        support.require(done.returncode == 1 and done.stderr.count(b"\n") == 1
                        and b"secret" in done.stderr and b"EACCES" in done.stderr,
                        f"{arguments}: {done}")
    hidden = os.path.join(inputs["directory"], "hidden")
    os.mkdir(hidden, 0)
    write(inputs["directory"], "seen", b"foo\n")
    os.chmod(write(inputs["directory"], "unseen", b"foo\n"), 0)
    done = support.run_program(program, [*base, inputs["directory"]], **more)
    support.require(done.returncode == 1 and done.stderr.count(b"\n") == 2,
                    f"one line for each: {done}")
    support.require(b"hidden" in done.stderr and b"unseen" in done.stderr, f"{done.stderr!r}")
    support.require(len(support.parse_lines(done.stdout)) == 1,
                    f"the rest must be counted: {done.stdout!r}")


def check_environment(program, inputs):
    for name, value in [("PENSTOCK_PAGE", "3000"), ("PENSTOCK_CACHE", "lots"),
                        ("PENSTOCK_BACKEND", "tpu")]:
        done = support.run_program(program, ["--dict", inputs["words"], inputs["text"]],
                                   env={**os.environ, name: value})
        support.require(done.returncode == 2 and done.stderr.count(b"\n") == 1
                        and value.encode() in done.stderr,
                        f"{name}: {done}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        inputs = make_inputs(directory)
        for case in CASES:
            check_case(program, inputs, case)
        check_output_errors(program, inputs)
        check_environment(program, inputs)
        check_unreadable(program, inputs)
    print(f"{len(CASES)} cases and more")


if __name__ == "__main__":
    main()
