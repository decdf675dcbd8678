// Misses: pages of a file in the operating system's page cache, with a Penstock cache much smaller than the file, through
// windows (no request, no CPU) and by requests; and a whole file into GPU memory. Beside what the machine allows, in one run.
//
// bench_miss [commit] [GiB of file]
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <filesystem>
#include <unistd.h>

#include "support.hpp"

using namespace penstock;
using namespace penstock::bench;

namespace {

constexpr std::uint64_t mib = 1u << 20, gib = 1u << 30;

struct rate {
    double gb_a_second = 0, cores = 0;
};

// Runs `kernel` once to warm up and then `repeats` times; every run moves `bytes`.
template <typename Kernel>
rate timed(std::uint64_t bytes, int repeats, const Kernel& kernel) {
    kernel(0);
    check(cudaDeviceSynchronize(), "warm-up");
    std::vector<double> rates, cores;
    for (int i = 1; i <= repeats; ++i) {
        const double begin = now(), used = cpu_seconds();
        kernel(static_cast<std::uint64_t>(i));
        check(cudaDeviceSynchronize(), "kernel");
        const double seconds = now() - begin;
        rates.push_back(1e-9 * static_cast<double>(bytes) / seconds);
        cores.push_back((cpu_seconds() - used) / seconds);
    }
    return {median(rates), median(cores)};
}

// What the machine allows: warps copy random pages of registered host memory to device memory, nothing else.
__global__ void __launch_bounds__(256) plain_pages(const std::byte* host, std::byte* device, std::uint64_t pages,
                                                   std::uint32_t page_bytes, std::uint32_t rounds, std::uint64_t seed) {
    const warp g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t page = mix64(number * rounds + i + seed * 0x9e3779b97f4a7c15ull) % pages;
        g.copy_in(device + number * page_bytes, host + page * page_bytes, page_bytes);
    }
}

__global__ void __launch_bounds__(256, 4) missing_pages(const __grid_constant__ runtime_ref fs, int fd, std::byte* device,
                                                        std::uint64_t pages, std::uint32_t page_bytes, std::uint32_t rounds,
                                                        std::uint64_t seed, unsigned long long* wrong) {
    const warp g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32;
    std::byte* const mine = device + number * page_bytes;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t page = mix64(number * rounds + i + seed * 0x9e3779b97f4a7c15ull) % pages;
        const bool right = read(g, fs, fd, mine, page_bytes, static_cast<std::int64_t>(page * page_bytes)) == page_bytes &&
                           reinterpret_cast<const std::uint64_t*>(mine)[g.rank()] == mix64(page * page_bytes / 8 + g.rank());
        if (!g.all(right) && g.is_leader()) atomicAdd(wrong, 1ull);
        g.sync();
    }
}

void misses(std::vector<result>& out, const std::string& name, const std::byte* plain, std::uint64_t file_bytes,
            std::uint64_t page_bytes, const char* goal) {
    const std::uint64_t pages = file_bytes / page_bytes;
    const std::uint32_t blocks = 132 * 4, rounds = static_cast<std::uint32_t>(gib * 4 / page_bytes / (blocks * 8));
    const std::uint64_t moved = std::uint64_t{blocks} * 8 * rounds * page_bytes;
    const auto rt = make_runtime(backend::gpu, file_bytes / 16, page_bytes);
    std::byte* device = nullptr;
    unsigned long long* wrong = nullptr;
    check(cudaMalloc(&device, std::uint64_t{blocks} * 8 * page_bytes), "memory");
    check(cudaHostAlloc(&wrong, 8, cudaHostAllocMapped), "memory");
    *wrong = 0;
    const rate limit = timed(moved, 5, [&](std::uint64_t seed) {
        plain_pages<<<blocks, 256>>>(plain, device, pages, static_cast<std::uint32_t>(page_bytes), rounds, seed);
    });
    // The same from the file's pages in the page cache, which lie scattered: what a window can give at most.
    const int file = ::open(name.c_str(), O_RDONLY);
    void* const mapped = ::mmap(nullptr, file_bytes, PROT_READ, MAP_SHARED, file, 0);
    check(cudaHostRegister(mapped, file_bytes, cudaHostRegisterMapped | cudaHostRegisterReadOnly), "registering the file");
    const rate scattered = timed(moved, 5, [&](std::uint64_t seed) {
        plain_pages<<<blocks, 256>>>(static_cast<const std::byte*>(mapped), device, pages, static_cast<std::uint32_t>(page_bytes), rounds, seed);
    });
    check(cudaHostUnregister(mapped), "unregister");
    ::munmap(mapped, file_bytes);
    ::close(file);
    out.push_back({goal, "no Penstock: warps copying random pages of the file's registered page cache", "gpu", page_bytes, scattered.gb_a_second,
                   "GB/s", "warps copying random pages of registered host memory", limit.gb_a_second,
                   scattered.gb_a_second / limit.gb_a_second, scattered.cores, "median of 5"});
    const int fd = rt->open(name);
    const auto run = [&](std::uint64_t seed) {
        missing_pages<<<blocks, 256>>>(rt->ref(), fd, device, pages, static_cast<std::uint32_t>(page_bytes), rounds, seed, wrong);
    };
    const double begin = now();
    const std::int64_t inside = rt->open_windows(fd);
    const double opening = now() - begin;
    if (inside != static_cast<std::int64_t>(file_bytes)) fail("only " + std::to_string(inside) + " bytes lie in windows");
    const statistics before = rt->stats();
    const rate windows = timed(moved, 5, run);
    const statistics after = rt->stats();
    char note[160];
    // Over the bus go only the pages that missed.
    const double missed = double(after.misses - before.misses) * double(page_bytes) / (6.0 * double(moved));
    const double loaded = missed * windows.gb_a_second;
    std::snprintf(note, sizeof note, "%.1f million misses/s; %.3f of the pages missed, %.1f GB/s delivered; opening %.1f GB of windows took %.2f s; median of 5",
                  1e3 * loaded / double(page_bytes), missed, windows.gb_a_second, 1e-9 * double(file_bytes), opening);
    out.push_back({goal, "loads of random pages through windows, cache 1/16 of the file", "gpu", page_bytes, loaded, "GB/s",
                   "warps copying random pages of registered host memory", limit.gb_a_second, loaded / limit.gb_a_second,
                   windows.cores, note});
    if (*wrong != 0) fail(std::to_string(*wrong) + " reads gave wrong bytes");
    check(cudaFree(device), "free");
    check(cudaFreeHost(wrong), "free");
    rt->close_windows();
}

// The hand-written way: all processors read pieces into pinned buffers, two each, and copy them on streams of their own.
double pipelined_seconds(const std::string& name, std::byte* device, std::uint64_t bytes) {
    constexpr std::uint64_t piece = 4 * mib;
    const unsigned threads = std::thread::hardware_concurrency();
    std::byte* pinned = nullptr;
    check(cudaHostAlloc(&pinned, threads * 2 * piece, cudaHostAllocDefault), "pinned memory");
    std::vector<cudaStream_t> streams(threads);
    std::vector<cudaEvent_t> copied(2 * threads);
    for (auto& s : streams) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    for (auto& e : copied) check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
    const int file = ::open(name.c_str(), O_RDONLY);
    const double begin = now();
    std::atomic<std::uint64_t> next{0};
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            for (unsigned turn = 0;; turn ^= 1) {
                const std::uint64_t at = next.fetch_add(piece);
                if (at >= bytes) break;
                std::byte* const buffer = pinned + (2 * t + turn) * piece;
                check(cudaEventSynchronize(copied[2 * t + turn]), "copy");
                const std::uint64_t length = std::min(piece, bytes - at);
                if (::pread(file, buffer, length, static_cast<off_t>(at)) != static_cast<ssize_t>(length)) fail("pread");
                check(cudaMemcpyAsync(device + at, buffer, length, cudaMemcpyHostToDevice, streams[t]), "copy");
                check(cudaEventRecord(copied[2 * t + turn], streams[t]), "event");
            }
            check(cudaStreamSynchronize(streams[t]), "copy");
        });
    for (auto& one : all) one.join();
    const double seconds = now() - begin;
    ::close(file);
    for (auto& s : streams) cudaStreamDestroy(s);
    for (auto& e : copied) cudaEventDestroy(e);
    cudaFreeHost(pinned);
    return seconds;
}

void whole_file(std::vector<result>& out, const std::string& name, std::uint64_t file_bytes) {
    std::vector<double> ours, with_opening, by_hand, cores;
    std::byte* device = nullptr;
    check(cudaMalloc(&device, file_bytes), "memory");
    for (int i = 0; i < 5; ++i) {
        const auto rt = make_runtime(backend::gpu, file_bytes + file_bytes / 8, 65536);
        const int fd = rt->open(name);
        const double begin = now();
        if (rt->open_windows(fd) != static_cast<std::int64_t>(file_bytes)) fail("no windows");
        const double opened = now(), used = cpu_seconds();
        if (rt->prefetch(fd, 0, static_cast<std::int64_t>(file_bytes)) != static_cast<std::int64_t>(file_bytes)) fail("prefetch");
        const double end = now();
        ours.push_back(1e-9 * double(file_bytes) / (end - opened));
        with_opening.push_back(1e-9 * double(file_bytes) / (end - begin));
        cores.push_back((cpu_seconds() - used) / (end - opened));
        rt->close_windows();
        by_hand.push_back(1e-9 * double(file_bytes) / pipelined_seconds(name, device, file_bytes));
    }
    check(cudaFree(device), "free");
    const std::string baseline = "all cores: pread into pinned buffers, two a core, and cudaMemcpyAsync";
    out.push_back({"S6", "whole file, windows open", "gpu", 65536, median(ours), "GB/s", baseline, median(by_hand),
                   median(ours) / median(by_hand), median(cores), "median of 5"});
    out.push_back({"S6", "whole file, windows opened first, in the time", "gpu", 65536, median(with_opening), "GB/s", baseline,
                   median(by_hand), median(with_opening) / median(by_hand), 1, "median of 5; one thread registers"});
}

}  // namespace

int main(int argc, char** argv) {
    const std::string commit = argc > 1 ? argv[1] : "";
    const std::uint64_t file_bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 8) * gib;
    check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "flags");  // waiting is no work
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "no GPU");
    int version = 0;
    cudaDriverGetVersion(&version);
    const std::string name = make_file("penstock-bench-miss", file_bytes);
    std::byte* plain = nullptr;
    check(cudaHostAlloc(&plain, file_bytes, cudaHostAllocMapped), "pinned memory");
    std::memset(plain, 1, file_bytes);
    std::vector<result> results;
    misses(results, name, plain, file_bytes, 4096, "S4");
    misses(results, name, plain, file_bytes, 512, "S5");
    misses(results, name, plain, file_bytes, 65536, "S4");
    cudaFreeHost(plain);
    whole_file(results, name, file_bytes);
    print(results, properties.name, "CUDA " + std::to_string(version), commit);
    std::filesystem::remove(name);
    return 0;
}
