// Gather: random rows of a file by an array of their numbers, against a plain kernel that fetches the same rows.
//
//   resident         all pages in the device cache; plain rows lie in device memory
//   through windows  a cache of 1/16 of the file, missing pages from the operating system's page cache; plain rows lie in
//                    pinned host memory of the same span. In the order given, and span by span.
// What is delivered is compared with what the file holds. bench_gather [commit]
#include <cstdlib>
#include <filesystem>
#include <sys/mman.h>

#include "support.hpp"

using namespace penstock;
using namespace penstock::bench;

namespace {

constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;
constexpr std::uint64_t most_rows = std::uint64_t{1} << 22, most_out_bytes = 2 * gibibyte;
constexpr std::uint64_t row_sizes[] = {64, 512, 1024, 4096};
constexpr int repeats = 5;

__global__ void choose(std::uint64_t* indices, std::uint64_t count, std::uint64_t rows, std::uint64_t seed) {
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += std::uint64_t{gridDim.x} * blockDim.x)
        indices[i] = mix64(i + seed * 0x9e3779b97f4a7c15ull) % rows;
}

// Word w of the file is mix64(w).
__global__ void compare(const std::uint64_t* out, const std::uint64_t* indices, std::uint64_t count, std::uint64_t row_words,
                        unsigned long long* wrong) {
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count * row_words; i += std::uint64_t{gridDim.x} * blockDim.x)
        if (out[i] != mix64(indices[i / row_words] * row_words + i % row_words)) atomicAdd(wrong, 1ull);
}

// All 16-byte units of all rows over all threads, four in flight in each.
__global__ void __launch_bounds__(256, 4) from_plain(const uint4* plain, std::uint32_t unit_shift, const std::uint64_t* indices,
                                                     std::uint64_t count, uint4* out) {
    const std::uint64_t units = count << unit_shift, threads = std::uint64_t{gridDim.x} * 256, mask = (1u << unit_shift) - 1;
    const auto unit = [&](std::uint64_t u) { return __ldcg(plain + (indices[u >> unit_shift] << unit_shift) + (u & mask)); };
    std::uint64_t u = std::uint64_t{blockIdx.x} * 256 + threadIdx.x;
    for (; u + 3 * threads < units; u += 4 * threads) {
        const uint4 a = unit(u), b = unit(u + threads), c = unit(u + 2 * threads), d = unit(u + 3 * threads);
        out[u] = a, out[u + threads] = b, out[u + 2 * threads] = c, out[u + 3 * threads] = d;
    }
    for (; u < units; u += threads) out[u] = unit(u);
}

// Each warp takes pieces of the list.
__global__ void __launch_bounds__(256, 4) from_rows(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t row_bytes,
                                                    const std::uint64_t* indices, std::uint64_t count, std::byte* out, unsigned long long* failed) {
    constexpr std::uint64_t piece = 128;
    const warp g;
    const row_view rows(fs, fd, {.row_bytes = row_bytes});
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8;
    for (std::uint64_t first = (std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32) * piece; first < count; first += warps * piece) {
        const std::uint64_t n = min(piece, count - first);
        if (gather(g, rows, indices + first, n, out + first * row_bytes) != static_cast<std::int64_t>(n) && g.is_leader()) atomicAdd(failed, 1ull);
    }
}

template <typename Kernel>
std::uint32_t full_grid(Kernel* kernel) {
    int per_multiprocessor = 0, multiprocessors = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, 256, 0);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    return static_cast<std::uint32_t>(per_multiprocessor * multiprocessors);
}

// Seconds of what `work` does, from before it starts until the device has nothing left to do.
template <typename Work>
double seconds_of(const Work& work) {
    check(cudaDeviceSynchronize(), "kernel");
    const double begin = now();
    work();
    check(cudaDeviceSynchronize(), "kernel");
    return now() - begin;
}

struct buffers {
    std::uint64_t* indices = nullptr;
    std::byte* out = nullptr;
    unsigned long long* wrong = nullptr;

    buffers() {
        check(cudaMalloc(&indices, most_rows * 8), "memory");
        check(cudaMalloc(&out, most_out_bytes), "memory");
        check(cudaMallocManaged(&wrong, 8), "memory");
        *wrong = 0;
    }
    void expect_right(std::uint64_t count, std::uint64_t row_bytes) const {
        compare<<<1024, 256>>>(reinterpret_cast<const std::uint64_t*>(out), indices, count, row_bytes / 8, wrong);
        check(cudaDeviceSynchronize(), "compare");
        if (*wrong != 0) fail(std::to_string(*wrong) + " words of rows of " + std::to_string(row_bytes) + " bytes are wrong or were not delivered");
    }
};

std::uint64_t rows_for(std::uint64_t row_bytes) { return std::min(most_rows, most_out_bytes / row_bytes); }

// Million rows a second of the plain kernel over `span` bytes, each time with rows of its own; the medians' baseline.
double plain_rate(const buffers& b, const void* plain, std::uint64_t span, std::uint64_t row_bytes) {
    const std::uint64_t count = rows_for(row_bytes);
    std::vector<double> rates;
    for (int seed = 0; seed < repeats; ++seed) {
        choose<<<1024, 256>>>(b.indices, count, span / row_bytes, seed);
        const double seconds = seconds_of([&] {
            from_plain<<<full_grid(from_plain), 256>>>(static_cast<const uint4*>(plain), static_cast<std::uint32_t>(__builtin_ctzll(row_bytes / 16)),
                                                       b.indices, count, reinterpret_cast<uint4*>(b.out));
        });
        rates.push_back(1e-6 * static_cast<double>(count) / seconds);
    }
    return median(rates);
}

// The same of Penstock by `work(count)`, its rows compared each time; `cores` is the CPU time over the time it took.
template <typename Work>
double rate(const buffers& b, std::uint64_t span, std::uint64_t row_bytes, double& cores, const Work& work) {
    const std::uint64_t count = rows_for(row_bytes);
    std::vector<double> rates, used;
    for (int seed = 0; seed < repeats; ++seed) {
        choose<<<1024, 256>>>(b.indices, count, span / row_bytes, seed + 100);
        cudaMemset(b.out, 0, count * row_bytes);
        check(cudaDeviceSynchronize(), "choose");
        const double cpu = cpu_seconds();
        const double seconds = seconds_of([&] { work(count); });
        used.push_back((cpu_seconds() - cpu) / seconds);
        rates.push_back(1e-6 * static_cast<double>(count) / seconds);
        b.expect_right(count, row_bytes);
    }
    cores = median(used);
    return median(rates);
}

void add(std::vector<result>& out, const char* goal, const std::string& name, std::uint64_t page_bytes, double value, const char* baseline,
         double plain, double cores, std::uint64_t row_bytes) {
    char note[100];
    std::snprintf(note, sizeof note, "%.1f GB/s of rows; median of %d", 1e-3 * value * static_cast<double>(row_bytes), repeats);
    out.push_back({goal, name, "gpu", page_bytes, value, "million rows/s", baseline, plain, value / plain, cores, note});
}

void measure_resident(std::vector<result>& out, const buffers& b, const std::string& file, std::uint64_t span) {
    void* plain = nullptr;
    check(cudaMalloc(&plain, span), "memory");
    check(cudaMemset(plain, 1, span), "memory");
    std::vector<double> plains;
    for (const std::uint64_t row_bytes : row_sizes) plains.push_back(plain_rate(b, plain, span, row_bytes));
    cudaFree(plain);
    for (const std::uint64_t page_bytes : {4096, 65536}) {
        const auto rt = make_runtime(backend::gpu, span + span / 8, page_bytes);
        const int fd = rt->open(file);
        if (rt->prefetch(fd, 0, static_cast<std::int64_t>(span)) != static_cast<std::int64_t>(span)) fail("prefetch failed");
        for (std::size_t i = 0; i < std::size(row_sizes); ++i) {
            const std::uint64_t row_bytes = row_sizes[i];
            double cores = 0;
            const double value = rate(b, span, row_bytes, cores, [&](std::uint64_t count) {
                from_rows<<<full_grid(from_rows), 256>>>(rt->ref(), fd, row_bytes, b.indices, count, b.out, b.wrong);
            });
            add(out, "S3", "gather, resident, rows of " + std::to_string(row_bytes), page_bytes, value, "plain kernel from device memory",
                plains[i], cores, row_bytes);
        }
    }
}

// Pinned memory in huge pages; never given back, for the program ends soon.
void* pinned(std::uint64_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the baseline");
    madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 1, bytes);
    check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped), "pinned memory");
    return memory;
}

void measure_windows(std::vector<result>& out, const buffers& b, const std::string& file, const void* plain, std::uint64_t span) {
    const std::string over = " over " + std::to_string(span / gibibyte) + " GiB";
    std::vector<double> plains;
    for (const std::uint64_t row_bytes : row_sizes) plains.push_back(plain_rate(b, plain, span, row_bytes));
    for (const std::uint64_t page_bytes : {512, 4096}) {
        const auto rt = make_runtime(backend::gpu, span / 16, page_bytes);
        const int fd = rt->open(file);
        if (rt->open_windows(fd) != static_cast<std::int64_t>(span)) fail("windows could not be opened over all of " + file);
        for (std::size_t i = 0; i < std::size(row_sizes); ++i) {
            const std::uint64_t row_bytes = row_sizes[i];
            for (const gather_order order : {gather_order::as_given, gather_order::by_span}) {
                double cores = 0;
                const double value = rate(b, span, row_bytes, cores, [&](std::uint64_t count) {
                    if (const std::int64_t done = rt->gather(fd, {.row_bytes = row_bytes}, b.indices, count, b.out, {order}); done < 0)
                        fail("gather: " + error_text(done));
                });
                add(out, "S4", "gather through windows, " + std::string(order == gather_order::by_span ? "by span" : "as given") + ", rows of " +
                        std::to_string(row_bytes) + over, page_bytes, value, "plain kernel from pinned memory, as given", plains[i], cores, row_bytes);
            }
        }
        rt->close_windows();
    }
}

}  // namespace

int main(int argc, char** argv) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "no GPU");
    int version = 0;
    cudaDriverGetVersion(&version);
    const buffers b;
    std::vector<result> results;
    void* const plain = pinned(8 * gibibyte);
    for (const std::uint64_t span : {gibibyte, 2 * gibibyte, 8 * gibibyte}) {
        const std::string file = make_file("penstock-bench-gather", span);
        if (span == 2 * gibibyte) measure_resident(results, b, file, span);
        else measure_windows(results, b, file, plain, span);
        std::filesystem::remove(file);
    }
    print(results, properties.name, "CUDA " + std::to_string(version), argc > 1 ? argv[1] : "");
    return 0;
}
