// Linked caches: two GPUs that read one file, with their caches linked and without.
//
//   R1, R2   random pages of a file of 1.8 caches on both at once, uniform and by Zipf's law
//   R3       pages that the other GPU holds, against a plain kernel over the other GPU's memory
//   R5, R6   pages of the own cache, and pages that none has: what links cost
//   R7       the whole file into both caches, and how much of it crosses the bus
//
// Without links each GPU has a runtime of its own. Windows are open on all of them before the time
// begins, but for R6's requests. Each GPU has a launch of its own; the time is from before the
// first to after the last.
#include "cases.hpp"
#include "table_rows.hpp"

#include <array>
#include <thread>

#include "gpu.cuh"
#include "table_plain.cuh"
#include "zipf.cuh"

namespace penstock::bench {

namespace {

constexpr std::uint32_t gpus = 2;

class on_gpu {
public:
    explicit on_gpu(std::uint32_t number) {
        cudaGetDevice(&before_);
        cudaSetDevice(static_cast<int>(number));
    }
    ~on_gpu() { cudaSetDevice(before_); }
    on_gpu(const on_gpu&) = delete;
    on_gpu& operator=(const on_gpu&) = delete;

private:
    int before_ = 0;
};

// Not by the frame of programs, which use one device.
std::unique_ptr<runtime> make(const options& o) {
    std::unique_ptr<runtime> out;
    require(runtime::make(o, out));
    return out;
}

// The file on both GPUs: in one runtime, linked, or in a runtime for each.
struct both_gpus {
    std::vector<std::unique_ptr<runtime>> runtimes;
    std::vector<shared_file> files;  // of each runtime

    both_gpus(const context& here, options o, bool linked, bool windows) {
        for (std::uint32_t i = 0; i < (linked ? 1 : gpus); ++i) {
            o.devices.clear();
            o.device = static_cast<int>(i);
            if (linked) o.devices = {0, 1};
            runtimes.push_back(make(o));
            files.push_back(runtimes.back()->open_everywhere(here.file().path()));
            require(files.back().code(), "open");
            if (windows)
                require_all(runtimes.back()->open_windows(files.back()), here.bytes(),
                            "windows; give a smaller --file");
        }
    }
    [[nodiscard]] runtime& of(std::uint32_t gpu) const {
        return *runtimes[runtimes.size() == 1 ? 0 : gpu];
    }
    [[nodiscard]] std::uint32_t place(std::uint32_t gpu) const {
        return runtimes.size() == 1 ? gpu : 0;
    }
    [[nodiscard]] int fd(std::uint32_t gpu) const {
        return files[runtimes.size() == 1 ? 0 : gpu].of(of(gpu).ref(place(gpu)));
    }
    [[nodiscard]] statistics stats(std::uint32_t gpu) const { return of(gpu).stats(place(gpu)); }

    // body(gpu) on a thread for each of the first `count` GPUs; seconds for all.
    template <typename Body>
    static double seconds(std::uint32_t count, const Body& body) {
        const stopwatch watch;
        std::vector<std::thread> threads;
        std::array<int, gpus> codes{};
        for (std::uint32_t gpu = 0; gpu < count; ++gpu)
            threads.emplace_back([&, gpu] {
                cudaSetDevice(static_cast<int>(gpu));
                codes[gpu] = body(gpu);
            });
        for (std::thread& thread : threads) thread.join();
        for (const int code : codes) require(code, "launch");
        return watch.seconds();
    }
};

// A warp reads pages of a list; the first word of each is compared.
struct read_listed {
    int fd;
    const std::int64_t* numbers;
    std::byte* to;
    std::uint64_t page_bytes, a_group;
    std::uint64_t* wrong;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t i) const {
        std::byte* const buffer = to + i * page_bytes;
        for (std::uint64_t k = 0; k < a_group; ++k) {
            const std::int64_t at =
                numbers[i * a_group + k] * static_cast<std::int64_t>(page_bytes);
            const std::int64_t done =
                read(g, fs, fd, buffer, static_cast<std::int64_t>(page_bytes), at);
            g.sync();
            if (g.is_leader() && (done != static_cast<std::int64_t>(page_bytes) ||
                                  *reinterpret_cast<const std::uint64_t*>(buffer) !=
                                      mix64(static_cast<std::uint64_t>(at) / 8)))
                atomic_add_relaxed(wrong, std::uint64_t{1});
        }
    }
};

// What a GPU needs for its reads, in its memory.
struct reading_side {
    static constexpr std::uint64_t a_group = 64;
    std::uint64_t reads, page_bytes;
    memory numbers{backend::gpu, reads * 8}, to{backend::gpu, reads / a_group*page_bytes},
        wrong{backend::gpu, 8};

    template <typename Chooser>
    void choose(const both_gpus& on, std::uint32_t gpu, const Chooser& chooser) const {
        require(launch_on<width::lane>(on.of(gpu), on.place(gpu), reads, chooser), "launch");
    }
    int read(const both_gpus& on, std::uint32_t gpu) const {
        return launch_on<width::warp>(
            on.of(gpu), on.place(gpu), reads / a_group,
            read_listed{on.fd(gpu), numbers.as<std::int64_t>(), to.as<std::byte>(), page_bytes,
                        a_group, wrong.as()});
    }
};

std::vector<std::unique_ptr<reading_side>> sides_for(std::uint64_t reads, std::uint64_t page) {
    std::vector<std::unique_ptr<reading_side>> sides;
    for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
        const on_gpu current(gpu);
        sides.emplace_back(new reading_side{reads, page});
    }
    return sides;
}

void expect_none_wrong(const std::vector<std::unique_ptr<reading_side>>& sides) {
    for (const auto& side : sides) require_none(side->wrong, "pages are wrong or were not read");
}

std::string sources(const statistics& before, const statistics& now, std::uint64_t reads) {
    const auto share = [&](std::uint64_t statistics::*count) {
        return static_cast<double>(now.*count - before.*count) / static_cast<double>(reads);
    };
    return text_of(
        "of a read %.3f own, %.3f read through the neighbour, %.3f copied from it, %.3f "
        "through windows, %.4f loaded from them",
        share(&statistics::hits), share(&statistics::neighbour_reads),
        share(&statistics::neighbour_loads), share(&statistics::through_reads),
        share(&statistics::window_loads));
}

options options_with(const context& here, std::uint64_t page_bytes, std::uint64_t cache_bytes) {
    options o = here.own_options();
    o.page_bytes = page_bytes;
    o.cache_bytes = cache_bytes;
    o.table_bytes = std::max<std::uint64_t>(mib, here.bytes() / page_bytes * 8 * 4 + 64 * kib);
    return o;
}

// R1, R2.
void working_sets(context& here, std::uint64_t page, bool zipf) {
    const std::uint64_t cache = here.bytes() * 10 / 18 / page * page,
                        reads = std::uint64_t{1} << 20, pages = here.bytes() / page;
    const both_gpus linked(here, options_with(here, page, cache), true, true),
        alone(here, options_with(here, page, cache), false, true);
    const auto sides = sides_for(reads, page);
    measured rates;
    statistics before, now;
    const std::uint64_t warm = zipf ? 24 : 8;
    for (std::uint64_t repeat = 0; repeat < warm + here.repeats(5); ++repeat) {
        for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
            auto* const numbers = sides[gpu]->numbers.as<std::int64_t>();
            const std::uint64_t seed = repeat * gpus + gpu + 1;
            if (zipf) sides[gpu]->choose(linked, gpu, choose_zipf{numbers, pages, seed, true});
            else sides[gpu]->choose(linked, gpu, choose_uniform{numbers, pages, seed});
        }
        const double alone_s = both_gpus::seconds(
            gpus, [&](std::uint32_t gpu) { return sides[gpu]->read(alone, gpu); });
        before = linked.stats(0);
        const stopwatch watch;
        const double linked_s = both_gpus::seconds(
            gpus, [&](std::uint32_t gpu) { return sides[gpu]->read(linked, gpu); });
        const double used = watch.cores();
        now = linked.stats(0);
        if (repeat < warm) continue;
        rates.ours.add(gigabytes_a_second(gpus * reads * page, linked_s));
        rates.baseline.add(gigabytes_a_second(gpus * reads * page, alone_s));
        rates.cores.add(used);
    }
    expect_none_wrong(sides);
    here.add(zipf ? "R2" : "R1",
             std::string("two GPUs, random pages ") + (zipf ? "by Zipf 0.99" : "uniform") +
                 ", file of 1.8 caches, both together",
             page, "GB/s", rates, "a runtime for each GPU, no links",
             sources(before, now, reads) +
                 text_of("; after %llu runs", static_cast<unsigned long long>(warm)));
}

// A group brings a piece of the file in; GPU d begins at its share of the file.
struct bring_pieces {
    int fd;
    std::uint64_t pieces, piece_bytes, first;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t i) const {
        const std::uint64_t piece = (i + first) % pieces;
        prefetch(g, fs, fd, static_cast<std::int64_t>(piece * piece_bytes),
                 static_cast<std::int64_t>(piece_bytes));
    }
};

// Plain memory of that GPU.
memory filled_on(std::uint32_t gpu, std::uint64_t bytes) {
    const on_gpu owner(gpu);
    memory out(backend::gpu, bytes);
    out.fill(1, bytes);
    require_cuda(cudaDeviceSynchronize(), "fill");
    return out;
}

// R3: by tables of rows of a page. The neighbour holds the first part of the file, and the reader's
// cache is full of the second part before each run, so it brings in one page in 64 and drops one.
void from_next_door(context& here, std::uint64_t page) {
    const table_layout layout = rows_of_file(here, page);
    const std::uint64_t part = here.bytes() / 2;
    options o = options_with(here, page, part);
    o.devices = {0, 1};
    const auto rt = make(o);
    const shared_file file = rt->open_everywhere(here.file().path());
    require(file.code(), "open");
    require_all(rt->prefetch(file.of(rt->ref(0)), 0, part), part, not_resident);
    std::unique_ptr<table> rows;
    require(table::make(*rt, layout, {}, rows));
    const std::uint64_t count = std::min<std::uint64_t>(1u << 21, gib / page),
                        piece = std::max<std::uint64_t>(page, 256 * kib), pieces = part / piece;
    const memory far = filled_on(0, part);
    const on_gpu reader(1);
    const memory out(backend::gpu, count * page), wrong(backend::gpu, 8);
    const reading_side side{count, page};
    auto* const numbers = side.numbers.as<std::int64_t>();
    measured by_table, by_read;
    statistics before, now;
    const auto choose = [&](std::uint64_t seed) {
        require(launch_on<width::lane>(*rt, 1, count, choose_uniform{numbers, part / page, seed}),
                "launch");
        require(launch_on<width::warp>(
                    *rt, 1, pieces, bring_pieces{file.of(rt->ref(1)), 2 * pieces, piece, pieces}),
                "launch");
    };
    const auto plain_seconds = [&] {
        return kernel_seconds(
            [&] { launch_plain(far.as<std::byte>(), page, numbers, count, out.as<void>()); });
    };
    for (std::uint64_t repeat = 0; repeat < 1 + here.repeats(7); ++repeat) {
        choose(2 * repeat + 1);
        const double plain_s = plain_seconds();
        out.fill(0xff, count * page);
        before = rt->stats(1);
        const double table_s = kernel_seconds(
            [&] { require(rows->gather(numbers, count, out.as<void>()), "gather"); });
        now = rt->stats(1);
        require(launch_on<width::warp>(
                    *rt, 1, count,
                    count_wrong_rows{out.as<std::uint64_t>(), numbers, page / 8, wrong.as()}),
                "launch");
        require(rows->check());
        require_none(wrong, "words of rows are wrong or were not delivered");
        choose(2 * repeat + 2);
        const double plain_again_s = plain_seconds();
        const stopwatch watch;
        require(launch_on<width::warp>(
                    *rt, 1, count / side.a_group,
                    read_listed{file.of(rt->ref(1)), numbers, side.to.as<std::byte>(), page,
                                side.a_group, side.wrong.as()}),
                "launch");
        const double read_s = watch.seconds();
        require_none(side.wrong, "pages are wrong or were not read");
        if (repeat == 0) continue;
        by_table.ours.add(gigabytes_a_second(count * page, table_s));
        by_table.baseline.add(gigabytes_a_second(count * page, plain_s));
        by_read.ours.add(gigabytes_a_second(count * page, read_s));
        by_read.baseline.add(gigabytes_a_second(count * page, plain_again_s));
    }
    const char* const plain = "plain kernel over the other GPU's memory";
    here.add("R3", "rows of a page that the other GPU holds, by a table", page, "GB/s", by_table,
             plain, sources(before, now, count));
    here.add("R3", "pages that the other GPU holds, each read by a warp", page, "GB/s", by_read,
             plain, "with the launch in the time");
}

// R5, R6: one GPU reads, and the other holds nothing.
void alone_in_pair(context& here, std::uint64_t page, bool hits, bool windows) {
    const std::uint64_t cache = hits ? here.bytes() + here.bytes() / 8 : here.bytes() / 16,
                        reads = windows || hits ? std::uint64_t{1} << 20 : std::uint64_t{1} << 16;
    const both_gpus linked(here, options_with(here, page, cache), true, windows),
        alone(here, options_with(here, page, cache), false, windows);
    const auto sides = sides_for(reads, page);
    for (const both_gpus* const on : {&linked, &alone})
        if (hits)
            require_all(on->of(0).prefetch(on->fd(0), 0, here.bytes()), here.bytes(), not_resident);
    measured rates;
    for (std::uint64_t repeat = 0; repeat < 2 + here.repeats(9); ++repeat) {
        sides[0]->choose(
            linked, 0,
            choose_uniform{sides[0]->numbers.as<std::int64_t>(), here.bytes() / page, repeat + 1});
        const auto seconds_on = [&](const both_gpus& on) {
            return both_gpus::seconds(1,
                                      [&](std::uint32_t gpu) { return sides[gpu]->read(on, gpu); });
        };
        // In turns, so that neither always comes first.
        double linked_s = 0, alone_s = 0;
        if (repeat % 2 == 0) linked_s = seconds_on(linked);
        alone_s = seconds_on(alone);
        if (repeat % 2 != 0) linked_s = seconds_on(linked);
        if (repeat < 2) continue;
        rates.ours.add(gigabytes_a_second(reads * page, linked_s));
        rates.baseline.add(gigabytes_a_second(reads * page, alone_s));
        rates.cores.add(0);
    }
    expect_none_wrong(sides);
    here.add(hits ? "R5" : "R6",
             hits      ? "linked, pages of the own cache"
             : windows ? "linked, pages that none holds, through windows, cache 1/16"
                       : "linked, pages that none holds, by request, cache 1/16",
             page, "GB/s", rates, "the same without links", "");
}

// R7.
void once_over_the_bus(context& here, std::uint64_t page) {
    measured rates;
    double bus_files = 0;
    const options o = options_with(here, page, here.bytes() + here.bytes() / 8);
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        double alone_s = 0;
        {
            const both_gpus alone(here, o, false, true);
            alone_s = both_gpus::seconds(gpus, [&](std::uint32_t gpu) {
                const std::int64_t brought = alone.of(gpu).prefetch(
                    alone.fd(gpu), 0, static_cast<std::int64_t>(here.bytes()));
                return brought < 0 ? static_cast<int>(brought) : 0;
            });
        }
        const both_gpus linked(here, o, true, true);
        const stopwatch watch;
        require_all(linked.runtimes[0]->prefetch(linked.files[0]), here.bytes(), not_resident);
        const double linked_s = watch.seconds();
        std::uint64_t over_bus = 0;
        for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
            const statistics s = linked.stats(gpu);
            if (s.misses * page < here.bytes()) throw failure(-EIO, "pages are missing");
            over_bus += s.bytes_loaded - s.neighbour_loads * page;
        }
        bus_files = static_cast<double>(over_bus) / static_cast<double>(here.bytes());
        rates.ours.add(gigabytes_a_second(gpus * here.bytes(), linked_s));
        rates.baseline.add(gigabytes_a_second(gpus * here.bytes(), alone_s));
        rates.cores.add(watch.cores(linked_s));
    }
    here.add("R7", "one file into both caches, by prefetch", page, "GB/s", rates,
             "a runtime for each GPU, no links", text_of("%.3f files crossed the bus", bus_files));
}

}  // namespace

void links_on_gpus(context& here) {
    int count = 0;
    cudaGetDeviceCount(&count);
    if (count < static_cast<int>(gpus))
        return here.leave_out("links", "this machine has fewer than two GPUs");
    here.use_file(here.file_bytes(gib));
    for (const std::uint64_t page : {std::uint64_t{4096}, std::uint64_t{65536}}) {
        working_sets(here, page, false);
        working_sets(here, page, true);
    }
    for (const std::uint64_t page : {std::uint64_t{512}, std::uint64_t{4096}, std::uint64_t{65536}})
        from_next_door(here, page);
    alone_in_pair(here, 4096, true, false);
    alone_in_pair(here, 4096, false, true);
    alone_in_pair(here, 65536, false, false);
    once_over_the_bus(here, 65536);
    once_over_the_bus(here, 4096);
}

}  // namespace penstock::bench
