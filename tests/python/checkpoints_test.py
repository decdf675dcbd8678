#!/usr/bin/env python3
"""Tensors of .safetensors files: bytes as they were written, and as the library of that name has
them, where it is installed."""
import json
import struct
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

# Name in the format, dtype here, bytes of an element.
TYPES = [("BOOL", "bool", 1), ("U8", "uint8", 1), ("I8", "int8", 1), ("U16", "uint16", 2),
         ("I16", "int16", 2), ("U32", "uint32", 4), ("I32", "int32", 4), ("U64", "uint64", 8),
         ("I64", "int64", 8), ("F16", "float16", 2), ("BF16", "bfloat16", 2), ("F32", "float32", 4),
         ("F64", "float64", 8), ("F8_E4M3", "float8_e4m3fn", 1), ("F8_E5M2", "float8_e5m2", 1)]


def write_safetensors(path, tensors):
    """tensors: name -> (type, shape, bytes)."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape),
                        "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, content in tensors.values():
            file.write(content)


class checkpoints(common.Case):
    def random_tensors(self, rng, names):
        tensors = {}
        for name in names:
            kind, _, size = self.random.choice(TYPES)
            shape = (self.random.randrange(1, 50),
                     *(self.random.randrange(1, 9) for _ in range(self.random.randrange(3))))
            count = int(np.prod(shape))
            high = 2 if kind == "BOOL" else 256
            tensors[name] = (kind, shape, rng.integers(0, high, count * size, np.uint8).tobytes())
        return tensors

    def rows_of(self, tensor, ids):
        _, shape, content = tensor
        return b"".join(content[i * (len(content) // shape[0]):][:len(content) // shape[0]]
                        for i in ids)

    def test_all_types_give_the_bytes_that_were_written(self):
        rt = self.runtime()
        rng = np.random.default_rng(self.seed)
        tensors = {kind: (kind, (9, 3), rng.integers(0, 2, 27 * size, np.uint8).tobytes())
                   for kind, _, size in TYPES}
        path = self.folder / "all.safetensors"
        write_safetensors(path, tensors)
        for kind, dtype, size in TYPES:
            with self.subTest(kind=kind), ps.open_array(path, kind, runtime=rt) as array:
                self.assertEqual((array.dtype, array.shape, array.row_bytes),
                                 (dtype, (9, 3), 3 * size))
                got = array.gather([8, 0, 3])
                self.assertEqual(got.tobytes(), self.rows_of(tensors[kind], [8, 0, 3]))
                self.assertEqual(got.itemsize, size)

    def test_random_files(self):
        rt = self.runtime()
        rng = np.random.default_rng(self.seed)
        for turn in range(10):
            tensors = self.random_tensors(rng, [f"t.{i}" for i in range(6)])
            path = self.folder / f"{turn}.safetensors"
            write_safetensors(path, tensors)
            for name, tensor in tensors.items():
                with self.subTest(turn=turn, name=name), \
                        ps.open_array(path, name, runtime=rt) as array:
                    ids = rng.integers(0, tensor[1][0], 20)
                    self.assertEqual(array.gather(ids).tobytes(), self.rows_of(tensor, ids))

    def test_shards_of_a_folder_are_one_table_in_the_order_of_their_numbers(self):
        rt = self.runtime()
        rng = np.random.default_rng(self.seed)
        parts, index = [], {}
        for file in range(3):
            tensors = {}
            for shard in range(file, 12, 3):
                content = rng.integers(0, 256, 4 * 10 * 2, np.uint8).tobytes()
                tensors[f"ngram.shard_{shard}"] = ("BF16", (4, 10), content)
                parts.append((shard, content))
                index[f"ngram.shard_{shard}"] = f"model-{file}.safetensors"
            write_safetensors(self.folder / f"model-{file}.safetensors", tensors)
        (self.folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": index}), encoding="utf-8")
        whole = b"".join(content for _, content in sorted(parts))
        with ps.open_array(self.folder, "ngram.shard_*", runtime=rt) as array:
            self.assertEqual(array.shape, (48, 10))
            self.assertEqual(np.asarray(array[:]).tobytes(), whole)
        layout = ps.describe(self.folder, "ngram.shard_*")
        self.assertEqual((layout.rows, layout.row_bytes, len(layout.pieces)), (48, 20, 12))
        with ps.open_array(layout) as array:  # the process's own runtime, of pages that suit
            self.assertEqual(array.runtime.page_bytes, layout.page_bytes)
            self.assertEqual(array.gather([47]).tobytes(), whole[-20:])
            array.runtime.close()

    def test_what_is_no_such_file_is_refused_with_its_name(self):
        rt = self.runtime()
        path = self.folder / "bad.safetensors"
        write_safetensors(path, {"a": ("F32", (2, 2), bytes(16))})
        with self.assertRaises(FileNotFoundError):
            ps.open_array(path, "b", runtime=rt)
        for content in (b"", b"\xff" * 8, struct.pack("<Q", 2) + b"{}" + b"left over"):
            path.write_bytes(content)
            with self.subTest(content=content), self.assertRaises(ps.FormatError) as caught:
                ps.open_array(path, "a", runtime=rt)
            self.assertEqual(caught.exception.filename, str(path))

    def test_files_of_the_library(self):
        try:
            from safetensors import safe_open
            from safetensors.numpy import save_file
        except ImportError:
            self.skipTest("safetensors is not installed")
        rt = self.runtime()
        rng = np.random.default_rng(self.seed)
        path = self.folder / "library.safetensors"
        save_file({"a": rng.random((100, 7), np.float32), "b": rng.integers(0, 9, (50, 2, 3)),
                   "c": rng.random((20, 4)).astype(np.float16)}, path)
        with safe_open(str(path), "np") as file:
            for name in file.keys():
                expected = file.get_tensor(name)
                with ps.open_array(path, name, runtime=rt) as array:
                    self.assertEqual(np.asarray(array[:]).tobytes(), expected.tobytes())
                    self.assertEqual(np.dtype(array.dtype), expected.dtype)


if __name__ == "__main__":
    unittest.main()
