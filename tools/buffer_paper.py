"""The paper on GRAM and DEDU (ICCS 2011): what its figures 4, 5 and 6 are measurements of, and what
its text says of them in numbers, beside what came out here. Its plots have more, which are not read
off.

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
    """A trace and its files. With machines, each has an image of so many pages. The n-th hottest
    page is taken as 1/n^skew; without a skew each is as likely as every other."""
    pages: int
    accesses: int
    factor: float = 1
    writes: int = 0
    machines: int = 0
    skew: float = 0

    def arguments(self):
        flags = ["--pages", self.pages, "--accesses", self.accesses, "--factor", self.factor,
                 "--writes", self.writes, "--page", PAGE_BYTES]
        return (flags
                + (["--machines", self.machines, "--common", COMMON_PERCENT]
                   if self.machines else [])
                + (["--pattern", "zipf", "--skew", self.skew] if self.skew else []))

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
    once. `skew`: of the accesses of figures 4 and 5, which are uniform without."""

    def __init__(self, figures, scale, policies, skew=0):
        self.scale, self.policies, self.skew, self.points = scale, policies, skew, []
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
        return Workload(self.pages(working_set), round(ACCESSES * self.scale), factor, writes,
                        skew=self.skew)

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
            load = Workload(self.pages(IMAGE), round(ACCESSES * self.scale), machines=machines,
                            skew=SKEW)
            for policy in ("native", "gram", "dedu"):
                self.add(name, policy, machines, self.run(load, policy))
            self.add(name, HOST_ALONE, machines,
                     Run(load, "dedu", self.pages(HOST), LEAST_DEVICE_PAGES))


class Rows:
    """The points of a result, by figure and curve."""

    def __init__(self, results):
        self.curves = {}
        for row in results:
            if row["value"] is not None:
                self.curves.setdefault((row["figure"], row["curve"]), {})[row["x"]] = row

    def curve(self, figure, name, key="value"):
        """{x: value}; a curve that is the same along the whole axis has the one key None."""
        return {x: row[key] for x, row in self.curves.get((figure, name), {}).items()
                if row.get(key) is not None}

    def pairs(self, figure, name, base):
        """(x, value, value of base there), in order."""
        own, other = self.curve(figure, name), self.curve(figure, base)
        return sorted((x, value, other.get(x, other.get(None))) for x, value in own.items()
                      if x is not None and other.get(x, other.get(None)) is not None)

    def fits_from(self, figure, name):
        """The smallest x from which on a page is read from the disk only where it is met first."""
        rows = self.curves.get((figure, name), {})
        fitting = [x for x in sorted(x for x in rows if x is not None)
                   if rows[x]["misses"] == rows[x]["distinct_pages"]]
        return fitting[0] if fitting else None


def most_saved(pairs):
    """(percent less than the base, x) where that is most."""
    return max(((100 * (1 - value / base), x) for x, value, base in pairs if base),
               default=(None, None))


def steps_down(curve):
    """How many of the steps along the axis go down; None where there is none."""
    values = [curve[x] for x in sorted(x for x in curve if x is not None)]
    return (f"{sum(b < a for a, b in zip(values, values[1:]))} of {len(values) - 1} steps"
            if len(values) > 1 else None)


def above(pairs):
    return (f"{sum(value > base for _, value, base in pairs)} of {len(pairs)} points" if pairs
            else None)


def crossing(pairs):
    """[the last x where dedu costs less, the first where it does not]; None if they do not cross
    once."""
    costs_less = [value < base for _, value, base in pairs]
    if True not in costs_less or costs_less != sorted(costs_less, reverse=True) or all(costs_less):
        return None
    at = costs_less.index(False)
    return [pairs[at - 1][0], pairs[at][0]]


def increase(pairs, x):
    return next((100 * (value / base - 1) for at, value, base in pairs if at == x and base), None)


NOT_GIVEN = "not given"
NO_PLACE = "the text gives it for all synthetic workloads, and not where"


def percent(share):
    return None if share is None else 100 * share


def claims(results):
    """[{figure, what, unit, paper, ours, note}]; `ours` is None where the result has no such
    points."""
    rows = Rows(results)
    by_working_set = most_saved(rows.pairs("4c", "gram", "native"))
    sharing = rows.curve("6", "dedu", "sharing_ratio")
    alone = rows.curve("6", "dedu, host alone", "sharing_ratio")
    said = [
        ("4a", "device memory from which the working set fits", "Ki pages", 596,
         rows.fits_from("4a", "gram"),
         "its working set is 640 and its host memory 64, so 576 should do"),
        ("4a", "gram costs less than native, at most", "%", 83,
         most_saved(rows.pairs("4a", "gram", "native"))[0], NO_PLACE),
        ("4a", "share of transfers over the bus in the cost, below", "%", 1,
         percent(rows.curve("4a", "gram", "device_cost_share").get(DEVICE)),
         "of the time that threads wait for pages that the host lacks; with copies and calls"),
        ("4b", "utility goes down as device memory grows", "", NOT_GIVEN,
         steps_down(rows.curve("4b", "gram")), "it goes down, says the text, without numbers"),
        ("4c", "gram costs less than native, at most", "%", 90, by_working_set[0], ""),
        ("4c", "working set where it saves most", "Ki pages", 128, by_working_set[1], ""),
        ("5a", "dedu costs more than gram at factor 1", "%", 5,
         increase(rows.pairs("5a", "dedu", "gram"), 1), ""),
        ("5a", "factor from which the data fits", "", 5, rows.fits_from("5a", "dedu"), ""),
        ("5a", "dedu costs less than gram, at most", "%", 81,
         most_saved(rows.pairs("5a", "dedu", "gram"))[0], NO_PLACE),
        ("5b", "device memory from which the working set fits", "Ki pages", NOT_GIVEN,
         rows.fits_from("5b", "dedu"), "640 / 4 - 64 = 96 should do"),
        ("5c", "utility of dedu above gram's", "", NOT_GIVEN,
         above(rows.pairs("5c", "dedu", "gram")), "it is above, says the text, without numbers"),
        ("5c", "utility of dedu goes down as device memory grows", "", NOT_GIVEN,
         steps_down(rows.curve("5c", "dedu")), "it goes down, says the text, without numbers"),
        ("5d", "share of updates between which gram begins to cost less than dedu", "%", [32, 64],
         crossing(rows.pairs("5d", "dedu", "gram")), ""),
        ("6", "sharing ratio with device memory, at most", "%", 40,
         100 * max(sharing.values()) if sharing else None,
         "of traces from Xen, which are not to be had"),
        ("6", "sharing ratio without it, at most", "%", NOT_GIVEN,
         100 * max(alone.values()) if alone else None, ""),
        ("6", "dedu costs less than native, at most", "%", 68,
         most_saved(rows.pairs("6", "dedu", "native"))[0],
         "of traces from Xen, which are not to be had"),
    ]
    return [{"figure": figure, "what": quantity, "unit": unit, "paper": paper,
             "ours": round(ours, 2) if isinstance(ours, float) else ours, "note": note}
            for figure, quantity, unit, paper, ours, note in said]


def table(beside):
    lines = [f"{'figure':<8}{'what':<68}{'paper':>12}{'ours':>16}"]
    for claim in beside:
        shown = ["-" if value is None else "{} to {}".format(*value) if isinstance(value, list)
                 else str(value)
                 for value in (claim["paper"], claim["ours"])]
        unit = f", {claim['unit']}" if claim["unit"] else ""
        lines.append(f"{claim['figure']:<8}{claim['what'] + unit:<68}{shown[0]:>12}{shown[1]:>16}")
    return "\n".join(lines)
