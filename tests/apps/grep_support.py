"""What the tests of penstock-grep share: running both programs and comparing them count by
count."""
import os
import re
import subprocess

from program_support import (  # noqa: F401
    backend_flags, fail, methods, require, wait_until_at_work)

C_LOCALE = {"LC_ALL": "C", "PATH": os.environ.get("PATH", "/usr/bin:/bin")}


def grep_version():
    try:
        out = subprocess.run(["grep", "--version"], capture_output=True, check=True,
                             env=C_LOCALE).stdout
        return out.split(b"\n")[0].decode().split()[-1]
    except (OSError, subprocess.CalledProcessError):
        return ""


def grep_count(word, path):
    """What `grep -o -w -F -- WORD FILE | wc -l` says."""
    done = subprocess.run(["grep", "-o", "-w", "-F", "--", word, path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=C_LOCALE, check=False)
    return done.stdout.count(b"\n")


def expected_counts(words, paths):
    counts = {}
    for path in paths:
        for word in words:
            count = grep_count(word, path)
            if count:
                counts[(os.fsencode(path), word)] = count
    return counts


def run_program(program, arguments, **more):
    return subprocess.run([program, *arguments], capture_output=True, check=False, **more)


def unescaped(field):
    """A path as it is, from how lines show it (docs/apps/grep.md)."""
    plain = {b"\\\\": b"\\", b"\\t": b"\t", b"\\n": b"\n"}
    return re.sub(rb"\\[\\tn]", lambda found: plain[found.group()], field)


def parse_lines(text):
    """{(path, word): count}; fails if the lines are not sorted by path and then word, or repeat
    one."""
    counts, keys = {}, []
    for line in text.split(b"\n")[:-1]:
        word, path, count = line.rsplit(b"\t", 2)  # a word may have tabs, a path shows none
        path = unescaped(path)
        keys.append((path, word))
        counts[(path, word)] = int(count)
    if keys != sorted(set(keys)):
        raise AssertionError("lines are not sorted by path and then word, or one is there twice")
    return counts


def differences(expected, found):
    """Every (path, word) whose counts differ, as text."""
    return [f"{word!r} in {path!r}: grep {expected.get((path, word), 0)}, penstock-grep "
            f"{found.get((path, word), 0)}"
            for path, word in sorted(set(expected) | set(found))
            if expected.get((path, word), 0) != found.get((path, word), 0)]
