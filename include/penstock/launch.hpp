// launch: runs one function object over many groups, on either back end.
//
//   struct sum_bytes {
//       template <typename Group>
//       PENSTOCK_HD void operator()(const Group& g, const penstock::runtime_ref& fs, std::uint64_t
//           index) const;
//   };
//   penstock::launch<penstock::width::warp>(rt, 1000, sum_bytes{...});
//
// gpu: a kernel of groups of that width, as many at a time as fit. cpu: one logical group at a time
// per worker thread, each a single lane. On both back ends groups begin in the order of their
// numbers, a new group whenever one has ended (with width::lane on a gpu: as many as a warp has
// lanes, whenever those have ended). So no group waits behind a slow group, and groups that run at
// the same time have neighbouring numbers. If these are numbers of pages, the groups also read or
// write neighbours in the file, which are transferred together (docs/guide/writing.md). Files
// compiled by a plain C++ compiler can launch on cpu only.
//
// Blocks until all groups are done. Returns 0, also if calls inside it failed (their own results
// say so); -EOPNOTSUPP; -EAGAIN if a thousand launches of this runtime are under way; -EIO if the
// kernel faulted (runtime.health() says how); -ENOMEM if the device has no memory to start it;
// -ENODEV after a cudaDeviceReset; -ECHILD in a child of fork(). After an interrupt the calls
// inside fail with -ECANCELED. Stream captures of any thread do not affect it.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/runtime.hpp"

#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock {

// How many threads make up a group on the gpu: a single thread, a part of a warp, a warp, or a
// block.
enum class width { lane, tile4, tile8, tile16, warp, block };

// Shape of a gpu launch; ignored on cpu. 0 blocks: as many as are resident at once.
struct launch_shape {
    std::uint32_t threads_per_block = 256;
    std::uint32_t blocks = 0;
};

#if defined(__CUDACC__)
namespace detail {

// The group type of a width, and its number of threads (0: that of the block).
template <width Width>
struct group_for;
template <>
struct group_for<width::lane> {
    using type = lane;
    static constexpr std::uint32_t threads = 1;
};
template <>
struct group_for<width::tile4> {
    using type = tile<4>;
    static constexpr std::uint32_t threads = 4;
};
template <>
struct group_for<width::tile8> {
    using type = tile<8>;
    static constexpr std::uint32_t threads = 8;
};
template <>
struct group_for<width::tile16> {
    using type = tile<16>;
    static constexpr std::uint32_t threads = 16;
};
template <>
struct group_for<width::warp> {
    using type = warp;
    static constexpr std::uint32_t threads = 32;
};
template <>
struct group_for<width::block> {
    using type = block;
    static constexpr std::uint32_t threads = 0;
};

template <width Width>
constexpr PENSTOCK_HD std::uint32_t groups_per_block(std::uint32_t threads_per_block) {
    return group_for<Width>::threads == 0 ? 1 : threads_per_block / group_for<Width>::threads;
}

// Whole group: draws the number of the group that the caller is next. With lanes, the whole warp
// calls, or the part of it that the block has, and the result is the number of the first lane. The
// lanes come together again after each draw, for lanes that drew alone would go on one after the
// other.
template <width Width, typename Group>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t draw_number(const Group& g, unsigned long long* begun) {
    unsigned long long first = 0;
    if constexpr (Width == width::lane) {
        const std::uint32_t lane = threadIdx.x % 32, left = blockDim.x - (threadIdx.x - lane),
                            lanes = left < 32 ? left : 32;
        const std::uint32_t mask = ~0u >> (32 - lanes);
        __syncwarp(mask);
        if (lane == 0) first = atomicAdd(begun, static_cast<unsigned long long>(lanes));
        return __shfl_sync(mask, first, 0);
    } else {
        if (g.is_leader()) first = atomicAdd(begun, 1ull);
        return g.broadcast(first);
    }
}

// Called by one thread of each drawer of numbers, after its last draw. The last drawer sets the
// words back to their first state for the next launch; by then all other drawers have their last
// numbers.
inline PENSTOCK_D void end_drawing(launch_count* count, std::uint32_t drawers) {
    if (atomicInc(&count->done, drawers - 1) == drawers - 1) count->begun = 0;
}

template <width Width, typename Function>
__global__ void run_groups(const __grid_constant__ runtime_ref fs, std::uint64_t groups,
                           launch_count* count, const __grid_constant__ Function function) {
    const typename group_for<Width>::type g{};
    // The number of drawers of each block. Threads that do not make up a whole group have nothing
    // to do.
    const std::uint32_t drawers =
        Width == width::lane ? (blockDim.x + 31) / 32 : groups_per_block<Width>(blockDim.x);
    const std::uint32_t threads = Width == width::lane    ? 32
                                  : Width == width::block ? blockDim.x
                                                          : group_for<Width>::threads;
    if (threadIdx.x / threads >= drawers) return;
    static_assert(sizeof(unsigned long long) == sizeof count->begun);
    auto* const begun = reinterpret_cast<unsigned long long*>(&count->begun);
    const std::uint32_t place = Width == width::lane ? threadIdx.x % 32 : 0;
    // Lanes leave the loop together: a lane that left alone would wait behind the loop for the
    // other lanes, which wait for it in draw_number.
    for (std::uint64_t first = draw_number<Width>(g, begun); first < groups;
         first = draw_number<Width>(g, begun))
        if (Width != width::lane || first + place < groups) function(g, fs, first + place);
    if (threadIdx.x % threads == 0) end_drawing(count, gridDim.x * drawers);
}

// Launches the kernel on a stream of its own and waits for it. The launch's own code is its result:
// the error that cudaGetLastError has may be the program's.
template <width Width, typename Function>
cudaError_t run_kernel(runtime& rt, std::uint32_t blocks, std::uint32_t threads,
                       std::uint64_t groups, launch_count* count, const Function& function) {
    cudaStream_t stream = nullptr;
    cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code != cudaSuccess) return code;
    runtime_ref fs = rt.ref();
    void* arguments[] = {&fs, &groups, &count,
                         const_cast<void*>(static_cast<const void*>(&function))};
    code = cudaLaunchKernel(reinterpret_cast<const void*>(run_groups<Width, Function>),
                            dim3(blocks), dim3(threads), arguments, 0, stream);
    const cudaError_t ran = cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return code == cudaSuccess ? ran : code;
}

template <width Width, typename Function>
int launch_on_gpu(runtime& rt, std::uint64_t groups, const Function& function,
                  const launch_shape& shape) {
    if (const status s = rt.health(); s.code == -EIO || s.code == -ENODEV) return s.code;
    int before = 0, multiprocessors = 0, resident = 0;
    const int device = rt.settings().device;
    cudaGetDevice(&before);
    if (before != device && cudaSetDevice(device) != cudaSuccess) return -ENODEV;
    // Does not disturb a capture that this or another thread has begun.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, run_groups<Width, Function>,
                                                  static_cast<int>(shape.threads_per_block), 0);
    const std::uint32_t per_block = groups_per_block<Width>(shape.threads_per_block);
    std::uint64_t blocks = shape.blocks != 0
                               ? shape.blocks
                               : std::uint64_t(multiprocessors) * (resident > 0 ? resident : 1);
    if (blocks > (groups + per_block - 1) / per_block)
        blocks = (groups + per_block - 1) / per_block;
    cudaError_t code = cudaSuccess;
    launch_count* const count = blocks > 0 ? rt.take_launch_count() : nullptr;
    if (count != nullptr) {
        code = run_kernel<Width>(rt, static_cast<std::uint32_t>(blocks), shape.threads_per_block,
                                 groups, count, function);
        rt.give_back(count);  // after a fault its words are not zero, and nothing runs on the
                              // device any more
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (before != device) cudaSetDevice(before);
    if (blocks > 0 && count == nullptr) return -EAGAIN;
    return code == cudaSuccess ? 0 : code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

}  // namespace detail
#endif

template <width Width = width::warp, typename Function>
int launch(runtime& rt, std::uint64_t groups, const Function& function,
           const launch_shape& shape = {}) {
    if (const int code = rt.process_code(); code != 0) return code;
    if (rt.where() == backend::gpu) {
#if defined(__CUDACC__)
        return detail::launch_on_gpu<Width>(rt, groups, function, shape);
#else
        static_cast<void>(shape);
        return -EOPNOTSUPP;
#endif
    }
    std::uint64_t next = 0;
    const runtime_ref fs = rt.ref();
    return rt.run_on_workers([&](std::uint32_t, std::uint32_t) {
        for (std::uint64_t i = fetch_add_relaxed(&next, std::uint64_t{1}); i < groups;
             i = fetch_add_relaxed(&next, std::uint64_t{1}))
            function(lane{}, fs, i);
    });
}

}  // namespace penstock
