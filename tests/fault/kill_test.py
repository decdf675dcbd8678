"""kill_test.py PROGRAM [RUNS [SEED]]: a process that writes through a runtime is killed in the
middle (SIGKILL); everything that an fsync acknowledged is in its files. In the full run 200 times.

A killed process, and no power cut: what fsync brought as far as the operating system would pass as
well. """
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

RECORD_BYTES = 100


def record_of(thread, number):
    text = f"{thread:02d} {number:010d} "
    while len(text) < RECORD_BYTES - 1:
        text += chr(ord("a") + (len(text) + number + thread) % 26)
    return (text + "\n").encode()


def run_and_kill(program, folder, threads, delay_s, *options):
    """Starts the program, kills it `delay_s` after its first acknowledgement, and returns what it
    acknowledged."""
    with subprocess.Popen([program, "records", folder, str(threads), *options],
                          stdout=subprocess.PIPE) as process:
        first = process.stdout.readline()
        assert first, f"the program ended by itself with status {process.wait()}"
        # Read on meanwhile: a full pipe would hold the program up.
        killer = subprocess.Popen(["sleep", str(delay_s)])
        lines = [first]
        while killer.poll() is None:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        assert process.wait() == -signal.SIGKILL, f"it had ended by itself: {process.returncode}"
    return [line.decode().split() for line in lines if line.endswith(b"\n")]


def missing(folder, threads, acknowledged):
    """How many records were acknowledged, and what is not there."""
    file = pathlib.Path(folder, "file").read_bytes()
    log = pathlib.Path(folder, "log").read_bytes()
    count, wrong = 0, []
    for thread, first, last, *offsets in acknowledged:
        thread, numbers = int(thread), range(int(first), int(last) + 1)
        assert len(offsets) == len(numbers)
        for number, offset in zip(numbers, map(int, offsets)):
            count += 1
            wanted = record_of(thread, number)
            at = (number * threads + thread) * RECORD_BYTES
            if file[at:at + RECORD_BYTES] != wanted:
                wrong.append(f"record {number} of thread {thread} at byte {at} of file")
            if log[offset:offset + RECORD_BYTES] != wanted:
                wrong.append(f"record {number} of thread {thread} at byte {offset} of log")
    return count, wrong


def main():
    program = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns() % 1000000
    print(f"seed {seed}")
    chance = random.Random(seed)
    total = 0
    for number in range(runs):
        threads = chance.choice((1, 2, 3, 5))
        delay_s = chance.uniform(0, 0.08)
        with tempfile.TemporaryDirectory(prefix="penstock-kill-") as folder:
            count, wrong = missing(folder, threads, run_and_kill(program, folder, threads, delay_s))
        if wrong:
            sys.exit(f"run {number}, {threads} threads, killed after {delay_s * 1000:.0f} ms: "
                     f"{len(wrong)} of {count} acknowledged records are missing, the first is "
                     f"{wrong[0]}")
        total += count
    # The check can fail: without fsync most of it is still in the runtime's cache.
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as folder:
        count, wrong = missing(folder, 2, run_and_kill(program, folder, 2, 0.02, "unsynced"))
    if not wrong:
        sys.exit(f"{count} records were acknowledged without fsync, and none is missing: this test "
                 "sees nothing")
    print(f"{runs} kills, {total} acknowledged records, none missing; without fsync {len(wrong)} "
          f"of {2 * count} were")


main()
