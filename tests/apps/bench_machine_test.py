"""tools/bench_machine.py: what of a file is in memory.

Usage: bench_machine_test.py FOLDER_OF_TOOLS
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, TOOLS)
import bench_machine  # noqa: E402  pylint: disable=wrong-import-position


class ResidentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "file"
        self.file.write_bytes(os.urandom(1 << 20))

    def test_what_was_just_written_is_there(self):
        self.assertEqual(bench_machine.resident_share(self.file), 1)
        self.assertIn(bench_machine.drop_from_page_cache(self.file), (0, 1))  # 1: it lies in memory
        self.file.write_bytes(b"")
        self.assertEqual(bench_machine.resident_share(self.file), 0)

    def test_a_file_takes_no_memory(self):
        limit = 256 << 20
        os.truncate(self.file, 16 * limit)
        said = subprocess.run([
            sys.executable, "-Bc",
            "import bench_machine, sys; print(bench_machine.resident_share(sys.argv[1]))", self.file
        ], cwd=TOOLS, capture_output=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA,
                                                                    (limit, limit)))
        self.assertEqual((said.returncode, said.stderr), (0, b""))
        self.assertLess(float(said.stdout), 0.01)

    @unittest.skipUnless(os.geteuid() == 0, "only root makes files of other users")
    def test_of_files_of_others_it_cannot_be_told(self):
        self.folder.chmod(0o755)
        self.file.chmod(0o644)
        os.seteuid(65534)
        try:
            shares = bench_machine.resident_share(self.file)
            dropped = bench_machine.drop_from_page_cache(self.file)
        finally:
            os.seteuid(0)
        self.assertEqual((shares, dropped), (None, None))
        os.chown(self.file, 65534, 65534)
        os.seteuid(65534)
        try:
            self.assertIsNotNone(bench_machine.resident_share(self.file))
        finally:
            os.seteuid(0)


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["bench_machine_test.py"])
