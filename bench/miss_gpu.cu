// Misses on a GPU with files in the operating system's page cache: random pages, and a whole file
// in order. Beside what the bus and the copy engine allow, and what one would write by hand.
#include <sys/mman.h>

#include "cases.hpp"
#include "gpu.cuh"
#include "pipeline_by_hand.cuh"

namespace penstock::bench {

namespace {

// What the machine allows: warps copy random blocks of registered host memory to device memory,
// nothing else.
__global__ void __launch_bounds__(256)
    plain_blocks(const std::byte* host, std::byte* device, const __grid_constant__ pattern reads) {
    const warp g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32;
    if (number >= reads.groups) return;
    for (std::uint64_t i = 0; i < reads.rounds; ++i)
        g.copy_in(device + number * reads.block_bytes, host + reads.offset_bytes(number, i),
                  reads.block_bytes);
}

// By groups of Lanes lanes, one page each at a time.
template <std::uint32_t Lanes>
__global__ void __launch_bounds__(256, 4)
    missing_pages(const __grid_constant__ runtime_ref fs, int fd, std::byte* device,
                  std::uint64_t pages, std::uint32_t page_bytes, std::uint32_t rounds,
                  std::uint64_t seed, unsigned long long* wrong) {
    const tile<Lanes> g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * (256 / Lanes) + threadIdx.x / Lanes;
    std::byte* const own = device + number * page_bytes;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t page =
            mix64(number * rounds + i + seed * 0x9e3779b97f4a7c15ull) % pages;
        const bool right = read(g, fs, fd, own, page_bytes,
                                static_cast<std::int64_t>(page * page_bytes)) == page_bytes &&
                           reinterpret_cast<const std::uint64_t*>(own)[g.rank()] ==
                               mix64(page * page_bytes / 8 + g.rank());
        if (!g.all(right) && g.is_leader()) atomicAdd(wrong, 1ull);
        g.sync();
    }
}

// How many groups run, and how many pages each takes.
struct miss_shape {
    std::uint64_t pages, page_bytes;
    std::uint32_t blocks, groups_a_block, rounds;
    [[nodiscard]] std::uint64_t groups() const { return std::uint64_t{blocks} * groups_a_block; }
    [[nodiscard]] std::uint64_t moved_bytes() const { return groups() * rounds * page_bytes; }
};

// No more groups of so many lanes than leave each of them a few frames and a buffer.
miss_shape shape_for(std::uint64_t file_bytes, std::uint64_t page, std::uint64_t cache,
                     std::uint32_t lanes) {
    const std::uint32_t groups = 256 / lanes;
    const auto most = static_cast<std::uint64_t>(multiprocessors()) * 4;
    const std::uint64_t blocks = std::max<std::uint64_t>(
        std::min({most, 512 * mib / page / groups, cache / page / 4 / groups}), 1);
    const std::uint64_t moved = std::min(4 * gib, 32 * file_bytes);
    return {
        file_bytes / page, page, static_cast<std::uint32_t>(blocks), groups,
        static_cast<std::uint32_t>(std::max<std::uint64_t>(moved / page / (blocks * groups), 1))};
}

template <typename Kernel>
timed_run timed(const Kernel& kernel) {
    const stopwatch watch;
    kernel();
    require_cuda(cudaGetLastError(), "launch");
    require_cuda(cudaDeviceSynchronize(), "kernel");
    const double seconds = watch.seconds();
    return {seconds, watch.cores(seconds)};
}

// GB/s of ours(number) and theirs(number), which move so many bytes, in turns, so that neither
// always comes first. Each runs once more, to warm up.
template <typename Ours, typename Theirs>
measured in_turns(std::uint64_t bytes, std::uint64_t theirs_bytes, std::uint64_t repeats,
                  const Ours& ours, const Theirs& theirs) {
    measured out;
    for (std::uint64_t i = 0; i <= repeats; ++i) {
        timed_run mine{}, other{};
        if (i % 2 == 0) mine = ours(i);
        other = theirs(i);
        if (i % 2 != 0) mine = ours(i);
        if (i == 0) continue;
        out.ours.add(gigabytes_a_second(bytes, mine.seconds));
        out.cores.add(mine.cores);
        out.baseline.add(gigabytes_a_second(theirs_bytes, other.seconds));
    }
    return out;
}

// Warps copy the blocks of a pattern from memory of the host that kernels reach, into a buffer
// each.
timed_run copy_blocks(const std::byte* from, const memory& buffers, const pattern& reads) {
    return timed([&] {
        plain_blocks<<<static_cast<unsigned>((reads.groups + 7) / 8), 256>>>(
            from, buffers.as<std::byte>(), reads);
    });
}

// What misses are measured against: warps that copy random pages of plain host memory.
struct plain_copies {
    miss_shape shape;
    const memory& plain;
    memory device{backend::gpu, shape.groups() * shape.page_bytes};

    [[nodiscard]] timed_run run(std::uint64_t seed, const std::byte* from = nullptr) const {
        return copy_blocks(from != nullptr ? from : plain.as<std::byte>(), device,
                           {.block_bytes = shape.page_bytes,
                            .step_bytes = shape.page_bytes,
                            .blocks = shape.pages,
                            .groups = shape.groups(),
                            .rounds = shape.rounds,
                            .seed = seed});
    }
};

constexpr const char* plain_copies_name = "warps copying random pages of registered host memory";

// The file's pages in the page cache: what a window can give at most.
void page_cache_row(context& here, const plain_copies& limit) {
    const apps::unique_fd fd = here.file().open(O_RDONLY);
    const mapped_memory mapped(here.bytes(), PROT_READ, MAP_SHARED, fd);
    const registered_memory registered(mapped.as<void>(), here.bytes(), cudaHostRegisterReadOnly);
    const measured rates = in_turns(
        limit.shape.moved_bytes(), limit.shape.moved_bytes(), here.repeats(5),
        [&](std::uint64_t seed) { return limit.run(seed, mapped.as<std::byte>()); },
        [&](std::uint64_t seed) { return limit.run(seed); });
    here.add(limit.shape.page_bytes == 512 ? "S5" : "S4",
             "no Penstock: warps copying random pages of the file's registered page cache",
             limit.shape.page_bytes, "GB/s", rates, plain_copies_name);
}

template <std::uint32_t Lanes>
void through_windows(context& here, const miss_shape& shape, std::uint64_t cache,
                     const plain_copies& limit) {
    const std::uint64_t page = shape.page_bytes;
    const memory device(backend::gpu, shape.groups() * page), wrong = memory::pinned(8);
    const opened_file file = here.open({.page_bytes = page, .cache_bytes = cache});
    const stopwatch watch;
    open_all_windows(here, file);
    const double opening = watch.seconds();
    const statistics before = file.rt->stats();
    measured windows = in_turns(
        shape.moved_bytes(), limit.shape.moved_bytes(), here.repeats(5),
        [&](std::uint64_t seed) {
            return timed([&] {
                missing_pages<Lanes>
                    <<<shape.blocks, 256>>>(file.rt->ref(), file.fd, device.as<std::byte>(),
                                            shape.pages, static_cast<std::uint32_t>(page),
                                            shape.rounds, seed, wrong.as<unsigned long long>());
            });
        },
        [&](std::uint64_t seed) { return limit.run(seed); });
    const statistics after = file.rt->stats();
    require_none(wrong, "reads failed or gave wrong bytes");
    // Over the bus go only the pages that were not in the cache, whether they entered it or were
    // read through; the warm-up run counts among them.
    const double runs = static_cast<double>(windows.ours.size() + 1);
    const double all_pages = runs * static_cast<double>(shape.moved_bytes() / page),
                 entered = static_cast<double>(after.misses - before.misses) / all_pages,
                 past = static_cast<double>(after.through_reads - before.through_reads) / all_pages,
                 delivered = windows.ours.median();
    windows.ours = windows.ours.times(entered + past);
    const std::string by = Lanes == 32 ? "" : "by tiles of " + std::to_string(Lanes) + " lanes, ";
    here.add(
        page == 512 ? "S5" : "S4",
        "reads of random pages through windows that miss, " + by + here.cache_label(cache), page,
        "GB/s", windows, plain_copies_name,
        text_of("%.1f million such pages/s; of the pages %.3f entered the cache, %.3f were read "
                "through; %.1f GB/s delivered; opening %.1f GB of windows took %.2f s",
                1e3 * windows.ours.median() / page, entered, past, delivered, 1e-9 * here.bytes(),
                opening));
}

// A page of 512 bytes gives the 32 lanes of a warp 16 bytes each, and the misses of a group come
// one after the other: smaller groups have more of them on their way at once.
template <std::uint32_t Lanes>
void tiles_through_windows(context& here, const plain_copies& limit) {
    constexpr std::uint64_t page = 512;
    for (const std::uint64_t cache : here.caches(page))
        through_windows<Lanes>(here, shape_for(here.bytes(), page, cache, Lanes), cache, limit);
}

}  // namespace

void miss_on_gpu(context& here) {
    const std::uint64_t file_bytes = here.use_file(here.file_bytes(8 * gib));
    const memory plain = memory::pinned(file_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 512, 64 * kib})) {
        const std::vector<std::uint64_t> caches = here.caches(page);
        const plain_copies limit{shape_for(file_bytes, page, caches.front(), 32), plain};
        page_cache_row(here, limit);
        for (const std::uint64_t cache : caches)
            through_windows<32>(here, limit.shape, cache, limit);
        if (page == 512) {
            tiles_through_windows<8>(here, limit);
            tiles_through_windows<4>(here, limit);
        }
        random_records(here, page, [&](const pattern& reads) {
            const memory buffers(backend::gpu, reads.groups * reads.block_bytes);
            return copy_blocks(plain.as<std::byte>(), buffers, reads);
        });
    }
    if (here.asked().sweep) fewer_shards(here, 4 * kib);
}

namespace {

// The ways of a whole file into the cache; and what has no part of Penstock.
struct ways {
    explicit ways(const by_hand& by) : hand(by.tried()), hand_page({8, 16}, by.threads) {}
    measured windows, with_opening, with_closing, requests, again;
    by_threads hand, hand_page;
    series engine, page_cache, page_cache_registered;
};

void measure_once(context& here, std::uint64_t page, const by_hand& hand, bool is_first,
                  ways& out) {
    const std::uint64_t bytes = here.file().bytes();
    const runtime_shape shape{.page_bytes = page, .cache_bytes = bytes + bytes / 8};
    const auto rate = [&](double seconds) { return gigabytes_a_second(bytes, seconds); };
    {
        const opened_file file = here.open(shape);
        const stopwatch watch;
        open_all_windows(here, file);
        add_prefetch(file, out.windows);
        const double seconds = watch.seconds();
        out.with_opening.add(rate(seconds), watch, seconds);
        add_prefetch(file, out.again);
        const stopwatch closing;
        file.rt->close_windows();
        const double both = seconds + closing.seconds();
        out.with_closing.ours.add(rate(both));
    }
    add_prefetch(here.open(shape), out.requests);
    const auto checked = [&](const auto& bring) {
        if (is_first) hand.clear();
        const auto took = bring();
        if (is_first) hand.expect_right();
        return took;
    };
    out.hand.measure([&](std::uint64_t threads, std::uint64_t piece) {
        return checked([&] { return hand.run(piece, threads); });
    });
    if (here.asked().sweep)
        out.hand_page.measure(
            [&](std::uint64_t threads, std::uint64_t) { return hand.run(page, threads); });
    out.engine.add(rate(hand.engine_seconds()));
    const auto seen = checked([&] { return hand.from_page_cache(); });
    out.page_cache.add(rate(seen.copying));
    out.page_cache_registered.add(rate(seen.with_registering));
}

void add_rows(context& here, std::uint64_t page, ways& all) {
    const double gigabytes = 1e-9 * static_cast<double>(here.file().bytes());
    const series by_hand_rates = all.hand.seconds().under(gigabytes);
    const auto add = [&](const char* name, const measured& ours, const char* note,
                         const char* goal = "S6") {
        here.add(goal, name, page, "GB/s", {ours.ours, by_hand_rates, ours.cores},
                 pipeline_name(all.hand), note);
    };
    add("whole file, windows open", all.windows, "");
    add("whole file, windows opened first, in the time", all.with_opening, "one thread registers");
    add("whole file, windows opened first and closed, in the time", all.with_closing, "");
    add("whole file, by requests", all.requests, "nothing opened before, default options", "S6f");
    all.again.baseline = all.windows.ours;
    here.add("S6", "whole file, in the cache already: look-ups only", page, "GB/s", all.again,
             "the same when it had to be loaded, windows open", "no byte is copied");
    add("no Penstock: copy engine, the file's page cache registered before", {all.page_cache, {}},
        "pieces of 64 MiB");
    add("no Penstock: copy engine, the page cache registered and given back in the time",
        {all.page_cache_registered, {}}, "one thread registers");
    if (here.asked().sweep)
        add("no Penstock: pipeline by hand, pieces of a page",
            {all.hand_page.seconds().under(gigabytes), {}}, all.hand_page.name().c_str());
}

}  // namespace

void sequential_on_gpu(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(8 * gib));
    const by_hand hand(here);
    ways last(hand);
    for (const std::uint64_t page : here.pages({64 * kib})) {
        last = ways(hand);
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
            measure_once(here, page, hand, repeat == 0, last);
        add_rows(here, page, last);
    }
    const series by_hand_rates = last.hand.seconds().under(1e-9 * static_cast<double>(bytes));
    here.add("S6", "no Penstock: pipeline by hand", 0, "GB/s", {by_hand_rates, last.engine},
             "the copy engine, pieces of 64 MiB", last.hand.name());
    if (!here.asked().sweep) return;
    const memory whole = memory::pinned(bytes);
    series rates;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
        rates.add(gigabytes_a_second(bytes, hand.seconds_in_one_piece(whole)));
    here.add("S6", "no Penstock: the file in one piece", 0, "GB/s", {rates, by_hand_rates},
             pipeline_name(last.hand));
}

}  // namespace penstock::bench
