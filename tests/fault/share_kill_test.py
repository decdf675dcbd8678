"""share_kill_test.py PROGRAM [RUNS [SEED]]: processes that share their caches are killed (SIGKILL)
and stopped (SIGSTOP) under load. The others read no wrong byte, wait for nothing for long, and let
go of the memory.

With the program for GPUs: SHARE_DEVICES=A,B has the process that stays on GPU A, and the others on
B, each hidden from the other; many at once take turns. SHARE_LONGEST_MS is how long one launch may
take, SHARE_PROCESSES how many there are at once. Without: PENSTOCK_TEST_CACHES is how many
caches each process has."""
import os
import pathlib
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

FILES, PAGES, PAGE = 6, 24, 4096
MASK = (1 << 64) - 1
# Of one open, read and close, or of one launch: far above what a busy machine takes.
LONGEST_MS = int(os.environ.get("SHARE_LONGEST_MS", 60_000))
DEVICES = os.environ.get("SHARE_DEVICES", "").split(",")
# Of each process. Each maps five pieces of its own and of each neighbour.
CACHES = int(os.environ.get("PENSTOCK_TEST_CACHES", 1))
PROCESSES = int(os.environ.get("SHARE_PROCESSES", 4))
PROGRAM = os.path.abspath(sys.argv.pop(1))
RUNS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 20
SEED = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 1


def mix64(x):
    """As penstock::mix64."""
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def content(seed):
    words = PAGES * PAGE // 8
    return struct.pack(f"<{words}Q", *(mix64(seed * 0x9E3779B97F4A7C15 + i) for i in range(words)))


def shared_maps(process):
    """How many pieces of memory of others or its own it has mapped by descriptors. Its page of
    statistics is none of them, and may come after its socket."""
    return sum("/memfd:penstock" in line and "penstock-statistics" not in line
               for line in pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines())


class Share(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for i in range(FILES):
            (self.folder / str(i)).write_bytes(content(i))
        self.sockets = self.folder / "penstock" / "kill"
        time.sleep(0.05)  # so that the files count as settled

    def start(self, *arguments, device=DEVICES[-1]):
        hidden = {"CUDA_VISIBLE_DEVICES": device} if device else {}
        process = subprocess.Popen([PROGRAM, arguments[0], str(self.folder),
                                    *map(str, arguments[1:])],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   env={**os.environ, **hidden,
                                        "XDG_RUNTIME_DIR": str(self.folder)})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def reader(self, seed, device=None):
        place = 0 if seed == 0 else -1
        return self.start("read", FILES, PAGES, seed, device=device or DEVICES[place])

    def linked(self, process):
        """Waits for the line that says so; the other end may have crashed."""
        ready, _, _ = select.select([process.stdout], [], [], 120)
        self.assertTrue(ready, "it has no neighbour")
        self.assertEqual(process.stdout.readline(), b"linked\n")

    def finish(self, process):
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        wrong, reads, near, longest = map(int, out.splitlines()[-1].split())
        self.assertEqual(wrong, 0, err)
        self.assertGreater(reads, 0)
        print(f"{reads} reads, {near} from neighbours, the longest took {longest} ms")
        self.assertLess(longest, LONGEST_MS)
        return near

    def until(self, condition):
        for _ in range(6000):
            if condition():
                return
            time.sleep(0.01)
        self.fail("it did not come true")

    def test_owner_killed_under_load(self):
        draw = random.Random(SEED)
        stays = self.reader(0)
        self.until(self.sockets.exists)
        self.until(lambda: len(list(self.sockets.iterdir())) == CACHES)
        if CACHES > 1:
            self.until(lambda: shared_maps(stays) == 5 * CACHES * CACHES)
        own = shared_maps(stays)
        for run in range(RUNS):
            victim = self.reader(run + 1)
            self.linked(victim)
            time.sleep(draw.random() * 0.05)
            self.assertIsNone(victim.poll(), "it had ended by itself")
            victim.kill()
            self.end(victim)
        # The memory of all of them is gone, without a word to the one that stayed.
        self.until(lambda: shared_maps(stays) == own)
        self.assertGreater(self.finish(stays), 0)

    def test_many_at_once(self):
        draw = random.Random(SEED)
        all_of_them = [self.reader(i, DEVICES[i % len(DEVICES)]) for i in range(PROCESSES)]
        for process in all_of_them:
            self.linked(process)
        for run in range(RUNS // 2):
            place = draw.randrange(len(all_of_them))
            all_of_them[place].send_signal(signal.SIGKILL)
            self.end(all_of_them[place])
            all_of_them[place] = self.reader(100 + run, DEVICES[place % len(DEVICES)])
            self.linked(all_of_them[place])
        for process in all_of_them:
            self.finish(process)

    def test_stopped_neighbour_holds_nothing_up(self):
        (self.folder / "versions").write_bytes(bytes(24 * PAGE))
        stays, stopped = self.reader(0), self.reader(1)
        self.linked(stays)
        self.linked(stopped)
        stopped.send_signal(signal.SIGSTOP)
        writer = self.start("rewrite", 5)
        out, err = writer.communicate(timeout=300)
        self.assertEqual(writer.returncode, 0)
        self.assertEqual(out.split()[0], b"0")
        stopped.send_signal(signal.SIGCONT)
        self.finish(stays)
        self.finish(stopped)

    def test_versions_never_go_back(self):
        (self.folder / "versions").write_bytes(
            struct.pack(f"<{24 * PAGE // 8}Q", *range(24 * PAGE // 8)))
        time.sleep(0.05)
        followers = [self.start("follow") for _ in range(3)]
        for process in followers:
            self.linked(process)
        writer = self.start("rewrite", 2 * RUNS)
        out, err = writer.communicate(timeout=600)
        self.assertEqual((writer.returncode, out.split()[0]), (0, b"0"), err)
        for process in followers:
            self.finish(process)


if subprocess.run([PROGRAM], check=False).returncode == 77:
    sys.exit(77)  # for a GPU, and there is none
unittest.main()
