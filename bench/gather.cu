// Gather: random rows of a file by an array of their numbers, by runtime::gather or a kernel,
// against the same rows from plain memory.
//
//   cpu              all pages resident, on all threads; memcpy from a plain array
//   resident         all pages in the device's cache; the plain rows lie in device memory
//   through windows  a cache smaller than the file, missing pages from the operating system's page
//                    cache, by runtime::gather in both orders; the plain rows lie in pinned host
//                    memory of the same span
#include <fstream>
#include <sys/mman.h>

#include "cases.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#include "table_plain.cuh"
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

std::uint64_t most_out_bytes(const context& here) { return here.on_gpu() ? 2 * gib : 128 * mib; }

// The list of rows and where they go, large enough for all sizes of rows.
struct list_memory {
    memory indices, out;

    // `more_bytes`: what else will be taken of the same memory.
    list_memory(const context& here, std::uint64_t span, std::uint64_t more_bytes) {
        const backend where = here.on_gpu() ? backend::gpu : backend::cpu;
        const std::uint64_t most = most_out_bytes(here), out_bytes = std::min(most, 32 * span),
                            index_bytes = rows_of_a_run(span, gathered_row_bytes[0], most) * 8,
                            needed_bytes = index_bytes + out_bytes + more_bytes;
        if (!here.on_gpu()) require_memory("memory", needed_bytes, available_host_bytes());
#if defined(__CUDACC__)
        std::size_t free_bytes = 0, total_bytes = 0;
        if (here.on_gpu()) {
            require_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory");
            // For the tables of a runtime, the order of the rows and what the driver keeps.
            require_memory("device memory", needed_bytes + 256 * mib, free_bytes);
        }
#endif
        indices = memory(where, index_bytes);
        out = memory(where, out_bytes);
    }
};

// Makes the list; each run has a seed of its own.
struct choose_rows {
    std::uint64_t *indices, rows, seed;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        indices[i] = mix64(i + seed * 0x9e3779b97f4a7c15ull) % rows;
    }
};

// Word w of the file is mix64(w).
struct count_wrong {
    const std::uint64_t *out, *indices;
    std::uint64_t row_words, *wrong;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t i) const {
        std::uint64_t differ = 0;
        for (std::uint64_t w = g.rank(); w < row_words; w += g.size())
            differ += out[i * row_words + w] != mix64(indices[i] * row_words + w) ? 1 : 0;
        if (differ != 0) atomic_add_relaxed(wrong, differ);
    }
};

#if defined(__CUDACC__)
// Each warp takes pieces of the list.
__global__ void __launch_bounds__(256, 4)
    from_rows(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t row_bytes,
              const std::uint64_t* indices, std::uint64_t count, std::byte* out,
              unsigned long long* failed) {
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
            atomicAdd(failed, 1ull);
    }
}

#endif

struct gather_run {
    context& here;
    const opened_file& file;
    const std::byte* plain;  // the rows of the baseline
    std::uint64_t span, page;
    const list_memory& to;
    const memory wrong = memory(file.rt->where(), 8), failed = memory(file.rt->where(), 8);

    // Another list, and nothing of the one before left where the rows go.
    void begin(std::uint64_t count, std::uint64_t row_bytes, std::uint64_t seed) const {
        run_kernel<width::lane>(*file.rt, count,
                                choose_rows{to.indices.as(), span / row_bytes, seed});
        to.out.fill(0xff, count * row_bytes);
    }

    [[nodiscard]] double plain_seconds(std::uint64_t count, std::uint64_t row_bytes) const {
        const std::uint64_t* const list = to.indices.as();
#if defined(__CUDACC__)
        if (here.on_gpu()) {
            return kernel_seconds(
                [&] { launch_plain(plain, row_bytes, list, count, to.out.as<void>()); });
        }
#endif
        const std::uint64_t threads = here.host_threads();
        return seconds_together(
            threads, [=, from = plain, out = to.out.as<std::byte>()](std::uint64_t t) {
                for (std::uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i)
                    std::memcpy(out + i * row_bytes, from + list[i] * row_bytes, row_bytes);
            });
    }

    // All rows are compared.
    void expect_right(std::uint64_t count, std::uint64_t row_bytes, const char* whose) const {
        run_kernel<width::warp>(
            *file.rt, count, count_wrong{to.out.as(), to.indices.as(), row_bytes / 8, wrong.as()});
        require(file.rt->view_status());
        require_none(failed, "calls of gather failed");
        require_none(wrong, "words of rows of " + format_size(row_bytes) + " by " + whose +
                                " are wrong or were not delivered");
    }

    // `ours` fetches `count` rows and says how long it took.
    template <typename Ours>
    void compare(const std::string& name, std::uint64_t row_bytes, const char* baseline,
                 const Ours& ours) const {
        const std::uint64_t count = rows_of_a_run(span, row_bytes, most_out_bytes(here));
        const double millions = 1e-6 * count;
        measured rows;
        statistics before = file.rt->stats();
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
            if (repeat == 1 && here.on_gpu()) before = file.rt->stats();
            begin(count, row_bytes, repeat);
            const double plain_s = plain_seconds(count, row_bytes);
            if (!here.on_gpu()) expect_right(count, row_bytes, "memcpy");
            begin(count, row_bytes, repeat);
            const stopwatch watch;
            const double ours_s = ours(count), used = watch.cores();
            expect_right(count, row_bytes, "gather");
            // The first loads the kernels, fills the cache and touches what was never used before.
            if (repeat == 0) continue;
            rows.baseline.add(millions / plain_s);
            rows.ours.add(millions / ours_s);
            rows.cores.add(used);
        }
        const double rate = 1e-3 * rows.ours.median() * static_cast<double>(row_bytes);
        const statistics now = file.rt->stats();
        const unsigned long long rows_a_run = count, missed = now.misses - before.misses;
        const double fetched = static_cast<double>(count * rows.ours.size());
        here.add(
            "issue-3", name, page, "million rows/s", rows, baseline,
            here.on_gpu()
                ? text_of("%.1f GB/s of rows; %llu rows a run, all compared; of a row %.3f pages "
                          "entered the cache, %.3f were read through",
                          rate, rows_a_run, static_cast<double>(missed) / fetched,
                          static_cast<double>(now.through_reads - before.through_reads) / fetched)
                : text_of("%.2f GB/s of rows; %llu rows a run; all rows compared; misses %llu",
                          rate, rows_a_run, missed));
    }

    // Of the whole call, with the order of the rows in it.
    [[nodiscard]] double gather_seconds(std::uint64_t count, std::uint64_t row_bytes,
                                        gather_order order) const {
        const stopwatch watch;
        const std::int64_t done =
            file.rt->gather(file.fd, {.row_bytes = row_bytes}, to.indices.as(), count,
                            to.out.as<void>(), {.order = order});
        const double seconds = watch.seconds();
        if (done != static_cast<std::int64_t>(count)) require(file.rt->view_status());
        require_all(done, count, "gather");
        return seconds;
    }

    [[nodiscard]] std::string resident_name(std::uint64_t row_bytes) const {
        return "gather, " + format_size(span) + " resident, rows of " + format_size(row_bytes);
    }
};

}  // namespace

void gather_on_cpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(256 * mib), threads = here.host_threads();
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        // The cache has room for twice the file, and takes memory for what is brought in.
        const list_memory to(here, bytes, 2 * bytes);
        const resident_file file(here, bytes, page, threads);
        const gather_run run{here, file, file.plain.get(), bytes, page, to};
        for (const std::uint64_t row_bytes : gathered_row_bytes)
            run.compare(run.resident_name(row_bytes) + ", " + groups_label(here, threads),
                        row_bytes, "memcpy of the same rows from plain memory, as many threads",
                        [&](std::uint64_t count) {
                            return run.gather_seconds(count, row_bytes, gather_order::automatic);
                        });
    }
}

#if defined(__CUDACC__)

namespace {

void all_resident(context& here, std::uint64_t span) {
    here.use_file(span);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        const std::uint64_t cache = span + span / 8 + 16 * page;
        const list_memory to(here, span, span + cache);
        const memory plain(backend::gpu, span);
        plain.fill(1, span);
        const opened_file file = here.open({.page_bytes = page, .cache_bytes = cache});
        bring_into_cache(file);
        const gather_run run{here, file, plain.as<std::byte>(), span, page, to};
        const std::uint32_t grid = full_grid(from_rows);
        for (const std::uint64_t row_bytes : gathered_row_bytes)
            run.compare(run.resident_name(row_bytes), row_bytes, "plain kernel from device memory",
                        [&](std::uint64_t count) {
                            return kernel_seconds([&] {
                                from_rows<<<grid, 256>>>(
                                    file.rt->ref(), file.fd, row_bytes, to.indices.as(), count,
                                    to.out.as<std::byte>(), run.failed.as<unsigned long long>());
                            });
                        });
    }
}

// The case's own sizes of a cache, but frames enough for thousands of warps that all miss at once:
// with fewer some would wait for one until they fail. What --cache says is taken as it is.
std::vector<std::uint64_t> cache_sizes(const context& here, std::uint64_t span,
                                       std::uint64_t page) {
    std::vector<std::uint64_t> out;
    for (const std::uint64_t cache : here.caches(page)) {
        const std::uint64_t bytes = here.asked().cache_bytes.empty()
                                        ? std::max(cache, std::min(1024 * page, span + 16 * page))
                                        : cache;
        if (out.empty() || out.back() != bytes) out.push_back(bytes);
    }
    return out;
}

void all_through_windows(context& here, std::uint64_t span, const std::byte* plain) {
    here.use_file(span);
    for (const std::uint64_t page : here.pages({512, 4 * kib}))
        for (const std::uint64_t cache : cache_sizes(here, span, page)) {
            const list_memory to(here, span, cache);
            const opened_file file = here.open({.page_bytes = page, .cache_bytes = cache});
            open_all_windows(here, file);
            const gather_run run{here, file, plain, span, page, to};
            for (const std::uint64_t row_bytes : gathered_row_bytes)
                for (const gather_order order : {gather_order::as_given, gather_order::by_span})
                    run.compare("gather through windows over " + format_size(span) +
                                    (order == gather_order::by_span ? ", by span" : ", as given") +
                                    ", rows of " + format_size(row_bytes) + ", " +
                                    here.cache_label(cache),
                                row_bytes, "plain kernel from pinned memory, as given",
                                [&](std::uint64_t count) {
                                    return run.gather_seconds(count, row_bytes, order);
                                });
        }
}

}  // namespace

void gather_on_gpu(context& here) {
    // Either side of what the GPU's address translation reaches without a walk; and a file that
    // fits into the cache.
    std::vector<std::uint64_t> spans = {gib, 8 * gib};
    if (here.asked().file_bytes != 0) spans = {here.asked().file_bytes};
    all_resident(here, here.file_bytes(2 * gib));
    // Rows that a plain kernel fetches from the memory of the host, for comparison with windows, in
    // huge pages: with small ones the baseline would be bound by their translation.
    const std::uint64_t bytes = spans.back();
    require_memory("host memory", bytes, available_host_bytes());
    const mapped_memory plain(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    ::madvise(plain.as<void>(), bytes, MADV_HUGEPAGE);
    std::memset(plain.as<void>(), 1, bytes);
    const registered_memory pinned(plain.as<void>(), bytes, 0);
    for (const std::uint64_t span : spans) all_through_windows(here, span, plain.as<std::byte>());
}

#endif

}  // namespace penstock::bench
