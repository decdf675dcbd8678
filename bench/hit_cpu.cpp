// Cached pages on the cpu back end: copying reads, held pointers and elements, each against plain
// memory.
#include <array>
#include <atomic>
#include <cstring>

#include "cases.hpp"
#include "penstock/view.hpp"
#include "host.hpp"

namespace penstock::bench {

// Hits on the cpu back end: read() of random whole pages against memcpy of random whole pages of a
// plain array, on one thread and on two, and of 64 bytes of one page: what readers of a hot page
// cost each other.

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

// Held pointers on the cpu back end: map a random 4 KiB block, look at all of it, unmap; against
// looking at a plain array.

namespace {

std::uint64_t look_at(const std::byte* data, std::uint64_t bytes) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(data);
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < bytes / 8; ++i) sum += words[i];
    return sum;
}

status measure_map_page(context& here, std::uint64_t bytes, std::uint64_t page) {
    resident_file file;
    if (status s = file.make(here, bytes, page); !s) return s;
    const std::uint64_t threads = here.threads(1), block = std::min<std::uint64_t>(page, 4096),
                        rounds = 40'000;
    const runtime_ref fs = file.rt->ref();
    std::atomic<std::uint64_t> sums[2] = {
        0, 0};  // of what was seen: both ways look at the same blocks
    series plain, mapped, cores;
    for (std::uint64_t repeat = 0; repeat < here.repeats(15); ++repeat) {
        const std::uint64_t moved = threads * rounds * block;
        const auto run = [&](int which, const auto& look) {
            std::vector<std::uint64_t> seen(threads * 8);
            const double seconds = seconds_at_random(
                threads, rounds, bytes / block,
                [&](std::uint64_t t, std::uint64_t at) { seen[t * 8] += look(at * block); });
            for (const std::uint64_t one : seen)
                sums[which].fetch_add(one, std::memory_order_relaxed);
            return gigabytes_a_second(moved, seconds);
        };
        plain.add(run(0, [&](std::uint64_t at) { return look_at(file.plain.get() + at, block); }));
        const stopwatch watch;
        mapped.add(run(1, [&](std::uint64_t at) {
            const mapping m = map(lane{}, fs, file.fd, static_cast<std::int64_t>(at),
                                  static_cast<std::int64_t>(block));
            const std::uint64_t sum =
                m.bytes == static_cast<std::int64_t>(block) ? look_at(m.data, block) : 1;
            unmap(lane{}, fs, m);
            return sum;
        }));
        cores.add(watch.cores(watch.seconds()));
        if (sums[0] != sums[1]) return {-EIO, "what the mappings showed differs from the file"};
    }
    return here.add({"S2",
                     "map, look at " + format_size(block) + ", unmap, " + std::to_string(threads) +
                         (threads == 1 ? " thread" : " threads"),
                     "", page, mapped, "GB/s", "looking at plain memory", plain, cores,
                     format_size(bytes) + " resident"});
}

}  // namespace

status map_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        if (status s = measure_map_page(here, here.file_bytes(64 * mib), page); !s) return s;
    return {};
}

// Elements on the cpu back end: v[i] at random and in order, and for_each, with all pages resident,
// against the same loads from a plain array.

namespace {

struct element_run {
    context& here;
    resident_file& file;
    std::uint64_t page, elements, threads;

    // sum(thread) over the same elements, from the plain array and through the view.
    template <typename Plain, typename View>
    status compare(const char* name, std::uint64_t rounds, const Plain& from_plain,
                   const View& from_view) const {
        series plain, viewed, cores;
        const auto run = [&](const auto& body, std::uint64_t& sum) {
            std::vector<std::uint64_t> sums(threads * 8);
            const double seconds =
                seconds_together(threads, [&](std::uint64_t t) { sums[t * 8] = body(t); });
            sum = 0;
            for (const std::uint64_t one : sums) sum += one;
            return 1e-9 * static_cast<double>(threads * rounds) / seconds;
        };
        for (std::uint64_t repeat = 0; repeat < here.repeats(11); ++repeat) {
            std::uint64_t expected = 0, got = 0;
            plain.add(run(from_plain, expected));
            const stopwatch watch;
            viewed.add(run(from_view, got));
            cores.add(watch.cores(watch.seconds()));
            if (expected != got) return {-EIO, "the elements differ from the file"};
        }
        char slower[40];
        std::snprintf(slower, sizeof slower, "%.3f times slower; ",
                      plain.median() / viewed.median());
        return here.add({"S3", name, "", page, viewed, "billion/s",
                         "the same loads from plain memory", plain, cores,
                         slower + std::to_string(threads) +
                             (threads == 1 ? " thread, " : " threads, ") +
                             format_size(elements * 8) + " resident"});
    }
};

status measure_element_page(context& here, std::uint64_t bytes, std::uint64_t page) {
    resident_file file;
    if (status s = file.make(here, bytes, page); !s) return s;
    const element_run run{here, file, page, bytes / 8, here.threads(1)};
    const runtime_ref fs = file.rt->ref();
    const view<std::uint64_t> v(fs, file.fd);
    const auto* const plain = reinterpret_cast<const std::uint64_t*>(file.plain.get());
    const std::uint64_t rounds = std::min<std::uint64_t>(run.elements / run.threads, 4'000'000);
    const auto sum_over = [&](const auto& element, const auto& place) {
        return [&, rounds](std::uint64_t t) {
            std::uint64_t sum = 0;
            for (std::uint64_t i = 0; i < rounds; ++i) sum += element(place(t * rounds + i));
            return sum;
        };
    };
    const auto of_array = [plain](std::uint64_t i) { return plain[i]; };
    const auto of_view = [&v](std::uint64_t i) { return v[i]; };
    const auto random = [&](std::uint64_t i) { return mix64(i) % run.elements; };
    const auto in_order = [](std::uint64_t i) { return i; };
    if (status s = run.compare("random 8-byte elements", rounds, sum_over(of_array, random),
                               sum_over(of_view, random));
        !s)
        return s;
    if (status s = run.compare("8-byte elements in order, v[i]", rounds,
                               sum_over(of_array, in_order), sum_over(of_view, in_order));
        !s)
        return s;
    const auto each = [&](std::uint64_t t) {
        std::uint64_t sum = 0;
        v.for_each(lane{}, t * rounds, rounds,
                   [&](std::uint64_t, std::uint64_t element) { sum += element; });
        return sum;
    };
    if (status s = run.compare("8-byte elements in order, for_each", rounds,
                               sum_over(of_array, in_order), each);
        !s)
        return s;
    return file.rt->view_status();
}

}  // namespace

status element_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        if (status s = measure_element_page(here, here.file_bytes(64 * mib), page); !s) return s;
    return {};
}

}  // namespace penstock::bench
