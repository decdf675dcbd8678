"""penstock.device.numba: a kernel of Numba and the calls that it makes are compiled and linked to
code of a GPU, which needs none. gpu_kernels.py runs them. Skipped without numba-cuda, NVRTC or
nvJitLink."""
import sys
import unittest

try:
    from numba import cuda, types
    from numba.cuda import LTOIR  # noqa: F401  (numba-cuda, and not the cuda of old numba)
    from numba.cuda.cudadrv.driver import _Linker

    from penstock.device import _nvrtc
    from penstock.device import numba as device
    _nvrtc.library()
except (ImportError, OSError) as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ARCHITECTURE = (9, 0)


def rows(fs, table, ids, out):
    i = cuda.grid(1) // 32
    if i < ids.size:
        device.warp_gather_int64(device.address(fs), device.address(table),
                                 device.address_of(ids, i), 1, device.address_of(out, i))


def read(fs, path, to, results):
    fd = device.lane_open(device.address(fs), device.address(path), 0)
    results[0] = device.lane_read(device.address(fs), fd, device.address(to), to.size, 0)
    results[1] = device.lane_size(device.address(fs), fd) + device.lane_close(device.address(fs),
                                                                               fd)


def array(of, dimensions=1):
    return types.Array(of, dimensions, "C")


class Link(unittest.TestCase):
    def link(self, kernel, arguments, caller, output):
        code, _ = cuda.compile(kernel, types.void(*arguments), cc=ARCHITECTURE, device=False,
                               abi="numba", output=output)
        calls = device.calls_for(caller, 90, output)
        linker = _Linker(cc=ARCHITECTURE, lto=output == "ltoir")
        for part in (code.encode() if isinstance(code, str) else code, calls):
            (linker.add_ltoir if output == "ltoir" else linker.add_ptx)(part)
        made = linker.complete()
        return bytes(getattr(made, "code", made))

    def test_a_kernel_of_warps_by_both_ways(self):
        arguments = (array(types.uint8), array(types.uint8), array(types.int64),
                     array(types.float32, 2))
        for output in ("ltoir", "ptx"):
            try:
                cubin = self.link(rows, arguments, "warp", output)
            except Exception as error:
                if "nvJitLink" in str(error) or "nvjitlink" in str(error):
                    self.skipTest(str(error))
                raise
            self.assertEqual(cubin[:4], b"\x7fELF")
            self.assertGreater(len(cubin), 20_000)

    def test_a_kernel_of_lanes(self):
        cubin = self.link(read, (array(types.uint8), array(types.uint8), array(types.uint8),
                                 array(types.int64)), "lane", "ptx")
        self.assertEqual(cubin[:4], b"\x7fELF")

    def test_calls_are_compiled_once(self):
        first = device.calls_for("warp", 90, "ptx")
        self.assertIs(device.calls_for("warp", 90, "ptx"), first)


if __name__ == "__main__":
    unittest.main()
