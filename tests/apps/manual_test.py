#!/usr/bin/env python3
"""Pages of the manual and shell completion, made from the command lines: manual_test.py BIN."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from programs import environment, is_there, must_run, run

PROGRAMS = [name for name in ("penstock", "penstock-collage", "penstock-grep", "penstock-match",
                              "penstock-matrix", "penstock-sssp", "penstock-stitch")
            if is_there(name)]


def options_in(help_text):
    """The long options at the begins of lines of a help."""
    lines = re.findall(r"^  ((?:-\w,)?--\S+)", help_text, re.MULTILINE)
    return {name for line in lines for name in re.findall(r"--[\w-]+", line)}


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.share = pathlib.Path(holder.name) / "share"
        for program in PROGRAMS:
            must_run(program, "--write-manual", cls.share)

    def pages(self):
        return sorted((self.share / "man" / "man1").iterdir())

    def completion(self, program):
        return self.share / "bash-completion" / "completions" / program

    def test_each_program_and_each_command_of_penstock_has_a_page(self):
        names = {page.name for page in self.pages()}
        self.assertLessEqual({f"{program}.1" for program in PROGRAMS}, names)
        if "penstock" in PROGRAMS:
            commands = re.search(r"Subcommands:\n(.*)", must_run("penstock", "--help").stdout
                                 .decode(), re.DOTALL).group(1)
            for command in re.findall(r"^  (\w+) ", commands, re.MULTILINE):
                self.assertIn(f"penstock-{command}.1", names)

    @unittest.skipIf(shutil.which("groff") is None, "groff is not installed")
    def test_pages_are_without_warnings(self):
        for page in self.pages():
            with self.subTest(page=page.name):
                shown = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], check=False,
                                       stdin=subprocess.DEVNULL, capture_output=True)
                self.assertEqual((shown.returncode, shown.stderr), (0, b""))
                self.assertGreater(len(shown.stdout), 500)

    @unittest.skipIf(shutil.which("man") is None, "man is not installed")
    def test_man_shows_pages_without_warnings(self):
        for page in self.pages():
            with self.subTest(page=page.name):
                shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z",
                                        page], check=False, stdin=subprocess.DEVNULL,
                                       capture_output=True, env=environment(MANROFFSEQ=""))
                self.assertEqual(shown.stderr, b"")

    @unittest.skipIf(shutil.which("groff") is None, "groff is not installed")
    def test_page_has_every_option_of_the_help(self):
        for program, command, page in (("penstock", ["cat"], "penstock-cat"),
                                       ("penstock", ["mount"], "penstock-mount"),
                                       ("penstock", ["trace", "generate"], "penstock-trace"),
                                       ("penstock-grep", [], "penstock-grep"),
                                       ("penstock-match", ["make"], "penstock-match"),
                                       ("penstock-collage", ["index"], "penstock-collage")):
            if program not in PROGRAMS:
                continue
            with self.subTest(page=page):
                names = options_in(must_run(program, *command, "--help").stdout.decode())
                text = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou",
                                       self.share / "man" / "man1" / f"{page}.1"], check=True,
                                      stdin=subprocess.DEVNULL, capture_output=True
                                      ).stdout.decode()
                self.assertGreater(len(names), 3)
                for name in names:
                    self.assertRegex(text, re.escape(name) + r"\b")

    def test_names_of_pages_are_whole_sentences(self):
        """What whatis, lists of commands and shells show."""
        for page in self.pages():
            with self.subTest(page=page.name):
                words = page.stem.split("-")
                program = (["penstock", *words[1:]] if page.stem not in PROGRAMS else [page.stem])
                shown = re.search(r"^\.SH NAME\n.* \\- (.*)$", page.read_text(), re.MULTILINE)
                name = shown.group(1).replace("\\-", "-").replace("\\e", "\\")
                help_text = " ".join(must_run(*program, "--help").stdout.decode().split())
                # What has no commands' text of its own begins with another word.
                self.assertIn(name[1:] + ".", help_text.replace(" Usage:", ". Usage:"))

    def test_help_has_options_as_they_are_typed(self):
        for program, *command in (("penstock-grep",), ("penstock-match",), ("penstock", "cp"),
                                  ("penstock-matrix", "vector"), ("penstock-collage", "make")):
            if program in PROGRAMS:
                self.assertNotIn(b"{", must_run(program, *command, "--help").stdout)

    def test_help_and_pages_say_which_options_are_required(self):
        for program, command, options in (
                ("penstock-grep", [], ["--dict"]), ("penstock-match", [], ["--threshold"]),
                ("penstock-matrix", ["product"], ["--out", "--m", "--n", "--k"]),
                ("penstock-collage", ["make"], ["--out"]), ("penstock-stitch", ["run"], ["--out"]),
                ("penstock-sssp", ["make"], ["--out", "--vertices", "--edges"]),
                ("penstock", ["trace", "generate"], ["--out", "--pages", "--accesses"]),
                ("penstock", ["replay"], ["--policy", "--ram"])):
            if program not in PROGRAMS:
                continue
            with self.subTest(program=program, command=command):
                text = must_run(program, *command, "--help").stdout.decode()
                self.assertEqual(sorted(options), sorted(re.findall(
                    r"^  (?:-\w,)?(--\S+) .*\(required\)$", text, re.MULTILINE)))
        page = (self.share / "man/man1" / f"{PROGRAMS[-1]}.1").read_text()
        self.assertIn("(required)", page)

    def complete(self, *words):
        """What bash offers for the last of these words."""
        script = f"""source {self.completion(words[0])}
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            {"_" + words[0].replace("-", "_")}
            printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", *words], check=True,
                              stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(done.stderr, b"")
        return set(done.stdout.decode().split())

    @unittest.skipIf(shutil.which("bash") is None or not is_there("penstock"), "no bash")
    def test_bash_completes_commands_and_options(self):
        self.assertLessEqual({"cat", "cp", "stat", "trace"}, self.complete("penstock", ""))
        self.assertEqual(self.complete("penstock", "st"), {"stat"})
        self.assertEqual(self.complete("penstock", "stat", "--wa"), {"--watch"})
        self.assertEqual(self.complete("penstock", "trace", ""), {"generate", "convert", "show"})
        self.assertIn("--pattern", self.complete("penstock", "trace", "generate", "--"))
        self.assertNotIn("--pattern", self.complete("penstock", "trace", "show", "--"))
        # Names of files are for bash itself: after an option with a value, and for operands.
        self.assertEqual(self.complete("penstock", "cat", "--out", ""), set())
        self.assertEqual(self.complete("penstock", "cat", "x"), set())
        # A file that is named like a command changes nothing.
        self.assertIn("--verify", self.complete("penstock", "cp", "stat", "--v"))

    @unittest.skipIf(shutil.which("bash") is None, "no bash")
    def test_bash_completes_options_of_every_program(self):
        for program in PROGRAMS:
            self.assertIn("--version", self.complete(program, "--v"), program)

    def test_other_shells_take_their_files(self):
        for shell, pattern in (("zsh", "zsh/site-functions/_*"),
                               ("fish", "fish/vendor_completions.d/*.fish")):
            files = sorted(self.share.glob(pattern))
            self.assertEqual(len(files), len(PROGRAMS))
            for file in files if shutil.which(shell) else []:
                done = subprocess.run([shell, "-n", file], check=False, capture_output=True,
                                      stdin=subprocess.DEVNULL)
                self.assertEqual((done.returncode, done.stderr), (0, b""), file)

    @unittest.skipIf(shutil.which("fish") is None or not is_there("penstock"), "no fish")
    def test_fish_completes_commands(self):
        file = self.share / "fish/vendor_completions.d/penstock.fish"
        done = subprocess.run(["fish", "--no-config", "-c",
                               f"source {file}; complete -C 'penstock sta'; "
                               "complete -C 'penstock stat --wa'"], check=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              env=environment(HOME=str(self.share)))
        words = [line.split("\t")[0] for line in done.stdout.decode().splitlines()]
        self.assertEqual(words, ["stat", "--watch"])

    @unittest.skipIf(shutil.which("zsh") is None or not is_there("penstock"), "no zsh")
    def test_zsh_completes_commands_and_options(self):
        file = self.share / "zsh/site-functions/_penstock"
        # The function must leave the variables of zsh alone, `path` among them.
        script = f"""_describe() {{ [[ $PATH == $before ]] && print -l -- ${{(P)@[-1]}} }}
            _files() {{ [[ $PATH == $before ]] && print files; }}
            words=("$@"); CURRENT=$#; before=$PATH
            source {file}"""

        def complete(*words):
            done = subprocess.run(["zsh", "-f", "-c", script, "zsh", *words], check=True,
                                  stdin=subprocess.DEVNULL, capture_output=True)
            self.assertEqual(done.stderr, b"")
            return [line.split(":")[0] for line in done.stdout.decode().splitlines()]

        self.assertIn("stat", complete("penstock", ""))
        self.assertIn("--watch", complete("penstock", "stat", "--"))
        self.assertEqual(complete("penstock", "trace", ""), ["generate", "convert", "show"])
        self.assertEqual(complete("penstock", "cat", "--out", ""), ["files"])
        self.assertEqual(complete("penstock", "cat", ""), ["files"])

    @unittest.skipUnless(is_there("penstock"), "penstock was not built")
    def test_penstock_prints_them(self):
        page = self.share / "man/man1/penstock-trace.1"
        self.assertEqual(must_run("penstock", "man", "trace").stdout, page.read_bytes())
        self.assertEqual(must_run("penstock", "man").stdout,
                         (self.share / "man/man1/penstock.1").read_bytes())
        self.assertEqual(must_run("penstock", "completion", "bash").stdout,
                         self.completion("penstock").read_bytes())
        for arguments, word in ((["man", "nothing"], b"penstock-nothing"),
                                (["completion", "csh"], b"csh")):
            wrong = run("penstock", *arguments)
            self.assertEqual(wrong.returncode, 2)
            self.assertEqual(wrong.stderr.count(b"\n"), 1)
            self.assertIn(word, wrong.stderr)

    def test_directory_that_cannot_be_written_is_named(self):
        for program in PROGRAMS:
            wrong = run(program, "--write-manual", "/dev/null/x")
            self.assertEqual(wrong.returncode, 1)
            self.assertIn(b"/dev/null/x", wrong.stderr)


if __name__ == "__main__":
    os.environ.pop("MANPAGER", None)
    unittest.main(verbosity=2, argv=["manual_test.py"])
