// Random rows on the cpu back end, and the memory that rows of both back ends need.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "cases.hpp"
#include "gather_rows.hpp"
#include "machine.hpp"
#include "host.hpp"
#include "workload.hpp"

namespace penstock::bench {

std::uint64_t available_host_bytes() {
    std::ifstream facts("/proc/meminfo");
    std::uint64_t kibibytes = 0;
    for (std::string name, rest; facts >> name; std::getline(facts, rest))
        if (name == "MemAvailable:" && facts >> kibibytes) return kibibytes << 10;
    return UINT64_MAX;
}

status require_memory(const char* kind, std::uint64_t needed_bytes, std::uint64_t free_bytes) {
    if (needed_bytes <= free_bytes) return {};
    const auto gibibytes = [](std::uint64_t bytes) {
        return static_cast<double>(bytes) / (1u << 30);
    };
    char text[160];
    std::snprintf(text, sizeof text,
                  "it needs %.2f GiB of %s and %.2f GiB are free; give a smaller --file",
                  gibibytes(needed_bytes), kind, gibibytes(free_bytes));
    return {-ENOMEM, text};
}

// Gather on the cpu back end: random rows by runtime::gather with all pages resident, against
// memcpy of the same rows from a plain array, on all threads.

namespace {

constexpr std::uint64_t most_out_bytes = 128 * mib;

struct gather_run {
    context& here;
    const resident_file& file;
    std::uint64_t bytes, page, threads;
    const memory &indices, &out;

    // Each thread's share of a list of `count`, as body(first, last).
    template <typename Body>
    double on_shares(std::uint64_t count, const Body& body) const {
        return seconds_together(threads, [&](std::uint64_t t) {
            body(count * t / threads, count * (t + 1) / threads);
        });
    }

    double copy_plain(std::uint64_t count, std::uint64_t row_bytes) const {
        const std::byte* const from = file.plain.get();
        const std::uint64_t* const list = indices.as<std::uint64_t>();
        std::byte* const to = out.as<std::byte>();
        return on_shares(count, [=](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t i = first; i < last; ++i)
                std::memcpy(to + i * row_bytes, from + list[i] * row_bytes, row_bytes);
        });
    }

    // Of all rows: word w of the file is mix64(w).
    status expect_right(std::uint64_t count, std::uint64_t row_bytes, const char* whose) const {
        std::atomic<std::uint64_t> wrong{0};
        const std::uint64_t words = row_bytes / 8;
        on_shares(count, [&](std::uint64_t first, std::uint64_t last) {
            std::uint64_t differ = 0;
            for (std::uint64_t i = first * words; i < last * words; ++i)
                differ += out.as<std::uint64_t>()[i] !=
                          mix64(indices.as<std::uint64_t>()[i / words] * words + i % words);
            wrong += differ;
        });
        if (wrong == 0) return {};
        return {-EIO, std::to_string(wrong.load()) + " words of rows of " + format_size(row_bytes) +
                          " by " + whose + " are wrong or were not delivered"};
    }

    status compare(std::uint64_t row_bytes) const {
        const std::uint64_t count = rows_of_a_run(bytes, row_bytes, most_out_bytes);
        const double millions = 1e-6 * static_cast<double>(count);
        const std::uint64_t misses_before = file.rt->stats().misses;
        series gathered, plain, cores;
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
            for (std::uint64_t i = 0; i < count; ++i)
                indices.as<std::uint64_t>()[i] = chosen_row(i, repeat, bytes / row_bytes);
            std::memset(out.as<void>(), 0xff, count * row_bytes);
            const double copied_s = copy_plain(count, row_bytes);
            if (status s = expect_right(count, row_bytes, "memcpy"); !s) return s;
            std::memset(out.as<void>(), 0xff, count * row_bytes);
            const stopwatch watch;
            const std::int64_t done =
                file.rt->gather(file.fd, {.row_bytes = row_bytes}, indices.as<std::uint64_t>(),
                                count, out.as<void>());
            const double gathered_s = watch.seconds(), used = watch.cores(gathered_s);
            if (done != static_cast<std::int64_t>(count))
                return {done < 0 ? static_cast<int>(done) : -EIO,
                        "gather: " + file.rt->view_status().message};
            if (status s = expect_right(count, row_bytes, "gather"); !s) return s;
            if (repeat == 0) continue;  // the first touches what was never used before
            plain.add(millions / copied_s);
            gathered.add(millions / gathered_s);
            cores.add(used);
        }
        char note[160];
        std::snprintf(note, sizeof note,
                      "%.2f GB/s of rows; %llu rows a run; all rows compared; misses %llu",
                      1e-3 * gathered.median() * static_cast<double>(row_bytes),
                      static_cast<unsigned long long>(count),
                      static_cast<unsigned long long>(file.rt->stats().misses - misses_before));
        return here.add({"issue-3",
                         "gather, " + format_size(bytes) + " resident, rows of " +
                             format_size(row_bytes) + ", " + groups_label(here, threads),
                         "", page, gathered, "million rows/s",
                         "memcpy of the same rows from plain memory, as many threads", plain, cores,
                         note});
    }
};

}  // namespace

status gather_on_cpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(256 * mib), threads = host_threads(here);
    const std::uint64_t out_bytes = most_delivered_bytes(bytes, most_out_bytes),
                        index_bytes = most_index_bytes(bytes, most_out_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        // The cache has room for twice the file, and takes memory for what is brought in.
        if (status s = require_memory("memory", 2 * bytes + out_bytes + index_bytes,
                                      available_host_bytes());
            !s)
            return s;
        resident_file file;
        if (status s = file.make(here, bytes, page, threads); !s) return s;
        memory indices, out;
        if (status s = indices.make(backend::cpu, index_bytes); !s) return s;
        if (status s = out.make(backend::cpu, out_bytes); !s) return s;
        const gather_run run{here, file, bytes, page, threads, indices, out};
        for (const std::uint64_t row_bytes : gathered_row_bytes)
            if (status s = run.compare(row_bytes); !s) return s;
    }
    return {};
}

}  // namespace penstock::bench
