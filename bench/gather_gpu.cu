// Gather on a GPU: random rows of a file by an array of their numbers, against a plain kernel that
// fetches the same rows.
//
//   resident         all pages in the device's cache; the plain rows lie in device memory
//   through windows  a cache smaller than the file, missing pages from the operating system's page
//                    cache, by runtime::gather in both orders; the plain rows lie in pinned host
//                    memory of the same span
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

#include "cases.hpp"
#include "gather_rows.hpp"
#include "gpu.cuh"
#include "machine.hpp"
#include "penstock/launch.hpp"
#include "workload.hpp"

namespace penstock::bench {

// Rows that a plain kernel fetches from the memory of the host, for comparison with windows. Pinned
// memory in huge pages: with small ones the baseline would be bound by their translation.
class plain_host_rows {
public:
    plain_host_rows() = default;
    ~plain_host_rows() {
        if (registered_) cudaHostUnregister(data_);
        if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
    }
    plain_host_rows(const plain_host_rows&) = delete;
    plain_host_rows& operator=(const plain_host_rows&) = delete;

    status make(std::uint64_t bytes) {
        if (status s = require_memory("host memory", bytes, available_host_bytes()); !s) return s;
        bytes_ = bytes;
        data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data_ == MAP_FAILED)
            return {-ENOMEM,
                    format_size(bytes) + " of host memory could not be had; give a smaller --file"};
        ::madvise(data_, bytes, MADV_HUGEPAGE);
        std::memset(data_, 1, bytes);
        const status s = cuda_status(cudaHostRegister(data_, bytes, cudaHostRegisterMapped),
                                     "pinning " + format_size(bytes) + " of host memory");
        registered_ = s.ok();
        return s;
    }
    [[nodiscard]] const uint4* data() const { return static_cast<const uint4*>(data_); }

private:
    void* data_ = MAP_FAILED;
    std::uint64_t bytes_ = 0;
    bool registered_ = false;
};

namespace {

constexpr std::uint64_t most_out_bytes = 2 * gib;
// For the tables of a runtime, the order of the rows and what the driver keeps for kernels.
constexpr std::uint64_t beside_bytes = 256 * mib;

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
    rows_from_plain(const uint4* plain, std::uint32_t unit_shift, const std::uint64_t* indices,
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

// As many blocks as the device holds at a time.
template <typename Kernel>
std::uint32_t full_grid(Kernel* kernel) {
    int resident = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 256, 0);
    return static_cast<std::uint32_t>(std::max(resident * multiprocessors(), 1));
}

// The list of rows and where they go.
struct list_memory {
    memory indices, out, found;

    // `more_bytes`: what else will be taken of the device's memory.
    status make(std::uint64_t span, std::uint64_t more_bytes) {
        const std::uint64_t index_bytes = most_index_bytes(span, most_out_bytes),
                            out_bytes = most_delivered_bytes(span, most_out_bytes);
        std::size_t free_bytes = 0, total_bytes = 0;
        if (status s = cuda_status(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory"); !s)
            return s;
        if (status s = require_memory(
                "device memory", index_bytes + out_bytes + more_bytes + beside_bytes, free_bytes);
            !s)
            return s;
        if (status s = indices.make(backend::gpu, index_bytes); !s) return s;
        if (status s = found.make(backend::gpu, sizeof(counters)); !s) return s;
        return out.make(backend::gpu, out_bytes);
    }
};

struct gather_run {
    context& here;
    runtime& rt;
    int fd;
    const uint4* plain;
    std::uint64_t span, page;
    const list_memory& to;

    [[nodiscard]] const std::uint64_t* indices() const { return to.indices.as<std::uint64_t>(); }
    [[nodiscard]] std::byte* out() const { return to.out.as<std::byte>(); }

    // Another list, and nothing of the one before left where the rows go.
    status begin(std::uint64_t count, std::uint64_t row_bytes, std::uint64_t seed) const {
        choose<<<1024, 256>>>(to.indices.as<std::uint64_t>(), count, span / row_bytes, seed);
        if (status s = cuda_status(cudaGetLastError(), "launch"); !s) return s;
        if (status s = cuda_status(cudaMemset(out(), 0xff, count * row_bytes), "memory"); !s)
            return s;
        return cuda_status(cudaDeviceSynchronize(), "choosing rows");
    }

    status plain_seconds(std::uint64_t count, std::uint64_t row_bytes, double& seconds) const {
        const auto shift = static_cast<std::uint32_t>(__builtin_ctzll(row_bytes / 16));
        const std::uint32_t grid = full_grid(rows_from_plain);
        float ms = 0;
        status s = kernel_ms(
            [&] {
                rows_from_plain<<<grid, 256>>>(plain, shift, indices(), count, to.out.as<uint4>());
            },
            ms);
        seconds = 1e-3 * ms;
        return s;
    }

    status expect_right(std::uint64_t count, std::uint64_t row_bytes) const {
        count_wrong<<<1024, 256>>>(to.out.as<std::uint64_t>(), indices(), count, row_bytes / 8,
                                   to.found.as<counters>());
        if (status s = cuda_status(cudaGetLastError(), "launch"); !s) return s;
        counters found{};
        if (status s = to.found.copy_out(&found, sizeof found); !s) return s;
        if (status s = rt.view_status(); !s) return s;
        if (found.failed_calls != 0)
            return {-EIO, std::to_string(found.failed_calls) + " calls of gather failed"};
        if (found.wrong_words == 0) return {};
        return {-EIO, std::to_string(found.wrong_words) + " words of rows of " +
                          format_size(row_bytes) + " are wrong or were not delivered"};
    }

    // `ours` fetches `count` rows and says how long it took.
    template <typename Ours>
    status compare(const std::string& name, std::uint64_t row_bytes, const char* baseline,
                   const Ours& ours) const {
        const std::uint64_t count = rows_of_a_run(span, row_bytes, most_out_bytes);
        const double millions = 1e-6 * static_cast<double>(count);
        series gathered, plains, cores;
        statistics before;
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
            if (repeat == 1) before = rt.stats();
            double plain_s = 0, ours_s = 0;
            if (status s = begin(count, row_bytes, repeat); !s) return s;
            if (status s = plain_seconds(count, row_bytes, plain_s); !s) return s;
            if (status s = begin(count, row_bytes, repeat); !s) return s;
            const stopwatch watch;
            if (status s = ours(count, ours_s); !s) return s;
            const double used = watch.cores(watch.seconds());
            if (status s = expect_right(count, row_bytes); !s) return s;
            if (repeat == 0) continue;  // the first loads the kernels and fills the cache
            plains.add(millions / plain_s);
            gathered.add(millions / ours_s);
            cores.add(used);
        }
        const double fetched = static_cast<double>(count * gathered.size());
        char note[160];
        std::snprintf(note, sizeof note,
                      "%.1f GB/s of rows; %llu rows a run, all compared; %.3f pages loaded a row",
                      1e-3 * gathered.median() * static_cast<double>(row_bytes),
                      static_cast<unsigned long long>(count),
                      static_cast<double>(rt.stats().misses - before.misses) / fetched);
        return here.add(
            {"issue-3", name, "", page, gathered, "million rows/s", baseline, plains, cores, note});
    }

    status resident(std::uint64_t row_bytes) const {
        const std::uint32_t grid = full_grid(from_rows);
        return compare(
            "gather, " + format_size(span) + " resident, rows of " + format_size(row_bytes),
            row_bytes, "plain kernel from device memory",
            [&](std::uint64_t count, double& seconds) {
                float ms = 0;
                status s = kernel_ms(
                    [&] {
                        from_rows<<<grid, 256>>>(rt.ref(), fd, row_bytes, indices(), count, out(),
                                                 to.found.as<counters>());
                    },
                    ms);
                seconds = 1e-3 * ms;
                return s;
            });
    }

    // The time is that of the whole call, with the order of the rows in it.
    status through_windows(std::uint64_t row_bytes, gather_order order, std::uint64_t cache) const {
        const std::string name = "gather through windows over " + format_size(span) +
                                 (order == gather_order::by_span ? ", by span" : ", as given") +
                                 ", rows of " + format_size(row_bytes) + ", " +
                                 cache_label(cache, span);
        return compare(name, row_bytes, "plain kernel from pinned memory, as given",
                       [&](std::uint64_t count, double& seconds) -> status {
                           const stopwatch watch;
                           const std::int64_t done =
                               rt.gather(fd, {.row_bytes = row_bytes}, indices(), count, out(),
                                         {.order = order});
                           seconds = watch.seconds();
                           if (done == static_cast<std::int64_t>(count)) return {};
                           if (status s = rt.view_status(); !s) return s;
                           const int code = done < 0 ? static_cast<int>(done) : -EIO;
                           return {code, "gather: " + error_text(code)};
                       });
    }
};

status all_resident(context& here, std::uint64_t span) {
    if (status s = here.use_file(span); !s) return s;
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        const std::uint64_t cache = span + span / 8 + 16 * page;
        list_memory to;
        gpu_memory plain;
        if (status s = to.make(span, span + cache); !s) return s;
        if (status s = plain.on_device(span); !s) return s;
        if (status s = cuda_status(cudaMemset(plain.as<void>(), 1, span), "memory"); !s) return s;
        std::unique_ptr<runtime> rt;
        int fd = -1;
        if (status s = here.make_runtime(
                {.page_bytes = page, .cache_bytes = cache, .file_bytes = span}, rt, fd);
            !s)
            return s;
        const auto wanted = static_cast<std::int64_t>(span);
        if (rt->prefetch(fd, 0, wanted) != wanted)
            return {-EIO, "the file could not be brought into the cache; give a smaller --file"};
        const gather_run run{here, *rt, fd, plain.as<uint4>(), span, page, to};
        for (const std::uint64_t row_bytes : gathered_row_bytes)
            if (status s = run.resident(row_bytes); !s) return s;
    }
    return {};
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

status all_through_windows(context& here, std::uint64_t span, const uint4* plain) {
    if (status s = here.use_file(span); !s) return s;
    for (const std::uint64_t page : here.pages({512, 4 * kib}))
        for (const std::uint64_t cache : cache_sizes(here, span, page)) {
            list_memory to;
            if (status s = to.make(span, cache); !s) return s;
            std::unique_ptr<runtime> rt;
            int fd = -1;
            if (status s = here.make_runtime(
                    {.page_bytes = page, .cache_bytes = cache, .file_bytes = span}, rt, fd);
                !s)
                return s;
            if (status s = open_all_windows(here, *rt, fd, span); !s) return s;
            const gather_run run{here, *rt, fd, plain, span, page, to};
            for (const std::uint64_t row_bytes : gathered_row_bytes)
                for (const gather_order order : {gather_order::as_given, gather_order::by_span})
                    if (status s = run.through_windows(row_bytes, order, cache); !s) return s;
        }
    return {};
}

}  // namespace

status gather_on_gpu(context& here) {
    // Either side of what the GPU's address translation reaches without a walk; and a file that
    // fits into the cache.
    std::vector<std::uint64_t> spans = {gib, 8 * gib};
    if (here.asked().file_bytes != 0) spans = {here.asked().file_bytes};
    if (status s = all_resident(here, here.file_bytes(2 * gib)); !s) return s;
    plain_host_rows plain;
    if (status s = plain.make(spans.back()); !s) return s;
    for (const std::uint64_t span : spans)
        if (status s = all_through_windows(here, span, plain.data()); !s) return s;
    return {};
}

}  // namespace penstock::bench
