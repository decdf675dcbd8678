// Elements on a GPU: v[i] by lane with all pages resident, at random and in order, and for_each by
// warps, against the same loads from plain device memory.
#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/launch.hpp"
#include "penstock/view.hpp"

namespace penstock::bench {

namespace {

constexpr std::uint32_t rounds = 256;

// Which element thread `thread` takes in its i-th round.
template <bool InOrder>
__device__ __forceinline__ std::uint64_t choose(std::uint64_t thread, std::uint64_t threads,
                                                std::uint32_t i, std::uint64_t seed,
                                                std::uint64_t elements) {
    return InOrder ? (threads * i + thread) % elements
                   : mix64(thread * rounds + i + seed * 0x9e3779b97f4a7c15ull) % elements;
}

template <bool InOrder>
__global__ void __launch_bounds__(256, 4)
    from_plain(const std::uint64_t* plain, std::uint64_t elements, std::uint64_t seed,
               std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * 256;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < rounds; ++i)
        sum += __ldcg(plain + choose<InOrder>(thread, threads, i, seed, elements));
    if (sum == 1) *sink = sum;
}

template <bool InOrder>
__global__ void __launch_bounds__(256, 4)
    from_view(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t elements,
              std::uint64_t seed, std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * 256;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < rounds; ++i)
        sum += v[choose<InOrder>(thread, threads, i, seed, elements)];
    if (sum == 1) *sink = sum;
}

// Warps take one stretch after the other until all elements were visited; a launch is long enough
// that its beginning and end do not count.
constexpr std::uint64_t stretch = 32 * rounds;

__global__ void __launch_bounds__(256, 4)
    from_plain_stretches(const std::uint64_t* plain, std::uint64_t elements, std::uint64_t,
                         std::uint64_t* sink) {
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8,
                        warp_number = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
    std::uint64_t sum = 0;
    for (std::uint64_t s = warp_number; s < elements / stretch; s += warps) {
        const std::uint64_t* const from = plain + s * stretch + threadIdx.x % 32;
#pragma unroll 8
        for (std::uint32_t i = 0; i < rounds; ++i) sum += __ldcg(from + 32 * i);
    }
    if (sum == 1) *sink = sum;
}

__global__ void __launch_bounds__(256, 4)
    from_view_stretches(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t elements,
                        std::uint64_t, std::uint64_t* sink) {
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8,
                        warp_number = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    for (std::uint64_t s = warp_number; s < elements / stretch; s += warps)
        v.for_each(this_warp(), s * stretch, stretch,
                   [&](std::uint64_t, std::uint64_t element) { sum += element; });
    if (sum == 1) *sink = sum;
}

// Adds billions of elements a second. `visited`: how many the kernel takes; 0: `rounds` for each
// thread.
template <typename Kernel, typename... Arguments>
status timed(series& out, std::uint64_t visited, Kernel* kernel, Arguments... arguments) {
    int resident = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 256, 0);
    const auto grid = static_cast<std::uint32_t>(std::max(resident * multiprocessors(), 1));
    float ms = 0;
    if (status s = kernel_ms([&] { kernel<<<grid, 256>>>(arguments...); }, ms); !s) return s;
    out.add(1e-6 * (visited != 0 ? static_cast<double>(visited) : grid * 256.0 * rounds) / ms);
    return {};
}

struct element_run {
    context& here;
    runtime& rt;
    int fd;
    const std::uint64_t* plain;
    std::uint64_t* sink;
    std::uint64_t elements, page;

    template <typename Plain, typename View>
    status compare(const char* name, Plain* plain_kernel, View* view_kernel,
                   std::uint64_t visited = 0) const {
        series views, plains, cores;
        for (std::uint64_t seed = 0; seed < here.repeats(11); ++seed) {
            if (status s = timed(plains, visited, plain_kernel, plain, elements, seed, sink); !s)
                return s;
            const stopwatch watch;
            if (status s = timed(views, visited, view_kernel, rt.ref(), fd, elements, seed, sink);
                !s)
                return s;
            cores.add(watch.cores(watch.seconds()));
        }
        char slower[40];
        std::snprintf(slower, sizeof slower, "%.3f times slower; ",
                      plains.median() / views.median());
        return here.add({"S3", name, "", page, views, "billion/s",
                         "the same loads from plain memory", plains, cores,
                         slower + format_size(elements * 8) + " resident"});
    }
};

}  // namespace

status element_on_gpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(2 * gib);
    if (status s = here.use_file(bytes); !s) return s;
    gpu_memory plain, sink;
    if (status s = plain.on_device(bytes); !s) return s;
    if (status s = sink.on_device(8); !s) return s;
    if (status s = cuda_status(cudaMemset(plain.as<void>(), 1, bytes), "memory"); !s) return s;
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        std::unique_ptr<runtime> rt;
        int fd = -1;
        if (status s = here.make_runtime(
                {.page_bytes = page, .cache_bytes = bytes + bytes / 8, .file_bytes = bytes}, rt,
                fd);
            !s)
            return s;
        const auto wanted = static_cast<std::int64_t>(bytes);
        if (rt->prefetch(fd, 0, wanted) != wanted)
            return {-EIO, "the file could not be brought into the cache; give a smaller --file"};
        const element_run run{
            here, *rt, fd, plain.as<std::uint64_t>(), sink.as<std::uint64_t>(), bytes / 8, page};
        if (status s = run.compare("random 8-byte elements", from_plain<false>, from_view<false>);
            !s)
            return s;
        if (status s =
                run.compare("8-byte elements in order, v[i]", from_plain<true>, from_view<true>);
            !s)
            return s;
        if (status s =
                run.compare("8-byte elements in order, for_each by warps", from_plain_stretches,
                            from_view_stretches, bytes / 8 / stretch * stretch);
            !s)
            return s;
        if (status s = rt->view_status(); !s) return s;
    }
    return {};
}

}  // namespace penstock::bench
