// Pages of a file that two change at the same time, each its own pieces of them, against a buffer
// of its own for each, brought together at the end. (GAIA, figure 3.1: where pages move to the
// processor that changes them, sharing costs up to 28 times as much.)
//
//   a kernel and a program   the kernel by a region, the program by a mapping of the file
//   two kernels              on two GPUs, each by a region
#include <sys/mman.h>

#include "cases.hpp"
#include "penstock/region.hpp"
#if defined(PENSTOCK_WITH_CUDA)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr std::uint64_t shared_bytes = 65536, word_count = shared_bytes / 8, piece_words = 8;

// Of every two pieces of 64 bytes one has the first and the other the second.
constexpr PENSTOCK_HD std::uint64_t word_of_first(std::uint64_t i) {
    return i / piece_words * 2 * piece_words + i % piece_words;
}

// Knows nothing of Penstock: reads, adds and writes, `rounds` times.
struct count_up {
    std::uint64_t* words;
    std::uint64_t rounds;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        for (std::uint64_t r = 0; r < rounds; ++r)
            atomic_add_relaxed(words + word_of_first(i), std::uint64_t{1});
    }
};

void expect_counts(const std::uint64_t* words, std::uint64_t count, const char* whose) {
    const auto wrong =
        std::count_if(words, words + word_count, [&](std::uint64_t word) { return word != count; });
    if (wrong != 0)
        throw failure(-EIO, std::to_string(wrong) + " of the counts of " + whose + " are not " +
                                std::to_string(count));
}

void run_program(std::uint64_t* words, std::uint64_t rounds, std::uint64_t thread,
                 std::uint64_t threads) {
    for (std::uint64_t i = thread; i < word_count / 2; i += threads)
        for (std::uint64_t r = 0; r < rounds; ++r)
            atomic_add_relaxed(words + word_of_first(i) + piece_words, std::uint64_t{1});
}

// The second of every two pieces of `from` to its place in `to`.
void take_second_pieces(const std::uint64_t* from, std::uint64_t* to) {
    for (std::uint64_t at = piece_words; at < word_count; at += 2 * piece_words)
        std::copy_n(from + at, piece_words, to + at);
}

// A kernel and a program. The file is that of the context, with room for both halves.
class sharing_case {
public:
    explicit sharing_case(context& here)
        : here_(here),
          threads_(std::max<std::uint64_t>(1, here.host_threads() / 2)),
          fd_(here.file().open(O_RDWR)),
          program_(shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_),
          rt_(here.make_runtime({.page_bytes = 65536, .cache_bytes = 64 * mib, .writable = true})),
          private_(rt_->where(), shared_bytes) {
        std::memset(program_.as<void>(), 0, shared_bytes);
        require(map_region(*rt_, here.file().path(), 0, shared_bytes, protection::read_write, {},
                           region_));
    }

    void row(std::uint64_t rounds) {
        measured times;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(11); ++repeat) {
            counted_ += rounds;
            const stopwatch watch;
            share(rounds);
            const double seconds = watch.seconds();
            times.add(1e3 * seconds, watch, seconds);
            const stopwatch other;
            keep_apart(rounds);
            times.baseline.add(1e3 * other.seconds());
            expect_counts(program_.as<std::uint64_t>(), counted_, "the shared pages");
            expect_counts(merged_.data(), counted_, "the private buffers");
        }
        here_.add("S11",
                  "16 pages that a kernel and a program change in turns of 64 bytes, " +
                      std::to_string(rounds) + " times each word",
                  4096, "ms", times, "a buffer of its own for each, brought together at the end",
                  std::to_string(threads_) + " threads of the program; every count is right");
    }

private:
    // Both at once, on these words each.
    void work(std::uint64_t* of_kernel, std::uint64_t* of_program, std::uint64_t rounds) {
        int code = 0;
        apps::on_threads(static_cast<std::uint32_t>(threads_) + 1, [&](std::uint32_t t) {
            if (t == 0)
                code = launch<width::lane>(*rt_, word_count / 2, count_up{of_kernel, rounds});
            else run_program(of_program, rounds, t - 1, threads_);
        });
        require(code, "kernel");
    }
    void share(std::uint64_t rounds) {
        require(region_->acquire(), "acquire");
        work(static_cast<std::uint64_t*>(region_->data()), program_.as<std::uint64_t>(), rounds);
        require(region_->release(), "release");
    }
    // What each has in its own buffer comes together in the file's second half.
    void keep_apart(std::uint64_t rounds) {
        work(private_.as(), own_.data(), rounds);
        private_.copy_out(merged_.data(), shared_bytes);
        take_second_pieces(own_.data(), merged_.data());
        require_all(::pwrite(fd_, merged_.data(), shared_bytes, shared_bytes), shared_bytes,
                    "pwrite");
    }

    context& here_;
    const std::uint64_t threads_;
    apps::unique_fd fd_;
    mapped_memory program_;  // the first part of the file as a program has it
    std::unique_ptr<runtime> rt_;
    memory private_;
    std::unique_ptr<file_region> region_;
    std::vector<std::uint64_t> own_ = std::vector<std::uint64_t>(word_count), merged_ = own_;
    std::uint64_t counted_ = 0;
};

#if defined(PENSTOCK_WITH_CUDA)
// Kernels on two GPUs.
class sharing_gpus {
public:
    explicit sharing_gpus(context& here) : here_(here), fd_(here.file().open(O_RDWR)) {
        const std::vector<std::uint64_t> zeros(word_count);
        require_all(::pwrite(fd_, zeros.data(), shared_bytes, 0), shared_bytes, "pwrite");
        options o = here.own_options();
        o.page_bytes = 65536;
        o.cache_bytes = 64 * mib;
        o.writable = true;
        o.devices = {0, 1};
        require(runtime::make(o, rt_));
        for (std::uint32_t device = 0; device < 2; ++device) {
            const on_gpu current(device);
            private_[device] = memory(backend::gpu, shared_bytes);
            require(map_region(*rt_, here.file().path(), 0, shared_bytes, protection::read_write,
                               {.outside_writers = false, .device = device}, regions_[device]));
        }
    }

    void row(std::uint64_t rounds) {
        measured times;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(11); ++repeat) {
            counted_ += rounds;
            const stopwatch watch;
            share(rounds);
            const double seconds = watch.seconds();
            times.add(1e3 * seconds, watch, seconds);
            const stopwatch other;
            keep_apart(rounds);
            times.baseline.add(1e3 * other.seconds());
            require_all(::pread(fd_, merged_.data(), shared_bytes, 0), shared_bytes, "pread");
            expect_counts(merged_.data(), counted_, "the shared pages");
            require_all(::pread(fd_, merged_.data(), shared_bytes, shared_bytes), shared_bytes,
                        "pread");
            expect_counts(merged_.data(), counted_, "the private buffers");
        }
        here_.add("S11",
                  "16 pages that kernels on two GPUs change in turns of 64 bytes, " +
                      std::to_string(rounds) + " times each word",
                  4096, "ms", times, "a buffer of its own for each, brought together at the end",
                  "every count is right");
    }

private:
    // body(device) for both at once, by a thread of the host each.
    template <typename Body>
    static void on_both(const Body& body) {
        int codes[2] = {};
        apps::on_threads(2, [&](std::uint32_t device) { codes[device] = body(device); });
        for (const int code : codes) require(code, "two GPUs");
    }
    int count(std::uint32_t device, void* words, std::uint64_t rounds) {
        auto* const own = static_cast<std::uint64_t*>(words) + device * piece_words;
        return launch_on<width::lane>(*rt_, device, word_count / 2, count_up{own, rounds});
    }
    void share(std::uint64_t rounds) {
        on_both([&](std::uint32_t device) {
            file_region& region = *regions_[device];
            std::int64_t code = region.acquire();
            if (code >= 0) code = count(device, region.data(), rounds);
            if (code >= 0) code = region.release();
            return static_cast<int>(std::min<std::int64_t>(code, 0));
        });
    }
    // What each has in its own buffer comes together in the file's second half.
    void keep_apart(std::uint64_t rounds) {
        on_both([&](std::uint32_t device) {
            return count(device, private_[device].as<void>(), rounds);
        });
        private_[0].copy_out(merged_.data(), shared_bytes);
        private_[1].copy_out(own_.data(), shared_bytes);
        take_second_pieces(own_.data(), merged_.data());
        require_all(::pwrite(fd_, merged_.data(), shared_bytes, shared_bytes), shared_bytes,
                    "pwrite");
    }

    context& here_;
    apps::unique_fd fd_;
    std::unique_ptr<runtime> rt_;
    memory private_[2];
    std::unique_ptr<file_region> regions_[2];
    std::vector<std::uint64_t> own_ = std::vector<std::uint64_t>(word_count), merged_ = own_;
    std::uint64_t counted_ = 0;
};
#endif

}  // namespace

void sharing(context& here) {
    here.use_file(2 * shared_bytes);
    const auto measure = [](auto&& runner) {
        for (const std::uint64_t rounds : {10u, 100u, 1000u, 10000u}) runner.row(rounds);
    };
    measure(sharing_case(here));
#if defined(PENSTOCK_WITH_CUDA)
    if (here.on_gpu() && gpu_count() > 1) measure(sharing_gpus(here));
#endif
    here.forget_file();
}

}  // namespace penstock::bench
