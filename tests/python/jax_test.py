#!/usr/bin/env python3
"""Arrays of jax on the host: they are read once they are there, in any layout, and not written."""
import os
import unittest

import common

os.environ.setdefault("JAX_PLATFORMS", "cpu")
common.need("numpy", "jax")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

ROWS, WIDTH = 1024, 1024


@jax.jit
def late(x):
    """Ones, after some tenths of a second."""
    for _ in range(12):
        x = x @ x / WIDTH
    return x


def in_columns(array):
    """The array, of which a column lies together."""
    try:
        from jax.experimental.layout import Format, Layout
    except ImportError as error:
        raise unittest.SkipTest("this jax has no layouts") from error
    order = Layout(major_to_minor=tuple(range(array.ndim))[::-1])
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.device_put(array, Format(order, where))


class jax_arrays(common.Case):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "rows.npy"
        np.save(self.path, np.zeros((ROWS, WIDTH), np.float32))
        self.array = ps.open_array(self.path, mode="r+", runtime=self.runtime(
            writable=True, cache="8MiB"))
        self.ids = np.arange(ROWS)

    def test_values_are_waited_for(self):
        start = jnp.ones((ROWS, WIDTH), jnp.float32)
        late(start).block_until_ready()  # compiled
        for _ in range(3):
            self.array.scatter(self.ids, np.zeros((ROWS, WIDTH), np.float32))
            self.array.scatter(self.ids, late(start))
            self.assertTrue((self.array.gather(self.ids) == 1).all())

    def test_numbers_are_waited_for(self):
        ids = jnp.arange(ROWS, dtype=jnp.int32)
        rows = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
        self.array.scatter(ids, rows)
        later = late(jnp.ones((ROWS, WIDTH), jnp.float32))[0, :].astype(jnp.int32) + 6
        got = self.array.gather(later)
        self.assertIsInstance(got, jax.Array)
        np.testing.assert_array_equal(np.asarray(got), rows[[7] * WIDTH])

    def test_any_layout(self):
        rows = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
        values = in_columns(rows)
        self.array.scatter(self.ids, values)
        np.testing.assert_array_equal(self.array.gather(self.ids), rows)
        ids = np.arange(6, dtype=np.int32).reshape(2, 3)
        np.testing.assert_array_equal(np.asarray(self.array.gather(in_columns(ids))), rows[ids])
        self.array.scatter(ids, in_columns(-rows[ids]))
        np.testing.assert_array_equal(self.array.gather(ids), -rows[ids])

    def test_no_array_is_written(self):
        out = jnp.zeros((4, WIDTH), jnp.float32)
        same = out[:]
        self.array.scatter(self.ids, np.ones((ROWS, WIDTH), np.float32))
        for ids in (np.arange(4), jnp.arange(4, dtype=jnp.int32), [0, 1, 2, 3]):
            with self.assertRaisesRegex(ValueError, "out: an array of jax cannot be written"):
                self.array.gather(ids, out=out)
        self.assertFalse(bool(same.any()) or bool(out.any()))
        with self.assertRaisesRegex(ValueError, "cannot be written"):
            self.array.gather(np.arange(4), out=jnp.zeros((1,), jnp.int8))

    def test_values_that_do_not_fit(self):
        for wrong in (jnp.zeros((4, WIDTH), jnp.int32), jnp.zeros((4, WIDTH), jnp.bfloat16),
                      jnp.zeros((3, WIDTH), jnp.float32)):
            with self.assertRaisesRegex(ValueError, "values: "):
                self.array.scatter(np.arange(4), wrong)


if __name__ == "__main__":
    unittest.main()
