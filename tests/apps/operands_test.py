"""Operands with names that a reader of command lines may take for something else: a list in
brackets, the end of a command.

Usage: operands_test.py FOLDER_OF_PROGRAMS
"""

import json
import unittest

import programs

# Besides a name each of the texts that a list in brackets would be taken for.
NAMES = ["[x]", "x", "[a,b]", "a", "b", "[]", "[[x]]", "[]]", "++", "[", "]", "{}", "%%"]


@unittest.skipUnless(programs.is_there("penstock"), "penstock was not built")
class OfPenstock(programs.InFolder):
    def setUp(self):
        super().setUp()
        self.write_all()

    def write_all(self):
        for name in NAMES:
            (self.folder / name).write_text(f"in {name}\n")

    def run_here(self, *arguments):
        return programs.run(*arguments, cwd=self.folder)

    def test_cat_prints_the_file_of_that_name(self):
        for before in ([], ["--"]):
            for name in NAMES:
                with self.subTest(name=name, before=before):
                    done = self.run_here("penstock", "cat", *programs.BACKEND, "--quiet", *before,
                                         name)
                    self.assertEqual((done.returncode, done.stderr), (0, b""))
                    self.assertEqual(done.stdout.decode(), f"in {name}\n")

    def test_cat_prints_several(self):
        done = self.run_here("penstock", "cat", *programs.BACKEND, "--quiet", *NAMES)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(done.stdout.decode(), "".join(f"in {name}\n" for name in NAMES))

    def test_cp_writes_the_file_of_that_name_and_no_other(self):
        (self.folder / "new").write_text("new\n")
        for before in ([], ["--"]):
            for name in NAMES:
                self.write_all()
                with self.subTest(name=name, before=before):
                    done = self.run_here("penstock", "cp", *programs.BACKEND, "--quiet", *before,
                                         "new", name)
                    self.assertEqual((done.returncode, done.stderr), (0, b""))
                    for other in NAMES:
                        expected = "new\n" if other == name else f"in {other}\n"
                        self.assertEqual((self.folder / other).read_text(), expected, other)

    def test_cp_into_a_folder_of_that_name(self):
        for name in ("[d]", "++d", "[a,d]"):
            with self.subTest(name=name):
                (self.folder / name).mkdir()
                done = self.run_here("penstock", "cp", *programs.BACKEND, "--quiet", "[x]", "[a,b]",
                                     name)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertEqual((self.folder / name / "[x]").read_text(), "in [x]\n")
                self.assertEqual((self.folder / name / "[a,b]").read_text(), "in [a,b]\n")

    def test_values_of_options(self):
        for name in ("[x]", "[a,b]", "[]", "++"):
            with self.subTest(name=name):
                done = self.run_here("penstock", "cat", *programs.BACKEND, "--quiet", "--out", name,
                                     "[")
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertEqual((self.folder / name).read_text(), "in [\n")
                done = self.run_here("penstock", "cat", "--backend", name, "[")
                self.assertEqual(done.returncode, 2)
                self.assert_one_line(done.stderr, f"'{name}'")

    def test_messages_show_the_text_as_given(self):
        for name in ("[x]", "[a,b]", "[]", "++"):
            with self.subTest(name=name):
                done = self.run_here("penstock", name)
                self.assertEqual(done.returncode, 2)
                self.assert_one_line(done.stderr, f"'{name}' is no command")
                done = self.run_here("penstock", "info", name)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"\nFile system of '{name}'\n", done.stdout.decode())


@unittest.skipUnless(programs.is_there("penstock-grep"), "penstock-grep was not built")
class OfGrep(programs.InFolder):
    def test_files_and_word_lists(self):
        (self.folder / "words").write_text("one\n")
        (self.folder / "[words]").write_text("two\n")
        (self.folder / "x").write_text("one two two\n")
        (self.folder / "[x]").write_text("one one one two\n")
        for words, count in (("words", 3), ("[words]", 1)):
            done = programs.must_run(
                *["penstock-grep", *programs.BACKEND, "--json", "--out", "[counts]"],
                *["--dict", words, "[x]"], cwd=self.folder)
            self.assertEqual(json.loads(done.stdout)["files"], 1)
            lines = (self.folder / "[counts]").read_text().splitlines()
            self.assertEqual(len(lines), 1)
            self.assertIn("[x]", lines[0])
            self.assertIn(str(count), lines[0].split())


@unittest.skipUnless(programs.is_there("penstock-match"), "penstock-match was not built")
class OfMatch(programs.InFolder):
    def test_first_and_second_operand(self):
        for name, count in (("x", 3), ("[x]", 5), ("[]", 7)):
            programs.write_images(self.folder / name, count)
        done = programs.must_run(
            *["penstock-match", *programs.BACKEND, "--json", "--threshold", "0.5"],
            *["--out", "[out]", "[x]", "[]"], cwd=self.folder)
        report = json.loads(done.stdout)
        self.assertIn(5, report.values())
        self.assertTrue((self.folder / "[out]").exists())

    def test_messages_show_every_operand_too_many(self):
        done = programs.run("penstock-match", "make", "a", "b", "[x]", "z", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assert_one_line(done.stderr, "arguments were not expected: z [x] b; see --help")


if __name__ == "__main__":
    unittest.main()
