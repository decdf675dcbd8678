// Hits: what reading cached pages costs over reading plain memory, in the same run, repeated, medians.
//
//   cpu  read() of random whole pages against memcpy of random whole pages of a plain array, on 1 and 2 threads; and of 64
//        bytes of one page
//   gpu  read() of random 4 KiB blocks into shared memory against the same copy from a plain array; and map, look, unmap
//        against looking at plain memory; by warps
//
// bench_hit [cpu|gpu] [commit]
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sched.h>

#include "support.hpp"

using namespace penstock;
using namespace penstock::bench;

namespace {

// Seconds for `rounds` random pages on each of `threads` threads, from the moment all of them stand ready, each on a processor
// of its own, until the last is done: what it takes to make threads and to spread them is not the copy's.
template <typename Copy>
double timed(unsigned threads, std::uint64_t rounds, std::uint64_t pages, const Copy& copy) {
    std::barrier ready(threads);
    std::vector<double> began(threads), ended(threads);
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            cpu_set_t mine;
            CPU_ZERO(&mine);
            CPU_SET(t % std::max(1u, std::thread::hardware_concurrency()), &mine);
            sched_setaffinity(0, sizeof mine, &mine);
            ready.arrive_and_wait();
            began[t] = now();
            for (std::uint64_t i = 0; i < rounds; ++i) copy(t, mix64(t * rounds + i) % pages);
            ended[t] = now();
        });
    for (std::thread& one : all) one.join();
    return *std::max_element(ended.begin(), ended.end()) - *std::min_element(began.begin(), began.end());
}

// `resident_bytes` in the cache: more than the processor's caches, so that memory is the limit of two threads, or less, so
// that only what the threads share in Penstock could be.
void cpu_hits(std::uint64_t resident_bytes, std::vector<result>& out) {
    constexpr std::uint64_t page = 65536, rounds = 10000;
    const std::uint64_t bytes = resident_bytes, pages = bytes / page;
    const std::string size = std::to_string(bytes >> 20) + " MiB";
    const std::string name = make_file("penstock-bench-hit", bytes);
    const auto rt = make_runtime(backend::cpu, 2 * bytes, page);
    const int fd = rt->open(name);
    rt->prefetch(fd, 0, bytes);
    // The plain array is laid out as the cache is: anonymous memory that asked for huge pages.
    std::unique_ptr<std::byte, void (*)(void*)> plain(static_cast<std::byte*>(std::aligned_alloc(2 << 20, bytes)), std::free);
    for (std::uint64_t i = 0; i < pages; ++i) rt->read(fd, plain.get() + i * page, page, static_cast<std::int64_t>(i * page));
    std::vector<std::vector<std::byte>> buffers(2, std::vector<std::byte>(page));
    const runtime_ref fs = rt->ref();
    // One thread and two take turns, so that what disturbs the machine for a while disturbs both.
    std::vector<double> copies[2], reads[2], ratios[2], gains, plain_gains;
    for (int repeat = 0; repeat < 31; ++repeat) {
        for (const unsigned threads : {1u, 2u}) {
            copies[threads - 1].push_back(timed(threads, rounds, pages, [&](unsigned t, std::uint64_t p) {
                std::memcpy(buffers[t].data(), plain.get() + p * page, page);
            }));
            reads[threads - 1].push_back(timed(threads, rounds, pages, [&](unsigned t, std::uint64_t p) {
                if (read(lane{}, fs, fd, buffers[t].data(), page, static_cast<std::int64_t>(p * page)) != page) std::abort();
            }));
            ratios[threads - 1].push_back(copies[threads - 1].back() / reads[threads - 1].back());
        }
        gains.push_back(2 * reads[0].back() / reads[1].back());
        plain_gains.push_back(2 * copies[0].back() / copies[1].back());
    }
    const auto rate = [&](const std::vector<double>& seconds, unsigned threads) { return 1e-9 * threads * rounds * page / median(seconds); };
    for (const unsigned threads : {1u, 2u})
        out.push_back({"issue-2", "hit, " + std::to_string(threads) + " threads, " + size, "cpu", page, rate(reads[threads - 1], threads), "GB/s",
                       "memcpy of random pages", rate(copies[threads - 1], threads), median(ratios[threads - 1]), double(threads),
                       "median of 31 paired runs"});
    char note[120];
    std::snprintf(note, sizeof note, "median of 31 paired runs; memcpy gained %.3f", median(plain_gains));
    out.push_back({"issue-2", "hit, 2 threads over 1, " + size, "cpu", page, rate(reads[1], 2), "GB/s", "1 thread", rate(reads[0], 1),
                   median(gains), 2, note});
    std::filesystem::remove(name);
}

// 64 bytes of one page, again and again, by two threads and by one: what readers of a hot page cost each other.
void cpu_hot_page(std::vector<result>& out) {
    constexpr std::uint64_t page = 4096, rounds = 2000000, bytes = 8u << 20;
    const std::string name = make_file("penstock-bench-hit", bytes);
    const auto rt = make_runtime(backend::cpu, 2 * bytes, page);
    const int fd = rt->open(name);
    rt->prefetch(fd, 0, bytes);
    const runtime_ref fs = rt->ref();
    std::vector<double> seconds[2], gains;
    for (int repeat = 0; repeat < 15; ++repeat) {
        for (const unsigned threads : {1u, 2u})
            seconds[threads - 1].push_back(timed(threads, rounds, page / 64, [&](unsigned, std::uint64_t at) {
                std::byte line[64];
                if (read(lane{}, fs, fd, line, sizeof line, static_cast<std::int64_t>(at * 64)) != sizeof line) std::abort();
            }));
        gains.push_back(2 * seconds[0].back() / seconds[1].back());
    }
    out.push_back({"issue-2", "hit, 64 bytes of one page, 2 threads over 1", "cpu", page, 2e-6 * rounds / median(seconds[1]), "M/s", "1 thread",
                   1e-6 * rounds / median(seconds[0]), median(gains), 2, "median of 15 paired runs"});
    std::filesystem::remove(name);
}

#if defined(__CUDACC__)

constexpr std::uint32_t block_bytes = 4096;

struct look {
    template <typename Group>
    static __device__ unsigned at(const Group& g, const std::byte* data) {
        unsigned sum = 0;
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = detail::load_frame_16(data + (g.rank() + 32 * i) * 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
        return sum;
    }
};

__device__ __forceinline__ std::uint64_t random_block(std::uint64_t warp_number, std::uint32_t i, std::uint64_t seed, std::uint64_t blocks) {
    return mix64((warp_number << 20) + i + seed * 0x9e3779b97f4a7c15ull) % blocks;
}

template <int What>  // 0 plain copy, 1 read, 2 plain look, 3 map and look
__global__ void __launch_bounds__(256, 4) hit(const __grid_constant__ runtime_ref fs, int fd, const std::byte* plain,
                                              std::uint64_t blocks, std::uint32_t rounds, std::uint64_t seed, unsigned* sink) {
    extern __shared__ std::byte buffers[];
    const warp g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32;
    std::byte* const mine = buffers + (What < 2 ? (threadIdx.x / 32) * block_bytes : 0);
    unsigned sum = 0;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t at = random_block(number, i, seed, blocks) * block_bytes;
        if constexpr (What == 0) {
            g.copy_out(mine, plain + at, block_bytes);
            g.sync();
        } else if constexpr (What == 1) {
            if (read(g, fs, fd, mine, block_bytes, static_cast<std::int64_t>(at)) != block_bytes) sum += 1u << 31;
        } else if constexpr (What == 2) {
            sum += look::at(g, plain + at);
        } else {
            const mapping m = map(g, fs, fd, static_cast<std::int64_t>(at), block_bytes);
            if (m.bytes == block_bytes) sum += look::at(g, m.data);
            unmap(g, fs, m);
        }
    }
    if (sum == 0x12345678u) *sink = sum;
}

template <int What>
double run_hit(const runtime_ref& fs, int fd, const std::byte* plain, std::uint64_t blocks, std::uint64_t seed, unsigned* sink) {
    // As many blocks as fit at a time, each kernel its own number, and the same work for all: no kernel waits for a last few
    // blocks.
    const std::uint32_t shared = What < 2 ? 8 * block_bytes : 0;
    if (shared != 0) cudaFuncSetAttribute(hit<What>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    int per_multiprocessor = 0, multiprocessors = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, hit<What>, 256, shared);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    const std::uint32_t grid = static_cast<std::uint32_t>(per_multiprocessor * multiprocessors);
    const std::uint32_t rounds = 132 * 6 * 512 / grid;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    cudaEventRecord(begin);
    hit<What><<<grid, 256, shared>>>(fs, fd, plain, blocks, rounds, seed, sink);
    cudaEventRecord(end);
    if (cudaEventSynchronize(end) != cudaSuccess) std::exit((std::fprintf(stderr, "kernel: %s\n", cudaGetErrorString(cudaGetLastError())), 1));
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return 1e-6 * grid * 8 * rounds * block_bytes / ms;
}

void gpu_hits(std::vector<result>& out, std::uint64_t page) {
    constexpr std::uint64_t bytes = 2048u << 20;
    const std::string name = make_file("penstock-bench-hit", bytes);
    const auto rt = make_runtime(backend::gpu, 2 * bytes, page);
    const int fd = rt->open(name);
    if (rt->prefetch(fd, 0, bytes) != static_cast<std::int64_t>(bytes)) std::exit((std::fprintf(stderr, "prefetch failed\n"), 1));
    std::byte* plain = nullptr;
    unsigned* sink = nullptr;
    if (cudaMalloc(&plain, bytes) != cudaSuccess || cudaMalloc(&sink, 4) != cudaSuccess) std::exit(1);
    cudaMemset(plain, 1, bytes);
    std::vector<double> rate[4];
    for (std::uint64_t seed = 0; seed < 11; ++seed) {
        const std::uint64_t blocks = bytes / block_bytes;
        rate[0].push_back(run_hit<0>(rt->ref(), fd, plain, blocks, seed, sink));
        rate[1].push_back(run_hit<1>(rt->ref(), fd, plain, blocks, seed, sink));
        rate[2].push_back(run_hit<2>(rt->ref(), fd, plain, blocks, seed, sink));
        rate[3].push_back(run_hit<3>(rt->ref(), fd, plain, blocks, seed, sink));
    }
    const std::string note = "random 4 KiB blocks, 2 GiB resident, median of 11; misses " + std::to_string(rt->stats().misses);
    out.push_back({"S1", "hit, copying read into shared memory", "gpu", page, median(rate[1]), "GB/s", "the same copy from plain memory",
                   median(rate[0]), median(rate[1]) / median(rate[0]), 0, note});
    out.push_back({"S2", "hit, map, look, unmap", "gpu", page, median(rate[3]), "GB/s", "looking at plain memory", median(rate[2]),
                   median(rate[3]) / median(rate[2]), 0, note});
    cudaFree(plain), cudaFree(sink);
    std::filesystem::remove(name);
}

#endif

}  // namespace

int main(int argc, char** argv) {
    const std::string where = argc > 1 ? argv[1] : "cpu", commit = argc > 2 ? argv[2] : "";
    std::vector<result> results;
    std::string device = "cpu", driver;
    if (where == "cpu") {
        for (const std::uint64_t resident_bytes : {4u << 20, 16u << 20, 256u << 20}) cpu_hits(resident_bytes, results);
        cpu_hot_page(results);
    } else {
#if defined(__CUDACC__)
        int version = 0;
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return std::fprintf(stderr, "no GPU\n"), 1;
        cudaDriverGetVersion(&version);
        device = properties.name;
        driver = "CUDA " + std::to_string(version);
        for (const std::uint64_t page : {4096, 65536}) gpu_hits(results, page);
#else
        std::fprintf(stderr, "this build has no CUDA\n");
        return 1;
#endif
    }
    print(results, device, driver, commit);
    return 0;
}
