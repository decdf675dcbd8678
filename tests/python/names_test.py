#!/usr/bin/env python3
"""Names of files that are no UTF-8: whatever takes a path takes them, as bytes and as text of
os.fsdecode(), and every error and text tells them."""
import errno
import json
import os
import pathlib
import sys
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import agent  # noqa: E402
from penstock._seats import Seats  # noqa: E402
from checkpoints_test import write_safetensors  # noqa: E402

NAMES = (b"\xff\xfe", b"caf\xe9", b"cut \xe6\x97", "größe".encode(), b"\xed\xa0\x80", b"a\n'b\"\\")

CHILD = """
import os, sys, penstock as ps
with ps.Runtime("cpu", cache="2MiB", page="4KiB", log=None, roots=[sys.argv[1]]) as rt:
    path = os.path.join(os.fsencode(sys.argv[1]), b"caf\\xe9")
    for name in (path, os.fsdecode(path)):
        with ps.open_array(name, dtype="uint8", shape=(-1, 8), runtime=rt) as array:
            assert os.fsencode(array.path) == path, array
            assert array.gather([1]).tolist() == [list(range(8, 16))]
    try:
        ps.open_array(path + b"\\xff", dtype="uint8", runtime=rt)
    except FileNotFoundError as error:
        assert os.fsencode(error.filename) == path + b"\\xff", error.filename
        print(error)
"""


class Bytes:
    """A path of bytes, as os.DirEntry of a folder of bytes is."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


class names(common.Case):
    def setUp(self):
        super().setUp()
        self.home = os.fsencode(self.folder)
        self.rows = np.arange(4096, dtype=np.uint8).reshape(512, 8)

    def forms_of(self, name):
        """The path of that file in every way to say it, and as text."""
        path = os.path.join(self.home, name)
        text = os.fsdecode(path)
        return (path, text, pathlib.Path(text), Bytes(path)), text

    def test_rows_and_regions_of_any_name(self):
        rt = self.runtime(writable=True, roots=[self.home])
        for name in NAMES:
            forms, text = self.forms_of(name)
            self.rows.tofile(text)
            for path in forms:
                with self.subTest(path=path):
                    with ps.open_array(path, dtype="uint8", shape=(-1, 8), mode="r+",
                                       runtime=rt) as array:
                        self.assertEqual(array.path, text)
                        self.assertEqual(array.layout.pieces, [(text, 0, 512)])
                        self.assertIn(repr(text), repr(array))
                        self.assertTrue((array[[5, 511]] == self.rows[[5, 511]]).all())
                        array.scatter([5], self.rows[5:6])
                        array.sync()
                        array.prefetch(slice(0, 64))
                        array.will_need([3])
                        array.advise("sequential")
                        with ps.concat([array, array]) as both:
                            self.assertTrue((both[600] == self.rows[88]).all())
                    with ps.open_array(ps.describe(path, dtype="uint8", shape=(-1, 8)),
                                       runtime=rt) as array:
                        self.assertEqual(array.path, text)
                        array.windows()
                    with ps.open_region(path, "r+", "uint8", runtime=rt) as region:
                        self.assertEqual(region.path, text)
                        self.assertIn(repr(text), repr(region))
                        self.assertEqual(bytes(np.asarray(region)[:9]), bytes(range(9)))
                        self.assertEqual(region.placement[0], "filled")

    def test_headers_and_folders_of_any_name(self):
        rt = self.runtime()
        for name in NAMES:
            folder = os.path.join(self.home, name)
            os.mkdir(folder)
            inside = os.path.join(folder, b"of_" + name + b".npy")
            with open(inside, "wb") as file:
                np.save(file, self.rows)
            write_safetensors(os.path.join(folder, b"one.safetensors"),
                              {"w": ("U8", (512, 8), self.rows.tobytes())})
            index = os.path.join(folder, b"model.safetensors.index.json")
            with open(index, "w", encoding="utf-8") as file:
                json.dump({"weight_map": {"w": "one.safetensors"}}, file)
            for form in (folder, os.fsdecode(folder)):
                for path, tensor in ((form, "w"), (os.fsdecode(inside), ""), (inside, "")):
                    with self.subTest(path=path), ps.open_array(path, tensor,
                                                                runtime=rt) as array:
                        self.assertTrue((array.gather([7, 8]) == self.rows[7:9]).all())
            with self.subTest(check=name):
                findings = ps.check(folder)
                text = "\n".join(map(str, findings))
                text.encode()  # can be printed
                self.assertTrue(next(f for f in findings if f.name == "rows").works, text)

    def test_errors_have_the_name_and_can_be_printed(self):
        rt = self.runtime(log=(lines := []).append)
        for name in NAMES:
            forms, text = self.forms_of(name)
            for path in forms:
                with self.subTest(path=path):
                    for call in (lambda: ps.open_array(path, dtype="uint8", runtime=rt),
                                 lambda: ps.describe(path, dtype="uint8"),
                                 lambda: ps.open_region(path, runtime=rt),
                                 lambda: agent.warm(path, socket=path)):
                        with self.assertRaises(FileNotFoundError) as caught:
                            call()
                        self.assertEqual(caught.exception.filename, text)
                        self.assertEqual(caught.exception.errno, errno.ENOENT)
                        str(caught.exception).encode()
                        told = caught.exception.strerror.lstrip("'")  # OSError adds the name
                        self.assertFalse(told.startswith(os.fsdecode(self.home)), told)
            with open(text + ".npy", "wb") as file:
                file.write(b"no header")
            with self.assertRaises(ps.FormatError) as caught:
                ps.open_array(text + ".npy", runtime=rt)
            self.assertEqual(caught.exception.filename, text + ".npy")
            str(caught.exception).encode()
            self.rows.tofile(text)
            with ps.open_array(text, dtype="uint8", shape=(-1, 8), runtime=rt) as array:
                with self.assertRaises(IndexError) as caught:
                    array.gather([512])
                self.assertIn(name.decode("utf-8", "backslashreplace"),
                              str(caught.exception).replace("\\n", "\n"))
                str(caught.exception).encode()
                os.truncate(text, 8)
                with self.assertRaises(OSError) as caught:
                    array.gather(np.arange(500))
                str(caught.exception).encode()
            os.unlink(text)
        "\n".join(lines).encode()

    def test_text_that_stands_for_no_bytes_is_refused(self):
        rt = self.runtime()
        for wrong in ("\ud800", "a\udfffb", "\U0001f600\udbff", "a\0b", b"a\0b"):
            for call in (lambda: ps.open_array(wrong, runtime=rt), lambda: ps.describe(wrong),
                         lambda: ps.open_region(wrong, runtime=rt), lambda: ps.check(wrong),
                         lambda: agent.warm(wrong), lambda: self.runtime(roots=[wrong]),
                         lambda: self.runtime(block_store=wrong)):
                with self.subTest(wrong=wrong), self.assertRaises(ValueError) as caught:
                    call()
                str(caught.exception).encode()
        for wrong in (None, 3, 4.5, ["a"]):
            with self.subTest(wrong=wrong), self.assertRaises(TypeError):
                ps.open_region(wrong, runtime=rt)

    def test_options_and_labels_take_any_bytes(self):
        path = os.path.join(self.home, b"socket \xff")
        os.mkdir(path)  # a root is there
        for form in (path, os.fsdecode(path), Bytes(path)):
            rt = self.runtime(roots=[self.home, form], block_store=form)
            self.assertIn("socket \\xff", rt.settings()["block_store"])
            self.assertIn("socket \\xff", rt.settings()["roots"])
            rt.close()
        text = ps.stats(self.runtime()).to_prometheus({"path": os.fsdecode(b"\xff"), "other": "é"})
        self.assertIn('{path="?",other="é"', text)
        seats = Seats(["a", "b"])
        self.assertEqual(sum(map(len, seats.shares(os.fsdecode(path), 9 << 21,
                                                   ["a", "b"]).values())), 9)

    def test_python_in_a_locale_without_letters(self):
        self.rows.tofile(os.path.join(self.home, b"caf\xe9"))
        for more in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                     {"LC_ALL": "C"}):
            with self.subTest(**more):
                done = self.child(CHILD, str(self.folder), env={**os.environ, **more})
                self.assertEqual((done.stderr, done.returncode), ("", 0))
                self.assertIn("caf", done.stdout)


if __name__ == "__main__":
    if sys.getfilesystemencoding() != "utf-8":
        print("skipped: names of files are no UTF-8 in this locale")
        sys.exit(common.SKIPPED)
    unittest.main()
