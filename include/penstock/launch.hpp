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
// A runtime of several devices runs the groups on all of them at a time: each device has a part of
// the numbers, and one that has done its part takes over numbers of the others. The operator gets
// the runtime_ref of the device that its group runs on, so what it keeps apart by device is told by
// fs.device, and descriptors come from a shared_file (penstock/shared_file.hpp). Memory that groups
// write to is reached by all devices, such as pinned memory; sums that groups add to are one for
// each device, for over a bus additions of two devices are not atomic. The functor itself is copied
// to each device. On cpu the worker threads are divided over the caches. launch_on runs the groups
// on one device only.
//
// Blocks until all groups are done. Returns 0, also if calls inside it failed (their own results
// say so), or the error of the first device that has one: -EOPNOTSUPP; -EINVAL if blocks of the
// shape have no whole group, or the device cannot run such blocks of the kernel; -EAGAIN if a
// thousand launches of this runtime, or 250 over several GPUs, are under way; -EIO if the kernel
// faulted (runtime.health() says how); -ENOMEM if the device has no memory to start it; -ENODEV
// after a cudaDeviceReset; -ECHILD in a child of fork(). After an interrupt the calls inside fail
// with -ECANCELED. Stream captures of any thread do not affect it.
//
// On cpu the function may throw. Then no further group begins, and once all groups that run have
// ended, the launch throws the first exception on.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "penstock/base/atomic.hpp"
#include "penstock/runtime.hpp"

#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock {

// How many threads make up a group on the gpu: a single thread, a part of a warp, a warp, or a
// block.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // g++ 12 takes scoped names for the groups' types
#endif
enum class width { lane, tile4, tile8, tile16, warp, block };
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

// Shape of a gpu launch; ignored on cpu. 0 blocks: as many as are resident at once.
struct launch_shape {
    std::uint32_t threads_per_block = 256;
    std::uint32_t blocks = 0;
};

namespace detail {

// The numbers of a launch over several devices, of which each has a share. Host memory.
class number_shares {
public:
    number_shares(std::uint64_t groups, std::uint32_t devices) : devices_(devices) {
        for (std::uint32_t i = 0; i < devices; ++i) {
            // Of all but the last as many, without a product that might be too large.
            of_[i].next = groups / devices * i;
            of_[i].end = i + 1 < devices ? groups / devices * (i + 1) : groups;
        }
    }

    // Calls body(number) for numbers of the device's share, then of the others', until none is
    // left, or a body has thrown. By any number of threads, none of which calls take.
    template <typename Body>
    void draw(std::uint32_t device, const Body& body) {
        drawing under_way{*this};
        for (std::uint32_t i = 0; i < devices_; ++i) {
            share& from = of_[(device + i) % devices_];
            for (std::uint64_t number = fetch_add_relaxed(&from.next, std::uint64_t{1});
                 number < from.end && !has_thrown_;
                 number = fetch_add_relaxed(&from.next, std::uint64_t{1}))
                body(number);
        }
        under_way.is_done = true;
    }

    // Takes half of what a share has left, or `least` numbers if that is more: from the beginning
    // of the device's own share, or from the end of the largest, whose device goes on with its
    // neighbouring numbers. A share whose device has not begun with it counts only if `unbegun`:
    // that device may be about to. False: none is left that may be taken. So a device that is
    // faster gets more, each gets few parts, and the last ones are small.
    bool take(std::uint32_t device, std::uint64_t least, bool unbegun, std::uint64_t& begin,
              std::uint64_t& end) {
        const std::lock_guard lock(mutex_);
        share* from = &of_[device];
        from->is_begun = true;
        if (from->left() == 0)
            for (share& other : of_)
                if ((other.is_begun || unbegun) && other.left() > from->left()) from = &other;
        std::uint64_t part = from->left() / 2;
        if (part < least) part = least;
        if (part > from->left()) part = from->left();
        if (from == &of_[device]) {
            begin = from->next;
            end = from->next += part;
        } else {
            end = from->end;
            begin = from->end -= part;
        }
        return part > 0;
    }

private:
    struct alignas(64) share {
        std::uint64_t next = 0, end = 0;
        bool is_begun = false;  // for take
        [[nodiscard]] std::uint64_t left() const { return end - next; }
    };
    // An exception leaves it not done. (The header is compiled without exceptions too.)
    struct drawing {
        number_shares& from;
        bool is_done = false;
        ~drawing() {
            if (!is_done) from.has_thrown_ = true;
        }
    };
    const std::uint32_t devices_;
    share of_[most_runtime_devices];
    std::atomic<bool> has_thrown_{false};
    std::mutex mutex_;  // guards the shares, for take
};

// In the library, which finds the driver. Makes the GPU the calling thread's current one; false: it
// is not there. The other puts back what was current: a context of the program's, or none. To set
// the number that cudaGetDevice gave would make a context on a GPU that the thread never used.
bool enter_device(int device);
void leave_device();

}  // namespace detail

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

// Begins the kernel that runs numbers until `end`, from the one on that the count says.
template <width Width, typename Function>
cudaError_t start_kernel(runtime_ref fs, std::uint64_t blocks, std::uint32_t threads,
                         std::uint64_t end, launch_count* count, cudaStream_t stream,
                         const Function& function) {
    void* arguments[] = {&fs, &end, &count, const_cast<void*>(static_cast<const void*>(&function))};
    return cudaLaunchKernel(reinterpret_cast<const void*>(run_groups<Width, Function>),
                            dim3(static_cast<std::uint32_t>(blocks)), dim3(threads), arguments, 0,
                            stream);
}

// Launches the kernel on a stream of its own and waits for it. The launch's own code is its result:
// the error that cudaGetLastError has may be the program's.
template <width Width, typename Function>
cudaError_t run_kernel(runtime_ref fs, std::uint32_t blocks, std::uint32_t threads,
                       std::uint64_t groups, launch_count* count, const Function& function) {
    cudaStream_t stream = nullptr;
    cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code != cudaSuccess) return code;
    code = start_kernel<Width>(fs, blocks, threads, groups, count, stream, function);
    const cudaError_t ran = cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return code == cudaSuccess ? ran : code;
}

// The current device and the capture mode of the calling thread, for a scope. An error of a call in
// it is not left for the program's cudaGetLastError.
class device_scope {
public:
    explicit device_scope(int device) : entered_(enter_device(device)) {
        if (!entered_) return;
        no_error_before_ = cudaPeekAtLastError() == cudaSuccess;
        // Does not disturb a capture that this or another thread has begun.
        cudaThreadExchangeStreamCaptureMode(&mode_);
    }
    ~device_scope() {
        if (!entered_) return;
        cudaThreadExchangeStreamCaptureMode(&mode_);
        if (no_error_before_) cudaGetLastError();
        leave_device();
    }
    device_scope(const device_scope&) = delete;
    device_scope& operator=(const device_scope&) = delete;
    explicit operator bool() const { return entered_; }

private:
    const bool entered_;
    bool no_error_before_ = false;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Can the current device run blocks so large of the kernel? Asked before, since a launch that is
// refused leaves an error behind.
template <width Width, typename Function>
bool has_room_for(std::uint32_t threads_per_block) {
    constexpr std::uint32_t always = 256;  // whatever registers each thread takes
    if (threads_per_block <= always) return true;
    cudaFuncAttributes kernel{};
    return cudaFuncGetAttributes(&kernel, run_groups<Width, Function>) != cudaSuccess ||
           threads_per_block <= static_cast<std::uint32_t>(kernel.maxThreadsPerBlock);
}

// Blocks for the numbers on the current device: as many as are resident at once, or as the shape
// says, but no more than have a number, than a grid has, and than 32 bits count drawers of
// (end_drawing): a block has up to 256.
template <width Width, typename Function>
std::uint64_t blocks_for(int device, std::uint64_t groups, const launch_shape& shape) {
    int multiprocessors = 0, resident = 0;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, run_groups<Width, Function>,
                                                  static_cast<int>(shape.threads_per_block), 0);
    const std::uint32_t per_block = groups_per_block<Width>(shape.threads_per_block);
    constexpr std::uint64_t most = (1u << 24) - 1;
    const std::uint64_t asked = shape.blocks != 0 ? shape.blocks
                                                  : std::uint64_t(multiprocessors) *
                                                        (resident > 0 ? resident : 1),
                        blocks = asked < most ? asked : most,
                        wanted = groups / per_block + (groups % per_block != 0 ? 1 : 0);
    return blocks < wanted ? blocks : wanted;
}

inline int errno_of_launch(cudaError_t code) {
    return code == cudaSuccess ? 0 : code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

// Has each block a whole group?
template <width Width>
constexpr bool has_groups(const launch_shape& shape) {
    return shape.threads_per_block != 0 && groups_per_block<Width>(shape.threads_per_block) != 0;
}

template <width Width, typename Function>
int launch_on_gpu(runtime& rt, std::uint32_t device, std::uint64_t groups, const Function& function,
                  const launch_shape& shape) {
    if (!has_groups<Width>(shape)) return -EINVAL;
    if (const status s = rt.health(device); s.code == -EIO || s.code == -ENODEV) return s.code;
    const int number = rt.settings(device).device;
    const device_scope here(number);
    if (!here) return -ENODEV;
    if (!has_room_for<Width, Function>(shape.threads_per_block)) return -EINVAL;
    const std::uint64_t blocks = blocks_for<Width, Function>(number, groups, shape);
    if (blocks == 0) return 0;
    launch_count* const count = rt.take_launch_count(device);
    if (count == nullptr) return -EAGAIN;
    const cudaError_t code = run_kernel<Width>(rt.ref(device), static_cast<std::uint32_t>(blocks),
                                               shape.threads_per_block, groups, count, function);
    rt.give_back(count, device);  // after a fault its words are not zero, and nothing runs on the
                                  // device any more
    return errno_of_launch(code);
}

// How many parts of the numbers a device has under way at most: the next part begins where groups
// of the last ones have ended, so none waits for the slowest group of a part. A shape that says how
// many blocks there are gets no more than those at a time.
inline constexpr std::uint32_t most_parts = 4;
inline std::uint32_t parts_under_way(const launch_shape& shape) {
    return shape.blocks == 0 ? most_parts : 1;
}

// Runs part after part of the numbers on one device. A part is a launch of the same kernel whose
// count begins at the part's first number.
template <width Width, typename Function>
class part_runner {
public:
    // `counts`: for each part under way.
    part_runner(const runtime_ref& fs, int device, launch_count* const* counts,
                const Function& function, const launch_shape& shape)
        : fs_(fs), device_(device), counts_(counts), function_(function), shape_(shape) {}

    cudaError_t run(number_shares& numbers) {
        const std::uint32_t parts = parts_under_way(shape_);
        const std::uint64_t full = blocks_for<Width, Function>(device_, UINT64_MAX / 2, shape_) *
                                   groups_per_block<Width>(shape_.threads_per_block),
                            least = parts == 1 ? full : (full + 1) / 2;
        cudaError_t code = cudaSuccess;
        for (std::uint32_t i = 0; i < parts && code == cudaSuccess; ++i)
            code = cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking);
        std::uint64_t begin = 0, end = 0;
        for (std::uint32_t i = 0; code == cudaSuccess; i = (i + 1) % parts) {
            // The part is taken when there is room for it and not before: until then another device
            // may take it.
            code = await_room(i);
            if (code != cudaSuccess) break;
            if (!numbers.take(fs_.device, least, false, begin, end)) {
                code = await_all();
                if (code != cudaSuccess || !numbers.take(fs_.device, least, true, begin, end))
                    break;
            }
            code = begin_part(i, begin, end);
        }
        const cudaError_t ran = await_all();
        for (cudaStream_t stream : streams_)
            if (stream != nullptr) cudaStreamDestroy(stream);
        return code == cudaSuccess ? ran : code;
    }

private:
    // Until the last part on the stream has ended and one block more of the kernel has room on the
    // device: one that has no number to run.
    cudaError_t await_room(std::uint32_t i) {
        const cudaError_t code = cudaStreamSynchronize(streams_[i]);
        if (code != cudaSuccess || !has_begun_ || parts_under_way(shape_) == 1) return code;
        const cudaError_t begun = start_kernel<Width>(fs_, 1, shape_.threads_per_block, 0,
                                                      counts_[i], streams_[i], function_);
        return begun == cudaSuccess ? cudaStreamSynchronize(streams_[i]) : begun;
    }

    cudaError_t begin_part(std::uint32_t i, std::uint64_t begin, std::uint64_t end) {
        launch_count* const count = counts_[i];
        has_begun_ = true;
        cudaError_t code = cudaMemcpyAsync(&count->begun, &begin, sizeof begin,
                                           cudaMemcpyHostToDevice, streams_[i]);
        if (code == cudaSuccess)
            code =
                start_kernel<Width>(fs_, blocks_for<Width, Function>(device_, end - begin, shape_),
                                    shape_.threads_per_block, end, count, streams_[i], function_);
        // A kernel that did not begin leaves the words to us.
        if (code != cudaSuccess) cudaMemsetAsync(count, 0, sizeof *count, streams_[i]);
        return code;
    }

    cudaError_t await_all() {
        cudaError_t first = cudaSuccess;
        for (cudaStream_t stream : streams_) {
            if (stream == nullptr) continue;
            const cudaError_t ran = cudaStreamSynchronize(stream);
            if (first == cudaSuccess) first = ran;
        }
        return first;
    }

    const runtime_ref fs_;
    const int device_;
    launch_count* const* const counts_;
    const Function& function_;
    const launch_shape shape_;
    cudaStream_t streams_[most_parts] = {};
    bool has_begun_ = false;  // a part
};

template <width Width, typename Function>
int launch_on_gpus(runtime& rt, std::uint64_t groups, const Function& function,
                   const launch_shape& shape) {
    if (!has_groups<Width>(shape)) return -EINVAL;
    launch_count* counts[most_runtime_devices][most_parts] = {};
    number_shares numbers(groups, rt.device_count());
    int code = 0;
    for (std::uint32_t i = 0; i < rt.device_count(); ++i) {
        const status s = rt.health(i);
        if (code == 0 && (s.code == -EIO || s.code == -ENODEV)) code = s.code;
        for (std::uint32_t part = 0; part < parts_under_way(shape); ++part) {
            counts[i][part] = rt.take_launch_count(i);
            if (code == 0 && counts[i][part] == nullptr) code = -EAGAIN;
        }
    }
    if (code == 0)
        code = rt.run_on_devices([&](std::uint32_t device) -> int {
            const int number = rt.settings(device).device;
            const device_scope here(number);
            if (!here) return -ENODEV;
            if (!has_room_for<Width, Function>(shape.threads_per_block)) return -EINVAL;
            return errno_of_launch(part_runner<Width, Function>(rt.ref(device), number,
                                                                counts[device], function, shape)
                                       .run(numbers));
        });
    for (std::uint32_t i = 0; i < rt.device_count(); ++i)
        for (launch_count* const count : counts[i])
            if (count != nullptr) rt.give_back(count, i);
    return code;
}

}  // namespace detail
#endif

// Part of the functions' names: nvcc and a plain C++ compiler compile different bodies, and a
// linker keeps one body for a name, where files of both launch the same functor.
#if defined(__CUDACC__)
#define PENSTOCK_LAUNCH_BY by_cuda_compiler
#else
#define PENSTOCK_LAUNCH_BY by_plain_compiler
#endif
inline namespace PENSTOCK_LAUNCH_BY {

// On all devices of the runtime.
template <width Width = width::warp, typename Function>
int launch(runtime& rt, std::uint64_t groups, const Function& function,
           const launch_shape& shape = {}) {
    if (const int code = rt.process_code(); code != 0) return code;
    if (rt.where() == backend::gpu) {
#if defined(__CUDACC__)
        return rt.device_count() == 1 ? detail::launch_on_gpu<Width>(rt, 0, groups, function, shape)
                                      : detail::launch_on_gpus<Width>(rt, groups, function, shape);
#else
        static_cast<void>(shape);
        return -EOPNOTSUPP;
#endif
    }
    detail::number_shares numbers(groups, rt.device_count());
    return rt.run_on_workers([&](std::uint32_t worker, std::uint32_t) {
        const std::uint32_t device = worker % rt.device_count();
        const runtime_ref fs = rt.ref(device);
        numbers.draw(device, [&](std::uint64_t i) { function(lane{}, fs, i); });
    });
}

// On one device of the runtime; the others have no part in it. -EINVAL: there is no such device.
template <width Width = width::warp, typename Function>
int launch_on(runtime& rt, std::uint32_t device, std::uint64_t groups, const Function& function,
              const launch_shape& shape = {}) {
    if (const int code = rt.process_code(); code != 0) return code;
    if (device >= rt.device_count()) return -EINVAL;
    if (rt.where() == backend::gpu) {
#if defined(__CUDACC__)
        return detail::launch_on_gpu<Width>(rt, device, groups, function, shape);
#else
        static_cast<void>(shape);
        return -EOPNOTSUPP;
#endif
    }
    detail::number_shares numbers(groups, 1);
    const runtime_ref fs = rt.ref(device);
    return rt.run_on_workers([&](std::uint32_t, std::uint32_t) {
        numbers.draw(0, [&](std::uint64_t i) { function(lane{}, fs, i); });
    });
}

}  // namespace PENSTOCK_LAUNCH_BY
#undef PENSTOCK_LAUNCH_BY

}  // namespace penstock
