"""stripes_test.py PROGRAM: two runtimes in two processes and an ordinary process write interleaved
bytes of one file at the same time. Every byte survives, though they share every page. """
import os
import pathlib
import subprocess
import sys
import tempfile

WIDTHS = (1, 7, 64, 4095, 4097)
ROLES = 3  # 0 and 1 are runtimes, 2 is this process


def byte_of(place, role):
    return (place * 7 + role * 31 + 1) & 255


def write_by_hand(path, width, role, size):
    handle = os.open(path, os.O_WRONLY)
    for begin in range(role * width, size, ROLES * width):
        end = min(begin + width, size)
        os.pwrite(handle, bytes(byte_of(i, role) for i in range(begin, end)), begin)
    os.close(handle)


def run(program, width, size, is_empty):
    with tempfile.TemporaryDirectory(prefix="penstock-stripes-") as folder:
        path = pathlib.Path(folder, "file")
        path.write_bytes(b"" if is_empty else b"\xee" * size)
        processes = [subprocess.Popen([program, "stripes", str(path), str(width), str(role),
                                       str(ROLES), str(size)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                     for role in range(ROLES - 1)]
        for process in processes:
            assert process.stdout.readline() == b"ready\n"
        for process in processes:
            process.stdin.write(b"\n")
            process.stdin.flush()
        write_by_hand(path, width, ROLES - 1, size)
        for process in processes:
            process.communicate()
            assert process.returncode == 0, f"status {process.returncode}"
        got = path.read_bytes()
    wanted = bytes(byte_of(i, i // width % ROLES) for i in range(size))
    if got != wanted:
        at = next((i for i in range(min(len(got), size)) if got[i] != wanted[i]),
                  min(len(got), size))
        sys.exit(f"width {width}: {len(got)} bytes of {size}; byte {at} of role "
                 f"{at // width % ROLES} is lost")


def main():
    for width in WIDTHS:
        size = 90000 if width < 64 else 900000
        for is_empty in (True, False):
            run(sys.argv[1], width, size, is_empty)
    print(f"stripes of {', '.join(map(str, WIDTHS))} bytes: every byte survived")


main()
