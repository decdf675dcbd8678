#!/usr/bin/env python3
"""Files that numpy and safetensors write are described as these libraries read them:
written_by_others_test.py PRINT_LAYOUT. Exit status 77 if neither library is installed."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
except ImportError:
    sys.exit(77)
try:
    import safetensors.numpy
except ImportError:
    safetensors = None

PRINT_LAYOUT = sys.argv.pop(1) if len(sys.argv) > 1 else sys.exit(__doc__)
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64"]


def layout(path, *tensor):
    ran = subprocess.run([PRINT_LAYOUT, str(path), *tensor], capture_output=True, text=True,
                         check=False, timeout=60)
    return json.loads(ran.stdout) if ran.returncode == 0 else ran.stderr


def bytes_of_rows(found):
    """All rows, read from where the layout says that they lie."""
    out = b""
    for piece in found["pieces"]:
        with open(piece["path"], "rb") as file:
            for row in range(piece["rows"]):
                file.seek(piece["first_byte"] + row * found["stride_bytes"])
                out += file.read(found["row_bytes"])
    return out


def random_array(dtype, shape):
    count = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
    values = numpy.frombuffer(os.urandom(count), dtype="uint8")
    return (values & 1 if dtype == "bool" else values).view(dtype).reshape(shape)


class WrittenByOthers(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def compare(self, found, array):
        self.assertIsInstance(found, dict, found)
        self.assertEqual(found["dtype"], array.dtype.name)
        self.assertEqual(found["row_shape"], list(array.shape[1:]))
        self.assertEqual(bytes_of_rows(found), array.tobytes())

    def test_npy(self):
        for dtype in DTYPES + ["complex64", "complex128"]:
            for shape in ((5,), (7, 3), (2, 3, 4)):
                array = random_array(dtype, shape)
                path = self.folder / "a.npy"
                numpy.save(path, array)
                self.compare(layout(path), array)
                with open(path, "wb") as file:
                    numpy.lib.format.write_array(file, array, version=(2, 0))
                self.compare(layout(path), array)

    def test_npy_raw_bytes(self):
        path = self.folder / "a.npy"
        records = numpy.zeros(4, dtype=[("a", "<f4"), ("b", "<i2")])
        numpy.save(path, records)
        self.assertIn("records", layout(path))
        numpy.save(path, records.view(f"V{records.itemsize}"))  # the cure that the message names
        found = layout(path)
        self.assertEqual((found["row_bytes"], found["dtype"]), (6, ""))
        self.assertEqual(bytes_of_rows(found), records.tobytes())

    def test_npy_orders(self):
        path = self.folder / "a.npy"
        array = random_array("int32", (4, 3))
        numpy.save(path, numpy.asfortranarray(array))
        self.assertIn("Fortran", layout(path))
        big = array.astype(">i4")
        numpy.save(path, big)
        self.assertIn("highest byte", layout(path))
        numpy.save(path, big.astype(big.dtype.newbyteorder("<")))  # likewise
        self.compare(layout(path), array)

    @unittest.skipIf(safetensors is None, "no safetensors")
    def test_safetensors(self):
        arrays = {f"t.{dtype}": random_array(dtype, (3, 5)) for dtype in DTYPES}
        arrays["vector"] = random_array("float32", (9,))
        path = self.folder / "m.safetensors"
        safetensors.numpy.save_file(arrays, path, metadata={"format": "np"})
        for name, array in arrays.items():
            self.compare(layout(path, name), array)

    @unittest.skipIf(safetensors is None, "no safetensors")
    def test_checkpoint(self):
        shards = [random_array("float16", (i + 1, 4)) for i in range(12)]
        weight_map = {}
        for number in range(3):
            name = f"model-{number}.safetensors"
            inside = {f"e.shard_{i}": shards[i] for i in range(12) if i % 3 == number}
            safetensors.numpy.save_file(inside, self.folder / name)
            weight_map |= dict.fromkeys(inside, name)
        (self.folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        self.compare(layout(self.folder, "e.shard_*"), numpy.concatenate(shards))


if __name__ == "__main__":
    unittest.main()
