// Elements: v[i] by lane with all pages resident, at random and in order, against the same loads from plain device memory.
//
// bench_element [commit]
#include <cstdlib>
#include <filesystem>

#include "support.hpp"

using namespace penstock;
using namespace penstock::bench;

namespace {

constexpr std::uint64_t file_bytes = std::uint64_t{2} << 30, elements = file_bytes / 8;
constexpr std::uint32_t rounds = 256;

// Which element thread `thread` takes in its i-th round.
template <bool InOrder>
__device__ __forceinline__ std::uint64_t choose(std::uint64_t thread, std::uint64_t threads, std::uint32_t i, std::uint64_t seed) {
    return InOrder ? (threads * i + thread) % elements : mix64(thread * rounds + i + seed * 0x9e3779b97f4a7c15ull) % elements;
}

template <bool InOrder>
__global__ void __launch_bounds__(256, 4) from_plain(const std::uint64_t* plain, std::uint64_t seed, std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x, threads = std::uint64_t{gridDim.x} * 256;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < rounds; ++i) sum += __ldcg(plain + choose<InOrder>(thread, threads, i, seed));
    if (sum == 1) *sink = sum;
}

template <bool InOrder>
__global__ void __launch_bounds__(256, 4) from_view(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t seed, std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x, threads = std::uint64_t{gridDim.x} * 256;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < rounds; ++i) sum += v[choose<InOrder>(thread, threads, i, seed)];
    if (sum == 1) *sink = sum;
}

// Each warp takes a stretch of its own and passes over it once.
__global__ void __launch_bounds__(256, 4) from_plain_stretches(const std::uint64_t* plain, std::uint64_t, std::uint64_t* sink) {
    const std::uint64_t stretch = 32 * rounds, warp_number = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
    const std::uint64_t* const from = plain + warp_number * stretch % elements + threadIdx.x % 32;
    std::uint64_t sum = 0;
#pragma unroll 4
    for (std::uint32_t i = 0; i < rounds; ++i) sum += __ldcg(from + 32 * i);
    if (sum == 1) *sink = sum;
}

__global__ void __launch_bounds__(256, 4) from_view_stretches(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t, std::uint64_t* sink) {
    const std::uint64_t stretch = 32 * rounds, warp_number = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    v.for_each(this_warp(), warp_number * stretch % elements, stretch, [&](std::uint64_t, std::uint64_t element) { sum += element; });
    if (sum == 1) *sink = sum;
}

// Billions of elements a second.
template <typename Kernel, typename... Arguments>
double timed(Kernel* kernel, Arguments... arguments) {
    int per_multiprocessor = 0, multiprocessors = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, 256, 0);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    const auto grid = static_cast<std::uint32_t>(per_multiprocessor * multiprocessors);
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    cudaEventRecord(begin);
    kernel<<<grid, 256>>>(arguments...);
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "kernel");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return 1e-6 * grid * 256.0 * rounds / ms;
}

template <typename Plain, typename View>
void measure(std::vector<result>& out, const char* name, Plain* from_plain, View* from_view, runtime& rt, int fd,
             const std::uint64_t* plain, std::uint64_t* sink, std::uint64_t page_bytes) {
    std::vector<double> views, plains;
    for (std::uint64_t seed = 0; seed < 11; ++seed) {
        plains.push_back(timed(from_plain, plain, seed, sink));
        views.push_back(timed(from_view, rt.ref(), fd, seed, sink));
    }
    char note[100];
    std::snprintf(note, sizeof note, "%.3f times slower; 2 GiB resident; median of 11", median(plains) / median(views));
    out.push_back({"S3", name, "gpu", page_bytes, median(views),
                   "billion/s", "the same loads from plain memory", median(plains), median(views) / median(plains), 0, note});
}

}  // namespace

int main(int argc, char** argv) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "no GPU");
    int version = 0;
    cudaDriverGetVersion(&version);
    const std::string name = make_file("penstock-bench-element", file_bytes);
    std::uint64_t *plain = nullptr, *sink = nullptr;
    check(cudaMalloc(&plain, file_bytes), "memory");
    check(cudaMalloc(&sink, 8), "memory");
    check(cudaMemset(plain, 1, file_bytes), "memory");
    std::vector<result> results;
    for (const std::uint64_t page_bytes : {4096, 65536}) {
        const auto rt = make_runtime(backend::gpu, file_bytes + file_bytes / 8, page_bytes);
        const int fd = rt->open(name);
        if (rt->prefetch(fd, 0, file_bytes) != static_cast<std::int64_t>(file_bytes)) fail("prefetch failed");
        const auto add = [&](const char* what, auto* from_plain_, auto* from_view_) {
            measure(results, what, from_plain_, from_view_, *rt, fd, plain, sink, page_bytes);
        };
        add("random 8-byte elements", from_plain<false>, from_view<false>);
        add("8-byte elements in order, v[i]", from_plain<true>, from_view<true>);
        add("8-byte elements in order, for_each by warps", from_plain_stretches, from_view_stretches);
        if (!rt->view_status().ok()) fail(rt->view_status().message);
    }
    print(results, properties.name, "CUDA " + std::to_string(version), argc > 1 ? argv[1] : "");
    std::filesystem::remove(name);
    return 0;
}
