#!/usr/bin/env python3
"""A runtime of Python beside `penstock keep`, by Runtime(share=...): keeper_test.py PROGRAM, which
is the program penstock. On CPU threads rows of a table come from memory of the operating system,
which all processes share; that they come from the keeper's cache shows on a GPU only."""
import json
import os
import select
import subprocess
import sys
import time
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

PROGRAM = sys.argv.pop(1)
ROWS, WORDS = 256, 512  # a row is a page


class keeper(common.Case):
    def setUp(self):
        super().setUp()
        self.rows = np.random.default_rng(self.seed).integers(0, 1 << 60, (ROWS, WORDS))
        self.path = self.folder / "rows"
        self.rows.tofile(self.path)
        # Processes of one user meet in this folder.
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)
        self.addCleanup(lambda: os.environ.pop("XDG_RUNTIME_DIR") if before is None
                        else os.environ.update(XDG_RUNTIME_DIR=before))

    def keep(self):
        process = subprocess.Popen([PROGRAM, "keep", "--share", "python", "--backend", "cpu",
                                    "--cache", "4MiB", "--page", "4KiB", "--json", self.path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        ready, _, _ = select.select([process.stdout], [], [], 120)
        self.assertTrue(ready, "it says nothing")
        self.assertEqual(json.loads(process.stdout.readline())["kept_bytes"], self.rows.nbytes)

    def test_it_is_linked_with_the_keeper_and_reads_the_same_rows(self):
        self.keep()
        with common.small_runtime(share="python", roots=[self.folder]) as rt:
            until = time.monotonic() + 120
            while rt.linked_processes == 0:
                self.assertLess(time.monotonic(), until, "the processes were not linked")
                time.sleep(0.01)
            table = ps.open_array(self.path, dtype="int64", shape=(ROWS, WORDS), runtime=rt)
            order = np.random.default_rng(self.seed).permutation(ROWS)
            self.assertTrue((table.gather(order) == self.rows[order]).all())
            table.close()

    def test_without_the_name_it_is_linked_with_nothing(self):
        self.keep()
        with common.small_runtime(roots=[self.folder]) as rt:
            self.assertEqual(rt.linked_processes, 0)


if __name__ == "__main__":
    unittest.main()
