// Misses on a GPU with files in the operating system's page cache: random pages, and a whole file
// in order. Beside what the bus and the copy engine allow, and what one would write by hand.
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/launch.hpp"
#include "pipeline_by_hand.cuh"
#include "workload.hpp"

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
    std::byte* const mine = device + number * page_bytes;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t page =
            mix64(number * rounds + i + seed * 0x9e3779b97f4a7c15ull) % pages;
        const bool right = read(g, fs, fd, mine, page_bytes,
                                static_cast<std::int64_t>(page * page_bytes)) == page_bytes &&
                           reinterpret_cast<const std::uint64_t*>(mine)[g.rank()] ==
                               mix64(page * page_bytes / 8 + g.rank());
        if (!g.all(right) && g.is_leader()) atomicAdd(wrong, 1ull);
        g.sync();
    }
}

struct rate {
    series gb_a_second, cores;
};

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

// Runs `kernel` once to warm up and then `repeats` times.
template <typename Kernel>
status timed(const miss_shape& shape, std::uint64_t repeats, rate& out, const Kernel& kernel) {
    for (std::uint64_t i = 0; i <= repeats; ++i) {
        const stopwatch watch;
        kernel(i);
        if (status s = cuda_status(cudaGetLastError(), "launch"); !s) return s;
        if (status s = cuda_status(cudaDeviceSynchronize(), "kernel"); !s) return s;
        const double seconds = watch.seconds();
        if (i == 0) continue;
        out.gb_a_second.add(gigabytes_a_second(shape.moved_bytes(), seconds));
        out.cores.add(watch.cores(seconds));
    }
    return {};
}

// A file's pages in the page cache, mapped and registered: what a window can give at most.
class registered_file {
public:
    ~registered_file() {
        if (registered_) cudaHostUnregister(mapped_);
        if (mapped_ != MAP_FAILED) ::munmap(mapped_, bytes_);
    }
    status make(const std::string& path, std::uint64_t bytes) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        bytes_ = bytes;
        if (file >= 0) mapped_ = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
        const int code = errno;
        if (file >= 0) ::close(file);
        if (mapped_ == MAP_FAILED) return {-code, "mapping the file: " + error_text(-code)};
        const status s = cuda_status(
            cudaHostRegister(mapped_, bytes, cudaHostRegisterMapped | cudaHostRegisterReadOnly),
            "registering the file");
        registered_ = s.ok();
        return s;
    }
    [[nodiscard]] const std::byte* data() const { return static_cast<const std::byte*>(mapped_); }

private:
    void* mapped_ = MAP_FAILED;
    std::uint64_t bytes_ = 0;
    bool registered_ = false;
};

struct bus_limit {
    rate plain, scattered;
};

status measure_limits(context& here, const miss_shape& shape, const std::byte* plain,
                      std::byte* device, bus_limit& out) {
    const auto copies = [&](const std::byte* from, rate& to) {
        return timed(shape, here.repeats(5), to, [&](std::uint64_t seed) {
            plain_pages<<<shape.blocks, 256>>>(from, device, shape.pages,
                                               static_cast<std::uint32_t>(shape.page_bytes),
                                               shape.rounds, seed);
        });
    };
    if (status s = copies(plain, out.plain); !s) return s;
    registered_file mapped;
    if (status s = mapped.make(here.file().path(), here.file().bytes()); !s) return s;
    if (status s = copies(mapped.data(), out.scattered); !s) return s;
    return here.add({shape.page_bytes == 512 ? "S5" : "S4",
                     "no Penstock: warps copying random pages of the file's registered page cache",
                     "", shape.page_bytes, out.scattered.gb_a_second, "GB/s",
                     "warps copying random pages of registered host memory", out.plain.gb_a_second,
                     out.scattered.cores, ""});
}

template <std::uint32_t Lanes>
status through_windows(context& here, const miss_shape& shape, std::uint64_t cache,
                       std::byte* device, const bus_limit& limit) {
    const std::uint64_t file_bytes = here.file().bytes(), page = shape.page_bytes;
    std::unique_ptr<runtime> rt;
    int fd = -1;
    gpu_memory wrong;
    if (status s = wrong.on_host(8); !s) return s;
    *wrong.as<unsigned long long>() = 0;
    if (status s = here.make_runtime(
            {.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes}, rt, fd);
        !s)
        return s;
    const stopwatch watch;
    if (status s = open_all_windows(here, *rt, fd, file_bytes); !s) return s;
    const double opening = watch.seconds();
    const statistics before = rt->stats();
    rate windows;
    if (status s = timed(shape, here.repeats(5), windows,
                         [&](std::uint64_t seed) {
                             missing_pages<Lanes><<<shape.blocks, 256>>>(
                                 rt->ref(), fd, device, shape.pages,
                                 static_cast<std::uint32_t>(page), shape.rounds, seed,
                                 wrong.as<unsigned long long>());
                         });
        !s)
        return s;
    const statistics after = rt->stats();
    if (*wrong.as<unsigned long long>() != 0)
        return {-EIO, std::to_string(*wrong.as<unsigned long long>()) +
                          " reads failed or gave wrong bytes"};
    // Over the bus go only the pages that missed; the warm-up run counts among them.
    const double runs = static_cast<double>(windows.gb_a_second.size() + 1);
    const double missed = static_cast<double>(after.misses - before.misses) *
                          static_cast<double>(page) /
                          (runs * static_cast<double>(shape.moved_bytes()));
    const series loaded = windows.gb_a_second.times(missed);
    const std::string by_whom =
        Lanes == 32 ? "" : "by tiles of " + std::to_string(Lanes) + " lanes, ";
    char note[200];
    std::snprintf(note, sizeof note,
                  "%.1f million misses/s; %.3f of the pages missed, %.1f GB/s delivered; opening "
                  "%.1f GB of windows took %.2f s",
                  1e3 * loaded.median() / static_cast<double>(page), missed,
                  windows.gb_a_second.median(), 1e-9 * static_cast<double>(file_bytes), opening);
    return here.add(
        {page == 512 ? "S5" : "S4",
         "loads of random pages through windows, " + by_whom + cache_label(cache, file_bytes), "",
         page, loaded, "GB/s", "warps copying random pages of registered host memory",
         limit.plain.gb_a_second, windows.cores, note});
}

// A page of 512 bytes gives the 32 lanes of a warp 16 bytes each, and the misses of a group come
// one after the other: smaller groups have more of them on their way at once.
template <std::uint32_t Lanes>
status tiles_through_windows(context& here, const bus_limit& limit) {
    constexpr std::uint64_t page = 512;
    const std::uint64_t file_bytes = here.file().bytes();
    for (const std::uint64_t cache : here.caches(file_bytes, page)) {
        const miss_shape shape = shape_for(file_bytes, page, cache, Lanes);
        gpu_memory device;
        if (status s = device.on_device(shape.groups() * page); !s) return s;
        if (status s = through_windows<Lanes>(here, shape, cache, device.as<std::byte>(), limit);
            !s)
            return s;
    }
    return {};
}

}  // namespace

status miss_on_gpu(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(8 * gib);
    if (status s = here.use_file(file_bytes); !s) return s;
    gpu_memory plain;
    if (status s = plain.on_host(file_bytes); !s) return s;
    std::memset(plain.as<void>(), 1, file_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 512, 64 * kib})) {
        const std::vector<std::uint64_t> caches = here.caches(file_bytes, page);
        const miss_shape shape = shape_for(file_bytes, page, caches.front(), 32);
        gpu_memory device;
        if (status s = device.on_device(shape.groups() * page); !s) return s;
        bus_limit limit;
        if (status s =
                measure_limits(here, shape, plain.as<std::byte>(), device.as<std::byte>(), limit);
            !s)
            return s;
        for (const std::uint64_t cache : caches)
            if (status s = through_windows<32>(here, shape, cache, device.as<std::byte>(), limit);
                !s)
                return s;
        if (page == 512) {
            if (status s = tiles_through_windows<8>(here, limit); !s) return s;
            if (status s = tiles_through_windows<4>(here, limit); !s) return s;
        }
        if (status s = random_records(here, file_bytes, page); !s) return s;
    }
    return here.asked().sweep ? fewer_shards(here, file_bytes, 4 * kib) : status{};
}

namespace {

constexpr const char* pipeline_name =
    "all cores: pread into pinned buffers, two a core, and cudaMemcpyAsync";

struct one_way {
    series rate, cores;
    status prefetch(runtime& rt, int fd, std::uint64_t bytes) {
        const stopwatch watch;
        const std::int64_t got = rt.prefetch(fd, 0, static_cast<std::int64_t>(bytes));
        const double seconds = watch.seconds();
        if (got != static_cast<std::int64_t>(bytes))
            return {got < 0 ? static_cast<int>(got) : -EIO,
                    "prefetch brought " + std::to_string(got) + " bytes"};
        rate.add(gigabytes_a_second(bytes, seconds));
        cores.add(watch.cores(seconds));
        return {};
    }
};

struct ways {
    one_way windows, requests, again;
    series with_opening, hand, hand_page, engine;
};

status measure_once(context& here, std::uint64_t page, by_hand& hand, ways& out) {
    const std::uint64_t bytes = here.file().bytes();
    const runtime_shape shape{
        .page_bytes = page, .cache_bytes = bytes + bytes / 8, .file_bytes = bytes};
    std::unique_ptr<runtime> rt;
    int fd = -1;
    if (status s = here.make_runtime(shape, rt, fd); !s) return s;
    const stopwatch watch;
    if (status s = open_all_windows(here, *rt, fd, bytes); !s) return s;
    if (status s = out.windows.prefetch(*rt, fd, bytes); !s) return s;
    out.with_opening.add(gigabytes_a_second(bytes, watch.seconds()));
    if (status s = out.again.prefetch(*rt, fd, bytes); !s) return s;
    rt->close_windows();
    if (status s = here.make_runtime(shape, rt, fd); !s) return s;
    if (status s = out.requests.prefetch(*rt, fd, bytes); !s) return s;
    rt.reset();
    if (status s = hand.run(piece_bytes, out.hand); !s) return s;
    if (here.asked().sweep)
        if (status s = hand.run(page, out.hand_page); !s) return s;
    if (status s = hand.copy_engine(engine_piece_bytes, out.engine); !s) return s;
    return {};
}

// One thread reads the file as a whole and copies it as a whole: what GPU programs often do.
status in_one_piece(const context& here, by_hand& hand, series& rate) {
    const std::uint64_t bytes = here.file().bytes();
    gpu_memory whole;
    if (status s = whole.on_host(bytes); !s) return s;
    std::memset(whole.as<void>(), 1, bytes);
    const pipeline one{
        hand.file, bytes,      bytes, 1, whole.as<std::byte>(), hand.device.as<std::byte>(),
        hand.on,   hand.number};
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
        if (status s = one.run(rate); !s) return s;
    return {};
}

status add_rows(context& here, std::uint64_t page, const ways& all) {
    const auto add = [&](const char* name, const series& value, const series& cores,
                         const char* note) {
        return here.add(
            {"S6", name, "", page, value, "GB/s", pipeline_name, all.hand, cores, note});
    };
    if (status s = add("whole file, windows open", all.windows.rate, all.windows.cores, ""); !s)
        return s;
    if (status s = add("whole file, windows opened first, in the time", all.with_opening, series(1),
                       "one thread registers");
        !s)
        return s;
    if (status s = add("whole file, by requests", all.requests.rate, all.requests.cores, ""); !s)
        return s;
    return here.add({"S6", "whole file, in the cache already: look-ups only", "", page,
                     all.again.rate, "GB/s", "the same when it had to be loaded, windows open",
                     all.windows.rate, all.again.cores, "no byte is copied"});
}

}  // namespace

status sequential_on_gpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(8 * gib);
    if (status s = here.use_file(bytes); !s) return s;
    by_hand hand;
    if (status s = hand.make(here); !s) return s;
    ways last;
    for (const std::uint64_t page : here.pages({64 * kib})) {
        ways all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
            if (status s = measure_once(here, page, hand, all); !s) return s;
        if (status s = add_rows(here, page, all); !s) return s;
        if (here.asked().sweep)
            if (status s = here.add({"S6",
                                     "no Penstock: pipeline by hand, pieces of a page",
                                     "",
                                     page,
                                     all.hand_page,
                                     "GB/s",
                                     pipeline_name,
                                     all.hand,
                                     {},
                                     ""});
                !s)
                return s;
        last = all;
    }
    if (status s = here.add({"S6",
                             "no Penstock: pipeline by hand, pieces of 4 MiB",
                             "",
                             0,
                             last.hand,
                             "GB/s",
                             "the copy engine, pieces of 64 MiB",
                             last.engine,
                             {},
                             ""});
        !s)
        return s;
    if (!here.asked().sweep) return {};
    series whole;
    if (status s = in_one_piece(here, hand, whole); !s) return s;
    return here.add({"S6",
                     "no Penstock: the file in one piece",
                     "",
                     0,
                     whole,
                     "GB/s",
                     pipeline_name,
                     last.hand,
                     {},
                     ""});
}

}  // namespace penstock::bench
