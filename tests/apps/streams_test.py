"""Closed standard streams: no message and no report gets into a file of a program, and what cannot
be written to standard output is an error.

Usage: streams_test.py FOLDER_OF_PROGRAMS
"""

import os
import socket
import subprocess
import unittest

import programs

PROGRAMS = ["penstock"] + [
    f"penstock-{name}" for name in ("grep", "match", "matrix", "collage", "stitch", "sssp")
]
CLOSED = [(0,), (1,), (2,), (0, 1, 2)]


def run_without(case, closed, *more):
    def close():
        for fd in closed:
            os.close(fd)

    return programs.run(case.program, *case.arguments, *more, preexec_fn=close)


class StreamsTest(programs.InFolder):
    def check(self, flags):
        for number in range(len(programs.cases(self.inputs, self.folder))):
            case = programs.cases(self.inputs, self.folder / f"{number}")[number]
            programs.must_run(case.program, *case.arguments, "--quiet")
            expected = programs.content(case.made)
            for closed in CLOSED:
                out = self.folder / f"{number}-{''.join(map(str, closed))}"
                ours = programs.cases(self.inputs, out)[number]
                with self.subTest(case=case.name, closed=closed, flags=flags):
                    ran = run_without(ours, closed, *flags)
                    reports = flags == ["--json"] or (case.name == "cp" and flags == [])
                    self.assertEqual(ran.returncode, 1 if reports and 1 in closed else 0)
                    self.assertEqual(programs.content(ours.made), expected)
                    if reports and closed == (1,):
                        self.assertIn(b"standard output: Bad file descriptor", ran.stderr)

    def test_messages_stay_out_of_files(self):
        self.check([])

    def test_reports_stay_out_of_files(self):
        self.check(["--json"])

    def test_without_a_report_no_output_is_needed(self):
        self.check(["--quiet"])

    def printing(self):
        """Commands whose result goes to standard output."""
        f = self.inputs
        commands = [[each, word] for each in sorted(programs.BIN.glob("penstock*"))
                    for word in ("--help", "--version") if each.name in PROGRAMS]
        if programs.is_there("penstock"):
            commands += [["penstock", *words]
                         for words in (["cat", f / "text", *programs.BACKEND],
                                       ["info", *programs.BACKEND], ["stat"], ["man"],
                                       ["completion", "bash"], ["trace", "show", f / "trace"],
                                       ["cat", "--help"], ["trace", "--help"])]
        for case in programs.cases(f, None):
            if case.name in ("grep", "match"):
                at = case.arguments.index("--out")
                given = case.arguments[:at] + case.arguments[at + 2:]
                commands += [[case.program, *given]]
        return commands

    def test_output_that_cannot_be_written_is_an_error(self):
        def close():
            os.close(1)

        with open("/dev/full", "wb") as full:
            for command in self.printing():
                for reason, more in (("Bad file descriptor (EBADF)", {"preexec_fn": close}),
                                     ("No space left on device (ENOSPC)", {"stdout": full})):
                    with self.subTest(command=command, reason=reason):
                        ran = programs.run(*command, stderr=subprocess.PIPE, **more)
                        self.assertEqual(ran.returncode, 1, ran.stderr)
                        said = ran.stderr.decode().splitlines()
                        self.assertIn(f"standard output: {reason}; the output is", said[-1])

    def test_a_closed_output_is_no_file(self):
        """Also by the name that leads to it."""
        if not programs.is_there("penstock"):
            self.skipTest("not built")
        ran = run_without(
            programs.Case("cat", "penstock",
                          ["cat", self.inputs / "text", "--out", "/dev/stdout", *programs.BACKEND]),
            (1,))
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "'/dev/stdout'", "give")

    def test_a_file_behind_standard_output_goes_on(self):
        """By every name of the descriptor, each program that writes its result from front to back
        adds it to what the caller has in the file; those that write by the file's name refuse."""
        log, link = self.folder / "log", self.folder / "link.ppm"
        link.symlink_to("/dev/stdout")
        names = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1", link]
        added = 0
        for case in programs.cases(self.inputs, self.folder / "out"):
            if case.name in ("collage index", "cp"):
                continue  # a folder; in place
            for name in names:
                if case.name == "collage make" and name != link:
                    continue  # its names end in .ppm
                arguments = [
                    str(name) if argument == str(case.made) else argument
                    for argument in case.arguments
                ]
                self.assertIn(str(name), arguments)
                log.write_bytes(b"older\n")
                before = log.stat().st_ino
                with self.subTest(case=case.name, name=name), log.open("ab") as stream:
                    ran = programs.run(case.program, *arguments, "--quiet", stdout=stream,
                                       stderr=subprocess.PIPE)
                    found = log.read_bytes()
                    self.assertEqual(log.stat().st_ino, before)
                    if ran.returncode == 0:
                        programs.must_run(case.program, *case.arguments, "--quiet")
                        self.assertEqual(found, b"older\n" + case.made.read_bytes())
                        added += 1
                    else:
                        self.assertEqual((ran.returncode, found), (1, b"older\n"))
                        self.assert_one_line(ran.stderr, name, "given open")
        self.assertGreaterEqual(added, len(names))

    def test_one_output_does_not_hold_result_and_report(self):
        log, link = self.folder / "log", self.folder / "link.ppm"
        link.symlink_to("/dev/stdout")
        for case in programs.cases(self.inputs, self.folder / "out"):
            if case.name == "collage index":
                continue  # a folder
            arguments = [
                str(link) if argument == str(case.made) else argument for argument in case.arguments
            ]
            log.write_bytes(b"older\n")
            with self.subTest(case=case.name), log.open("ab") as stream:
                ran = programs.run(case.program, *arguments, "--json", stdout=stream,
                                   stderr=subprocess.PIPE)
                self.assertIn(ran.returncode, (1, 2))
                self.assert_one_line(ran.stderr, link, "give another name")
                self.assertEqual(log.read_bytes(), b"older\n")

    def test_a_file_behind_standard_output_is_no_result(self):
        """By its own name, a result would go over it, and the report to the file that was there."""
        for program, arguments, made in self.makers():
            made.parent.mkdir(exist_ok=True)
            made.write_bytes(b"older\n")
            with self.subTest(arguments=arguments), made.open("ab") as stream:
                ran = programs.run(program, *arguments, "--json", stdout=stream,
                                   stderr=subprocess.PIPE)
                self.assertIn(ran.returncode, (1, 2), ran.stderr)
                self.assert_one_line(ran.stderr, made, "standard output", "give another name")
                self.assertEqual(made.read_bytes(), b"older\n")
                self.assertEqual(os.listdir(made.parent), [made.name])
            made.unlink()

    def makers(self):
        """(program, arguments, a file that it makes) of all that make files, one for each."""
        place = self.folder / "place"
        out, other = place / "out", self.folder / "other"
        cases = programs.cases(self.inputs, out)
        found = [(c.program, c.arguments, c.made) for c in cases if c.name != "collage index"]
        vector = ["make-vector", "--rows", 3, "--cols", 3]
        product = ["make-product", "--m", 3, "--n", 3, "--k", 3]
        images = ["make", place, "--queries", 1, "--images", 1, "--shape", "8x8"]
        trace = ["trace", "generate", "--pages", 3, "--accesses", 3]
        found += [("penstock-matrix", [*vector, "-o", out, "-x", other], out),
                  ("penstock-matrix", [*vector, "-o", other, "-x", out], out),
                  ("penstock-matrix", [*product, "-a", out, "-b", other], out),
                  ("penstock-matrix", [*product, "-a", other, "-b", out], out),
                  ("penstock-stitch",
                   ["make", "-o", out, "--rows", 1, "--columns", 1, "--tile", "64x48"], out),
                  ("penstock-match", images, place / "queries.images"),
                  ("penstock-match", images, place / "database-3.images"),
                  ("penstock", [*trace, "-o", other, "--data", out], out),
                  ("penstock", [*trace, "-o", other, "--data", out, "--machines",
                                2], place / "out.1")]
        return [each for each in found if programs.is_there(each[0])]

    def test_a_socket_gets_what_its_name_stands_for(self):
        """A socket cannot be opened by a name; its writes may not wait, as its other end wants."""
        if not programs.is_there("penstock"):
            self.skipTest("not built")
        data = os.urandom(1 << 20)
        (self.folder / "data").write_bytes(data)
        for is_blocking in (True, False):
            with self.subTest(is_blocking=is_blocking):
                ours, theirs = socket.socketpair()
                with ours, theirs:
                    theirs.setblocking(is_blocking)
                    child = subprocess.Popen([
                        programs.BIN / "penstock", "cat", self.folder / "data", "--out",
                        "/dev/stdout", *programs.BACKEND
                    ], env=programs.environment(), stdin=subprocess.DEVNULL, stdout=theirs,
                                             stderr=subprocess.PIPE)
                    theirs.close()
                    with ours.makefile("rb") as got:
                        found = got.read()
                    _, said = child.communicate(timeout=100)
                self.assertEqual((child.returncode, said), (0, b""))
                self.assertTrue(found == data)

    def test_a_file_behind_another_descriptor_goes_on(self):
        if not programs.is_there("penstock"):
            self.skipTest("not built")
        log = self.folder / "log"
        log.write_bytes(b"older\n")
        text = (self.inputs / "text").read_bytes()
        with log.open("ab") as stream:
            number = stream.fileno()
            programs.must_run(
                *["penstock", "cat", *programs.BACKEND, "--quiet", self.inputs / "text"],
                *["--out", f"/dev/fd/{number}"], pass_fds=[number])
        self.assertEqual(log.read_bytes(), b"older\n" + text)
        with log.open("rb") as stream:
            number = stream.fileno()
            ran = programs.run(
                *["penstock", "cat", *programs.BACKEND, "--quiet", self.inputs / "text"],
                *["--out", f"/dev/fd/{number}"], pass_fds=[number])
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, f"/dev/fd/{number}", "EBADF")
        self.assertEqual(log.read_bytes(), b"older\n" + text)

    def test_data_files_of_a_trace(self):
        if not programs.is_there("penstock"):
            self.skipTest("not built")
        for closed in CLOSED:
            names = [self.folder / f"trace{closed}", self.folder / f"data{closed}"]
            case = programs.Case("generate", "penstock", [
                "trace", "generate", "-o", names[0], "--data", names[1], "--pages", 10,
                "--accesses", 30
            ])
            with self.subTest(closed=closed):
                ran = run_without(case, closed, "--json")
                self.assertEqual(ran.returncode, 1 if 1 in closed else 0)
                self.assertEqual(names[1].read_bytes(), (self.inputs / "trace.data").read_bytes())

    def test_inputs_are_left_alone(self):
        before = {path: path.read_bytes() for path in self.inputs.iterdir() if path.is_file()}
        for case in programs.cases(self.inputs, self.folder / "out"):
            run_without(case, (0, 1, 2), "--json")
        self.assertEqual(
            {path: path.read_bytes() for path in self.inputs.iterdir() if path.is_file()}, before)


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["streams_test.py"])
