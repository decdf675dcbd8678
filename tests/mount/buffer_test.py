#!/usr/bin/env python3
"""A mount that reads through a buffer gives what the source has, and what it holds it does not read
again: buffer_test.py PROGRAM [--policy native|gram|dedu]."""
import argparse
import contextlib
import ctypes
import errno
import mmap
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading

import mounted

libc = ctypes.CDLL(None, use_errno=True)
CLONES = 12
PAGE = 4096
LONG = 600  # seconds in which a machine that is busy answers


def check(condition, text):
    if not condition:
        raise AssertionError(f"FAILED: {text}")


def make_tree(folder, seed):
    """A few MiB of files as there are in a system: many small ones, some large, an empty one, one
    with a hole."""
    r = random.Random(seed)
    for i in range(60):
        path = folder / f"d{i % 7}" / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = r.choice([0, 1, PAGE - 1, PAGE, PAGE + 1, r.randrange(20_000), r.randrange(200_000)])
        path.write_bytes(r.randbytes(size))
    with open(folder / "hole", "wb") as f:
        f.truncate(100_000)
        f.seek(50_000)
        f.write(b"not zero")


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, _, names in os.walk(folder) for name in names)


def counts_so_far(mount):
    """What the mount says of its buffer when it is asked, by the names that it uses."""
    mount.process.send_signal(signal.SIGUSR1)
    while True:
        line = mount.process.stderr.readline().decode()
        check(line != "", "the mount ended")
        if " host hits, " in line:
            return {name: int(number.replace(",", ""))
                    for number, name in re.findall(
                        r"([\d,]+) (host hits|device hits|misses|reads past the buffer)", line)}


def read_in_pieces(path, size):
    with open(path, "rb", buffering=0) as f:
        return b"".join(iter(lambda: f.read(size), b""))


def read_all(mount, names):
    for i, name in enumerate(names):
        check((mount.source / name).read_bytes()
              == read_in_pieces(mount.point / name, [1 << 20, 3000, PAGE][i % 3]),
              f"{name} differs")


def clones(policy):
    """Copies of one tree are read twice, the second time from the buffer alone."""
    source, point, plain = mounted.folders()
    make_tree(plain, 5)
    for i in range(CLONES):
        shutil.copytree(plain, source / f"clone{i}")
    names = files_below(source)
    pages = sum((os.path.getsize(source / name) + PAGE - 1) // PAGE for name in names)
    ram = pages * PAGE if policy == "native" else 1 << 20
    with mounted.Mount(source, point,
                       *mounted.buffer_flags(policy, str(ram), str(pages * PAGE),
                                             *(["--always-gram"] if policy == "gram" else [])
                                             )) as mount:
        read_all(mount, names)
        first = counts_so_far(mount)
        check(first["misses"] > 0, f"nothing was missed: {first}")
        read_all(mount, names)
        second = counts_so_far(mount)
        check(second["misses"] == first["misses"], f"pages were read again: {first}, then {second}")
        check(second["reads past the buffer"] == 0, f"the buffer was passed by: {second}")
        done = mount.end()["buffer"]
    check(done["policy"] == policy and done["backend"] == mounted.backend_of(policy)
          and done["misses"] == first["misses"],
          f"another report: {done}")
    print(f"{policy}: {len(names)} files, {pages} pages: {done}")
    return pages, done


def compare_policies(policy):
    pages, done = clones(policy)
    if policy == "gram":
        check(done["pages"] == pages and done["device_bytes"] == (pages - 256) * PAGE,
              f"not every page is there once: {pages}, {done}")
    if policy == "dedu":
        _, gram = clones("gram")
        check(done["device_bytes"] * 5 <= gram["device_bytes"],
              f"clones take more than a fifth of the device memory: {done['device_bytes']} bytes, "
              f"gram {gram['device_bytes']}")


def write_and_read(path, rounds):
    """Reads what it has written, every time, by another descriptor."""
    r = random.Random(1)
    with open(path, "r+b", buffering=0) as out, open(path, "rb", buffering=0) as back:
        size = os.fstat(out.fileno()).st_size
        for i in range(rounds):
            at = r.randrange(size)
            body = i.to_bytes(4, "big") * r.randrange(1, 3000)
            os.pwrite(out.fileno(), body, at)
            size = max(size, at + len(body))
            check(os.pread(back.fileno(), len(body), at) == body,
                  f"{path}: round {i}: what was written is not what is read")
            if i % 10 == 0:
                size = r.randrange(1, 60_000)
                os.ftruncate(out.fileno(), size)
                check(len(os.pread(back.fileno(), 100_000, 0)) == size,
                      f"{path}: round {i}: another end")


def keep_reading(path, stop):
    r = random.Random(os.getpid())
    with open(path, "rb", buffering=0) as f:
        while not stop.is_set():
            os.pread(f.fileno(), r.randrange(1, 20_000), r.randrange(60_000))


def writers_see_their_writes(policy):
    source, point, _ = mounted.folders()
    (source / "f").write_bytes(bytes(50_000))
    fork = multiprocessing.get_context("fork")
    with mounted.Mount(source, point, *mounted.buffer_flags(policy, "44KiB", "32KiB")) as mount:
        stop = fork.Event()
        readers = [fork.Process(target=keep_reading, args=(point / "f", stop)) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            write_and_read(point / "f", 500)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        check(all(reader.exitcode == 0 for reader in readers), "a reader failed")
        read_all(mount, ["f"])
        mount.end()


RECORD = 777


def append_records(path, count):
    with open(path, "ab", buffering=0) as f:
        for i in range(count):
            f.write(bytes([i % 255 + 1]) * RECORD)


def follow(path, stop):
    """Reads what is appended, as it comes, with some of what was there before. No byte is zero."""
    end = 0
    with open(path, "rb", buffering=0) as f:
        while not stop.is_set():
            at = max(0, end - RECORD)
            seen = os.pread(f.fileno(), 4 * PAGE, at)
            check(b"\0" not in seen, f"{path} has no zeros, and one was read: at "
                                     f"{at + seen.find(0)}, behind {end}")
            end = at + len(seen)


def appended_records_are_whole(policy, rounds=3000):
    """A program that reads a file to which another one appends gets the old end or the new bytes,
    also while others keep the buffer busy."""
    source, point, _ = mounted.folders()
    append_records(source / "log", 1)
    (source / "busy").write_bytes(bytes(60_000))
    fork = multiprocessing.get_context("fork")
    with mounted.Mount(source, point, *mounted.buffer_flags(policy, "1MiB", "32KiB")) as mount:
        stop = fork.Event()
        readers = [fork.Process(target=keep_reading, args=(point / "busy", stop)) for _ in range(3)]
        readers.append(fork.Process(target=follow, args=(point / "log", stop)))
        for reader in readers:
            reader.start()
        try:
            append_records(point / "log", rounds)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        check(all(reader.exitcode == 0 for reader in readers), "a reader failed")
        read_all(mount, ["log"])
        mount.end()


def appends_where_others_cut_are_seen(policy):
    """A program appends at the end that the source has by now, which lies before the one that the
    kernel knows. A reader that has the file open, and had read that part, sees it."""
    source, point, _ = mounted.folders()
    (source / "f").write_bytes(b"a" * 40_000)
    with mounted.Mount(source, point, *mounted.buffer_flags(policy, "1MiB", "1MiB")) as mount:
        with (open(point / "f", "rb", buffering=0) as reader,
              open(point / "f", "ab", buffering=0) as writer):
            check(os.pread(reader.fileno(), 1 << 20, 0) == b"a" * 40_000, "before the cut")
            os.truncate(source / "f", 10_000)
            writer.write(b"new" * 100)
            check((source / "f").read_bytes() == b"a" * 10_000 + b"new" * 100,
                  "appended where the file does not end")
            check(os.pread(reader.fileno(), 300, 10_000) == b"new" * 100,
                  "what was appended is not seen by the reader that has the file open")
        mount.end()


def allocate(fd, mode, offset, length):
    if (libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0
        and ctypes.get_errno() != errno.EOPNOTSUPP):
        raise OSError(ctypes.get_errno(), "fallocate")


def store(fd):
    with mmap.mmap(fd, 0) as memory:
        memory[9000:9100] = b"m" * 100
        memory.flush()


def append(path):
    with open(path, "ab", buffering=0) as f:
        f.write(b"appended" * 700)


def changes_of(path, other):
    """Everything by which a program changes bytes or size of a file; each is given a descriptor of
    it."""
    return [("write", lambda fd: os.pwrite(fd, b"w" * 5000, 3000)),
            ("write over the end",
             lambda fd: os.pwrite(fd, b"e" * 9000, os.fstat(fd).st_size - 10)),
            ("write behind the end",
             lambda fd: os.pwrite(fd, b"b" * 10, os.fstat(fd).st_size + 10_000)),
            ("append", lambda fd: append(path)), ("cut", lambda fd: os.ftruncate(fd, 41_003)),
            ("cut by name", lambda fd: os.truncate(path, 40_001)),
            ("grow", lambda fd: os.ftruncate(fd, 60_000)), ("store", store),
            ("allocate", lambda fd: allocate(fd, 0, 61_000, 5000)),
            ("punch", lambda fd: allocate(fd, 3, 5000, 6000)),
            ("zero", lambda fd: allocate(fd, 0x10, 20_000, 9000)),
            ("collapse", lambda fd: allocate(fd, 8, 2 * PAGE, PAGE)),
            ("insert", lambda fd: allocate(fd, 0x20, PAGE, 2 * PAGE)),
            ("copy", lambda fd: os.copy_file_range(other, fd, 7000, 100, 11_000)),
            ("empty", lambda fd: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)))]


def changes_are_seen(policy):
    """A reader that has a file open and has read all of it sees later changes through the mount."""
    source, point, _ = mounted.folders()
    (source / "f").write_bytes(random.Random(1).randbytes(50_000))
    (source / "other").write_bytes(random.Random(2).randbytes(50_000))
    with (mounted.Mount(source, point, *mounted.buffer_flags(policy, "1MiB", "1MiB")) as mount,
          open(point / "other", "rb") as other):
        with (open(point / "f", "rb", buffering=0) as reader,
              open(point / "f", "r+b", buffering=0) as writer):
            for name, change in changes_of(point / "f", other.fileno()):
                check(os.pread(reader.fileno(), 1 << 20, 0) == (source / "f").read_bytes(),
                      f"before {name}: the file differs")
                change(writer.fileno())
                seen = os.pread(reader.fileno(), 1 << 20, 0)
                check(
                    seen == (source / "f").read_bytes(),
                    f"{name}: not seen by the reader that has the file open",
                )
        check(counts_so_far(mount)["reads past the buffer"] == 0, "the buffer was passed by")
    check((source / "f").read_bytes() == b"", "the file is not empty at the end")


def mappings_and_reads_agree(policy):
    """What is stored to a mapping is what others read, at once, and what they write is what is
    loaded from it."""
    source, point, _ = mounted.folders()
    (source / "f").write_bytes(bytes(50_000))
    with mounted.Mount(source, point, *mounted.buffer_flags(policy, "1MiB", "1MiB")) as mount:
        with (open(point / "f", "r+b", buffering=0) as mapped_file,
              open(point / "f", "r+b", buffering=0) as other,
              mmap.mmap(mapped_file.fileno(), 0) as memory):
            check(os.pread(other.fileno(), 50_000, 0) == memory[:],
                  "a mapping differs from what is read")
            for i in range(1, 50):
                at = i * 991
                memory[at:at + 5] = b"store"
                check(os.pread(other.fileno(), 5, at) == b"store",
                      f"round {i}: a store is not read")
                os.pwrite(other.fileno(), b"write", at + 2)
                check(memory[at:at + 7] == b"stwrite", f"round {i}: a write is not loaded")
        check(mount.end()["buffer"]["reads_outside"] == 0, "the buffer was passed by")


def source_changes(policy):
    """What others change in the source is there at the next open, and only what is as it was is
    kept."""
    source, point, _ = mounted.folders()
    for name in ("kept", "changed", "replaced", "shorter"):
        (source / name).write_bytes(name.encode() * 5000)
    names = files_below(source)
    with mounted.Mount(source, point, *mounted.buffer_flags(policy, "1MiB", "1MiB")) as mount:
        read_all(mount, names)
        before = counts_so_far(mount)
        read_all(mount, ["kept"])
        check(counts_so_far(mount)["misses"] == before["misses"],
              "a file that did not change was read again")
        with open(source / "changed", "r+b") as f:
            f.seek(20_000)
            f.write(b"something else")
        (source / "new").write_bytes(b"new " * 5000)
        os.replace(source / "new", source / "replaced")
        os.truncate(source / "shorter", 5001)
        # Names and attributes are believed for a second.
        check(mounted.wait_until(lambda: os.stat(point / "shorter").st_size == 5001),
              "another size is not seen")
        check(mounted.wait_until(lambda: (point / "replaced").read_bytes() == b"new " * 5000),
              "another file under a name is not seen")
        read_all(mount, names)
        (source / "held").write_bytes(b"1" * 9000)
        with open(point / "held", "rb", buffering=0) as f:
            check(f.read(9000) == b"1" * 9000, "held")
            os.unlink(point / "held")
            check(
                os.pread(f.fileno(), 9000, 0) == b"1" * 9000,
                "a file that was removed is not there for the reader that has it open",
            )
        (source / "held").write_bytes(b"2" * 9000)
        check((point / "held").read_bytes() == b"2" * 9000,
              "a file under the name of one that was removed")
        check(counts_so_far(mount)["reads past the buffer"] == 0, "the buffer was passed by")
        mount.end()


def many_files(policy):
    """More files than have numbers, one after the other and at once."""
    source, point, _ = mounted.folders()
    for i in range(60):
        (source / f"f{i}").write_bytes(bytes([i]) * (5000 + i))
    names = files_below(source)
    # 11 pages, 16 files
    with mounted.Mount(source, point, *mounted.buffer_flags(policy, "36KiB", "8KiB")) as mount:
        read_all(mount, names)
        check(counts_so_far(mount)["reads past the buffer"] == 0,
              "files that were closed kept their numbers from others")
        held = [open(point / name, "rb", buffering=0) for name in names]
        for name, f in zip(names, held):
            check(f.read() == (source / name).read_bytes(), f"{name} differs")
        passed_by = counts_so_far(mount)["reads past the buffer"]
        for f in held:
            f.close()
        read_all(mount, names)
        done = mount.end()["buffer"]
    check(passed_by > 0 or done["kernel_copies"],
          "more files were in the buffer than it has numbers")


def server_of(point):
    """The process that serves a mount in the background."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"--background" in words and os.fsencode(point) in words:
                return int(entry.name)
    raise AssertionError("FAILED: no process serves the mount")


def bytes_read_by(process):
    with open(f"/proc/{process}/io") as counts:
        return int(re.search(r"rchar: (\d+)", counts.read())[1])


def ask(process):
    """Has a mount say what it did, and returns when it has the signal."""
    os.kill(process, signal.SIGUSR1)
    bit = 1 << (signal.SIGUSR1 - 1)

    def is_taken():
        with open(f"/proc/{process}/status") as facts:
            return all(int(mask, 16) & bit == 0
                       for mask in re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)", facts.read()))
    check(mounted.wait_until(is_taken), "a mount in the background takes no signals")


def answered(path):
    """What a program reads; a mount that does not answer is a failure."""
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as program:
        out = []
        reader = threading.Thread(target=lambda: out.append(program.stdout.read()))
        reader.start()
        reader.join(LONG)
        check(not reader.is_alive(), f"{path}: no answer")
        return out[0]


def in_the_background(policy):
    """A mount that goes on in the background reads through its buffer too, also after it was asked
    what it did."""
    source, point, _ = mounted.folders()
    content = random.Random(1).randbytes(4 << 20)
    (source / "f").write_bytes(content)
    subprocess.run([mounted.PROGRAM, "mount", "--background", "--quiet",
                    *mounted.buffer_flags(policy, "8MiB", "8MiB"), str(source), str(point)],
                   stdin=subprocess.DEVNULL, check=True)
    server = server_of(point)
    try:
        for i in range(4):
            before = bytes_read_by(server)
            check(answered(point / "f") == content, "a mount in the background gives other bytes")
            taken = bytes_read_by(server) - before
            check(i == 0 or taken < len(content) // 2,
                  f"pages were read again in the background: {taken} bytes")
            if i > 0:
                ask(server)
        mounted.unmount(point)
        check(mounted.wait_until(lambda: not pathlib.Path(f"/proc/{server}").exists()),
              "a mount in the background does not end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
        if mounted.is_mounted(point):
            subprocess.run(["umount", "-l", str(point)], check=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", default="gram")
    policy = parser.parse_args().policy
    mounted.need_fuse()
    for test in (compare_policies, changes_are_seen, mappings_and_reads_agree,
                 writers_see_their_writes, appended_records_are_whole,
                 appends_where_others_cut_are_seen, source_changes, many_files, in_the_background):
        test(policy)
        print(f"{test.__name__}: as it must be")


main()
