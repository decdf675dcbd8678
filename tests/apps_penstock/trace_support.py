"""What docs/apps/traces.md says, written again in Python for the tests of penstock trace."""
import json
import struct

from support import InFolder, penstock

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x &= MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def stretch_content(distinct, seed, part, page):
    return ((page % distinct + mix(mix(mix(seed + GOLDEN) + part) + page // distinct) % distinct)
            % distinct)


def made_content(contents, file, page):
    if contents["common_pages"] == 0 and contents["own_distinct"] == 0:
        return stretch_content(contents["distinct"], contents["seed"], file + 1, page)
    if page < contents["common_pages"]:
        return stretch_content(contents["common_distinct"], contents["seed"], 0, page)
    own = contents["own_distinct"]
    return (contents["common_distinct"] + file * own
            + stretch_content(own, contents["seed"], file + 1, page - contents["common_pages"]))


def page_of(content, page_bytes):
    first, words = mix(content + GOLDEN), []
    for at in range(0, page_bytes, 64):
        second = mix(first + at + GOLDEN)
        words += [first, second] + [mix(second + i * GOLDEN) for i in range(2, 8)]
    return struct.pack(f"<{len(words)}Q", *words)


class Traces(InFolder):
    """Runs penstock trace in a folder of its own."""

    def trace(self, *arguments):
        """What the command reports, as JSON."""
        ran = penstock("trace", *arguments, "--json", cwd=self.folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stderr, b"")
        return json.loads(ran.stdout)

    def refused(self, status, arguments, *parts, left=()):
        """One line with these parts, and nothing in the folder but the files in `left`."""
        ran = penstock("trace", *arguments, cwd=self.folder)
        self.assertEqual(ran.returncode, status, (arguments, ran.stderr))
        self.assertEqual(ran.stdout, b"")
        self.assert_one_line(ran.stderr, *parts)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(left))

    def records(self, name):
        """(time, operation, file, page, pages, content or None) of each record of a text."""
        lines = (self.folder / name).read_text().split("\n")
        rows = [line.split() for line in lines[lines.index("") + 1:-1]]
        return [(int(r[0]), r[1], int(r[2]), int(r[3]), int(r[4]),
                 int(r[5]) if len(r) > 5 else None)
                for r in rows]
