// launch: runs one function object over many groups, on either back end.
//
//   struct sum_bytes {
//       template <typename Group>
//       PENSTOCK_HD void operator()(const Group& g, const penstock::runtime_ref& fs, std::uint64_t index) const;
//   };
//   penstock::launch<penstock::width::warp>(rt, 1000, sum_bytes{...});
//
// gpu: a kernel of groups of that width, as many at a time as fit. cpu: one logical group at a time per worker thread,
// each a single lane. Files compiled by a plain C++ compiler can launch on cpu only.
//
// Blocks until all groups are done. Returns 0; -EOPNOTSUPP; -ECANCELED after an interrupt; -EIO if the kernel faulted
// (runtime.health() says how).
#pragma once

#include <atomic>
#include <cstdint>

#include "penstock/runtime.hpp"

#if defined(__CUDACC__)
#include "penstock/group/block.cuh"
#include "penstock/group/warp.cuh"
#endif

namespace penstock {

enum class width { lane, warp, block };

// Shape of a gpu launch; ignored on cpu. 0 blocks: as many as are resident at once.
struct launch_shape {
    std::uint32_t threads_per_block = 256;
    std::uint32_t blocks = 0;
};

#if defined(__CUDACC__)
namespace detail {

template <width Width>
struct group_for;
template <>
struct group_for<width::lane> {
    using type = lane;
    static PENSTOCK_D std::uint32_t per_block() { return blockDim.x; }
};
template <>
struct group_for<width::warp> {
    using type = warp;
    static PENSTOCK_D std::uint32_t per_block() { return blockDim.x / 32; }
};
template <>
struct group_for<width::block> {
    using type = block;
    static PENSTOCK_D std::uint32_t per_block() { return 1; }
};

template <width Width, typename Function>
__global__ void run_groups(const __grid_constant__ runtime_ref fs, std::uint64_t groups,
                           const __grid_constant__ Function function) {
    using traits = group_for<Width>;
    const typename traits::type g{};
    const std::uint32_t in_block = Width == width::block ? 0 : threadIdx.x / (Width == width::warp ? 32 : 1);
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * traits::per_block() + in_block; i < groups;
         i += std::uint64_t{gridDim.x} * traits::per_block())
        function(g, fs, i);
}

template <width Width, typename Function>
int launch_on_gpu(runtime& rt, std::uint64_t groups, const Function& function, const launch_shape& shape) {
    int device = 0, multiprocessors = 0, resident = 0;
    cudaGetDevice(&device);
    if (cudaSetDevice(rt.settings().device) != cudaSuccess) return -ENODEV;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, rt.settings().device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, run_groups<Width, Function>,
                                                  static_cast<int>(shape.threads_per_block), 0);
    const std::uint32_t per_block = Width == width::block  ? 1
                                    : Width == width::warp ? shape.threads_per_block / 32
                                                           : shape.threads_per_block;
    std::uint64_t blocks = shape.blocks != 0 ? shape.blocks : std::uint64_t(multiprocessors) * (resident > 0 ? resident : 1);
    if (blocks > (groups + per_block - 1) / per_block) blocks = (groups + per_block - 1) / per_block;
    cudaError_t code = cudaSuccess;
    if (blocks > 0) {
        cudaStream_t stream = nullptr;
        code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (code == cudaSuccess) {
            run_groups<Width><<<static_cast<unsigned>(blocks), shape.threads_per_block, 0, stream>>>(rt.ref(), groups,
                                                                                                    function);
            code = cudaGetLastError();
            const cudaError_t ran = cudaStreamSynchronize(stream);
            if (code == cudaSuccess) code = ran;
            cudaStreamDestroy(stream);
        }
    }
    cudaSetDevice(device);
    return code == cudaSuccess ? 0 : -EIO;
}

}  // namespace detail
#endif

template <width Width = width::warp, typename Function>
int launch(runtime& rt, std::uint64_t groups, const Function& function, const launch_shape& shape = {}) {
    if (rt.where() == backend::gpu) {
#if defined(__CUDACC__)
        return detail::launch_on_gpu<Width>(rt, groups, function, shape);
#else
        static_cast<void>(shape);
        return -EOPNOTSUPP;
#endif
    }
    std::atomic<std::uint64_t> next{0};
    const runtime_ref fs = rt.ref();
    rt.run_on_workers([&](std::uint32_t, std::uint32_t) {
        for (std::uint64_t i = next.fetch_add(1, std::memory_order_relaxed); i < groups;
             i = next.fetch_add(1, std::memory_order_relaxed))
            function(lane{}, fs, i);
    });
    return 0;
}

}  // namespace penstock
