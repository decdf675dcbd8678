#!/usr/bin/env python3
"""An extension of PyTorch, in CUDA C++, whose kernel reads rows of a file.

    torch_extension.py

Needs nvcc and a GPU: elsewhere it ends with status 77. torch.utils.cpp_extension compiles the
kernel with Penstock's headers; no library is linked, for the runtime is that of the package."""
from __future__ import annotations

import pathlib
import sys
import tempfile

try:
    import torch
    from torch.utils.cpp_extension import CUDA_HOME, load_inline
except ImportError as missing:
    print(f"needs PyTorch: {missing}", file=sys.stderr)
    sys.exit(77)

import penstock as ps

# Sums the elements of rows that lie in a file, without writing a row to memory: each warp reads a
# row into shared memory.
SOURCE = r"""
#include <cstring>
#include <string>

#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include "penstock/table.hpp"

__global__ void sum_rows(const __grid_constant__ penstock::runtime_ref fs,
                         const __grid_constant__ penstock::table_ref table,
                         const std::int64_t* ids, std::int64_t count, float* sums) {
    extern __shared__ float4 memory[];
    const auto warp = penstock::this_warp();
    const unsigned in_block = threadIdx.x / 32;
    const std::int64_t i = blockIdx.x * (blockDim.x / 32) + in_block;
    if (i >= count) return;
    float* const row = reinterpret_cast<float*>(memory) + in_block * (table.row_bytes() / 4);
    const std::int64_t got = penstock::read_row(warp, fs, table, ids[i], row);
    float sum = 0;
    for (std::int64_t at = warp.rank(); at < got / 4; at += 32) sum += row[at];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (warp.is_leader()) sums[i] = sum;
}

// `fs` and `table` are the bytes that Runtime.ref_bytes and Array.ref_bytes give.
torch::Tensor sum(const std::string& fs, const std::string& table, torch::Tensor ids) {
    penstock::runtime_ref runtime;
    penstock::table_ref rows;
    TORCH_CHECK(fs.size() == sizeof runtime && table.size() == sizeof rows,
                "the references are of another version of Penstock");
    std::memcpy(&runtime, fs.data(), sizeof runtime);
    std::memcpy(&rows, table.data(), sizeof rows);
    const std::int64_t count = ids.numel();
    auto sums = torch::empty({count}, ids.options().dtype(torch::kFloat32));
    if (count == 0) return sums;
    sum_rows<<<(count + 3) / 4, 128, 4 * rows.row_bytes(),
               c10::cuda::getCurrentCUDAStream()>>>(runtime, rows, ids.data_ptr<std::int64_t>(),
                                                    count, sums.data_ptr<float>());
    return sums;
}
"""


def main() -> None:
    if CUDA_HOME is None or not torch.cuda.is_available():
        print("needs nvcc and a GPU", file=sys.stderr)
        sys.exit(77)
    extension = load_inline(  # type: ignore[no-untyped-call, unused-ignore]
        "penstock_sum_rows", cpp_sources="#include <string>\ntorch::Tensor sum(const std::string&, "
        "const std::string&, torch::Tensor);", cuda_sources=SOURCE, functions=["sum"],
        extra_cflags=["-std=c++20"],
        extra_cuda_cflags=["-std=c++20", "--expt-relaxed-constexpr"],
        extra_include_paths=[ps.get_include()])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows.bin")
        rows = torch.randint(0, 100, (10_000, 64)).float()
        path.write_bytes(rows.numpy().tobytes())
        with ps.Runtime(device="gpu", cache="16MiB", page=512, log=None) as rt:
            table = ps.open_array(path, dtype="float32", shape=(-1, 64), runtime=rt)
            ids = torch.randint(0, len(table), (5000,), device="cuda")
            sums = extension.sum(rt.ref_bytes(), table.ref_bytes(), ids)
            torch.cuda.synchronize()
            rt.check()
            right = torch.equal(sums.cpu(), rows[ids.cpu()].sum(dim=1))
    print("right" if right else "WRONG")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
