#!/usr/bin/env python3
"""Measures penstock mount beside the source itself and libfuse's own example of a pass-through file
system, in turns, and prints one JSON object.

  tools/mount_bench.py PENSTOCK [--dir DIR] [--size MIB] [--repeats N] [--commit NAME]

The example is passthrough_ll.c as the package libfuse3-dev has it, compiled here with -O3, with the
same checks of permissions. It runs twice: with its default options, and with what Penstock does by
default, which is to keep pages over opens (cache=always) and to read ahead as far as Penstock's
mount does. Only the second says something about the programs; the first, about their defaults.
Penstock runs twice too: served, and by default, which as root from Linux 6.9 on is to have the
kernel read and write the files itself. The example has no such way.
Source and mount points are made in DIR (default: /dev/shm, so that no disk is measured) and go
again. Rates are medians; a mount is made anew for each figure, and what the source has is in the
operating system's page cache. Exit status 1 if something failed or the bytes were not what was
written. """
import argparse
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_machine

EXAMPLES = pathlib.Path("/usr/share/doc/libfuse3-dev/examples")
BLOCK = 1 << 20


def build_sample(work):
    for name in ("passthrough_ll.c", "passthrough_helpers.h"):
        plain, packed = EXAMPLES / name, EXAMPLES / f"{name}.gz"
        if not plain.exists() and not packed.exists():
            sys.exit(f"{plain} is not there; it comes with the package libfuse3-dev, unless "
                     "documentation is left out when packages are installed")
        (work / name).write_bytes(plain.read_bytes() if plain.exists()
                                  else gzip.decompress(packed.read_bytes()))
    (work / "config.h").write_text("")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], stdout=subprocess.PIPE,
                           text=True, check=True).stdout.split()
    subprocess.run(["gcc", "-O3", "-w", "-D_GNU_SOURCE", "-DHAVE_UTIMENSAT",
                    "-DHAVE_POSIX_FALLOCATE", "-DHAVE_FSTATAT", "-DHAVE_OPENAT",
                    "-DHAVE_COPY_FILE_RANGE", f"-I{work}", work / "passthrough_ll.c", *flags, "-o",
                    work / "sample"],
                   check=True)
    return work / "sample"


def read_ahead_of(point):
    """The file in which the kernel keeps how far it reads ahead on this mount."""
    device = os.stat(point).st_dev
    return pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")


class Mounted:
    """A mount while it is used. `read_ahead_kib`: what the kernel is told; None: what the program
    left."""

    def __init__(self, command, point, read_ahead_kib=None):
        self.command, self.point, self.read_ahead_kib = (
            [str(c) for c in command], point, read_ahead_kib)

    def __enter__(self):
        subprocess.run(self.command, check=True, stderr=subprocess.DEVNULL)
        while not os.path.ismount(self.point):
            time.sleep(0.01)
        if self.read_ahead_kib is not None:
            read_ahead_of(self.point).write_text(str(self.read_ahead_kib))
        return self.point

    def __exit__(self, *_):
        subprocess.run(["fusermount3", "-u", str(self.point)], check=True)


class Unmounted:
    """The source in place of a mount of it."""

    def __init__(self, source):
        self.source = source

    def __enter__(self):
        return self.source

    def __exit__(self, *_):
        pass


def timed(act):
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def write_file(path, bytes_):
    body = bytes(range(256)) * (BLOCK // 256)
    with open(path, "wb", buffering=0) as out:
        for _ in range(bytes_ // BLOCK):
            out.write(body)
        os.fsync(out.fileno())


def read_file(path, bytes_):
    buffer = bytearray(BLOCK)
    with open(path, "rb", buffering=0) as source:
        for _ in range(bytes_ // BLOCK):
            if source.readinto(buffer) != BLOCK or buffer[:256] != bytes(range(256)):
                sys.exit(f"{path}: what was read is not what was written")


def read_pages(path, bytes_, count):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    page = bytes(range(256)) * 16
    for i in range(count):
        if os.pread(fd, 4096, i * 2654435761 % (bytes_ // 4096) * 4096) != page:
            sys.exit(f"{path}: a page that was read is not what was written")
    os.close(fd)


def small_files(folder, count):
    for i in range(count):
        (folder / f"f{i}").write_bytes(b"x")
    for i in range(count):
        os.stat(folder / f"f{i}")
    for i in range(count):
        os.unlink(folder / f"f{i}")


def figures(mount, source, bytes_):
    """One value of each figure; higher is better."""
    file, pages, files = source / "file", 20000, 3000
    out = {}
    file.unlink(missing_ok=True)
    with mount() as point:
        out["sequential write, and fsync", "GB/s"] = (
            bytes_ / 1e9 / timed(lambda: write_file(point / "file", bytes_)))
    with mount() as point:
        out["sequential read", "GB/s"] = (bytes_ / 1e9
                                          / timed(lambda: read_file(point / "file", bytes_)))
        out["the same again, opened again", "GB/s"] = (
            bytes_ / 1e9 / timed(lambda: read_file(point / "file", bytes_)))
    with mount() as point:
        out["random pages of 4 KiB, one thread", "1000/s"] = (
            pages / 1e3 / timed(lambda: read_pages(point / "file", bytes_, pages)))
    with mount() as point:
        out["small files made, looked at, removed", "1000/s"] = (
            files / 1e3 / timed(lambda: small_files(point, files)))
    return out


ITSELF = "the source itself"
PASSED, SERVED = "penstock mount, defaults", "penstock mount --pass-through=off"
DEFAULTS = "libfuse's passthrough_ll, default_permissions"
SAME_CACHING = "libfuse's passthrough_ll, default_permissions, cache=always, read-ahead as ours"


def read_ahead_kib(command, point):
    """How far Penstock's own mount lets the kernel read ahead; None where only root may tell the
    kernel."""
    if os.geteuid() != 0:
        return None
    with Mounted(command, point) as mounted:
        return int(read_ahead_of(mounted).read_text())


def row(ours_name, figure, values, name, base, wanted):
    ours, theirs = statistics.median(values), statistics.median(base)
    spread = f"{min(values):.3g} to {max(values):.3g}; baseline {min(base):.3g} to {max(base):.3g}"
    return {"goal": "T6", "case": f"{ours_name}: {figure[0]}", "backend": "cpu", "page_bytes": 0,
            "value": bench_machine.significant(ours, 5), "unit": figure[1], "baseline": name,
            "baseline_value": bench_machine.significant(theirs, 5),
            "ratio": bench_machine.significant(ours / theirs),
            "cpu_cores_used": None,
            "note": f"median of {wanted.repeats}, {spread}; {wanted.size} MiB"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--commit", help="what was built, for the report (default: asked of git)")
    wanted = parser.parse_args()
    commit = wanted.commit or bench_machine.commit_here()
    work = pathlib.Path(tempfile.mkdtemp(prefix="penstock-mount-bench-", dir=wanted.dir))
    try:
        sample = build_sample(work)
        source, point = work / "source", work / "point"
        source.mkdir()
        point.mkdir()
        plain = [sample, "-o", f"source={source},default_permissions", point]
        same = [sample, "-o", f"source={source},default_permissions,cache=always", point]
        ours = [wanted.penstock, "mount", "--background", "--quiet", source, point]
        served = [*ours[:4], "--pass-through=off", *ours[4:]]
        ways = {ITSELF: None, PASSED: (ours, None), SERVED: (served, None),
                DEFAULTS: (plain, None), SAME_CACHING: (same, read_ahead_kib(ours, point))}
        series = {name: {} for name in ways}
        for _ in range(wanted.repeats):
            for name, way in ways.items():
                def mount(way=way):
                    return Mounted(way[0], point, way[1]) if way else Unmounted(source)
                for figure, value in figures(mount, source, wanted.size * BLOCK).items():
                    series[name].setdefault(figure, []).append(value)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    results = [row(ours, figure, values, name, series[name][figure], wanted)
               for ours in (PASSED, SERVED) for figure, values in series[ours].items()
               for name in (ITSELF, DEFAULTS, SAME_CACHING)]
    print(json.dumps({"machine": bench_machine.machine_of(wanted.dir, commit),
                      "results": results},
                     indent=1))


main()
