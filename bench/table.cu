// Tables: many rows of a file by numbers, against a plain kernel over pinned memory.
//
//   through windows   uniform numbers, cache of a sixteenth of the file, pages as options_for says
//   zipf              numbers by Zipf's law with 0.99, rows in no order of place, the same cache
//   resident          all rows in the cache; the plain rows lie in device memory
//   cpu               random rows by all threads, against takes from a mapping of the file by one
//                     thread, as numpy does it, and by as many
#include "cases.hpp"
#include "table_rows.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#include "table_plain.cuh"
#include "zipf.cuh"
#endif

namespace penstock::bench {

namespace {

// Rows as numpy's take copies them from a memory map: each number is checked, then its row is
// copied.
void take(const std::byte* mapped, std::uint64_t rows, std::uint64_t row_bytes,
          const std::int64_t* list, std::uint64_t first, std::uint64_t end, std::byte* out) {
    for (std::uint64_t i = first; i < end; ++i) {
        const auto row = static_cast<std::uint64_t>(list[i]);
        if (row >= rows) throw failure(-ERANGE, "a number is no row");
        std::memcpy(out + i * row_bytes, mapped + row * row_bytes, row_bytes);
    }
}

struct cpu_table_run {
    context& here;
    std::uint64_t row_bytes, threads;
    std::uint64_t count = std::clamp<std::uint64_t>(256 * mib / row_bytes, 1u << 16, 1u << 20);
    memory numbers{backend::cpu, count * 8}, out{backend::cpu, count*row_bytes},
        wrong{backend::cpu, 8};

    [[nodiscard]] const std::int64_t* list() const { return numbers.as<std::int64_t>(); }
    void choose(const opened_table& of, std::uint64_t seed) const {
        run_kernel<width::lane>(*of.file.rt, count,
                                choose_uniform{numbers.as<std::int64_t>(), of.rows->size(), seed});
    }
    double take_seconds(const mapped_file& mapped, std::uint64_t rows, std::uint64_t by) const {
        return seconds_together(by, [&](std::uint64_t t) {
            take(mapped.get(), rows, row_bytes, list(), count * t / by, count * (t + 1) / by,
                 out.as<std::byte>());
        });
    }
    void add(const std::string& name, const opened_table& of, const measured& rates,
             const char* baseline) const {
        here.add("S23",
                 "table, random rows of " + format_size(row_bytes) + ", cache 1/4 of the file, " +
                     groups_label(here, threads) + name,
                 of.page(), "million rows/s", rates, baseline,
                 text_of("%llu rows a run, all compared", static_cast<unsigned long long>(count)));
    }

    // The table's windows, and the mapping of the takes, were used before.
    void again(const opened_table& of, const mapped_file& mapped) const {
        measured by_one, by_all;
        // A list for each way: what one has taken lies in the processor's caches for the next.
        std::uint64_t lists = 0;
        for (std::uint64_t repeat = 0; repeat <= here.repeats(9); ++repeat) {
            choose(of, lists++);
            const double one_s = take_seconds(mapped, of.rows->size(), 1);
            choose(of, lists++);
            const double all_s = take_seconds(mapped, of.rows->size(), threads);
            choose(of, lists++);
            out.fill(0xff, count * row_bytes);
            const stopwatch watch;
            require(of.rows->gather(list(), count, out.as<void>()), "gather");
            const double seconds = watch.seconds(), cores = watch.cores(seconds);
            expect_right_rows(of, numbers, out, count, wrong);
            if (repeat == 0) continue;
            const double millions = 1e-6 * static_cast<double>(count);
            for (measured* const rates : {&by_one, &by_all}) {
                rates->ours.add(millions / seconds);
                rates->cores.add(cores);
            }
            by_one.baseline.add(millions / one_s);
            by_all.baseline.add(millions / all_s);
        }
        add("", of, by_one, "take from a mapping of the file, one thread, as numpy does");
        add("", of, by_all, "take from a mapping of the file, as many threads");
    }

    // With the making of the table, and of the mapping, in the time.
    void first(const opened_table& of) const {
        measured rates;
        const table_layout layout = of.rows->layout();
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
            choose(of, 2 * repeat);
            const stopwatch by_hand;
            const mapped_file mapped(here.file().path(), here.bytes());
            take(mapped.get(), of.rows->size(), row_bytes, list(), 0, count, out.as<std::byte>());
            const double take_s = by_hand.seconds();
            choose(of, 2 * repeat + 1);
            out.fill(0xff, count * row_bytes);
            const stopwatch watch;
            std::unique_ptr<table> rows;
            require(table::make(*of.file.rt, layout, {}, rows));
            require(rows->gather(list(), count, out.as<void>()), "gather");
            const double seconds = watch.seconds(), cores = watch.cores(seconds);
            expect_right_rows(of, numbers, out, count, wrong);
            rates.ours.add(1e-6 * static_cast<double>(count) / seconds);
            rates.baseline.add(1e-6 * static_cast<double>(count) / take_s);
            rates.cores.add(cores);
        }
        add(", first rows of a table", of, rates,
            "mapping of the file and take, one thread, as numpy does");
    }
};

}  // namespace

void table_on_cpu(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(256 * mib));
    const mapped_file mapped(here.file().path(), bytes);
    for (const std::uint64_t row_bytes : {64, 512, 4096}) {
        const cpu_table_run run{here, row_bytes, here.host_threads()};
        const opened_table of(here, row_bytes, bytes / 4);
        run.first(of);
        run.again(of, mapped);
    }
}

#if defined(__CUDACC__)

namespace {

// Where the numbers of a run come from.
enum class law { uniform, zipf };

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
        here.add("S20", name + ", rows of " + format_size(row_bytes), of.page(), "million rows/s",
                 rates, baseline,
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

}  // namespace

void table_on_gpu(context& here) {
    std::vector<std::uint64_t> spans = {gib, 8 * gib};
    if (here.asked().file_bytes != 0) spans = {here.asked().file_bytes};
    const std::uint64_t bytes = spans.back();
    const memory numbers(backend::gpu, (std::uint64_t{1} << 22) * 8), out(backend::gpu, gib);
    const huge_host_memory plain(bytes);
    const table_run run{here, plain.get(), numbers, out};
    resident(here, run);
    for (const std::uint64_t span : spans) through_windows(here, span, run);
}

#endif

}  // namespace penstock::bench
