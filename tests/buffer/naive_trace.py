"""Random traces in the text form of docs/apps/traces.md, and their accesses as the naive buffer
takes them."""
import random

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    """mix64 of penstock/base/hash.hpp."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def in_stretches(distinct, seed, part, page):
    start = (mix((mix((mix((seed + GOLDEN) & MASK) + part) & MASK) + page // distinct) & MASK)
             % distinct)
    return (start + page) % distinct


class Trace:
    """Two or three files; uniform or skewed reads and writes of one to four pages, and flushes.
    contents: "none", "plain" or "images"."""

    def __init__(self, seed, accesses, contents):
        self.dice = random.Random(seed)
        self.seed, self.page_bytes = seed, self.dice.choice([512, 4096])
        self.pages = [self.dice.randrange(20, 60) for _ in range(self.dice.choice([2, 3]))]
        self.distinct = 0 if contents == "none" else self.dice.choice([7, 30, 90])
        self.common, self.own = (15, 8) if contents == "images" else (0, 0)
        self.skewed, self.share_of_writes = (self.dice.random() < 0.5,
                                             self.dice.choice([0.0, 0.1, 0.5]))
        self.records = []           # (kind, file, page, pages, content or None)
        while sum(record[3] for record in self.records) < accesses:
            self.records.append(self.drawn())

    def drawn(self):
        dice, file = self.dice, self.dice.randrange(len(self.pages))
        page = (min(int(dice.expovariate(8 / self.pages[file])), self.pages[file] - 1)
                if self.skewed else dice.randrange(self.pages[file]))
        pages = min(dice.choice([1, 1, 1, 2, 4]), self.pages[file] - page)
        if dice.random() < 0.01:
            return "F", file, 0, 0, None
        if dice.random() < self.share_of_writes:
            return "W", file, page, pages, dice.choice([None, dice.randrange(100)])
        return "R", file, page, pages, None

    def text(self):
        lines = ["penstock-trace 1", f"page {self.page_bytes}",
                 *(f"file {number} {pages} some/{number}.file"
                   for number, pages in enumerate(self.pages))]
        if self.own:
            lines += [f"contents {self.distinct + len(self.pages) * self.own} {self.seed}",
                      f"common {self.common} {self.distinct} {self.own}"]
        elif self.distinct:
            lines.append(f"contents {self.distinct} {self.seed}")
        lines.append("")
        lines += [
            f"{100 * time} {kind} {file} {page} {pages}{'' if content is None else f' {content}'}"
            for time, (kind, file, page, pages, content) in enumerate(self.records)]
        return "\n".join(lines) + "\n"

    @staticmethod
    def read(text, seed):
        """A trace that was made elsewhere. The seed decides what else a test draws."""
        self = Trace(seed, 0, "none")
        head, records = text.split("\n\n", 1)
        lines = [line.split() for line in head.splitlines() if not line.startswith("#")]
        words = {line[0]: [int(word) for word in line[1:]] for line in lines
                 if line[0] in ("page", "contents", "common")}
        self.page_bytes, self.pages = (words["page"][0],
                                       [int(line[2]) for line in lines if line[0] == "file"])
        self.distinct, self.seed = words.get("contents", (0, 0))
        if "common" in words:
            self.common, self.distinct, self.own = words["common"]
        for _, kind, *numbers in map(str.split, records.splitlines()):
            file, page, pages, *content = map(int, numbers)
            self.records.append((kind, file, page, pages, *(content or [None])))
        return self

    def first_content(self, file, page):
        if not self.own:
            return in_stretches(self.distinct, self.seed, file + 1, page) if self.distinct else None
        if page < self.common:
            return in_stretches(self.distinct, self.seed, 0, page)
        return (self.distinct + file * self.own
                + in_stretches(self.own, self.seed, file + 1, page - self.common))

    def accesses(self):
        """(kind, (file, page), content number or None) of single pages, a read with what was last
        written; a flush with its file."""
        written = {}
        for kind, file, page, pages, content in self.records:
            if kind == "F":
                yield kind, (file, 0), None
            for name in ((file, page + i) for i in range(pages)):
                if kind == "W":
                    written[name] = None if content is None else content + name[1] - page
                yield kind, name, written[name] if name in written else self.first_content(*name)
