"""What figures 4, 5 and 6 of the paper on GRAM and DEDU (ICCS 2011) are measurements of: workloads,
runs, and which points they give.

Sizes are in Ki pages as in the paper, of 4 KiB each; a scale makes all of them, and the number of
accesses, smaller by one factor. What the text leaves open is chosen here: the sizes along the axes,
and the virtual machines' traces, which are made (machines that read their images, hot pages first,
most of them common)."""
import dataclasses
from fractions import Fraction

KI = 1024
PAGE_BYTES = 4096
HOST, DEVICE, WORKING_SET, ACCESSES, FACTOR = 64, 64, 640, 4_000_000, 4
DEVICE_SIZES = [32, 64, 96, 128, 256, 384, 512, 576, 596, 640]
WORKING_SETS = [64, 128, 256, 512, 640, 1024, 2048]
FACTORS = [1, 2, 3, 4, 5, 6, 8, 10]
UPDATES = [0, 4, 8, 16, 32, 48, 64]
MACHINES = [1, 2, 4, 8, 12]
IMAGE, COMMON_PERCENT, SKEW = 64, 80, 0.9
LEAST_DEVICE_PAGES = 2  # the smallest part that the program takes
LEAST_SCALE = Fraction(1, 4096)  # below it the sizes along an axis fall together


@dataclasses.dataclass(frozen=True)
class Workload:
    """A trace and its files. With machines, each has an image of so many pages."""
    pages: int
    accesses: int
    factor: float = 1
    writes: int = 0
    machines: int = 0

    def arguments(self):
        given = ["--pages", self.pages, "--accesses", self.accesses, "--factor", self.factor,
                 "--writes", self.writes, "--page", PAGE_BYTES]
        return (given + (["--machines", self.machines, "--common", COMMON_PERCENT, "--pattern",
                          "zipf", "--skew", SKEW]
                         if self.machines else []))

    def data_bytes(self):
        return self.pages * PAGE_BYTES * max(self.machines, 1)


@dataclasses.dataclass(frozen=True)
class Run:
    """A workload played once through a buffer."""
    workload: Workload
    policy: str
    host_pages: int
    device_pages: int

    def arguments(self):
        sizes = ["--policy", self.policy, "--ram", self.host_pages * PAGE_BYTES]
        return (sizes
                + (["--gpu", self.device_pages * PAGE_BYTES] if self.policy != "native" else []))


@dataclasses.dataclass(frozen=True)
class Point:
    """A mark of a curve. `base`: the run that a utility is against; without it the point is what an
    access costs."""
    figure: str
    curve: str
    x: float | None  # None: the same along the whole axis
    run: Run
    base: Run | None = None


# Title, and what is along the axis.
FIGURES = {
    "4a": ("Cost of an access, by device memory", "device memory, Ki pages of the paper"),
    "4b": ("Utility of device memory, by its size", "device memory, Ki pages of the paper"),
    "4c": ("Cost of an access, by working set", "working set, Ki pages of the paper"),
    "5a": ("Cost of an access, by deduplication factor", "deduplication factor"),
    "5b": ("Cost of an access, by device memory, factor 4", "device memory, Ki pages of the paper"),
    "5c": ("Utility of device memory, by its size, factor 4",
           "device memory, Ki pages of the paper"),
    "5d": ("Cost of an access, by share of updates", "accesses that write, %"),
    "6": ("Several virtual machines of one system", "virtual machines"),
}
UTILITIES = {"4b", "5c"}
HOST_ALONE = "dedu, host alone"


class Plan:
    """All points of the wanted figures at one scale; runs that several of them need are there
    once."""

    def __init__(self, figures, scale, policies):
        self.scale, self.policies, self.points = scale, policies, []
        for name in figures:
            getattr(self, f"figure_{name}")(name)

    def pages(self, ki_pages):
        return round(ki_pages * KI * self.scale)

    def runs(self):
        """{workload: its runs}, in the order of the figures."""
        found = {}
        for point in self.points:
            for run in (point.base, point.run):
                if run is not None and run not in found.setdefault(run.workload, []):
                    found[run.workload].append(run)
        return found

    def load(self, working_set=WORKING_SET, factor=FACTOR, writes=0):
        return Workload(self.pages(working_set), round(ACCESSES * self.scale), factor, writes)

    def run(self, load, policy, device=DEVICE):
        return Run(load, policy, self.pages(HOST), 0 if policy == "native" else self.pages(device))

    def add(self, figure, curve, x, run, base=None):
        if run.policy in self.policies:
            self.points.append(Point(figure, curve, x, run, base))

    def by_device_memory(self, figure, policies, utility=False):
        load = self.load()
        native = self.run(load, "native")
        if not utility:
            self.add(figure, "native", None, native)
        for policy in policies:
            for size in DEVICE_SIZES:
                self.add(figure, policy, size, self.run(load, policy, size),
                         native if utility else None)

    def figure_4a(self, name):
        self.by_device_memory(name, ["gram"])

    def figure_4b(self, name):
        self.by_device_memory(name, ["gram"], utility=True)

    def figure_4c(self, name):
        for size in WORKING_SETS:
            for policy in ("native", "gram"):
                self.add(name, policy, size, self.run(self.load(working_set=size), policy))

    def figure_5a(self, name):
        for policy in ("native", "gram"):  # which know nothing of contents
            self.add(name, policy, None, self.run(self.load(), policy))
        for factor in FACTORS:
            self.add(name, "dedu", factor, self.run(self.load(factor=factor), "dedu"))

    def figure_5b(self, name):
        self.by_device_memory(name, ["gram", "dedu"])

    def figure_5c(self, name):
        self.by_device_memory(name, ["gram", "dedu"], utility=True)

    def figure_5d(self, name):
        for share in UPDATES:
            for policy in ("gram", "dedu"):
                self.add(name, policy, share, self.run(self.load(writes=share), policy))

    def figure_6(self, name):
        for machines in MACHINES:
            load = Workload(self.pages(IMAGE), round(ACCESSES * self.scale), machines=machines)
            for policy in ("native", "gram", "dedu"):
                self.add(name, policy, machines, self.run(load, policy))
            self.add(name, HOST_ALONE, machines,
                     Run(load, "dedu", self.pages(HOST), LEAST_DEVICE_PAGES))
