"""Penstock: GPU kernels and tensors read the host's files through one page cache.

::

    import penstock as ps

    rt = ps.Runtime(cache="8GiB")
    table = ps.open_array("model/", "embed.weight", runtime=rt)
    rows = table.gather(ids)          # ids: a CUDA tensor; so is the result, on its stream
    rt.check()                        # raises what went wrong on the GPU since

Calls on a GPU return before their work has begun, so the errors of rows come later: by the next
call of the same array, or by ``check()``. Without a GPU the same calls work on arrays of numpy.
"""
from . import _interpreter as _interpreter  # refuses a subinterpreter before all else
from ._array import Array, View, concat, describe, open_array
from ._check import check
from ._core import Layout
from ._core import version as __version__
from ._core import with_cuda as built_with_cuda
from ._errors import FormatError
from ._install import get_cmake_dir, get_include
from ._region import Region, open_region
from ._runtime import Runtime, default
from ._stats import Statistics, monitor, stats

__all__ = [
    "Array", "FormatError", "Layout", "Region", "Runtime", "Statistics", "View", "__version__",
    "built_with_cuda", "check", "concat", "default", "describe", "get_cmake_dir", "get_include",
    "monitor", "open_array", "open_region", "stats",
]
