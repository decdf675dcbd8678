// Tables: rows of a file by numbers, against a plain kernel over pinned memory and against what is
// done by hand, take and copy: the numbers come to the host, it copies the rows from a mapping of
// the file to pinned memory, and they go to the device.
//
//   through windows   uniform numbers, cache of a sixteenth of the file, pages as options_for says
//   zipf              numbers by Zipf's law with 0.99, rows in no order of place, the same cache
//   resident          all rows in the cache; the plain rows lie in device memory
//   few rows          16, 64 and 1024 rows of 256 bytes: a launch and its wait, p50 and p99; the
//   same
//                     in a captured graph
//   one after another one warp, each row's number from the row before
//   cpu               random rows by all threads, memcpy from a mapping of the file
#include <sys/mman.h>

#include "cases.hpp"
#include "penstock/table.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr const char* table_goal = "S20";

table_layout rows_of_file(const context& here, std::uint64_t row_bytes) {
    table_layout layout;
    layout.row_bytes = row_bytes;
    layout.pieces.push_back({here.file().path(), 0, here.bytes() / row_bytes});
    return layout;
}

// A file that is mapped, as programs do it by hand.
class mapped_file {
public:
    mapped_file(const std::string& path, std::uint64_t bytes) : bytes_(bytes) {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        address_ = fd < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        const int error = errno;
        if (fd >= 0) ::close(fd);
        if (address_ == MAP_FAILED) throw failure(-error, "'" + path + "' cannot be mapped");
        ::madvise(address_, bytes, MADV_RANDOM);
    }
    ~mapped_file() { ::munmap(address_, bytes_); }
    mapped_file(const mapped_file&) = delete;
    mapped_file& operator=(const mapped_file&) = delete;
    [[nodiscard]] const std::byte* get() const { return static_cast<const std::byte*>(address_); }

private:
    void* address_;
    std::uint64_t bytes_;
};

// The runtime and table of one measurement.
struct opened_table {
    opened_file file;
    std::unique_ptr<table> rows;

    opened_table(context& here, std::uint64_t row_bytes, std::uint64_t cache_bytes) {
        const table_layout layout = rows_of_file(here, row_bytes);
        options o = options_for(layout, here.own_options());
        o.cache_bytes = std::max(cache_bytes, 1024 * o.page_bytes);
        file = here.open(here.start(o));
        require(table::make(*file.rt, layout, {}, rows));
    }
    [[nodiscard]] std::uint64_t page() const { return file.rt->settings().page_bytes; }
};

// Word w of the file is mix64(w).
struct count_wrong_rows {
    const std::uint64_t* out;
    const std::int64_t* numbers;
    std::uint64_t row_words, *wrong;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t i) const {
        std::uint64_t differ = 0;
        for (std::uint64_t w = g.rank(); w < row_words; w += g.size())
            differ += out[i * row_words + w] !=
                              mix64(static_cast<std::uint64_t>(numbers[i]) * row_words + w)
                          ? 1
                          : 0;
        if (differ != 0) atomic_add_relaxed(wrong, differ);
    }
};

struct choose_uniform {
    std::int64_t* numbers;
    std::uint64_t rows, seed;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        numbers[i] = static_cast<std::int64_t>(mix64(i + seed * 0x9e3779b97f4a7c15ull) % rows);
    }
};

void expect_right_rows(const opened_table& of, const memory& numbers, const memory& out,
                       std::uint64_t count, const memory& wrong) {
    run_kernel<width::warp>(*of.file.rt, count,
                            count_wrong_rows{out.as<std::uint64_t>(), numbers.as<std::int64_t>(),
                                             of.rows->row_bytes() / 8, wrong.as()});
    require(of.rows->check());
    require_none(wrong, "words of rows are wrong or were not delivered");
}

}  // namespace

void table_on_cpu(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(256 * mib)),
                        threads = here.host_threads(), count = 200000;
    const mapped_file mapped(here.file().path(), bytes);
    for (const std::uint64_t row_bytes : {64, 512, 4096}) {
        const opened_table of(here, row_bytes, bytes / 4);
        const memory numbers(backend::cpu, count * 8), out(backend::cpu, count * row_bytes),
            wrong(backend::cpu, 8);
        measured rates;
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
            run_kernel<width::lane>(
                *of.file.rt, count,
                choose_uniform{numbers.as<std::int64_t>(), of.rows->size(), repeat});
            const std::int64_t* const list = numbers.as<std::int64_t>();
            const double by_hand = seconds_together(threads, [&](std::uint64_t t) {
                for (std::uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i)
                    std::memcpy(out.as<std::byte>() + i * row_bytes,
                                mapped.get() + static_cast<std::uint64_t>(list[i]) * row_bytes,
                                row_bytes);
            });
            out.fill(0xff, count * row_bytes);
            const stopwatch watch;
            require(of.rows->gather(list, count, out.as<void>()), "gather");
            const double seconds = watch.seconds(), cores = watch.cores(seconds);
            expect_right_rows(of, numbers, out, count, wrong);
            if (repeat == 0) continue;
            rates.ours.add(1e-6 * count / seconds);
            rates.baseline.add(1e-6 * count / by_hand);
            rates.cores.add(cores);
        }
        here.add("S23",
                 "table, random rows of " + format_size(row_bytes) + ", cache 1/4 of the file, " +
                     groups_label(here, threads),
                 of.page(), "million rows/s", rates,
                 "memcpy from a mapping of the file, as many threads");
    }
}

#if defined(__CUDACC__)

namespace {

// All 16-byte units of all rows over all threads, four in flight in each.
__global__ void __launch_bounds__(256, 4)
    plain_rows(const uint4* plain, std::uint32_t unit_shift, const std::int64_t* numbers,
               std::uint64_t count, uint4* out) {
    const std::uint64_t units = count << unit_shift, threads = std::uint64_t{gridDim.x} * 256,
                        mask = (1u << unit_shift) - 1;
    const auto unit = [&](std::uint64_t u) {
        return __ldcg(plain + (static_cast<std::uint64_t>(numbers[u >> unit_shift]) << unit_shift) +
                      (u & mask));
    };
    std::uint64_t u = std::uint64_t{blockIdx.x} * 256 + threadIdx.x;
    for (; u + 3 * threads < units; u += 4 * threads) {
        const uint4 a = unit(u), b = unit(u + threads), c = unit(u + 2 * threads),
                    d = unit(u + 3 * threads);
        out[u] = a, out[u + threads] = b, out[u + 2 * threads] = c, out[u + 3 * threads] = d;
    }
    for (; u < units; u += threads) out[u] = unit(u);
}

void launch_plain(const std::byte* plain, std::uint64_t row_bytes, const std::int64_t* numbers,
                  std::uint64_t count, void* out, cudaStream_t stream = nullptr) {
    const auto shift = static_cast<std::uint32_t>(__builtin_ctzll(row_bytes / 16));
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        full_grid(plain_rows), std::max<std::uint64_t>(1, (count << shift) / 256)));
    plain_rows<<<blocks, 256, 0, stream>>>(reinterpret_cast<const uint4*>(plain), shift, numbers,
                                           count, static_cast<uint4*>(out));
}

// Where the numbers of a run come from.
enum class law { uniform, zipf };

// Rows by Zipf's law with 0.99, the n-th of them being any row of the table: rejection-inversion
// (Hörmann, Derflinger, Rejection-inversion to generate variates from monotone discrete
// distributions, 1996).
struct choose_zipf {
    std::int64_t* numbers;
    std::uint64_t rows, seed;

    static constexpr double exponent = 0.99, rest = 1 - exponent;
    __device__ static double integral(double x) { return (pow(x, rest) - 1) / rest; }
    __device__ static double inverse(double y) { return pow(1 + y * rest, 1 / rest); }

    template <typename Group>
    __device__ void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        const double low = integral(1.5) - 1, high = integral(static_cast<double>(rows) + 0.5),
                     sure = 2 - inverse(integral(2.5) - pow(2.0, -exponent));
        std::uint64_t drawn = mix64(i + seed * 0x9e3779b97f4a7c15ull);
        for (;;) {
            drawn = mix64(drawn + 0x9e3779b97f4a7c15ull);
            const double u = high + static_cast<double>(drawn >> 11) * 0x1p-53 * (low - high),
                         x = inverse(u),
                         rank = fmin(fmax(floor(x + 0.5), 1.0), static_cast<double>(rows));
            if (rank - x > sure && u < integral(rank + 0.5) - pow(rank, -exponent)) continue;
            numbers[i] = static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank)) % rows);
            return;
        }
    }
};

struct table_run {
    context& here;
    const std::byte* plain;
    const memory &numbers, &out;
    const memory wrong = memory(backend::gpu, 8);

    void choose(const opened_table& of, law how, std::uint64_t count, std::uint64_t seed) const {
        if (how == law::uniform) {
            run_kernel<width::lane>(
                *of.file.rt, count,
                choose_uniform{numbers.as<std::int64_t>(), of.rows->size(), seed});
            return;
        }
        run_kernel<width::lane>(*of.file.rt, count,
                                choose_zipf{numbers.as<std::int64_t>(), of.rows->size(), seed});
    }

    void compare(const opened_table& of, const std::string& name, law how, std::uint64_t warm,
                 const char* baseline) const {
        const std::uint64_t row_bytes = of.rows->row_bytes(),
                            count = std::min<std::uint64_t>(1u << 22, gib / row_bytes);
        const double millions = 1e-6 * static_cast<double>(count);
        measured rates;
        statistics before = of.file.rt->stats();
        for (std::uint64_t repeat = 0; repeat < warm + here.repeats(5); ++repeat) {
            if (repeat == warm) before = of.file.rt->stats();
            choose(of, how, count, repeat + 1);
            const double plain_s = kernel_seconds([&] {
                launch_plain(plain, row_bytes, numbers.as<std::int64_t>(), count, out.as<void>());
            });
            out.fill(0xff, count * row_bytes);
            const stopwatch watch;
            const double ours_s = kernel_seconds([&] {
                require(of.rows->gather(numbers.as<std::int64_t>(), count, out.as<void>()),
                        "gather");
            });
            const double used = watch.cores();
            expect_right_rows(of, numbers, out, count, wrong);
            if (repeat < warm) continue;
            rates.ours.add(millions / ours_s);
            rates.baseline.add(millions / plain_s);
            rates.cores.add(used);
        }
        const statistics now = of.file.rt->stats();
        const double fetched = static_cast<double>(count * rates.ours.size());
        here.add(table_goal, name + ", rows of " + format_size(row_bytes), of.page(),
                 "million rows/s", rates, baseline,
                 text_of("%.1f GB/s of rows; %llu rows a run, all compared; of a row %.3f pages "
                         "entered, %.3f were read through",
                         1e-3 * rates.ours.median() * static_cast<double>(row_bytes),
                         static_cast<unsigned long long>(count),
                         static_cast<double>(now.misses - before.misses) / fetched,
                         static_cast<double>(now.through_reads - before.through_reads) / fetched));
    }
};

constexpr std::uint64_t table_row_bytes[] = {64, 256, 512, 1024, 4096};

void through_windows(context& here, std::uint64_t span, const table_run& run) {
    here.use_file(span);
    for (const std::uint64_t row_bytes : table_row_bytes) {
        const opened_table of(here, row_bytes, span / 16);
        open_all_windows(here, of.file);
        run.compare(of, "table through windows over " + format_size(span) + ", cache 1/16",
                    law::uniform, 8, "plain kernel from pinned memory");
        run.compare(of, "table, Zipf 0.99 over " + format_size(span) + ", cache 1/16", law::zipf,
                    24, "plain kernel from pinned memory");
    }
}

void resident(context& here, const table_run& with) {
    const std::uint64_t span = here.use_file(here.file_bytes(gib));
    const memory plain(backend::gpu, span);
    plain.fill(1, span);
    for (const std::uint64_t row_bytes : table_row_bytes) {
        const opened_table of(here, row_bytes, span + span / 8);
        bring_into_cache(of.file);
        const table_run run{here, plain.as<std::byte>(), with.numbers, with.out};
        run.compare(of, "table, all resident", law::uniform, 1, "plain kernel from device memory");
    }
}

struct percentiles {
    std::vector<double> us{};

    template <typename Body>
    void time(const Body& body) {
        const double began = now_s();
        body();
        us.push_back(1e6 * (now_s() - began));
    }
    [[nodiscard]] double at(double part) {
        std::sort(us.begin(), us.end());
        return us[static_cast<std::size_t>(part * static_cast<double>(us.size() - 1))];
    }
};

struct few_rows_case {
    context& here;
    std::uint64_t page, count, rounds;

    void add(const std::string& name, percentiles& values, percentiles& base,
             const char* baseline) const {
        measured per_second;  // turned so that more is better
        per_second.ours.add(1e6 / values.at(0.5));
        per_second.baseline.add(1e6 / base.at(0.5));
        here.add("S21", name + ", " + std::to_string(count) + " rows of 256 B", page, "calls/s",
                 per_second, baseline,
                 text_of("p50 %.2f us, p99 %.2f us; baseline %.2f and %.2f; %llu rounds in turns",
                         values.at(0.5), values.at(0.99), base.at(0.5), base.at(0.99),
                         static_cast<unsigned long long>(rounds)));
    }
};

// A launch of each kind and its wait, in turns.
void few_rows(context& here, const table_run& run) {
    constexpr std::uint64_t row_bytes = 256, rounds = 2000;
    const std::uint64_t span = here.use_file(here.file_bytes(gib));
    const opened_table of(here, row_bytes, span / 16);
    open_all_windows(here, of.file);
    const mapped_file mapped(here.file().path(), span);
    cudaStream_t stream = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    std::byte* staging = nullptr;
    std::int64_t* list = nullptr;
    require_cuda(cudaHostAlloc(reinterpret_cast<void**>(&staging), 1024 * row_bytes, 0), "memory");
    require_cuda(cudaHostAlloc(reinterpret_cast<void**>(&list), 1024 * 8, 0), "memory");
    const auto wait = [&] { require_cuda(cudaStreamSynchronize(stream), "kernel"); };
    std::int64_t* const numbers = run.numbers.as<std::int64_t>();
    for (const std::uint64_t count : {16, 64, 1024}) {
        percentiles ours, plain, by_hand, graph;
        cudaGraph_t captured = nullptr;
        cudaGraphExec_t exec = nullptr;
        require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
        require(of.rows->gather(numbers, count, run.out.as<void>(), {.stream = stream}), "gather");
        require_cuda(cudaStreamEndCapture(stream, &captured), "capture");
        require_cuda(cudaGraphInstantiate(&exec, captured, 0), "graph");
        for (std::uint64_t round = 0; round < rounds; ++round) {
            run.choose(of, law::uniform, count, round);
            plain.time([&] {
                launch_plain(run.plain, row_bytes, numbers, count, run.out.as<void>(), stream);
                wait();
            });
            ours.time([&] {
                require(of.rows->gather(numbers, count, run.out.as<void>(), {.stream = stream}),
                        "gather");
                wait();
            });
            if (round % 100 == 0) expect_right_rows(of, run.numbers, run.out, count, run.wrong);
            graph.time([&] {
                require_cuda(cudaGraphLaunch(exec, stream), "graph");
                wait();
            });
            by_hand.time([&] {
                cudaMemcpyAsync(list, numbers, count * 8, cudaMemcpyDeviceToHost, stream);
                wait();
                for (std::uint64_t i = 0; i < count; ++i)
                    std::memcpy(staging + i * row_bytes,
                                mapped.get() + static_cast<std::uint64_t>(list[i]) * row_bytes,
                                row_bytes);
                cudaMemcpyAsync(run.out.as<void>(), staging, count * row_bytes,
                                cudaMemcpyHostToDevice, stream);
                wait();
            });
        }
        const few_rows_case of_case{here, of.page(), count, rounds};
        of_case.add("table through windows", ours, plain, "plain kernel from pinned memory");
        of_case.add("table through windows", ours, by_hand, "take from a mapping and copy");
        of_case.add("table in a graph", graph, ours, "the same gather, launched");
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(captured);
    }
    cudaFreeHost(staging);
    cudaFreeHost(list);
    cudaStreamDestroy(stream);
}

// One warp; the next number depends on the row.
__global__ void chase_table(const __grid_constant__ runtime_ref fs,
                            const __grid_constant__ table_ref rows, std::uint64_t count,
                            std::uint64_t* row, std::uint64_t* sum) {
    const warp g;
    std::uint64_t number = 1;
    for (std::uint64_t i = 0; i < count; ++i) {
        read_row(g, fs, rows, number, row);
        number = row[0] % rows.size();
        g.sync();
    }
    if (g.is_leader()) *sum = number;
}
__global__ void chase_plain(const std::byte* plain, std::uint64_t row_bytes, std::uint64_t rows,
                            std::uint64_t count, std::uint64_t* row, std::uint64_t* sum) {
    const warp g;
    std::uint64_t number = 1;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t* const from =
            reinterpret_cast<const std::uint64_t*>(plain + number * row_bytes);
        for (std::uint64_t w = g.rank(); w < row_bytes / 8; w += 32) row[w] = __ldcg(from + w);
        g.sync();
        number = mix64(row[0] + number) % rows;
        g.sync();
    }
    if (g.is_leader()) *sum = number;
}

void after_another(context& here, const table_run& run) {
    constexpr std::uint64_t row_bytes = 256, count = 2000;
    const std::uint64_t span = here.use_file(here.file_bytes(gib));
    const opened_table of(here, row_bytes, span / 16);
    open_all_windows(here, of.file);
    const memory row(backend::gpu, row_bytes), sum(backend::gpu, 8);
    measured rates;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        const double ours = kernel_seconds([&] {
            chase_table<<<1, 32>>>(of.file.rt->ref(), of.rows->ref(), count,
                                   row.as<std::uint64_t>(), sum.as());
        });
        const double plain = kernel_seconds([&] {
            chase_plain<<<1, 32>>>(run.plain, row_bytes, of.rows->size(), count,
                                   row.as<std::uint64_t>(), sum.as());
        });
        require(of.rows->check());
        if (repeat == 0) continue;
        rates.ours.add(1e-3 * count / ours);
        rates.baseline.add(1e-3 * count / plain);
    }
    here.add("S21", "table through windows, one warp, rows of 256 B one after another", of.page(),
             "thousand rows/s", rates, "plain kernel from pinned memory",
             text_of("%.2f us a row; baseline %.2f us", 1e3 / rates.ours.median(),
                     1e3 / rates.baseline.median()));
}

}  // namespace

void table_on_gpu(context& here) {
    std::vector<std::uint64_t> spans = {gib, 8 * gib};
    if (here.asked().file_bytes != 0) spans = {here.asked().file_bytes};
    const std::uint64_t bytes = spans.back();
    const memory numbers(backend::gpu, (std::uint64_t{1} << 22) * 8), out(backend::gpu, gib);
    // In huge pages: with small ones the baseline would be bound by their translation.
    const mapped_memory plain(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    ::madvise(plain.as<void>(), bytes, MADV_HUGEPAGE);
    std::memset(plain.as<void>(), 1, bytes);
    const registered_memory pinned(plain.as<void>(), bytes, 0);
    const table_run run{here, plain.as<std::byte>(), numbers, out};
    few_rows(here, run);
    after_another(here, run);
    resident(here, run);
    for (const std::uint64_t span : spans) through_windows(here, span, run);
}

#endif

}  // namespace penstock::bench
