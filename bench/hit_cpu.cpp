// Hits on the cpu back end: read() of random whole pages against memcpy of random whole pages of a
// plain array, on one thread and on two, and of 64 bytes of one page: what readers of a hot page
// cost each other.
#include <array>
#include <atomic>
#include <cstring>

#include "cases.hpp"
#include "resident.hpp"
#include "together.hpp"

namespace penstock::bench {

namespace {

// One thread, and `many`; each has a buffer.
struct thread_pair {
    std::uint64_t many;
    [[nodiscard]] std::array<std::uint64_t, 2> counts() const { return {1, many}; }
};

std::string percent_of_pairs(const series& ratios) {
    char text[80];
    std::snprintf(text, sizeof text, "ratio of each pair of runs: median %.3f, spread %s",
                  ratios.median(), ratios.spread().c_str());
    return text;
}

// `bytes` in the cache: more than the processor's caches, so that memory is the limit of two
// threads, or less, so that only what the threads share in Penstock could be.
status whole_pages(context& here, std::uint64_t bytes, std::uint64_t page) {
    resident_file file;
    if (status s = file.make(here, bytes, page); !s) return s;
    const thread_pair threads{here.threads(2)};
    const std::uint64_t pages = bytes / page,
                        rounds = std::max<std::uint64_t>(655'360'000 / page, 1);
    std::vector<std::vector<std::byte>> buffers(threads.many, std::vector<std::byte>(page));
    const runtime_ref fs = file.rt->ref();
    std::atomic<std::uint64_t> failures{0};
    series copies[2], reads[2], cores[2], ratios[2], gains, plain_gains;
    // One thread and several take turns, so that what disturbs the machine for a while disturbs
    // both.
    for (std::uint64_t repeat = 0; repeat < here.repeats(31); ++repeat) {
        for (const int many : {0, 1}) {
            const std::uint64_t count = threads.counts()[many], moved = count * rounds * page;
            copies[many].add(gigabytes_a_second(
                moved,
                seconds_at_random(count, rounds, pages, [&](std::uint64_t t, std::uint64_t p) {
                    std::memcpy(buffers[t].data(), file.plain.get() + p * page, page);
                })));
            const stopwatch watch;
            const double seconds =
                seconds_at_random(count, rounds, pages, [&](std::uint64_t t, std::uint64_t p) {
                    if (read(
                            lane{}, fs, file.fd, buffers[t].data(), static_cast<std::int64_t>(page),
                            static_cast<std::int64_t>(p * page)) != static_cast<std::int64_t>(page))
                        failures.fetch_add(1, std::memory_order_relaxed);
                });
            reads[many].add(gigabytes_a_second(moved, seconds));
            cores[many].add(watch.cores(watch.seconds()));
            ratios[many].add(reads[many].last() / copies[many].last());
        }
        gains.add(reads[1].last() / reads[0].last());
        plain_gains.add(copies[1].last() / copies[0].last());
    }
    if (failures != 0) return resident_file::incomplete(-EIO);
    const std::string size = format_size(bytes),
                      several = std::to_string(threads.many) + " threads";
    for (const int many : {0, 1})
        if (status s =
                here.add({"issue-2", "hit, " + (many == 0 ? "1 thread" : several) + ", " + size, "",
                          page, reads[many], "GB/s", "memcpy of random pages", copies[many],
                          cores[many], percent_of_pairs(ratios[many])});
            !s)
            return s;
    char memcpy_gain[40];
    std::snprintf(memcpy_gain, sizeof memcpy_gain, "; memcpy gained %.3f", plain_gains.median());
    return here.add({"issue-2", "hit, " + several + " over 1, " + size, "", page, reads[1], "GB/s",
                     "1 thread", reads[0], cores[1], percent_of_pairs(gains) + memcpy_gain});
}

status hot_page(context& here) {
    constexpr std::uint64_t page = 4096, rounds = 2'000'000;
    resident_file file;
    if (status s = file.make(here, here.file_bytes(8 * mib), page); !s) return s;
    const thread_pair threads{here.threads(2)};
    const runtime_ref fs = file.rt->ref();
    std::atomic<std::uint64_t> failures{0};
    series rates[2], gains, cores;
    for (std::uint64_t repeat = 0; repeat < here.repeats(15); ++repeat) {
        for (const int many : {0, 1}) {
            const stopwatch watch;
            const double seconds = seconds_at_random(
                threads.counts()[many], rounds, page / 64, [&](std::uint64_t, std::uint64_t at) {
                    std::byte line[64];
                    if (read(lane{}, fs, file.fd, line, sizeof line,
                             static_cast<std::int64_t>(at * 64)) != sizeof line)
                        failures.fetch_add(1, std::memory_order_relaxed);
                });
            rates[many].add(1e-6 * static_cast<double>(threads.counts()[many] * rounds) / seconds);
            if (many == 1) cores.add(watch.cores(watch.seconds()));
        }
        gains.add(rates[1].last() / rates[0].last());
    }
    if (failures != 0) return resident_file::incomplete(-EIO);
    return here.add(
        {"issue-2",
         "hit, 64 bytes of one page, " + std::to_string(threads.many) + " threads over 1", "", page,
         rates[1], "million/s", "1 thread", rates[0], cores, percent_of_pairs(gains)});
}

}  // namespace

status hit_on_cpu(context& here) {
    std::vector<std::uint64_t> sizes = {4 * mib, 16 * mib, 256 * mib};
    if (here.asked().file_bytes != 0) sizes = {here.asked().file_bytes};
    for (const std::uint64_t bytes : sizes)
        for (const std::uint64_t page : here.pages({64 * kib}))
            if (status s = whole_pages(here, bytes, page); !s) return s;
    return hot_page(here);
}

}  // namespace penstock::bench
