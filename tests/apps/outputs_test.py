"""Files that programs make: which users may open them; none goes over another file of the run.

Usage: outputs_test.py FOLDER_OF_PROGRAMS
"""

import errno
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import unittest

import programs

OWNER, GROUP, OTHER = 2000, 2001, 65534
IS_ROOT = os.geteuid() == 0


def rights(path):
    found = path.stat()
    return (oct(stat.S_IMODE(found.st_mode)), found.st_uid, found.st_gid)


def give(path, mode, owner=OWNER, group=GROUP):
    os.chown(path, owner, group)
    path.chmod(mode)


def makers(folder):
    """Commands that make several files, or a file of inputs: (case, files)."""
    a, b = folder / "first", folder / "second"
    all_of_them = [
        (["penstock-matrix", "make-vector", "--rows", 3, "--cols", 3, "-o", a, "-x", b], [a, b]),
        (["penstock-matrix", "make-product", "--m", 3, "--n", 3, "--k", 3, "-a", a, "-b",
          b], [a, b]),
        (["penstock", "trace", "generate", "-o", a, "--data", b, "--pages", 3, "--accesses",
          3], [a, b]),
        ([*["penstock-stitch", "make", "-o", a, "--rows", 1, "--columns", 1],
          *["--tile", "64x48"]], [a])
    ]
    return [made for made in all_of_them if programs.is_there(made[0][0])]


@unittest.skipUnless(IS_ROOT, "only root gives files away")
class Rights(programs.InFolder):
    def test_bits_that_run_a_program_as_its_owner_are_lost(self):
        for number, case in enumerate(programs.cases(self.inputs, self.folder / "out")):
            if case.name in ("cp", "collage index"):
                continue  # in place; a folder
            with self.subTest(case=case.name):
                case.made.write_bytes(b"older")
                give(case.made, 0o6755)
                programs.must_run(case.program, *case.arguments)
                self.assertNotEqual(case.made.read_bytes(), b"older", number)
                self.assertEqual(rights(case.made), ("0o755", OWNER, GROUP))
                case.made.unlink()

    def test_every_file_of_a_command_takes_rights(self):
        for arguments, files in makers(self.folder):
            with self.subTest(arguments=arguments[:3]):
                for path in files:
                    path.write_bytes(b"older")
                    give(path, 0o6640)
                programs.must_run(*arguments)
                for path in files:
                    self.assertEqual(rights(path), ("0o640", OWNER, GROUP))
                    path.unlink()

    def test_private_library_stays_private(self):
        if not programs.is_there("penstock-collage"):
            self.skipTest("not built")
        library = self.folder / "library"
        index = ["penstock-collage", "index", self.inputs / "pictures", "-o", library, "--quiet"]
        programs.must_run(*index)
        usual = rights(library), rights(library / "header")
        for path in library.iterdir():
            give(path, 0o600)
        give(library, 0o2700)
        programs.must_run(*index)
        self.assertEqual(rights(library), ("0o2700", OWNER, GROUP))
        for path in library.iterdir():
            self.assertEqual(rights(path), ("0o600", OWNER, GROUP))
        shutil.rmtree(library)
        programs.must_run(*index)
        self.assertEqual((rights(library), rights(library / "header")), usual)

    def as_other(self, source, out, groups=()):
        """Replaces the file as a user without rights of root, in a folder where it may."""
        program = self.folder / "penstock"
        if not program.exists():
            shutil.copy(programs.BIN / "penstock", program)
            program.chmod(0o755)
        self.folder.chmod(0o777)
        programs.must_run(*[program, "cat", source, "--out", out, "--quiet", *programs.BACKEND],
                          user=OTHER, group=OTHER, extra_groups=groups)

    def test_no_rights_are_gained_where_the_owner_is_lost(self):
        source, out = self.folder / "source", self.folder / "out"
        source.write_bytes(b"newer")
        # A group that is lost: members of the new one were others, and its own are others now.
        for mode, groups, group, expected in ((0o6777, (), OTHER, 0o777), (0o606, (), OTHER, 0o600),
                                              (0o646, (), OTHER, 0o644), (0o666, (), OTHER, 0o666),
                                              (0o2664, (GROUP, ), GROUP, 0o664), (0o660, (GROUP, ),
                                                                                  GROUP, 0o660)):
            with self.subTest(mode=oct(mode), groups=groups):
                out.write_bytes(b"older")
                give(out, mode)
                self.as_other(source, out, groups)
                self.assertEqual(out.read_bytes(), b"newer")
                self.assertEqual(rights(out), (oct(expected), OTHER, group))
                out.unlink()

    def test_further_users_stay_and_none_come(self):
        def listed(*entries):
            return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)

        name, no_id = "system.posix_acl_access", 0xFFFFFFFF
        one_user = listed(*[(1, 6, no_id), (2, 6, 4000), (4, 0, no_id), (16, 6,
                                                                         no_id), (32, 0, no_id)])
        source, out = self.folder / "source", self.folder / "out"
        source.write_bytes(b"newer")
        out.write_bytes(b"older")
        give(out, 0o640)
        try:
            os.setxattr(out, name, one_user)
        except OSError as failed:
            self.skipTest(f"no lists of users here: {failed}")
        cat = ["penstock", "cat", source, "--out", out, "--quiet", *programs.BACKEND]
        programs.must_run(*cat)
        self.assertEqual(os.getxattr(out, name), one_user)
        self.assertEqual(rights(out), ("0o660", OWNER, GROUP))
        out.unlink()
        out.write_bytes(b"older")
        give(out, 0o640)
        os.setxattr(self.folder, "system.posix_acl_default", one_user)
        programs.must_run(*cat)
        with self.assertRaises(OSError) as none:
            os.getxattr(out, name)
        self.assertEqual(none.exception.errno, errno.ENODATA)
        self.assertEqual(rights(out), ("0o640", OWNER, GROUP))

    def one_file_cases(self, out):
        return [
            case for case in programs.cases(self.inputs, out)
            if case.name not in ("cp", "collage index")  # in place; a folder
        ]

    def test_link_of_another_user_in_a_sticky_folder_is_not_followed(self):
        """As by open() with fs.protected_symlinks, also where the target is not there yet."""
        shared, target = self.folder / "shared", self.folder / "target.ppm"
        shared.mkdir()
        shared.chmod(0o1777)
        for case in self.one_file_cases(shared / "out"):
            case.made.symlink_to(target)
            os.lchown(case.made, OTHER, OTHER)
            for old in (b"older", None):
                with self.subTest(case=case.name, old=old):
                    if old is not None:
                        target.write_bytes(old)
                    ran = programs.run(case.program, *case.arguments, "--quiet")
                    self.assertEqual(ran.returncode, 1, ran.stderr)
                    self.assert_one_line(ran.stderr, "EACCES", "give another name")
                    self.assertEqual(target.exists(), old is not None)
                    if old is not None:
                        self.assertEqual(target.read_bytes(), old)
                        target.unlink()
                    self.assertEqual(os.listdir(shared), [case.made.name])
            case.made.unlink()

    def test_links_that_the_kernel_follows_are_followed(self):
        """The user's own, one of the folder's owner, and any in a folder that is not sticky."""
        shared, out = self.folder / "shared", self.folder / "shared" / "out"
        target = self.folder / "target"
        shared.mkdir()
        out.symlink_to(target)
        cat = ["penstock", "cat", self.inputs / "text", "--out", out, "--quiet", *programs.BACKEND]
        for folder, link, mode in ((OTHER, 0, 0o1777), (OTHER, OTHER, 0o1777), (0, OTHER, 0o777)):
            with self.subTest(folder=folder, link=link, mode=oct(mode)):
                give(shared, mode, folder, folder)
                os.lchown(out, link, link)
                programs.must_run(*cat)
                self.assertEqual(target.read_bytes(), (self.inputs / "text").read_bytes())
                target.unlink()

    def test_file_is_private_until_it_is_whole(self):
        """Also with a name of its own beside its place."""
        out = self.folder / "trace"
        process = programs.start(*["penstock", "trace", "generate", "-o", out, "--pages", 10],
                                 *["--accesses", 10_000_000_000, "--data", self.folder / "data"])
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        while not list(self.folder.glob(".penstock.*")) and process.poll() is None:
            pass
        for passing in self.folder.glob(".penstock.*"):
            self.assertEqual(rights(passing)[0], "0o600")
        process.terminate()
        process.communicate(timeout=120)


class Names(programs.InFolder):
    def test_another_user_cannot_take_the_passing_names_first(self):
        """By the number of the process, which all users see."""
        out = self.folder / "out"

        def take_them():  # in the process, before it is the program
            for number in range(100):
                (self.folder / f".penstock.{os.getpid()}.{number}").touch()

        cat = ["cat", self.inputs / "text", "--out", out, "--quiet", *programs.BACKEND]
        programs.must_run("penstock", *cat, preexec_fn=take_them)
        self.assertEqual(out.read_bytes(), (self.inputs / "text").read_bytes())
        self.assertEqual(len(list(self.folder.glob(".penstock.*"))), 100)


@unittest.skipUnless(programs.COMPILER, "needs a compiler, for closes that fail")
class Closes(programs.InFolder):
    """What a file system says only at the close, as those of networks do, is an error."""

    def setUp(self):
        super().setUp()
        self.place = self.folder / "place"
        self.place.mkdir()
        self.environment = programs.with_failing_close(self.folder, self.place)

    def assert_no_room(self, ran, *old):
        """One line, status 1, and the files as they were."""
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assert_one_line(ran.stderr, "EDQUOT", "make room below your quota")
        self.assertEqual(sorted(self.place.iterdir()), sorted(old))
        for path in old:
            self.assertEqual(path.read_bytes(), b"older")

    def test_the_old_file_stays(self):
        for case in programs.cases(self.inputs, self.place / "out"):
            if case.name in ("cp", "collage index"):
                continue  # in place; a folder
            with self.subTest(case=case.name):
                case.made.write_bytes(b"older")
                ran = programs.run(case.program, *case.arguments, "--quiet", env=self.environment)
                self.assert_no_room(ran, case.made)
                case.made.unlink()

    def test_no_file_of_a_command_is_replaced(self):
        """Also where only one of them fails."""
        for arguments, files in makers(self.folder):
            for failing in files:
                with self.subTest(arguments=arguments[:3], failing=failing.name):
                    there = [(self.place if path == failing else self.folder) / path.name
                             for path in files]
                    for path in there:
                        path.write_bytes(b"older")
                    given = [dict(zip(files, there)).get(each, each) for each in arguments]
                    ran = programs.run(*given, "--quiet", env=self.environment)
                    self.assert_no_room(ran, self.place / failing.name)
                    for path in there:
                        self.assertEqual(path.read_bytes(), b"older")
                        path.unlink()

    def test_standard_output(self):
        out = self.place / "out"
        for case in programs.cases(self.inputs, None):
            if case.name not in ("grep", "match", "cat"):
                continue
            at = case.arguments.index("--out")
            given = case.arguments[:at] + case.arguments[at + 2:]
            for more in ([], ["--out", "/dev/stdout"]):
                with self.subTest(case=case.name, more=more), open(out, "wb") as stream:
                    ran = programs.run(*[case.program, *given, *more, "--quiet"],
                                       env=self.environment, stdout=stream, stderr=subprocess.PIPE)
                    self.assertEqual(ran.returncode, 1, ran.stderr)
                    self.assert_one_line(ran.stderr, "EDQUOT")


class Inputs(programs.InFolder):
    """An output that is an input, by any name, is refused, and the input is as it was."""

    def refused(self, output, shown_input, program, *arguments):
        before = output.read_bytes()
        ran = programs.run(program, *arguments)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assert_one_line(ran.stderr, "is the input", f"'{shown_input}'", "give another name")
        self.assertEqual(output.read_bytes(), before)

    def linked(self, path, end=""):
        """The file, and other names of it."""
        links = [self.folder / f"soft{end}", self.folder / f"hard{end}"]
        links[0].symlink_to(path)
        os.link(path, links[1])
        return [path, pathlib.Path(os.path.relpath(path)), *links]

    def test_grep(self):
        words, tree = self.folder / "words", self.folder / "tree"
        (tree / "below").mkdir(parents=True)
        text = tree / "below" / "text"
        words.write_text("one\n")
        text.write_text("one\n")
        for path in (words, text):
            for out in self.linked(path, path.name):
                with self.subTest(out=out):
                    self.refused(
                        *[path, path, "penstock-grep", "--dict", words, tree, "--out", out],
                        *programs.BACKEND)
        new = tree / "below" / "new"
        for _ in range(2):  # what is not there yet is none of the files that are searched
            programs.must_run("penstock-grep", "--dict", words, text, "--out", new,
                              *programs.BACKEND)
        self.assertEqual(new.read_text(), f"one\t{text}\t1\n")

    def test_match(self):
        queries = programs.write_images(self.folder / "queries", 3)
        database = programs.write_images(self.folder / "database", 4)
        for path in (queries, database):
            for out in self.linked(path, path.name):
                with self.subTest(out=out):
                    self.refused(
                        *[path, path, "penstock-match", queries, self.inputs / "images", database],
                        *["--threshold", 0.5, "--out", out, *programs.BACKEND])

    def test_collage(self):
        picture = programs.write_ppm(self.folder / "picture.ppm", 64, 64)
        library = self.folder / "library"
        shutil.copytree(self.inputs / "library", library)
        for path in (picture, library / "header", library / "tiles", library / "lsh-31"):
            for out in self.linked(path, f"{path.name}.ppm"):
                if out.suffix != ".ppm":
                    continue  # that name is refused for its end
                with self.subTest(out=out):
                    self.refused(
                        *[path, path, "penstock-collage", "make", picture, library, "-o", out],
                        *programs.BACKEND)


class TwoOutputs(programs.InFolder):
    """Two outputs of a command that are one file are refused, also one that is not there yet."""

    def same_names(self):
        """Two names of one file each; none is there yet."""
        real, link = self.folder / "real", self.folder / "link"
        real.mkdir()
        link.symlink_to(real)
        (self.folder / "soft").symlink_to(real / "z")
        (self.folder / "softer").symlink_to("soft")
        old = self.folder / "old"
        old.write_bytes(b"older")
        os.link(old, self.folder / "older")
        return [("z", "z"), ("z", "./z"), (self.folder / "z", "z"), ("real/z", "link/z"),
                ("soft", "link/z"), ("softer", "real/../soft"), ("old", "older")]

    def test_one_file_for_two_outputs(self):
        names = self.same_names()
        before = sorted(self.folder.rglob("*"))
        for arguments, files in makers(self.folder):
            for pair in names if len(files) == 2 else []:
                with self.subTest(arguments=arguments[:3], pair=pair):
                    given = [dict(zip(files, pair)).get(each, each) for each in arguments]
                    ran = programs.run(*given, cwd=self.folder)
                    self.assertEqual(ran.returncode, 1, ran.stderr)
                    self.assert_one_line(ran.stderr, "too; give another name")
                    self.assertEqual(sorted(self.folder.rglob("*")), before)
                    self.assertEqual((self.folder / "old").read_bytes(), b"older")

    def test_names_that_differ_are_two_files(self):
        self.same_names()
        for arguments, files in makers(self.folder):
            for pair in [("z", "real/z"), ("old", "new"), ("z", "Z")] if len(files) == 2 else []:
                with self.subTest(arguments=arguments[:3], pair=pair):
                    given = [dict(zip(files, pair)).get(each, each) for each in arguments]
                    programs.must_run(*given, cwd=self.folder)
                    for name in pair:
                        self.assertGreater((self.folder / name).stat().st_size, 0)
                        (self.folder / name).unlink()
                    (self.folder / "old").write_bytes(b"older")

    def test_images_of_two_machines_that_are_one_file(self):
        (self.folder / "image.2").symlink_to("image.0")
        ran = programs.run(
            *["penstock", "trace", "generate", "-o", "t", "--pages", 3, "--accesses", 3],
            *["--machines", 3, "--data", "image"], cwd=self.folder)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assert_one_line(ran.stderr, "'image.2' is 'image.0' too")
        self.assertEqual(os.listdir(self.folder), ["image.2"])


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["outputs_test.py"])
