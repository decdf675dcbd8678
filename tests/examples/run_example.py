#!/usr/bin/env python3
"""Runs one example over files of several sizes and compares what it prints: run_example.py PROGRAM.

Exit status 77 if the example says that it needs a GPU and there is none."""
import os
import subprocess
import sys
import tempfile

SIZES = (0, 1, 4095, 65536, 65537, 3_000_001)


def contents(size):
    """Bytes without a short period, one in about thirty a newline."""
    value, out = size + 1, bytearray()
    for _ in range(size):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(10 if (value >> 16) % 31 == 0 else (value >> 16) & 0xFF)
    return bytes(out)


def expected(program, data):
    return sum(data) if "map" in os.path.basename(program) else data.count(b"\n")


def main(program):
    environment = dict(os.environ, PENSTOCK_CACHE="2MiB", PENSTOCK_TABLE="1MiB",
                       PENSTOCK_MAX_FILES="64")
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = os.path.join(folder, f"file{size}")
            data = contents(size)
            with open(path, "wb") as out:
                out.write(data)
            ran = subprocess.run([program, path], env=environment, capture_output=True, text=True,
                                 check=False)
            if ran.returncode == 77:
                sys.exit(77)
            wanted = f"{expected(program, data)} {path}\n"
            if ran.returncode != 0 or ran.stdout != wanted:
                sys.exit(f"{program} on {size} bytes: status {ran.returncode}, printed "
                         f"{ran.stdout!r} not {wanted!r}\n{ran.stderr}")
        absent = subprocess.run([program, os.path.join(folder, "absent")], env=environment,
                                capture_output=True, text=True, check=False)
        if absent.returncode != 1 or "No such file" not in absent.stderr or absent.stdout:
            sys.exit(f"{program} on an absent file: status {absent.returncode}, {absent.stderr!r}")
    print(f"{os.path.basename(program)}: {len(SIZES)} files right, an absent one refused")


if __name__ == "__main__":
    main(sys.argv[1])
