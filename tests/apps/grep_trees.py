"""penstock-grep on trees of files: real headers against grep, what a walk finds, output and
summary, being interrupted, files that change, files larger than the cache.

Usage: grep_trees.py PROGRAM CASE   with CASE one of the functions below that begin with case_,
without the prefix """
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

import grep_support as support

OTHER_WORDS = [b"->", b"::", b"/*", b"*/", b"...", b"==", b"#define", b"std::string", b"don't",
               b"- ", b"x-y", b"e.g.", b"--", b"(*"]


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return path


def run(program, *arguments, status=0, **more):
    done = support.run_program(program, [*support.backend_flags(), *arguments], **more)
    support.require(done.returncode == status, f"{arguments}: {done.returncode}, {done.stderr!r}")
    return done


def token_counts(words_file, path):
    """Counts of words that are made of constituents only, all in one run of grep: they cannot
    overlap each other."""
    done = subprocess.run(["grep", "-o", "-w", "-F", "-f", words_file, "--", path],
                          stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=support.C_LOCALE, check=False)
    counts = {}
    for word in done.stdout.split(b"\n")[:-1]:
        counts[(os.fsencode(path), word)] = counts.get((os.fsencode(path), word), 0) + 1
    return counts


def real_files(most):
    found = []
    for root in ["/usr/include", "/usr/share/doc", "/etc"]:
        for directory, folders, names in os.walk(root):
            folders.sort()
            found += [os.path.join(directory, name) for name in sorted(names)]
    files = [path for path in found
             if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK)]
    return random.Random(7).sample(files, min(most, len(files)))


def tokens_of(paths, count):
    words = set()
    for path in paths:
        with open(path, "rb") as file:
            text = file.read()
        words.update(word for word in bytes(c if chr(c).isalnum() and c < 128 or c == 95 else 32
                                            for c in text).split()
                     if len(word) < 200)
    return random.Random(8).sample(sorted(words), min(count, len(words)))


def case_headers(program, directory):
    files = real_files(80)
    tokens = tokens_of(files, 3000)
    token_file = write(os.path.join(directory, "tokens"), b"\n".join(tokens) + b"\n")
    dictionary = write(os.path.join(directory, "words"), b"\n".join(tokens + OTHER_WORDS))
    expected = support.expected_counts(OTHER_WORDS, files)
    for path in files:
        expected.update(token_counts(token_file, path))
    for flags in [[], ["--page", "4096", "--cache", "1MiB", "--result-buffer", "64KiB"],
                  ["--method", "cpu"]]:
        done = run(program, "--quiet", *flags, "--dict", dictionary, *files)
        wrong = support.differences(expected, support.parse_lines(done.stdout))
        support.require(not wrong, f"{flags}: {len(wrong)} counts differ: {wrong[:3]}")
    support.require(len(expected) > 1000, f"only {len(expected)} counts to compare")
    print(f"{len(files)} files, {len(expected)} counts")


def case_walk(program, directory):
    top = os.path.join(directory, "top")
    names = ["a", "b/c", "b/d e/f", "b/.hidden", "z/y/x/w", "b-c", "b.c", "\udcff\udcfe/odd"]
    for name in names:
        write(os.path.join(top, name), b"foo foo\n")
    write(os.path.join(top, "empty"), b"")
    os.makedirs(os.path.join(top, "nothing"))
    os.symlink("a", os.path.join(top, "link"))
    os.symlink("b", os.path.join(top, "linked"))
    os.symlink("absent", os.path.join(top, "dangling"))
    os.mkfifo(os.path.join(top, "pipe"))
    words = write(os.path.join(directory, "words"), b"foo\n")
    for start in ["top", "top/", "./top", os.path.join(directory, "top"), "top/b", "top/linked",
                  "top/link", "."]:
        found = support.parse_lines(run(program, "--quiet", "--dict", words, start,
                                        cwd=directory).stdout)
        there = subprocess.run(["grep", "-r", "-l", "-Z", "-w", "-F", "foo", start],
                               stdout=subprocess.PIPE, cwd=directory, env=support.C_LOCALE,
                               check=False).stdout.split(b"\0")[:-1]
        paths = sorted(path for path, _ in found if not path.endswith(b"/words"))
        support.require(paths == sorted(path for path in there if not path.endswith(b"/words")),
                        f"{start}: {paths} and {there}")
        support.require(all(count == 2 for (path, _), count in found.items()
                            if not path.endswith(b"/words")),
                        f"{found}")
    twice = support.parse_lines(run(program, "--quiet", "--dict", words, "top/a", "top/a", "top",
                                    "./top/a", cwd=directory).stdout)
    support.require(sum(path.endswith(b"top/a") for path, _ in twice) == 2,
                    f"each path counts once: {twice}")
    support.require(run(program, "--quiet", "--dict", words, "top/nothing", cwd=directory).stdout
                    == b"",
                    "an empty directory")


def case_output(program, directory):
    text = write(os.path.join(directory, "text"), b"foo bar foo\n")
    words = write(os.path.join(directory, "words"), b"foo\nbar\nbaz\nfoo\n")
    out = os.path.join(directory, "out")
    done = run(program, "--json", "--quiet", "--dict", words, "--out", out, text)
    told = json.loads(done.stdout)
    support.require((told["files"], told["words"], told["matches"], told["lines"]) == (1, 3, 3, 2),
                    f"{told}")
    support.require(told["bytes"] == 12 and told["runtime"]["statistics"]["opens"] >= 1
                    and "search" in told["seconds"],
                    f"{told}")
    support.require(b"words:4: the word 'foo' is in line 1" in done.stderr
                    and done.stderr.count(b"\n") == 1,
                    f"{done.stderr!r}")
    expected = f"bar\t{text}\t1\nfoo\t{text}\t2\n".encode()
    with open(out, "rb") as file:
        support.require(file.read() == expected, "the lines in --out")
    mask = os.umask(0)
    os.umask(mask)
    support.require(os.stat(out).st_mode & 0o777 == 0o666 & ~mask, "the output file's permissions")
    os.chmod(out, 0o640)
    os.symlink("out", os.path.join(directory, "out_link"))
    run(program, "--quiet", "--dict", words, "--out", os.path.join(directory, "out_link"), text)
    support.require(os.path.islink(os.path.join(directory, "out_link"))
                    and os.stat(out).st_mode & 0o777 == 0o640,
                    "a link is followed, and permissions are kept")
    support.require(run(program, "--quiet", "--dict", words, text).stdout == expected,
                    "the lines on standard output")
    support.require(run(program, "--quiet", "--dict", words, "--out", "/dev/stdout", text).stdout
                    == expected,
                    "--out /dev/stdout")
    compared = run(program, "--json", "--quiet", "--compare", "--dict", words, text)
    support.require(len(json.loads(compared.stdout)["methods"]) >= 2, f"{compared.stdout!r}")
    support.require(sorted(os.listdir(directory)) == ["out", "out_link", "text", "words"],
                    f"{os.listdir(directory)}")


def long_work(directory):
    """Paths that name one file of 24 MB in many ways, and the words for it: seconds of work, little
    disk."""
    text = b"".join(b"word%d some-thing else\n" % (i % 5000) for i in range(1000000))
    write(os.path.join(directory, "big"), text)
    words = write(os.path.join(directory, "words"),
                  b"".join(b"word%d\n" % i for i in range(5000)) + b"some-thing\n")
    return words, ["./" * i + "big" for i in range(60)]


def wait_until_caught(process, number):
    """The program has taken the signal over: from then on it is interrupted and not ended by it."""
    end = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < end:
        with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as status:
            caught = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt")]
        if caught and caught[0] >> (number - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError(f"signal {number} was not taken over")


def processor_time(pid):
    """Of a running process, in seconds. Unlike the time on a clock it does not depend on how busy
    the machine is."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def case_interrupt(program, directory):
    words, paths = long_work(directory)
    for number in [signal.SIGINT, signal.SIGTERM]:
        arguments = [program, *support.backend_flags(), "--quiet", "--cache", "1MiB", "--dict",
                     words, "--out", "out", *paths]
        ended = ended_children()
        with subprocess.Popen(arguments, cwd=directory, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            wait_until_caught(process, number)
            support.wait_until_at_work(process)
            before = processor_time(process.pid)
            process.send_signal(number)
            out, err = process.communicate(timeout=1000)
        took = ended_children() - ended - before
        support.require(process.returncode == 1 and out == b"" and err.count(b"\n") == 1
                        and b"interrupted" in err,
                        f"{process.returncode}: {err!r}")
        support.require(took < 5, f"it took {took:.1f} s of processor time to stop")
        support.require(sorted(os.listdir(directory)) == ["big", "words"],
                        f"left behind: {os.listdir(directory)}")


def case_changing(program, directory):
    """A file that shrinks after the walk and before it is opened is named, left out, and makes the
    exit status 1."""
    words, paths = long_work(directory)
    last = write(os.path.join(directory, "zz"), b"word1 word1\n" * 1000)
    arguments = [program, *support.backend_flags(), "--quiet", "--dict", words, "--cache", "1MiB",
                 *paths, "zz"]
    with subprocess.Popen(arguments, cwd=directory, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        support.wait_until_at_work(process)
        os.truncate(last, 12)
        out, err = process.communicate(timeout=1000)
    support.require(process.returncode == 1 and err.count(b"\n") == 1 and b"'zz'" in err
                    and b"ESTALE" in err,
                    f"{process.returncode}: {err!r}")
    found = support.parse_lines(out)
    support.require((b"big", b"word1") in found and (b"zz", b"word1") not in found,
                    "the others are counted, that one is not")


def change_before_first_read(program, directory, change, *arguments):
    """Runs it, and calls `change` between its look at the files and its first read. Its exit
    status, output and messages."""
    out = os.path.join(directory, "out")
    os.mkfifo(out)
    with subprocess.Popen([program, *support.backend_flags(), "--quiet", "--out", out, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # The pipe without a reader holds the program there, for two seconds at most.
        wait_until_caught(process, signal.SIGTERM)
        time.sleep(0.5)
        change()
        with open(out, "rb") as pipe:
            found = pipe.read()
        _, err = process.communicate(timeout=1000)
    os.unlink(out)
    return process.returncode, found, err


def ways_to_read():
    return [(flags, method) for flags in ([], ["--lines"]) for method in support.methods()
            if not (flags and method == "cuda")]  # which prints no lines


def case_rewritten(program, directory):
    """A file whose bytes change while it is read, but not its size, is named and left out: what was
    read is of no version of it."""
    words = write(os.path.join(directory, "words"), b"word\n")
    texts = [b"word\n" * 200000, b"\n\n\n\n\n" * 200000]
    steady = write(os.path.join(directory, "steady"), b"no word\nword word\n")
    for flags, method in ways_to_read():
        changing = write(os.path.join(directory, "changing"), texts[0])
        with open(changing, "r+b", buffering=0) as file:
            status, found, err = change_before_first_read(
                program, directory, lambda file=file: file.write(texts[1]), "--method", method,
                *flags, "--dict", words, "--piece", "16KiB", changing, steady)
        support.require(status == 1 and err.count(b"\n") == 1
                        and b"changing'" in err and b"ESTALE" in err,
                        f"{method} {flags}: {status}, {err!r}")
        support.require(b"changing" not in found and steady.encode() in found,
                        f"{method} {flags}: {found[:200]!r}")


def case_touched(program, directory):
    """A file of which no byte changes is counted, whatever else changes of it while it is read: its
    links, rights and name."""
    words = write(os.path.join(directory, "words"), b"word\n")
    text = write(os.path.join(directory, "text"), b"no word\nword word\n" * 20000)
    other = os.path.join(directory, "other")

    def link():
        os.link(text, other)
        os.unlink(other)

    def rename():
        os.rename(text, other)
        os.rename(other, text)

    for flags, method in ways_to_read():
        arguments = ["--method", method, *flags, "--dict", words, "--piece", "16KiB", text]
        expected = run(program, "--quiet", *arguments).stdout
        for change in [link, rename, lambda: os.chmod(text, 0o640), lambda: os.chmod(text, 0o644)]:
            before = os.stat(text).st_ctime_ns
            done = change_before_first_read(program, directory, change, *arguments)
            support.require(os.stat(text).st_ctime_ns != before, "nothing was changed")
            support.require(done == (0, expected, b""),
                            f"{method} {flags}: {done[0]}, {done[1][:200]!r}, {done[2]!r}")


def case_large(program, directory):
    """A file 24 times the cache, against grep."""
    words, paths = long_work(directory)
    done = run(program, "--quiet", "--cache", "1MiB", "--page", "16KiB", "--dict", words, "big",
               cwd=directory)
    expected = {(b"big", b"word%d" % i): 200 for i in range(5000)}
    expected[(b"big", b"some-thing")] = support.grep_count(
        b"some-thing", os.path.join(directory, "big"))
    wrong = support.differences(expected, support.parse_lines(done.stdout))
    support.require(not wrong, f"{len(wrong)} counts differ: {wrong[:3]}")
    support.require(support.grep_count(b"word77", os.path.join(directory, "big")) == 200,
                    "the expectation itself is wrong")


def case_cache(program, directory):
    """On CPU threads the cache is small unless asked for otherwise; its pages may be as large as
    they come."""
    words, paths = long_work(directory)
    for backend, flags, expected in [
            ("cpu", [], 64 << 20), ("cpu", ["--cache", "3MiB"], 3 << 20),
            ("cpu", ["--page", "2MiB", "--workers", "2"], 128 << 20), ("auto", [], 64 << 20)]:
        done = support.run_program(program, ["--backend", backend, "--json", "--quiet", *flags,
                                             "--dict", words, "--out", "out", paths[0]],
                                   cwd=directory)
        told = json.loads(done.stdout)
        if told["backend"] == "cpu":  # else there is a GPU, which auto takes
            support.require(told["runtime"]["cache_bytes"] == expected,
                            f"{backend} {flags}: {told['runtime']}")
        phases = told["methods"][0]["phases"]
        support.require(0 < phases["launch"] + phases["join"] <= told["seconds"]["search"],
                        f"{phases} of {told['seconds']}")


def main():
    program, name = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as directory:
        globals()["case_" + name](program, directory)
    print(f"{name}: passed")


if __name__ == "__main__":
    main()
