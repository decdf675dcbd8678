// Misses on a GPU with files in the operating system's page cache: random pages, and a whole file
// in order. Beside what the bus and the copy engine allow, and what one would write by hand.
#include <sys/mman.h>

#include "cases.hpp"
#include "gpu.cuh"
#include "pipeline_by_hand.cuh"

namespace penstock::bench {

namespace {

// What the machine allows: warps copy random pages of registered host memory to device memory,
// nothing else.
__global__ void __launch_bounds__(256)
    plain_pages(const std::byte* host, std::byte* device, std::uint64_t pages,
                std::uint32_t page_bytes, std::uint32_t rounds, std::uint64_t seed) {
    const warp g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t page =
            mix64(number * rounds + i + seed * 0x9e3779b97f4a7c15ull) % pages;
        g.copy_in(device + number * page_bytes, host + page * page_bytes, page_bytes);
    }
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

// GB/s and cores of `kernel`, which runs once to warm up and then `repeats` times.
template <typename Kernel>
measured timed(const miss_shape& shape, std::uint64_t repeats, const Kernel& kernel) {
    measured out;
    for (std::uint64_t i = 0; i <= repeats; ++i) {
        const stopwatch watch;
        kernel(i);
        require_cuda(cudaGetLastError(), "launch");
        require_cuda(cudaDeviceSynchronize(), "kernel");
        const double seconds = watch.seconds();
        if (i != 0) out.add(gigabytes_a_second(shape.moved_bytes(), seconds), watch, seconds);
    }
    return out;
}

// Rates at which warps copy random pages of plain host memory, against which misses are measured.
series measure_limits(context& here, const miss_shape& shape, const memory& plain,
                      const memory& device) {
    const auto copies = [&](const std::byte* from) {
        return timed(shape, here.repeats(5), [&](std::uint64_t seed) {
            plain_pages<<<shape.blocks, 256>>>(from, device.as<std::byte>(), shape.pages,
                                               static_cast<std::uint32_t>(shape.page_bytes),
                                               shape.rounds, seed);
        });
    };
    const series limit = copies(plain.as<std::byte>()).ours;
    // The file's pages in the page cache: what a window can give at most.
    const apps::unique_fd fd = here.file().open(O_RDONLY);
    const mapped_memory mapped(here.bytes(), PROT_READ, MAP_SHARED, fd);
    const registered_memory registered(mapped.as<void>(), here.bytes(), cudaHostRegisterReadOnly);
    measured scattered = copies(mapped.as<std::byte>());
    scattered.baseline = limit;
    here.add(shape.page_bytes == 512 ? "S5" : "S4",
             "no Penstock: warps copying random pages of the file's registered page cache",
             shape.page_bytes, "GB/s", scattered,
             "warps copying random pages of registered host memory");
    return limit;
}

template <std::uint32_t Lanes>
void through_windows(context& here, const miss_shape& shape, std::uint64_t cache,
                     const memory& device, const series& limit) {
    const std::uint64_t page = shape.page_bytes;
    const memory wrong = memory::pinned(8);
    const opened_file file = here.open({.page_bytes = page, .cache_bytes = cache});
    const stopwatch watch;
    open_all_windows(here, file);
    const double opening = watch.seconds();
    const statistics before = file.rt->stats();
    const measured windows = timed(shape, here.repeats(5), [&](std::uint64_t seed) {
        missing_pages<Lanes><<<shape.blocks, 256>>>(
            file.rt->ref(), file.fd, device.as<std::byte>(), shape.pages,
            static_cast<std::uint32_t>(page), shape.rounds, seed, wrong.as<unsigned long long>());
    });
    const statistics after = file.rt->stats();
    require_none(wrong, "reads failed or gave wrong bytes");
    // Over the bus go only the pages that were not in the cache, whether they entered it or were
    // read through; the warm-up run counts among them.
    const double runs = static_cast<double>(windows.ours.size() + 1);
    const double all_pages = runs * static_cast<double>(shape.moved_bytes() / page),
                 entered = static_cast<double>(after.misses - before.misses) / all_pages,
                 past = static_cast<double>(after.through_reads - before.through_reads) / all_pages;
    const series brought = windows.ours.times(entered + past);
    const std::string by = Lanes == 32 ? "" : "by tiles of " + std::to_string(Lanes) + " lanes, ";
    here.add(
        page == 512 ? "S5" : "S4",
        "reads of random pages through windows that miss, " + by + here.cache_label(cache), page,
        "GB/s", {brought, limit, windows.cores},
        "warps copying random pages of registered host memory",
        text_of("%.1f million such pages/s; of the pages %.3f entered the cache, %.3f were read "
                "through; %.1f GB/s delivered; opening %.1f GB of windows took %.2f s",
                1e3 * brought.median() / page, entered, past, windows.ours.median(),
                1e-9 * here.bytes(), opening));
}

// A page of 512 bytes gives the 32 lanes of a warp 16 bytes each, and the misses of a group come
// one after the other: smaller groups have more of them on their way at once.
template <std::uint32_t Lanes>
void tiles_through_windows(context& here, const series& limit) {
    constexpr std::uint64_t page = 512;
    for (const std::uint64_t cache : here.caches(page)) {
        const miss_shape shape = shape_for(here.bytes(), page, cache, Lanes);
        const memory device(backend::gpu, shape.groups() * page);
        through_windows<Lanes>(here, shape, cache, device, limit);
    }
}

}  // namespace

void miss_on_gpu(context& here) {
    const std::uint64_t file_bytes = here.use_file(here.file_bytes(8 * gib));
    const memory plain = memory::pinned(file_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 512, 64 * kib})) {
        const std::vector<std::uint64_t> caches = here.caches(page);
        const miss_shape shape = shape_for(file_bytes, page, caches.front(), 32);
        const memory device(backend::gpu, shape.groups() * page);
        const series limit = measure_limits(here, shape, plain, device);
        for (const std::uint64_t cache : caches)
            through_windows<32>(here, shape, cache, device, limit);
        if (page == 512) {
            tiles_through_windows<8>(here, limit);
            tiles_through_windows<4>(here, limit);
        }
        random_records(here, page);
    }
    if (here.asked().sweep) fewer_shards(here, 4 * kib);
}

namespace {

constexpr const char* pipeline_name =
    "all cores: pread into pinned buffers, two a core, and cudaMemcpyAsync";

// The ways of a whole file into the cache; and what has no part of Penstock.
struct ways {
    measured windows, requests, again;
    series with_opening, hand, hand_page, engine;
};

void measure_once(context& here, std::uint64_t page, const by_hand& hand, ways& out) {
    const std::uint64_t bytes = here.file().bytes();
    const runtime_shape shape{.page_bytes = page, .cache_bytes = bytes + bytes / 8};
    const auto rate = [&](double seconds) { return gigabytes_a_second(bytes, seconds); };
    {
        const opened_file file = here.open(shape);
        const stopwatch watch;
        open_all_windows(here, file);
        add_prefetch(file, out.windows);
        out.with_opening.add(rate(watch.seconds()));
        add_prefetch(file, out.again);
        file.rt->close_windows();
    }
    add_prefetch(here.open(shape), out.requests);
    out.hand.add(rate(hand.seconds(piece_bytes)));
    if (here.asked().sweep) out.hand_page.add(rate(hand.seconds(page)));
    out.engine.add(rate(hand.engine_seconds()));
}

void add_rows(context& here, std::uint64_t page, ways& all) {
    const auto add = [&](const char* name, const series& ours, const series& cores,
                         const char* note, const char* goal = "S6") {
        here.add(goal, name, page, "GB/s", {ours, all.hand, cores}, pipeline_name, note);
    };
    add("whole file, windows open", all.windows.ours, all.windows.cores, "");
    add("whole file, windows opened first, in the time", all.with_opening, series(1),
        "one thread registers");
    add("whole file, by requests", all.requests.ours, all.requests.cores,
        "nothing opened before, default options", "S6f");
    all.again.baseline = all.windows.ours;
    here.add("S6", "whole file, in the cache already: look-ups only", page, "GB/s", all.again,
             "the same when it had to be loaded, windows open", "no byte is copied");
    if (here.asked().sweep)
        add("no Penstock: pipeline by hand, pieces of a page", all.hand_page, {}, "");
}

}  // namespace

void sequential_on_gpu(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(8 * gib));
    const by_hand hand(here);
    ways last;
    for (const std::uint64_t page : here.pages({64 * kib})) {
        last = {};
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
            measure_once(here, page, hand, last);
        add_rows(here, page, last);
    }
    here.add("S6", "no Penstock: pipeline by hand, pieces of 4 MiB", 0, "GB/s",
             {last.hand, last.engine}, "the copy engine, pieces of 64 MiB");
    if (!here.asked().sweep) return;
    const memory whole = memory::pinned(bytes);
    series rates;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
        rates.add(gigabytes_a_second(bytes, hand.seconds_in_one_piece(whole)));
    here.add("S6", "no Penstock: the file in one piece", 0, "GB/s", {rates, last.hand},
             pipeline_name);
}

}  // namespace penstock::bench
