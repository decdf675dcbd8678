"""What the tests of penstock-sssp share: graphs in files as docs/apps/sssp.md gives them, distances
found without any package, and running a program."""
import array
import contextlib
import heapq
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "apps"))
from program_support import (  # noqa: F401, E402
    backend_flags, dice_from, must_run, refuse, require)

PAGE, UNREACHABLE = 4096, 0xffffffff
HEADER = "<8sIIQQQQQ"

# Where more is built and tested than there are processors, a thread may stand still for longer than
# the default allows.
os.environ.setdefault("PENSTOCK_HOST_WAIT_MS", "20000")


def methods():
    """All that there are; penstock comes first."""
    return "penstock,copy,managed,cpu" if "gpu" in backend_flags() else "penstock,copy,cpu"


def has_fuse():
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/fuse", os.O_RDWR))
        return True
    return False


def mount_flags():
    return [] if has_fuse() else ["--no-mount"]


def must_report(program, *arguments):
    """The one JSON object that the program prints."""
    done = must_run(program, *arguments, "--json", "--quiet")
    require(done.stderr == b"", f"{arguments} --quiet said {done.stderr!r}")
    require(done.stdout.count(b"\n") == 1, f"{arguments}: not one line: {done.stdout!r}")
    return json.loads(done.stdout)


def whole_pages(size):
    return -(-size // PAGE) * PAGE


class Graph:
    """Offsets, targets and weights."""

    def __init__(self, offsets, targets, weights):
        self.offsets, self.targets, self.weights = offsets, targets, weights

    @staticmethod
    def of_lists(lists):
        """For each vertex its edges: pairs of target and weight."""
        offsets, targets, weights = [0], [], []
        for edges in lists:
            targets += [target for target, _ in edges]
            weights += [weight for _, weight in edges]
            offsets.append(len(targets))
        return Graph(offsets, targets, weights)

    def places(self):
        """Where offsets and edges begin, and the size of the file."""
        edges_at = PAGE + whole_pages(8 * len(self.offsets))
        return PAGE, edges_at, edges_at + whole_pages(8 * len(self.targets))

    def data(self):
        vertices, edges = len(self.offsets) - 1, len(self.targets)
        offsets_at, edges_at, size = self.places()
        out = bytearray(size)
        struct.pack_into(HEADER, out, 0, b"PSTKSSSP", 1, PAGE, vertices, edges, offsets_at,
                         edges_at, size)
        out[offsets_at:offsets_at + 8 * (vertices + 1)] = array.array("Q", self.offsets).tobytes()
        pairs = array.array("I", [0]) * (2 * edges)
        pairs[0::2], pairs[1::2] = array.array("I", self.targets), array.array("I", self.weights)
        out[edges_at:edges_at + 8 * edges] = pairs.tobytes()
        return out

    def distances(self, source):
        out = array.array("I", [UNREACHABLE]) * (len(self.offsets) - 1)
        out[source] = 0
        waiting = [(0, source)]
        while waiting:
            distance, vertex = heapq.heappop(waiting)
            if distance > out[vertex]:
                continue
            for edge in range(self.offsets[vertex], self.offsets[vertex + 1]):
                target, nearer = self.targets[edge], distance + self.weights[edge]
                if nearer < out[target]:
                    out[target] = nearer
                    heapq.heappush(waiting, (nearer, target))
        return out


def write_graph(path, graph):
    with open(path, "wb") as file:
        file.write(graph.data())
    return path


def read_graph(path):
    """As docs/apps/sssp.md has it; everything in the header is what follows from the counts."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, header, vertices, edges, offsets_at, edges_at, size = struct.unpack_from(
        HEADER, data)
    offsets = array.array("Q", data[offsets_at:offsets_at + 8 * (vertices + 1)])
    pairs = array.array("I", data[edges_at:edges_at + 8 * edges])
    graph = Graph(offsets, pairs[0::2], pairs[1::2])
    require((magic, version, header) == (b"PSTKSSSP", 1, PAGE)
            and (offsets_at, edges_at, size) == graph.places() and len(data) == size,
            f"{path}: a header of another form")
    return graph


def read_distances(path):
    out = array.array("I")
    with open(path, "rb") as file:
        out.frombytes(file.read())
    return out
