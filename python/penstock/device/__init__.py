"""Calls of Penstock in kernels that are written in Python or compiled at run time.

A kernel gets the runtime and a table as references: bytes that it takes by value, or a pointer to
a copy of them in device memory (``Runtime.ref_bytes``, ``Array.ref_bytes``).

- ``penstock.device.cupy``: kernels in CUDA C++ through ``cupy.RawModule``; all calls of
  the headers.
- ``penstock.device.numba``: calls for kernels of Numba, by a warp or by a thread.

Both compile Penstock's headers by NVRTC when a kernel is first used, so they fit every architecture
that NVRTC knows. Nothing here is imported with ``import penstock``."""
