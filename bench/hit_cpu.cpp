// Cached pages on the cpu back end: copying reads, held pointers and elements, each against plain
// memory.
#include <numeric>

#include "cases.hpp"
#include "penstock/view.hpp"

namespace penstock::bench {

// Hits on the cpu back end: read() of random whole pages against memcpy of random whole pages of a
// plain array, on one thread and on two, and of 64 bytes of one page: what readers of a hot page
// cost each other.

namespace {

std::string percent_of_pairs(const series& ratios) {
    return text_of("ratio of each pair of runs: median %.3f, spread %s", ratios.median(),
                   ratios.spread().c_str());
}

// `bytes` in the cache: more than the processor's caches, so that memory is the limit of two
// threads, or less, so that only what the threads share in Penstock could be.
void whole_pages(context& here, std::uint64_t bytes, std::uint64_t page) {
    const resident_file file(here, bytes, page);
    const std::uint64_t threads[] = {1, here.threads(2)}, pages = bytes / page,
                        rounds = std::max<std::uint64_t>(655'360'000 / page, 1);
    std::vector<std::vector<std::byte>> buffers(threads[1], std::vector<std::byte>(page));
    const runtime_ref fs = file.rt->ref();
    std::atomic<std::uint64_t> failures{0};
    measured hits[2];
    series ratios[2], gains, plain_gains;
    // One thread and several take turns, so that what disturbs the machine for a while disturbs
    // both.
    for (std::uint64_t repeat = 0; repeat < here.repeats(31); ++repeat) {
        for (const int many : {0, 1}) {
            const std::uint64_t count = threads[many], moved = count * rounds * page;
            hits[many].baseline.add(gigabytes_a_second(
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
            hits[many].add(gigabytes_a_second(moved, seconds), watch);
            ratios[many].add(hits[many].ours.last() / hits[many].baseline.last());
        }
        gains.add(hits[1].ours.last() / hits[0].ours.last());
        plain_gains.add(hits[1].baseline.last() / hits[0].baseline.last());
    }
    expect(failures == 0, not_resident);
    const std::string size = ", " + format_size(bytes),
                      several = std::to_string(threads[1]) + " threads";
    for (const int many : {0, 1})
        here.add("issue-2", "hit, " + (many == 0 ? "1 thread" : several) + size, page, "GB/s",
                 hits[many], "memcpy of random pages", percent_of_pairs(ratios[many]));
    here.add("issue-2", "hit, " + several + " over 1" + size, page, "GB/s",
             {hits[1].ours, hits[0].ours, hits[1].cores}, "1 thread",
             percent_of_pairs(gains) + text_of("; memcpy gained %.3f", plain_gains.median()));
}

void hot_page(context& here) {
    constexpr std::uint64_t page = 4096, rounds = 2'000'000;
    const resident_file file(here, here.file_bytes(8 * mib), page);
    const std::uint64_t threads[] = {1, here.threads(2)};
    const runtime_ref fs = file.rt->ref();
    std::atomic<std::uint64_t> failures{0};
    measured rates;  // by several threads and by one
    series gains;
    for (std::uint64_t repeat = 0; repeat < here.repeats(15); ++repeat) {
        for (const int many : {0, 1}) {
            const stopwatch watch;
            const double seconds = seconds_at_random(
                threads[many], rounds, page / 64, [&](std::uint64_t, std::uint64_t at) {
                    std::byte line[64];
                    if (read(lane{}, fs, file.fd, line, sizeof line,
                             static_cast<std::int64_t>(at * 64)) != sizeof line)
                        failures.fetch_add(1, std::memory_order_relaxed);
                });
            const double rate = 1e-6 * (threads[many] * rounds) / seconds;
            if (many == 0) rates.baseline.add(rate);
            else rates.add(rate, watch);
        }
        gains.add(rates.ours.last() / rates.baseline.last());
    }
    expect(failures == 0, not_resident);
    here.add("issue-2",
             "hit, 64 bytes of one page, " + std::to_string(threads[1]) + " threads over 1", page,
             "million/s", rates, "1 thread", percent_of_pairs(gains));
}

}  // namespace

void hit_on_cpu(context& here) {
    std::vector<std::uint64_t> sizes = {4 * mib, 16 * mib, 256 * mib};
    if (here.asked().file_bytes != 0) sizes = {here.asked().file_bytes};
    for (const std::uint64_t bytes : sizes)
        for (const std::uint64_t page : here.pages({64 * kib})) whole_pages(here, bytes, page);
    hot_page(here);
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

void measure_map_page(context& here, std::uint64_t bytes, std::uint64_t page) {
    const resident_file file(here, bytes, page);
    const std::uint64_t threads = here.threads(1), block = std::min<std::uint64_t>(page, 4096),
                        rounds = 40'000;
    const runtime_ref fs = file.rt->ref();
    std::atomic<std::uint64_t> sums[2] = {
        0, 0};  // of what was seen: both ways look at the same blocks
    const auto run = [&](int which, const auto& look) {
        std::vector<std::uint64_t> seen(threads * 8);
        const double seconds = seconds_at_random(
            threads, rounds, bytes / block,
            [&](std::uint64_t t, std::uint64_t at) { seen[t * 8] += look(at * block); });
        for (const std::uint64_t value : seen)
            sums[which].fetch_add(value, std::memory_order_relaxed);
        return gigabytes_a_second(threads * rounds * block, seconds);
    };
    measured looks;
    for (std::uint64_t repeat = 0; repeat < here.repeats(15); ++repeat) {
        looks.baseline.add(
            run(0, [&](std::uint64_t at) { return look_at(file.plain.get() + at, block); }));
        const stopwatch watch;
        const double rate = run(1, [&](std::uint64_t at) {
            const mapping m = map(lane{}, fs, file.fd, static_cast<std::int64_t>(at),
                                  static_cast<std::int64_t>(block));
            const std::uint64_t sum =
                m.bytes == static_cast<std::int64_t>(block) ? look_at(m.data, block) : 1;
            unmap(lane{}, fs, m);
            return sum;
        });
        looks.add(rate, watch);
        expect(sums[0] == sums[1], "what the mappings showed differs from the file");
    }
    here.add("S2", "map, look at " + format_size(block) + ", unmap, " + counted(threads, "thread"),
             page, "GB/s", looks, "looking at plain memory", format_size(bytes) + " resident");
}

}  // namespace

void map_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        measure_map_page(here, here.file_bytes(64 * mib), page);
}

// Elements on the cpu back end: v[i] at random and in order, and for_each, with all pages resident,
// against the same loads from a plain array.

namespace {

struct element_run {
    context& here;
    std::uint64_t page, elements, threads, rounds;

    // Billions a second by sum(thread); adds up what it gives.
    template <typename Sum>
    double run(const Sum& sum, std::uint64_t& total) const {
        std::vector<std::uint64_t> sums(threads * 8);
        const double seconds =
            seconds_together(threads, [&](std::uint64_t t) { sums[t * 8] = sum(t); });
        total = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
        return 1e-9 * (threads * rounds) / seconds;
    }

    // Sums over the same elements, from the plain array and through the view.
    template <typename Plain, typename View>
    void compare(const char* name, const Plain& from_plain, const View& from_view) const {
        measured sums;
        for (std::uint64_t repeat = 0; repeat < here.repeats(11); ++repeat) {
            std::uint64_t expected = 0, got = 0;
            sums.baseline.add(run(from_plain, expected));
            const stopwatch watch;
            sums.add(run(from_view, got), watch);
            expect(expected == got, "the elements differ from the file");
        }
        here.add("S3", name, page, "billion/s", sums, "the same loads from plain memory",
                 text_of("%.3f times as long; ", sums.baseline.median() / sums.ours.median()) +
                     counted(threads, "thread") + ", " + format_size(elements * 8) + " resident");
    }
};

void measure_element_page(context& here, std::uint64_t bytes, std::uint64_t page) {
    const resident_file file(here, bytes, page);
    const std::uint64_t elements = bytes / 8, threads = here.threads(1),
                        rounds = std::min<std::uint64_t>(elements / threads, 4'000'000);
    const element_run run{here, page, elements, threads, rounds};
    const runtime_ref fs = file.rt->ref();
    const view<std::uint64_t> v(fs, file.fd);
    const auto* const plain = reinterpret_cast<const std::uint64_t*>(file.plain.get());
    const auto sum_over = [&](const auto& element, const auto& place) {
        return [&, rounds](std::uint64_t t) {
            std::uint64_t sum = 0;
            for (std::uint64_t i = 0; i < rounds; ++i) sum += element(place(t * rounds + i));
            return sum;
        };
    };
    const auto of_array = [plain](std::uint64_t i) { return plain[i]; };
    const auto of_view = [&v](std::uint64_t i) { return v[i]; };
    const auto random = [&](std::uint64_t i) { return mix64(i) % elements; };
    const auto in_order = [](std::uint64_t i) { return i; };
    const auto each = [&](std::uint64_t t) {
        std::uint64_t sum = 0;
        v.for_each(lane{}, t * rounds, rounds,
                   [&](std::uint64_t, std::uint64_t element) { sum += element; });
        return sum;
    };
    run.compare("random 8-byte elements", sum_over(of_array, random), sum_over(of_view, random));
    run.compare("8-byte elements in order, v[i]", sum_over(of_array, in_order),
                sum_over(of_view, in_order));
    run.compare("8-byte elements in order, for_each", sum_over(of_array, in_order), each);
    require(file.rt->view_status());
}

}  // namespace

void element_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        measure_element_page(here, here.file_bytes(64 * mib), page);
}

}  // namespace penstock::bench
