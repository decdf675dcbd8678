// Regions in the page cache: what mapping them costs, and what touching a part of them costs,
// against pinned memory and against filling a region.
//
//   issue-32   mapping in place, against registering the same mapping by hand with 1 to 16 threads;
//              1 % of the pages through the region, against the same from pinned memory;
//              mapping, touching a part and closing, against the same with a filled region
//
// Kernels know nothing of Penstock: they read whole pages by a plain pointer, and compare each word
// with what the file has.
#include <algorithm>
#include <atomic>
#include <sys/mman.h>
#include <utility>

#include "cases.hpp"
#include "penstock/region.hpp"
#include "region_words.hpp"
#if defined(PENSTOCK_WITH_CUDA)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

struct alignas(16) two_words {
    std::uint64_t first, second;
};
constexpr std::uint64_t page_words = region_page_bytes / 8;

// A page of each of `count` equal parts of the file, at random within the part.
struct touch_pages {
    const std::uint64_t* words;
    std::uint64_t count, pages, seed;
    std::uint64_t* others;  // how many words were not the file's

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t i) const {
        const std::uint64_t begin = i * pages / count, end = (i + 1) * pages / count;
        const std::uint64_t page = begin + mix64(seed + i) % (end - begin);
        const auto* const in = reinterpret_cast<const two_words*>(words + page * page_words);
        std::uint64_t wrong = 0;
        for (std::uint64_t k = g.rank(); k < page_words / 2; k += g.size()) {
            const two_words both = in[k];
            const std::uint64_t number = page * page_words + 2 * k;
            wrong += (both.first != mix64(number)) + (both.second != mix64(number + 1));
        }
        if (wrong != 0) atomic_add_relaxed(others, wrong);
    }
};

class in_place_case {
public:
    explicit in_place_case(context& here)
        : here_(here),
          bytes_(here.use_file(here.file_bytes(4 * gib, 256 * mib))),
          pages_(bytes_ / region_page_bytes),
          rt_(here.make_runtime({.page_bytes = 65536, .cache_bytes = 64 * mib})),
          others_(rt_->where(), 8) {}

    void run() {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu())
            for (const std::uint64_t threads : {1u, 2u, 4u, 8u, 16u}) register_row(threads);
#endif
        touch_row();
        for (const double percent : {1.0, 10.0, 100.0}) whole_row(percent, 1);
        whole_row(100.0, 10);
    }

private:
    [[nodiscard]] std::unique_ptr<file_region> map(region_placement placement) const {
        std::unique_ptr<file_region> out;
        require(map_region(*rt_, here_.file().path(), 0, 0, protection::read,
                           {.placement = placement}, out));
        return out;
    }
    [[nodiscard]] std::uint64_t pages_of(double percent) const {
        return std::max<std::uint64_t>(
            1, static_cast<std::uint64_t>(percent / 100 * static_cast<double>(pages_)));
    }
    // Seconds, and no word was another.
    double touch(const void* words, std::uint64_t count) {
        const touch_pages body{static_cast<const std::uint64_t*>(words), count, pages_,
                               seed_ += count, others_.as()};
        const stopwatch watch;
        run_kernel<width::warp>(*rt_, count, body);
        const double seconds = watch.seconds();
        require_none(others_, "words are not the file's");
        return seconds;
    }

    [[nodiscard]] memory other_memory() const {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) return memory::pinned(bytes_);
#endif
        return {rt_->where(), bytes_};
    }

    void touch_row() {
        const std::uint64_t count = pages_of(1), touched = count * region_page_bytes;
        const auto region = map(region_placement::in_place);
        const memory plain = other_memory();
        const apps::unique_fd fd = here_.file().open(O_RDONLY);
        require(apps::read_all(fd, plain.as<std::byte>(), bytes_, 0), "pread");
        measured rates;
        // The first of each loads the kernel.
        touch(region->data(), count);
        touch(plain.as<void>(), count);
        for (std::uint64_t repeat = 0; repeat < here_.repeats(11); ++repeat) {
            const stopwatch watch;
            const double seconds = touch(region->data(), count);
            rates.add(gigabytes_a_second(touched, seconds), watch, seconds);
            rates.baseline.add(gigabytes_a_second(touched, touch(plain.as<void>(), count)));
        }
        here_.add("issue-32", "1 % of the pages of a region in place", region_page_bytes, "GB/s",
                  rates,
                  here_.on_gpu() ? "the same kernel over pinned memory of the same size"
                                 : "the same over plain memory of the same size",
                  std::to_string(count) + " pages at random, with the launch in the time");
    }

    // Milliseconds from the call that maps to the end of the one that closes.
    double whole(region_placement placement, std::uint64_t count, int rounds) {
        const stopwatch watch;
        const auto region = map(placement);
        for (int round = 0; round < rounds; ++round) touch(region->data(), count);
        require(region->close(), "close");
        return 1e3 * watch.seconds();
    }

    void whole_row(double percent, int rounds) {
        const std::uint64_t count = pages_of(percent);
        measured times;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            const double ms = whole(region_placement::in_place, count, rounds);
            times.add(ms, watch, 1e-3 * ms);
            times.baseline.add(whole(region_placement::filled, count, rounds));
        }
        here_.add("issue-32",
                  text_of("a region in place mapped, %g %% of its pages touched %s, and closed",
                          percent, rounds == 1 ? "once" : "ten times"),
                  region_page_bytes, "ms", times, "the same with a region that is filled",
                  "the file is in the page cache; " + std::to_string(count) + " pages a time");
    }

#if defined(PENSTOCK_WITH_CUDA)
    // Each thread registers a part of a fresh mapping, which brings its pages into the mapping.
    [[nodiscard]] double register_by_hand(std::uint64_t threads) const {
        const apps::unique_fd fd = here_.file().open(O_RDONLY);
        const mapped_memory mapped(bytes_, PROT_READ, MAP_SHARED, fd);
        const std::uint64_t part =
            (bytes_ / threads + file_step_bytes - 1) / file_step_bytes * file_step_bytes;
        std::atomic<std::uint64_t> next{0};
        std::atomic<int> code{cudaSuccess};
        int device = 0;
        cudaGetDevice(&device);
        const stopwatch watch;
        apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t) {
            cudaSetDevice(device);
            take_pieces(next, bytes_, part, [&](std::uint64_t at, std::uint64_t size) {
                const cudaError_t failed =
                    cudaHostRegister(mapped.as<std::byte>() + at, size,
                                     cudaHostRegisterMapped | cudaHostRegisterReadOnly);
                if (failed != cudaSuccess) code = failed;
            });
        });
        const double ms = 1e3 * watch.seconds();
        for (std::uint64_t at = 0; at < bytes_; at += part)
            cudaHostUnregister(mapped.as<std::byte>() + at);
        require_cuda(static_cast<cudaError_t>(code.load()), "registering the file");
        return ms;
    }

    void register_row(std::uint64_t threads) {
        measured times;
        std::uint64_t register_ns = 0;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            const auto region = map(region_placement::in_place);
            times.add(1e3 * watch.seconds(), watch);
            register_ns = region->traffic().register_ns;
            require(region->close(), "close");
            times.baseline.add(register_by_hand(threads));
        }
        here_.add("issue-32",
                  "mapping a region in place, beside " + counted(threads, "thread") + " by hand",
                  region_page_bytes, "ms", times, "registering a mapping of the file by hand",
                  text_of("%.2f GiB in the page cache; register_ns of the last: %.1f ms",
                          static_cast<double>(bytes_) / gib, 1e-6 * register_ns));
    }
#endif

    context& here_;
    const std::uint64_t bytes_, pages_;
    std::unique_ptr<runtime> rt_;
    memory others_;
    std::uint64_t seed_ = 0;
};

}  // namespace

void in_place_path(context& here) { in_place_case(here).run(); }

}  // namespace penstock::bench
