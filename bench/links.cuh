// What the cases on several GPUs share: a runtime that may have several, the file on several GPUs,
// in one runtime, linked, or in a runtime for each, and reads of listed pages on all of them.
#pragma once

#include "cases.hpp"
#include "table_rows.hpp"

#include <algorithm>
#include <barrier>
#include <thread>

#include "gpu.cuh"

namespace penstock::bench {

// Not by the frame of programs, which use one device.
inline std::unique_ptr<runtime> make_on_gpus(const options& o) {
    std::unique_ptr<runtime> out;
    require(runtime::make(o, out));
    return out;
}

// Of `reads` pages or rows: where they came from.
inline std::string sources(const statistics& before, const statistics& now, std::uint64_t reads) {
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

// Of this machine, as many as a cache has places for, and itself.
inline std::uint32_t gpus_here() { return std::min(gpu_count(), 8u); }

inline std::string gpus_text(std::uint32_t gpus) {
    return gpus == 2 ? "two GPUs" : std::to_string(gpus) + " GPUs";
}

// Runs before the timed ones, the same in all cases of linked caches: where pages lie settles
// meanwhile, by Zipf's law later.
inline std::uint64_t warm_runs(bool zipf) { return zipf ? 24 : 16; }
inline std::string after_runs(std::uint64_t warm) {
    return "; after " + std::to_string(warm) + " runs";
}

// The first `count` GPUs.
inline void name_devices(options& o, std::uint32_t count) {
    o.devices.clear();
    for (std::uint32_t gpu = 0; gpu < count; ++gpu) o.devices.push_back(static_cast<int>(gpu));
}

// The file on the first `count` GPUs: in one runtime, linked, or in a runtime for each.
struct file_on_gpus {
    std::vector<std::unique_ptr<runtime>> runtimes;
    std::vector<shared_file> files;  // of each runtime
    std::uint32_t count;

    file_on_gpus(const context& here, options o, std::uint32_t gpus, bool linked, bool windows)
        : count(gpus) {
        for (std::uint32_t gpu = 0; gpu < (linked ? 1 : gpus); ++gpu) {
            o.devices.clear();
            o.device = static_cast<int>(gpu);
            if (linked) name_devices(o, gpus);
            runtimes.push_back(make_on_gpus(o));
            files.push_back(runtimes.back()->open_everywhere(here.file().path()));
            require(files.back().code(), "open");
            if (windows)
                require_all(runtimes.back()->open_windows(files.back()), here.bytes(),
                            "windows; give a smaller --file");
        }
    }
    [[nodiscard]] bool is_linked() const { return runtimes.size() == 1; }
    [[nodiscard]] runtime& of(std::uint32_t gpu) const { return *runtimes[is_linked() ? 0 : gpu]; }
    [[nodiscard]] std::uint32_t place(std::uint32_t gpu) const { return is_linked() ? gpu : 0; }
    [[nodiscard]] int fd(std::uint32_t gpu) const {
        return files[is_linked() ? 0 : gpu].of(of(gpu).ref(place(gpu)));
    }
    [[nodiscard]] statistics stats(std::uint32_t gpu) const { return of(gpu).stats(place(gpu)); }

    // body(gpu) on a thread for each of the first `used` GPUs; seconds from the moment all of them
    // stand ready until the last is done.
    template <typename Body>
    static double seconds(std::uint32_t used, const Body& body) {
        std::barrier ready(static_cast<std::ptrdiff_t>(used));
        std::vector<std::thread> threads;
        std::vector<int> codes(used);
        std::vector<double> began(used), ended(used);
        for (std::uint32_t gpu = 0; gpu < used; ++gpu)
            threads.emplace_back([&, gpu] {
                cudaSetDevice(static_cast<int>(gpu));
                ready.arrive_and_wait();
                began[gpu] = now_s();
                codes[gpu] = body(gpu);
                ended[gpu] = now_s();
            });
        for (std::thread& thread : threads) thread.join();
        for (const int code : codes) require(code, "launch");
        return *std::max_element(ended.begin(), ended.end()) -
               *std::min_element(began.begin(), began.end());
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
    void choose(const file_on_gpus& on, std::uint32_t gpu, const Chooser& chooser) const {
        require(launch_on<width::lane>(on.of(gpu), on.place(gpu), reads, chooser), "launch");
    }
    int read(const file_on_gpus& on, std::uint32_t gpu) const {
        return launch_on<width::warp>(
            on.of(gpu), on.place(gpu), reads / a_group,
            read_listed{on.fd(gpu), numbers.as<std::int64_t>(), to.as<std::byte>(), page_bytes,
                        a_group, wrong.as()});
    }
};

inline std::vector<std::unique_ptr<reading_side>> sides_for(std::uint32_t gpus, std::uint64_t reads,
                                                            std::uint64_t page) {
    std::vector<std::unique_ptr<reading_side>> sides;
    for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
        const on_gpu current(gpu);
        sides.emplace_back(new reading_side{reads, page});
    }
    return sides;
}

inline void expect_none_wrong(const std::vector<std::unique_ptr<reading_side>>& sides) {
    for (const auto& side : sides) require_none(side->wrong, "pages are wrong or were not read");
}

inline options options_with(const context& here, std::uint64_t page_bytes,
                            std::uint64_t cache_bytes) {
    options o = here.own_options();
    o.page_bytes = page_bytes;
    o.cache_bytes = cache_bytes;
    o.table_bytes = std::max<std::uint64_t>(mib, here.bytes() / page_bytes * 8 * 4 + 64 * kib);
    return o;
}

}  // namespace penstock::bench
