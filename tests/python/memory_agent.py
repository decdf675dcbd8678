#!/usr/bin/env python3
"""An agent for tests, which keeps blocks in its own memory: memory_agent.py SOCKET [MANNER].

MANNER: honest; flips (a byte of each object that it hands out is wrong); hangs (never answers a
get); fails (every call of the engine fails); falters (refuses two of three blocks that are put);
refuses (every block that is put, and says so)."""
import ctypes
import errno
import sys
import threading

from penstock import agent


class Memory:
    def __init__(self, manner):
        self.manner = manner
        self.lock = threading.Lock()
        self.objects, self.claimed = {}, set()
        self.puts = 0

    def attach(self, address, size):
        return 0

    def detach(self, address, size):
        pass

    def get(self, key, address, room):
        if self.manner == "hangs":
            threading.Event().wait()
        if self.manner == "fails":
            return -errno.EIO
        found = self.objects.get(key)
        if found is None:
            return -errno.ENOENT
        if self.manner == "flips":
            found = found[:100] + bytes([found[100] ^ 1]) + found[101:]
        ctypes.memmove(address, found, len(found))
        return len(found)

    def put(self, key, address, size, replaces):
        if self.manner == "fails":
            raise OSError("as told")
        self.puts += 1
        if self.manner == "refuses":
            print("memory_agent: refused", flush=True)
            return -errno.EIO
        if self.manner == "falters" and self.puts % 3 != 0:
            return -errno.EIO
        if replaces or key not in self.objects:
            self.objects[key] = ctypes.string_at(address, size)
        return 0

    def claim(self, key):
        with self.lock:
            is_first = key not in self.claimed
            self.claimed.add(key)
        return is_first

    def unclaim(self, key):
        with self.lock:
            self.claimed.discard(key)

    def close(self):
        pass


if __name__ == "__main__":
    manner = sys.argv[2] if len(sys.argv) > 2 else "honest"
    sys.exit(agent.run(lambda: Memory(manner), sys.argv[1]))
