// The search by a GPU: one kernel whose blocks are all resident and take the steps together, so
// that the host waits once for some thousand of them.
#include <cerrno>
#include <memory>
#include <string>

#include "solver.hpp"
#if defined(__CUDACC__)
#include <cooperative_groups.h>

#include "common/gpu.cuh"
#endif

namespace penstock::sssp {

#if defined(__CUDACC__)

namespace {

namespace groups = cooperative_groups;

constexpr std::uint32_t steps_of_a_stretch = 4096;
constexpr unsigned block_threads = 512;

// What the threads of a block put into a queue in a step, as far as there is room, goes there by
// one addition at the step's end: the threads of the whole GPU would wait for each other at the one
// counter.
struct kept_parts {
    static constexpr std::uint32_t room = 4096;
    part parts[room];
    std::uint64_t first;
    std::uint32_t wanted;  // of them; may be more than there is room for
};

class grid_team {
public:
    // Whole block.
    explicit __device__ grid_team(kept_parts& kept) : grid_(groups::this_grid()), kept_(kept) {
        if (threadIdx.x == 0) kept_.wanted = 0;
        __syncthreads();
    }

    __device__ void sync() const { grid_.sync(); }
    __device__ bool is_first() const { return thread() == 0; }

    template <typename Function>
    __device__ void each(std::uint64_t count, const Function& f) const {
        for (std::uint64_t i = thread(); i < count; i += threads()) f(i);
    }
    template <typename Function>
    __device__ void each_part(std::uint64_t count, const Function& f) const {
        for (std::uint64_t i = thread() / 32; i < count; i += threads() / 32)
            f(i, threadIdx.x % 32, 32u);
    }

    __device__ void put(const search_view& v, std::uint32_t queue, std::uint32_t vertex,
                        std::uint32_t parts) const {
        if (parts == 1) {
            const std::uint32_t place = atomicAdd(&kept_.wanted, 1u);
            if (place < kept_parts::room) {
                kept_.parts[place] = {vertex, 0};
                return;
            }
        }
        const std::uint64_t first = take_places(v, queue, parts);
        if (first + parts > v.room) return note(v, fault::damaged);
        for (std::uint32_t number = 0; number < parts; ++number)
            v.queues[queue][first + number] = {vertex, number};
    }
    // Whole block, after each step in which parts were put.
    __device__ void flush(const search_view& v, std::uint32_t queue) const {
        __syncthreads();
        const std::uint32_t count =
            kept_.wanted < kept_parts::room ? kept_.wanted : kept_parts::room;
        if (threadIdx.x == 0 && count != 0) kept_.first = take_places(v, queue, count);
        __syncthreads();
        if (threadIdx.x == 0) kept_.wanted = 0;
        if (count == 0) return;
        const std::uint64_t first = kept_.first;
        if (first + count > v.room) return note(v, fault::damaged);
        for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x)
            v.queues[queue][first + i] = kept_.parts[i];
    }

    // Whole warps come here, from behind a loop.
    __device__ void lower_for_all(std::uint32_t* word, std::uint32_t value) const {
        __syncwarp();
        for (int apart = 16; apart > 0; apart /= 2)
            value = min(value, __shfl_down_sync(0xffffffffu, value, apart));
        if (threadIdx.x % 32 == 0 && value != unreachable) atomicMin(word, value);
    }
    __device__ void add_for_all(std::uint64_t* word, std::uint64_t value) const {
        __syncwarp();
        for (int apart = 16; apart > 0; apart /= 2)
            value += __shfl_down_sync(0xffffffffu, static_cast<unsigned long long>(value), apart);
        if (threadIdx.x % 32 == 0 && value != 0)
            atomicAdd(reinterpret_cast<unsigned long long*>(word),
                      static_cast<unsigned long long>(value));
    }

private:
    static __device__ std::uint64_t thread() {
        return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    }
    static __device__ std::uint64_t take_places(const search_view& v, std::uint32_t queue,
                                                std::uint32_t count) {
        return atomicAdd(reinterpret_cast<unsigned long long*>(&v.state->counts[queue]),
                         static_cast<unsigned long long>(count));
    }
    static __device__ std::uint64_t threads() { return std::uint64_t{gridDim.x} * blockDim.x; }

    groups::grid_group grid_;
    kept_parts& kept_;
};

__global__ void __launch_bounds__(block_threads)
    search_kernel(const __grid_constant__ search_view view, std::uint32_t most_steps) {
    __shared__ kept_parts kept;
    grid_team team(kept);
    search(team, view, most_steps);
}

class gpu_solver final : public solver {
public:
    explicit gpu_solver(const solver_settings& settings)
        : solver(settings, apps::make_gpu_memory(settings.device), "device memory") {}

    status start() {
        int together = 0;
        cudaError_t code = cudaSetDevice(settings_.device);
        if (code == cudaSuccess)
            code =
                cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, settings_.device);
        if (code == cudaSuccess && together == 0)
            return {-ENODEV, "GPU " + std::to_string(settings_.device) +
                                 " cannot keep all blocks of a kernel in step; use --backend cpu"};
        blocks_ = static_cast<unsigned>(
            apps::resident_blocks(settings_.device, search_kernel, block_threads));
        if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        return apps::cuda_status(code, "the search");
    }

private:
    status run_steps() override {
        std::uint32_t most_steps = steps_of_a_stretch;
        void* arguments[] = {&view_, &most_steps};
        cudaError_t code =
            cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(search_kernel), dim3(blocks_),
                                        dim3(block_threads), arguments, 0, stream_);
        if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
        return apps::cuda_status(code, "the search");
    }

    apps::gpu_stream stream_;
    unsigned blocks_ = 1;
};

}  // namespace

bool gpu_is_there(int device) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return device >= 0 && device < devices;
    cudaGetLastError();
    return false;
}

status make_gpu_solver(const solver_settings& settings, std::unique_ptr<solver>& out) {
    if (!gpu_is_there(settings.device))
        return {-ENODEV, "--device: there is no GPU " + std::to_string(settings.device) +
                             " here; use --backend cpu"};
    auto made = std::make_unique<gpu_solver>(settings);
    if (status s = made->start(); !s) return s;
    if (status s = made->prepare(); !s) return s;
    out = std::move(made);
    return {};
}

#else

bool gpu_is_there(int) { return false; }

status make_gpu_solver(const solver_settings&, std::unique_ptr<solver>&) {
    return {-ENODEV, "--backend gpu: this program was built without CUDA; use --backend cpu"};
}

#endif

}  // namespace penstock::sssp
