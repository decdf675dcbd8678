// Gather: random rows of a file by an array of their numbers, by runtime::gather or a kernel,
// against the same rows from plain memory.
//
//   cpu              all pages resident, on all threads; memcpy from a plain array
//   resident         all pages in the device's cache; the plain rows lie in device memory
//   through windows  a cache smaller than the file, missing pages from the operating system's page
//                    cache, by runtime::gather in both orders; the plain rows lie in pinned host
//                    memory of the same span
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/mman.h>

#include "cases.hpp"
#include "host.hpp"
#include "machine.hpp"
#include "penstock/launch.hpp"
#include "workload.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

// Which rows a run fetches, and whether there is memory for it.

constexpr std::uint64_t gathered_row_bytes[] = {64, 512, 1024, 4096};

// Rows of one run: no more than 2^22, than fit into `most_out_bytes`, and than deliver the file 32
// times.
std::uint64_t rows_of_a_run(std::uint64_t file_bytes, std::uint64_t row_bytes,
                            std::uint64_t most_out_bytes) {
    return std::min(
        {std::uint64_t{1} << 22, most_out_bytes / row_bytes, 32 * (file_bytes / row_bytes)});
}

// The row that stands at place i of the list; each run has a seed of its own.
PENSTOCK_HD inline std::uint64_t chosen_row(std::uint64_t i, std::uint64_t seed,
                                            std::uint64_t rows) {
    return mix64(i + seed * 0x9e3779b97f4a7c15ull) % rows;
}

// What the operating system could give to programs now; UINT64_MAX: it does not say.
std::uint64_t available_host_bytes() {
    std::ifstream facts("/proc/meminfo");
    std::uint64_t kibibytes = 0;
    for (std::string name, rest; facts >> name; std::getline(facts, rest))
        if (name == "MemAvailable:" && facts >> kibibytes) return kibibytes << 10;
    return UINT64_MAX;
}

// -ENOMEM if more is needed than is free. Asked before it is taken: the system ends a program that
// touches more than there is.
void require_memory(const char* kind, std::uint64_t needed_bytes, std::uint64_t free_bytes) {
    if (needed_bytes > free_bytes)
        throw failure(
            -ENOMEM, text_of("it needs %.2f GiB of %s and %.2f GiB are free; give a smaller --file",
                             static_cast<double>(needed_bytes) / gib, kind,
                             static_cast<double>(free_bytes) / gib));
}

// The list of rows and where they go.
struct list_memory {
    memory indices, out;

    // The largest of a run, for all sizes of rows. `more_bytes`: what else will be taken of the
    // same memory.
    list_memory(backend where, std::uint64_t span, std::uint64_t most_out_bytes,
                std::uint64_t more_bytes) {
        const std::uint64_t out_bytes = std::min(most_out_bytes, 32 * span),
                            index_bytes =
                                rows_of_a_run(span, gathered_row_bytes[0], most_out_bytes) * 8;
        if (where == backend::cpu)
            require_memory("memory", index_bytes + out_bytes + more_bytes, available_host_bytes());
#if defined(__CUDACC__)
        std::size_t free_bytes = 0, total_bytes = 0;
        if (where == backend::gpu) {
            require_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory");
            require_memory("device memory", index_bytes + out_bytes + more_bytes, free_bytes);
        }
#endif
        indices = memory(where, index_bytes);
        out = memory(where, out_bytes);
    }
};

// On the cpu back end.

constexpr std::uint64_t most_cpu_out_bytes = 128 * mib;

struct cpu_gather {
    context& here;
    const resident_file& file;
    std::uint64_t bytes, page, threads;
    std::uint64_t* indices;
    std::byte* out;

    // Each thread's share of a list of `count`, as body(first, last).
    template <typename Body>
    double on_shares(std::uint64_t count, const Body& body) const {
        return seconds_together(threads, [&](std::uint64_t t) {
            body(count * t / threads, count * (t + 1) / threads);
        });
    }

    double copy_plain(std::uint64_t count, std::uint64_t row_bytes) const {
        const std::byte* const from = file.plain.get();
        const std::uint64_t* const list = indices;
        std::byte* const to = out;
        return on_shares(count, [=](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t i = first; i < last; ++i)
                std::memcpy(to + i * row_bytes, from + list[i] * row_bytes, row_bytes);
        });
    }

    // Of all rows: word w of the file is mix64(w).
    void expect_right(std::uint64_t count, std::uint64_t row_bytes, const char* whose) const {
        std::atomic<std::uint64_t> wrong{0};
        const std::uint64_t words = row_bytes / 8;
        const auto* const got = reinterpret_cast<const std::uint64_t*>(out);
        on_shares(count, [&](std::uint64_t first, std::uint64_t last) {
            std::uint64_t differ = 0;
            for (std::uint64_t i = first * words; i < last * words; ++i)
                differ += got[i] != mix64(indices[i / words] * words + i % words);
            wrong += differ;
        });
        if (wrong != 0)
            throw failure(-EIO, std::to_string(wrong.load()) + " words of rows of " +
                                    format_size(row_bytes) + " by " + whose +
                                    " are wrong or were not delivered");
    }

    void compare(std::uint64_t row_bytes) const {
        const std::uint64_t count = rows_of_a_run(bytes, row_bytes, most_cpu_out_bytes);
        const double millions = 1e-6 * static_cast<double>(count);
        const std::uint64_t misses_before = file.rt->stats().misses;
        measured rows;
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
            for (std::uint64_t i = 0; i < count; ++i)
                indices[i] = chosen_row(i, repeat, bytes / row_bytes);
            std::memset(out, 0xff, count * row_bytes);
            const double copied_s = copy_plain(count, row_bytes);
            expect_right(count, row_bytes, "memcpy");
            std::memset(out, 0xff, count * row_bytes);
            const stopwatch watch;
            const std::int64_t done =
                file.rt->gather(file.fd, {.row_bytes = row_bytes}, indices, count, out);
            const double gathered_s = watch.seconds(), used = watch.cores(gathered_s);
            if (done != static_cast<std::int64_t>(count))
                throw failure(done < 0 ? done : -EIO, "gather: " + file.rt->view_status().message);
            expect_right(count, row_bytes, "gather");
            if (repeat == 0) continue;  // the first touches what was never used before
            rows.baseline.add(millions / copied_s);
            rows.ours.add(millions / gathered_s);
            rows.cores.add(used);
        }
        here.add(
            {"issue-3",
             "gather, " + format_size(bytes) + " resident, rows of " + format_size(row_bytes) +
                 ", " + groups_label(here, threads),
             page, "million rows/s", rows,
             "memcpy of the same rows from plain memory, as many threads",
             text_of("%.2f GB/s of rows; %llu rows a run; all rows compared; misses %llu",
                     1e-3 * rows.ours.median() * static_cast<double>(row_bytes),
                     static_cast<unsigned long long>(count),
                     static_cast<unsigned long long>(file.rt->stats().misses - misses_before))});
    }
};

}  // namespace

void gather_on_cpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(256 * mib), threads = here.host_threads();
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        // The cache has room for twice the file, and takes memory for what is brought in.
        const list_memory to(backend::cpu, bytes, most_cpu_out_bytes, 2 * bytes);
        const resident_file file(here, bytes, page, threads);
        const cpu_gather run{
            here, file, bytes, page, threads, to.indices.as(), to.out.as<std::byte>()};
        for (const std::uint64_t row_bytes : gathered_row_bytes) run.compare(row_bytes);
    }
}

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t most_gpu_out_bytes = 2 * gib;
// For the tables of a runtime, the order of the rows and what the driver keeps for kernels.
constexpr std::uint64_t beside_bytes = 256 * mib;

// Rows that a plain kernel fetches from the memory of the host, for comparison with windows. Pinned
// memory in huge pages: with small ones the baseline would be bound by their translation.
class plain_host_rows {
public:
    explicit plain_host_rows(std::uint64_t bytes) : bytes_(bytes) {
        require_memory("host memory", bytes, available_host_bytes());
        data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data_ == MAP_FAILED)
            throw failure(-ENOMEM, format_size(bytes) +
                                       " of host memory could not be had; give a smaller --file");
        ::madvise(data_, bytes, MADV_HUGEPAGE);
        std::memset(data_, 1, bytes);
        require_cuda(cudaHostRegister(data_, bytes, cudaHostRegisterMapped),
                     "pinning " + format_size(bytes) + " of host memory");
    }
    ~plain_host_rows() {
        cudaHostUnregister(data_);
        ::munmap(data_, bytes_);
    }
    plain_host_rows(const plain_host_rows&) = delete;
    plain_host_rows& operator=(const plain_host_rows&) = delete;

    [[nodiscard]] const uint4* data() const { return static_cast<const uint4*>(data_); }

private:
    std::uint64_t bytes_;
    void* data_;
};

__global__ void choose(std::uint64_t* indices, std::uint64_t count, std::uint64_t rows,
                       std::uint64_t seed) {
    const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += threads)
        indices[i] = chosen_row(i, seed, rows);
}

struct counters {
    unsigned long long wrong_words, failed_calls;
};

// Word w of the file is mix64(w).
__global__ void count_wrong(const std::uint64_t* out, const std::uint64_t* indices,
                            std::uint64_t count, std::uint64_t row_words, counters* found) {
    const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
         i < count * row_words; i += threads)
        if (out[i] != mix64(indices[i / row_words] * row_words + i % row_words))
            atomicAdd(&found->wrong_words, 1ull);
}

// All 16-byte units of all rows over all threads, four in flight in each.
__global__ void __launch_bounds__(256, 4)
    from_plain(const uint4* plain, std::uint32_t unit_shift, const std::uint64_t* indices,
               std::uint64_t count, uint4* out) {
    const std::uint64_t units = count << unit_shift, threads = std::uint64_t{gridDim.x} * 256,
                        mask = (1u << unit_shift) - 1;
    const auto unit = [&](std::uint64_t u) {
        return __ldcg(plain + (indices[u >> unit_shift] << unit_shift) + (u & mask));
    };
    std::uint64_t u = std::uint64_t{blockIdx.x} * 256 + threadIdx.x;
    for (; u + 3 * threads < units; u += 4 * threads) {
        const uint4 a = unit(u), b = unit(u + threads), c = unit(u + 2 * threads),
                    d = unit(u + 3 * threads);
        out[u] = a, out[u + threads] = b, out[u + 2 * threads] = c, out[u + 3 * threads] = d;
    }
    for (; u < units; u += threads) out[u] = unit(u);
}

// Each warp takes pieces of the list.
__global__ void __launch_bounds__(256, 4)
    from_rows(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t row_bytes,
              const std::uint64_t* indices, std::uint64_t count, std::byte* out, counters* found) {
    constexpr std::uint64_t piece = 128;
    const warp g;
    const row_view rows(fs, fd, {.row_bytes = row_bytes});
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8;
    for (std::uint64_t first = (std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32) * piece;
         first < count; first += warps * piece) {
        const std::uint64_t n = min(piece, count - first);
        if (gather(g, rows, indices + first, n, out + first * row_bytes) !=
                static_cast<std::int64_t>(n) &&
            g.is_leader())
            atomicAdd(&found->failed_calls, 1ull);
    }
}

struct gpu_gather {
    context& here;
    const opened_file& file;
    const uint4* plain;
    std::uint64_t span, page, cache;
    const list_memory& to;
    const memory found = memory(backend::gpu, sizeof(counters));

    [[nodiscard]] std::uint64_t* indices() const { return to.indices.as(); }
    [[nodiscard]] std::byte* out() const { return to.out.as<std::byte>(); }

    // Another list, and nothing of the one before left where the rows go.
    void begin(std::uint64_t count, std::uint64_t row_bytes, std::uint64_t seed) const {
        choose<<<1024, 256>>>(indices(), count, span / row_bytes, seed);
        require_cuda(cudaGetLastError(), "launch");
        require_cuda(cudaMemset(out(), 0xff, count * row_bytes), "memory");
        require_cuda(cudaDeviceSynchronize(), "choosing rows");
    }

    [[nodiscard]] double plain_seconds(std::uint64_t count, std::uint64_t row_bytes) const {
        const auto shift = static_cast<std::uint32_t>(__builtin_ctzll(row_bytes / 16));
        const std::uint32_t grid = full_grid(from_plain);
        return kernel_seconds(
            [&] { from_plain<<<grid, 256>>>(plain, shift, indices(), count, to.out.as<uint4>()); });
    }

    void expect_right(std::uint64_t count, std::uint64_t row_bytes) const {
        count_wrong<<<1024, 256>>>(to.out.as(), indices(), count, row_bytes / 8,
                                   found.as<counters>());
        require_cuda(cudaGetLastError(), "launch");
        counters errors{};
        found.copy_out(&errors, sizeof errors);
        require(file.rt->view_status());
        if (errors.failed_calls != 0)
            throw failure(-EIO, std::to_string(errors.failed_calls) + " calls of gather failed");
        if (errors.wrong_words != 0)
            throw failure(-EIO, std::to_string(errors.wrong_words) + " words of rows of " +
                                    format_size(row_bytes) + " are wrong or were not delivered");
    }

    // `ours` fetches `count` rows and says how long it took.
    template <typename Ours>
    void compare(const std::string& name, std::uint64_t row_bytes, const char* baseline,
                 const Ours& ours) const {
        const std::uint64_t count = rows_of_a_run(span, row_bytes, most_gpu_out_bytes);
        const double millions = 1e-6 * static_cast<double>(count);
        measured rows;
        statistics before;
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
            if (repeat == 1) before = file.rt->stats();
            begin(count, row_bytes, repeat);
            const double plain_s = plain_seconds(count, row_bytes);
            begin(count, row_bytes, repeat);
            const stopwatch watch;
            const double ours_s = ours(count), used = watch.cores();
            expect_right(count, row_bytes);
            if (repeat == 0) continue;  // the first loads the kernels and fills the cache
            rows.baseline.add(millions / plain_s);
            rows.ours.add(millions / ours_s);
            rows.cores.add(used);
        }
        const double fetched = static_cast<double>(count * rows.ours.size());
        here.add({"issue-3", name, page, "million rows/s", rows, baseline,
                  text_of("%.1f GB/s of rows; %llu rows a run, all compared; %.3f pages loaded a "
                          "row",
                          1e-3 * rows.ours.median() * static_cast<double>(row_bytes),
                          static_cast<unsigned long long>(count),
                          static_cast<double>(file.rt->stats().misses - before.misses) / fetched)});
    }

    void resident(std::uint64_t row_bytes) const {
        const std::uint32_t grid = full_grid(from_rows);
        compare("gather, " + format_size(span) + " resident, rows of " + format_size(row_bytes),
                row_bytes, "plain kernel from device memory", [&](std::uint64_t count) {
                    return kernel_seconds([&] {
                        from_rows<<<grid, 256>>>(file.rt->ref(), file.fd, row_bytes, indices(),
                                                 count, out(), found.as<counters>());
                    });
                });
    }

    // The time is that of the whole call, with the order of the rows in it.
    void through_windows(std::uint64_t row_bytes, gather_order order) const {
        const std::string name = "gather through windows over " + format_size(span) +
                                 (order == gather_order::by_span ? ", by span" : ", as given") +
                                 ", rows of " + format_size(row_bytes) + ", " +
                                 cache_label(cache, span);
        compare(
            name, row_bytes, "plain kernel from pinned memory, as given", [&](std::uint64_t count) {
                const stopwatch watch;
                const std::int64_t done = file.rt->gather(
                    file.fd, {.row_bytes = row_bytes}, indices(), count, out(), {.order = order});
                const double seconds = watch.seconds();
                if (done != static_cast<std::int64_t>(count)) require(file.rt->view_status());
                require_all(done, count, "gather");
                return seconds;
            });
    }
};

void all_resident(context& here, std::uint64_t span) {
    here.use_file(span);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        const std::uint64_t cache = span + span / 8 + 16 * page;
        const list_memory to(backend::gpu, span, most_gpu_out_bytes, span + cache + beside_bytes);
        const memory plain(backend::gpu, span);
        require_cuda(cudaMemset(plain.as<void>(), 1, span), "memory");
        const opened_file file =
            here.open({.page_bytes = page, .cache_bytes = cache, .file_bytes = span});
        bring_into_cache(file, span);
        const gpu_gather run{here, file, plain.as<uint4>(), span, page, cache, to};
        for (const std::uint64_t row_bytes : gathered_row_bytes) run.resident(row_bytes);
    }
}

// The case's own sizes of a cache, but frames enough for thousands of warps that all miss at once:
// with fewer some would wait for one until they fail. What --cache says is taken as it is.
std::vector<std::uint64_t> cache_sizes(const context& here, std::uint64_t span,
                                       std::uint64_t page) {
    std::vector<std::uint64_t> out;
    for (const std::uint64_t cache : here.caches(span, page)) {
        const std::uint64_t bytes = here.asked().cache_bytes.empty()
                                        ? std::max(cache, std::min(1024 * page, span + 16 * page))
                                        : cache;
        if (out.empty() || out.back() != bytes) out.push_back(bytes);
    }
    return out;
}

void all_through_windows(context& here, std::uint64_t span, const uint4* plain) {
    here.use_file(span);
    for (const std::uint64_t page : here.pages({512, 4 * kib}))
        for (const std::uint64_t cache : cache_sizes(here, span, page)) {
            const list_memory to(backend::gpu, span, most_gpu_out_bytes, cache + beside_bytes);
            const opened_file file =
                here.open({.page_bytes = page, .cache_bytes = cache, .file_bytes = span});
            open_all_windows(here, file, span);
            const gpu_gather run{here, file, plain, span, page, cache, to};
            for (const std::uint64_t row_bytes : gathered_row_bytes)
                for (const gather_order order : {gather_order::as_given, gather_order::by_span})
                    run.through_windows(row_bytes, order);
        }
}

}  // namespace

void gather_on_gpu(context& here) {
    // Either side of what the GPU's address translation reaches without a walk; and a file that
    // fits into the cache.
    std::vector<std::uint64_t> spans = {gib, 8 * gib};
    if (here.asked().file_bytes != 0) spans = {here.asked().file_bytes};
    all_resident(here, here.file_bytes(2 * gib));
    const plain_host_rows plain(spans.back());
    for (const std::uint64_t span : spans) all_through_windows(here, span, plain.data());
}

#endif

}  // namespace penstock::bench
