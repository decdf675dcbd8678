#!/usr/bin/env python3
"""Makes a trace for penstock replay of what another program recorded: the text that blkparse
prints, or a log of fio (version 2 or 3). docs/apps/traces.md has the format and what is skipped.

The input is read twice: once to find every mistake and how large the files are, and once to write
the trace, which appears whole or not at all. It is text; penstock trace convert makes it binary.
Exit status: 0 done, 1 failed, 2 wrong usage."""
import argparse
import collections
import contextlib
import json
import os
import re
import signal
import stat
import sys
import typing

from whole_output import Output, is_standard_output

MOST_FILE_BYTES = 1 << 62
MOST_FILES, MOST_PATH_BYTES, MOST_LINE_BYTES = 65536, 4095, 8192
MOST_NUMBER, MOST_DIGITS = (1 << 64) - 1, 20
LEAST_PAGE_BYTES, MOST_PAGE_BYTES = 512, 2 << 20
SECTOR_BYTES = 512
NS_PER_SECOND, NS_PER_US = 1000000000, 1000
EVENT = "; expected MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS ..."
ACCESS = "; expected PATH ACTION, or PATH ACTION OFFSET LENGTH"


class Wrong(Exception):
    """What is wrong with the input, and what was expected."""


class Stopped(BaseException):
    """A signal came, by its number."""


def shown(text: str) -> str:
    return "'" + "".join(c if c.isprintable() else "?" for c in text) + "'"


def number(word: str) -> int | None:
    """A whole number that is the whole word. int() refuses very long ones, zeros among them."""
    digits = word.lstrip("0") or "0"
    if not (word.isascii() and word.isdigit()) or len(digits) > MOST_DIGITS:
        return None
    value = int(digits)
    return value if value <= MOST_NUMBER else None


def next_line(file: typing.BinaryIO, path: str) -> bytes:
    """One byte more than a line may have, if it has too many; an error names the file."""
    try:
        return file.readline(MOST_LINE_BYTES + 2)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def lines_of(path: str) -> typing.Iterator[tuple[int, str]]:
    """The lines with their numbers, without their ends."""
    with open(path, "rb") as file:
        count = 0
        while line := next_line(file, path):
            count += 1
            why = ("" if line.endswith(b"\n") and len(line) <= MOST_LINE_BYTES + 1 else
                   f"has more than {MOST_LINE_BYTES:,} bytes; expected a text with short lines"
                   if len(line) > MOST_LINE_BYTES else
                   "has no line end, so the file was cut short; make it again, or end its last "
                   "line")
            if not why and b"\0" in line:
                why = "has a NUL byte; expected text"
            if why:
                raise Wrong(f"{shown(path)} line {count}: {why}")
            yield count, os.fsdecode(line[:-1])


class Sink:
    """Turns bytes into pages: finds how large the files are, and with an output writes records."""

    def __init__(self, page_bytes: int, out: typing.TextIO | None) -> None:
        self.page_bytes, self.out = page_bytes, out
        self.files: list[list[typing.Any]] = []  # path and pages
        self.counts: collections.Counter[str] = collections.Counter()
        self.skipped: collections.Counter[str] = collections.Counter()
        self.last_ns = 0

    def file(self, path: str) -> int:
        if len(self.files) == MOST_FILES:
            raise Wrong(f"more than {MOST_FILES:,} files")
        self.files.append([path, 0])
        return len(self.files) - 1

    def skip(self, why: str) -> None:
        self.skipped[why] += 1

    def access(self, letter: str, file: int, time_ns: int, offset: int, size: int) -> None:
        if offset + size > MOST_FILE_BYTES:
            raise Wrong("ends behind byte 2^62; no file is so long")
        first, end = offset // self.page_bytes, -(-(offset + size) // self.page_bytes)
        if end - first > 0xFFFFFFFF:
            raise Wrong(f"has {end - first:,} pages; a record has at most {0xFFFFFFFF:,}")
        if offset % self.page_bytes or size % self.page_bytes:
            self.counts["widened"] += 1
        self.files[file][1] = max(self.files[file][1], end)
        self.put(letter, file, time_ns, first, end - first)

    def flush(self, file: int, time_ns: int) -> None:
        self.put("F", file, time_ns, 0, 0)

    def put(self, letter: str, file: int, time_ns: int, page: int, pages: int) -> None:
        if time_ns < self.last_ns:
            self.counts["late"] += 1
        self.last_ns = max(self.last_ns, time_ns)
        self.counts[letter] += 1
        if self.out:
            self.out.write(f"{self.last_ns} {letter} {file} {page} {pages}\n")


class Blkparse:
    """The text that blkparse prints by default. A line is an event:

      MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS [SECTOR + SECTORS] ...

    RWBS begins with F if the caches are to be flushed before; then R, W, D (discard), N (nothing)
    or Z (zones), and letters that do not matter here. After the events comes a summary for people;
    before them, and between, may stand lines for people about files that are opened."""

    def __init__(self, action: str, device: str) -> None:
        self.action, self.device, self.is_chosen = action, device, bool(device)
        self.is_summary = False

    def take(self, line: str, to: Sink) -> None:
        words = line.split()
        if not words:
            return to.skip("empty lines")
        is_event = re.fullmatch(r"\d+,\d+", words[0], re.ASCII) is not None
        if not is_event:
            summary = re.match(r"(CPU\S*|Total|Throughput|Events) \(", line)
            if not (self.is_summary or summary or line.startswith("Input file")):
                raise Wrong(f"{shown(line[:80])} is no event{EVENT}")
            self.is_summary = self.is_summary or summary is not None
            return to.skip("lines for people")
        if self.is_summary:
            raise Wrong("an event behind the summary; expected what blkparse printed once")
        return self.take_event(words[0], [*words[1:], *[""] * 6], to)

    def take_event(self, device: str, words: list[str], to: Sink) -> None:
        cpu, sequence, time, process, action, flags = words[:6]
        for name, word in (("CPU", cpu), ("SEQUENCE", sequence)):
            if number(word) is None:
                raise Wrong(f"{name} {shown(word)} is no whole number{EVENT}")
        found = re.fullmatch(rf"0*(\d{{1,{MOST_DIGITS}}})\.(\d{{9}})", time, re.ASCII)
        time_ns = int(found[1]) * NS_PER_SECOND + int(found[2]) if found else MOST_NUMBER + 1
        if time_ns > MOST_NUMBER:
            raise Wrong(f"{shown(time)} is no time{EVENT}")
        if number(process) is None:
            raise Wrong(f"PID {shown(process)} is no whole number{EVENT}")
        if not action or not flags:
            raise Wrong(f"ends before ACTION and RWBS{EVENT}")
        if self.is_chosen and device != self.device:
            return to.skip("other devices")
        if action != self.action:
            return to.skip("other actions")
        self.device = self.device or device
        if device != self.device:
            raise Wrong(f"device {device} beside device {self.device}; choose one with --device")
        return self.take_sectors(flags, words[6:9], time_ns, to)

    def take_sectors(self, flags: str, words: list[str], time_ns: int, to: Sink) -> None:
        if not to.files:
            to.file("")  # its only one; the caller names it
        flushes = flags.startswith("F")
        flags = flags.removeprefix("F")
        if flushes:
            to.flush(0, time_ns)
        if words[1] != "+":
            return None if flushes else to.skip("without sectors")
        kind = "W" if flags.startswith("ZA") else flags[:1] or "N"
        if kind in "DZN":
            reason = {"D": "discards", "Z": "zones", "N": "without data"}[kind]
            return None if flushes else to.skip(reason)
        if kind not in "RW":
            raise Wrong(f"RWBS {shown(flags)} is unknown; expected R, W, D, N or Z, after F if it "
                        "flushes")
        first, count = number(words[0]), number(words[2])
        if first is None or count is None:
            raise Wrong(f"{shown(f'{words[0]} + {words[2]}')} are no sectors; expected SECTOR + "
                        "SECTORS, as whole numbers")
        if count == 0:
            return to.skip("without sectors")
        if max(first, count) > MOST_FILE_BYTES // SECTOR_BYTES:
            raise Wrong("ends behind byte 2^62; no device is so long")
        return to.access(kind, 0, time_ns, first * SECTOR_BYTES, count * SECTOR_BYTES)

    def finish(self) -> None:
        pass


class Fio:
    """fio's iolog. A line names the file, what is done, and for reads and writes where:

      [TIME_US] PATH add|open|close
      [TIME_US] PATH read|write|sync|datasync|sync_file_range|trim|wait OFFSET BYTES

    Version 3 has the time; in version 2, where it comes from `wait`, OFFSET are the microseconds
    after the last wait."""

    def __init__(self) -> None:
        self.version, self.now_us = 0, 0
        self.added: dict[str, int | None] = {}  # by path: its number, once it was accessed

    def take(self, line: str, to: Sink) -> None:
        if self.version == 0:
            found = re.fullmatch("fio version ([23]) iolog", line)
            if not found:
                raise Wrong(f"{shown(line[:80])} is not how a log of fio begins; expected 'fio "
                            "version 2 iolog' or 'fio version 3 iolog'")
            self.version = int(found[1])
            return None
        line, time_us = line.strip(" \t"), self.now_us
        if line and self.version == 3:
            word = re.split("[ \t]", line, maxsplit=1)[0]
            found_us, line = number(word), line[len(word):].strip(" \t")
            if found_us is None or found_us * NS_PER_US > MOST_NUMBER:
                raise Wrong(f"{shown(word)} is no time in microseconds; expected TIME PATH ACTION")
            time_us = found_us
        if not line:
            return to.skip("empty lines")
        path, last = self.split(line)
        if last in ("add", "open", "close"):
            return self.take_file(path, last, to)
        return self.take_access(line, time_us, to)

    @staticmethod
    def split(line: str) -> tuple[str, str]:
        """A line without its last word, and that word; a path may have blanks."""
        found = re.fullmatch(r"(.*?)[ \t]*([^ \t]*)", line, re.DOTALL)
        assert found
        return found[1], found[2]

    def take_file(self, path: str, action: str, to: Sink) -> None:
        if not path:
            raise Wrong(f"no file before {shown(action)}; expected PATH {action}")
        if action == "add":
            self.added.setdefault(path, None)
        elif path not in self.added:
            raise Wrong(f"{shown(path)} was not added before; expected a line PATH add")
        to.skip("add, open and close")

    def take_access(self, line: str, time_us: int, to: Sink) -> None:
        line, length = self.split(line)
        line, place = self.split(line)
        path, action = self.split(line)
        size, offset = number(length), number(place)
        if size is None:
            raise Wrong(f"{shown(length)} is no action, and no length{ACCESS}")
        if offset is None:
            raise Wrong(f"{shown(place)} is no offset{ACCESS}")
        if not path:
            raise Wrong(f"no file and action before the numbers{ACCESS}")
        if action == "wait":
            return self.take_wait(offset, to)
        if path not in self.added:
            raise Wrong(f"{shown(path)} was not added before; expected a line PATH add")
        if action == "trim":
            return to.skip("trims")
        if action not in ("read", "write", "sync", "datasync", "sync_file_range"):
            raise Wrong(f"{shown(action)} is no action; expected read, write, sync, datasync, "
                        "sync_file_range, trim or wait")
        if size == 0 and action in ("read", "write"):
            return to.skip("reads and writes of nothing")
        file = self.added[path]
        if file is None:
            file = self.added[path] = to.file(path)
        if action in ("read", "write"):
            return to.access(action[0].upper(), file, time_us * NS_PER_US, offset, size)
        return to.flush(file, time_us * NS_PER_US)

    def take_wait(self, us: int, to: Sink) -> None:
        if self.version != 2:
            raise Wrong("a wait in version 3, whose lines have times; expected none")
        if us > MOST_NUMBER // NS_PER_US - self.now_us:
            raise Wrong(f"a wait of {us} microseconds; expected less")
        self.now_us += us
        to.skip("waits")

    def finish(self) -> None:
        if self.version == 0:
            raise Wrong("is empty; expected a log of fio")


def read_all(wanted: argparse.Namespace, out: typing.TextIO | None) -> tuple[Sink, int]:
    """All lines of the input, once; how many there were."""
    sink, count = Sink(wanted.page, out), 0
    kind = Fio() if wanted.kind == "fio" else Blkparse(wanted.action or "Q", wanted.device)
    for count, line in lines_of(wanted.input):
        try:
            kind.take(line, sink)
        except Wrong as wrong:
            raise Wrong(f"{shown(wanted.input)} line {count}: {wrong}") from None
    try:
        kind.finish()
    except Wrong as wrong:
        raise Wrong(f"{shown(wanted.input)}: {wrong}") from None
    return sink, count


def settle_files(wanted: argparse.Namespace, sink: Sink) -> None:
    """Gives the files their names and sizes."""
    if wanted.file:
        if len(sink.files) > 1:
            raise Wrong(f"{shown(wanted.input)}: has accesses to {len(sink.files)} files, so "
                        "--file cannot name one; leave it out")
        sink.files[0][0] = wanted.file
    for entry in sink.files:
        path, pages = entry[0], max(1, entry[1])
        if len(os.fsencode(path)) > MOST_PATH_BYTES or "\n" in path or path.strip(" \t") != path:
            raise Wrong(f"the file's name: {shown(path[:80])} cannot stand in a trace; name the "
                        "file otherwise")
        if wanted.pages and pages > wanted.pages:
            raise Wrong(f"--pages: {wanted.pages} is too few, since {shown(path)} is accessed up "
                        f"to page {pages - 1}; give at least {pages}")
        entry[1] = wanted.pages or pages


def import_trace(wanted: argparse.Namespace) -> dict[str, typing.Any]:
    if not stat.S_ISREG(os.stat(wanted.input).st_mode):
        raise Wrong(f"{shown(wanted.input)}: is no regular file, and is read twice; copy it to one")
    if os.path.exists(wanted.out) and os.path.samefile(wanted.input, wanted.out):
        raise Wrong(f"output file {shown(wanted.out)}: is the input; give another name")
    first, lines = read_all(wanted, None)
    if not first.counts["R"] + first.counts["W"] + first.counts["F"]:
        more = (f" with the action {wanted.action or 'Q'}; give the right --action, or another "
                "input" if wanted.kind == "blkparse" else "; give another input")
        raise Wrong(f"{shown(wanted.input)}: has no read, write or flush{more}")
    settle_files(wanted, first)
    with Output(wanted.out) as out:
        text = out.begin()
        text.write(f"penstock-trace 1\npage {wanted.page}\n")
        text.writelines(f"file {i} {pages} {path}\n" for i, (path, pages) in enumerate(first.files))
        text.write("\n")
        again, _ = read_all(wanted, text)
        if again.counts != first.counts or len(again.files) != len(first.files):
            raise Wrong(f"{shown(wanted.input)}: changed while it was read; run again when no "
                        "program writes to it")
        out.commit()
    counts = first.counts
    return {"input": wanted.input, "trace": wanted.out, "lines": lines, "reads": counts["R"],
            "writes": counts["W"], "flushes": counts["F"], "widened": counts["widened"],
            "late": counts["late"], "skipped": dict(first.skipped), "page_bytes": wanted.page,
            "files": [{"path": path, "pages": pages} for path, pages in first.files]}


def page_size(text: str) -> int:
    found = re.fullmatch(r"(\d+)(?:([KM])(?:iB)?)?", text)
    size = int(found[1]) * {None: 1, "K": 1024, "M": 1 << 20}[found[2]] if found else 0
    if not LEAST_PAGE_BYTES <= size <= MOST_PAGE_BYTES or size & (size - 1):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no size of a page; give a power of two "
                                         "from 512 to 2MiB")
    return size


def page_count(text: str) -> int:
    count = number(text)
    if not count:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no number of pages; give one above 0")
    return count


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # if standard error is gone, this cannot be said either
        os.write(2, os.fsencode(f"trace_import: {text}\n"))


def print_all(text: str) -> int:
    """On standard output, past Python's buffer, whose errors would come after the last line of the
    program. The exit status."""
    left = os.fsencode(text)
    try:
        while left:
            left = left[os.write(1, left):]
    except BrokenPipeError:
        return 1  # the reader has what it wanted
    except OSError as error:
        say(f"standard output: {error.strerror}; the report is incomplete")
        return 1
    return 0


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        say(message)
        sys.exit(2)

    def print_help(self, file: object = None) -> None:
        sys.exit(print_all(self.format_help()))


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="trace_import", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="file with what was recorded")
    parser.add_argument("--from", dest="kind", required=True, help="blkparse or fio")
    parser.add_argument("-o", "--out", required=True, metavar="TRACE")
    parser.add_argument("--file", metavar="PATH", default="",
                        help="what the trace calls its file; needed for blkparse, and for fio in "
                             "place of the only name in the log")
    parser.add_argument("--pages", type=page_count, default=0, metavar="N",
                        help="of each file (default: as far as it was accessed)")
    parser.add_argument("--page", type=page_size, default=4096, metavar="SIZE",
                        help="a power of two, 512 to 2MiB (default: 4KiB)")
    parser.add_argument("--action", default="", help="of blkparse: which events are taken: Q "
                        "(queued; the default), G, I, D (issued) or C (completed)")
    parser.add_argument("--device", default="", metavar="MAJOR,MINOR",
                        help="of blkparse: whose events are taken; needed if there are several")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object")
    wanted = parser.parse_args(words)
    if not wanted.out:
        parser.error("-o: '' is no name; give the trace one")
    if wanted.kind not in ("blkparse", "fio"):
        parser.error(f"--from: {shown(wanted.kind)} is not known; give blkparse or fio")
    if wanted.kind == "fio" and (wanted.action or wanted.device):
        parser.error("--action and --device are only for --from blkparse; leave them out")
    if wanted.kind == "blkparse" and not wanted.file:
        parser.error("--file is needed for --from blkparse, whose text names no file; give the "
                     "path that the trace is to have")
    if wanted.action and wanted.action not in list("QGIDC"):
        parser.error(f"--action: {shown(wanted.action)} is no action with sectors; give Q, G, I, "
                     "D or C")
    if wanted.pages > MOST_FILE_BYTES // wanted.page:
        parser.error(f"--pages: {wanted.pages} pages of {wanted.page} bytes go beyond byte 2^62, "
                     f"and no file is so long; give at most {MOST_FILE_BYTES // wanted.page}")
    if wanted.json and is_standard_output(wanted.out):
        parser.error(f"output file {shown(wanted.out)}: is standard output, which gets the report; "
                     "give another name")
    return wanted


def run(wanted: argparse.Namespace) -> int:
    """The exit status."""
    is_standard = is_standard_output(wanted.out)
    try:
        report = import_trace(wanted)
    except Wrong as wrong:
        say(str(wrong))
        return 1
    except OSError as error:
        say(f"{shown(str(wanted.out if error.filename is None else error.filename))}: "
            f"{error.strerror}")
        return 1
    if wanted.json:
        return print_all(json.dumps(report) + "\n")
    skipped = ", ".join(f"{count:,} {why}" for why, count in report["skipped"].items())
    line = (f"{shown(wanted.out)[1:-1]}: {report['reads']:,} reads, {report['writes']:,} writes, "
            f"{report['flushes']:,} flushes from {report['lines']:,} lines; {report['widened']:,} "
            f"widened to whole pages, {report['late']:,} out of order; skipped: "
            f"{skipped or 'none'}")
    if is_standard:  # it holds the trace
        say(line)
        return 0
    return print_all(line + "\n")


def main(words: list[str] | None = None) -> int:
    try:
        return run(arguments(words))
    except Stopped as stopped:  # whatever it is at
        say("interrupted")
        return 128 + int(stopped.args[0])


def stop(number: int, _: object) -> None:
    """The unfinished trace goes; a second signal does not keep it from going."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)

if __name__ == "__main__":
    for ending in SIGNALS:
        # Those that a caller had it ignore (nohup) stay ignored.
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, stop)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error of the write
    sys.exit(main())
