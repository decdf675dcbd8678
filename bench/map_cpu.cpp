// Held pointers on the cpu back end: map a random 4 KiB block, look at all of it, unmap; against
// looking at a plain array.
#include <atomic>

#include "cases.hpp"
#include "resident.hpp"
#include "together.hpp"

namespace penstock::bench {

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

}  // namespace penstock::bench
