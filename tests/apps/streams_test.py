"""Closed standard streams: no message and no report gets into a file of a program.

Usage: streams_test.py FOLDER_OF_PROGRAMS
"""

import os
import unittest

import programs

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
                    self.assertEqual(ran.returncode, 0, ran.stderr)
                    self.assertEqual(programs.content(ours.made), expected)

    def test_messages_stay_out_of_files(self):
        self.check([])

    def test_reports_stay_out_of_files(self):
        self.check(["--json"])

    def test_data_files_of_a_trace(self):
        if not programs.is_there("penstock"):
            self.skipTest("not built")
        for closed in CLOSED:
            names = [self.folder / f"trace{closed}", self.folder / f"data{closed}"]
            case = programs.Case(
                "generate",
                "penstock",
                [
                    "trace",
                    "generate",
                    "-o",
                    names[0],
                    "--data",
                    names[1],
                    "--pages",
                    10,
                    "--accesses",
                    30,
                ],
            )
            with self.subTest(closed=closed):
                self.assertEqual(run_without(case, closed, "--json").returncode, 0)
                self.assertEqual(names[1].read_bytes(), (self.inputs / "trace.data").read_bytes())

    def test_inputs_are_left_alone(self):
        before = {path: path.read_bytes() for path in self.inputs.iterdir() if path.is_file()}
        for case in programs.cases(self.inputs, self.folder / "out"):
            run_without(case, (0, 1, 2), "--json")
        self.assertEqual(
            {path: path.read_bytes() for path in self.inputs.iterdir() if path.is_file()}, before
        )


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["streams_test.py"])
