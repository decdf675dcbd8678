// A kernel and a program change neighbouring pieces of the same pages at the same time: pages of a
// file that both share, the kernel by a region and the program by a mapping, against a buffer of
// its own for each, brought together at the end. (GAIA, figure 3.1: where pages move to the
// processor that changes them, sharing costs up to 28 times as much.)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "cases.hpp"
#include "common/threads.hpp"
#include "penstock/region.hpp"
#include "workload.hpp"

namespace penstock::bench {

namespace {

constexpr std::uint64_t shared_bytes = 65536, word_count = shared_bytes / 8, piece_words = 8;

// Of every two pieces of 64 bytes the kernel has the first and the program the second.
constexpr PENSTOCK_HD std::uint64_t word_of_kernel(std::uint64_t i) {
    return i / piece_words * 2 * piece_words + i % piece_words;
}

// Knows nothing of Penstock: reads, adds and writes, `rounds` times.
struct count_up {
    std::uint64_t* words;
    std::uint64_t rounds;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        for (std::uint64_t r = 0; r < rounds; ++r)
            atomic_add_relaxed(words + word_of_kernel(i), std::uint64_t{1});
    }
};

void run_program(std::uint64_t* words, std::uint64_t rounds, std::uint64_t thread,
                 std::uint64_t threads) {
    for (std::uint64_t i = thread; i < word_count / 2; i += threads)
        for (std::uint64_t r = 0; r < rounds; ++r)
            atomic_add_relaxed(words + word_of_kernel(i) + piece_words, std::uint64_t{1});
}

// The first part of the file as a program has it.
class mapped_words {
public:
    explicit mapped_words(const scratch_file& file) : fd_(file.open(O_RDWR)) {
        void* const at = ::mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) require(-errno, "mmap");
        words_ = static_cast<std::uint64_t*>(at);
        std::memset(words_, 0, shared_bytes);
    }
    ~mapped_words() { ::munmap(words_, shared_bytes); }
    mapped_words(const mapped_words&) = delete;
    mapped_words& operator=(const mapped_words&) = delete;

    [[nodiscard]] std::uint64_t* words() const { return words_; }
    [[nodiscard]] int fd() const { return fd_; }

private:
    apps::unique_fd fd_;
    std::uint64_t* words_;
};

// The file is that of the context, with room for both halves.
class sharing_case {
public:
    explicit sharing_case(context& here)
        : here_(here),
          threads_(std::max<std::uint64_t>(1, here.host_threads() / 2)),
          program_(here.file()),
          rt_(here.make_runtime({.page_bytes = 65536,
                                 .cache_bytes = 64 * mib,
                                 .file_bytes = here.file().bytes(),
                                 .writable = true})),
          private_(rt_->where(), shared_bytes) {
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
            check(program_.words(), "the shared pages");
            check(merged_.data(), "the private buffers");
        }
        here_.add({"S11",
                   "16 pages that a kernel and a program change in turns of 64 bytes, " +
                       std::to_string(rounds) + " times each word",
                   4096, "ms", times, "a buffer of its own for each, brought together at the end",
                   std::to_string(threads_) + " threads of the program; every count is right"});
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
        work(static_cast<std::uint64_t*>(region_->data()), program_.words(), rounds);
        require(region_->release(), "release");
    }
    // What each has in its own buffer comes together in the file's second half.
    void keep_apart(std::uint64_t rounds) {
        work(private_.as(), own_.data(), rounds);
        private_.copy_out(merged_.data(), shared_bytes);
        for (std::uint64_t piece = piece_words; piece < word_count; piece += 2 * piece_words)
            std::copy_n(own_.begin() + static_cast<std::ptrdiff_t>(piece), piece_words,
                        merged_.begin() + static_cast<std::ptrdiff_t>(piece));
        require_all(::pwrite(program_.fd(), merged_.data(), shared_bytes, shared_bytes),
                    shared_bytes, "pwrite");
    }
    void check(const std::uint64_t* words, const char* whose) const {
        const auto wrong = std::count_if(words, words + word_count,
                                         [&](std::uint64_t word) { return word != counted_; });
        if (wrong != 0)
            throw failure(-EIO, std::to_string(wrong) + " of the counts of " + whose + " are not " +
                                    std::to_string(counted_));
    }

    context& here_;
    const std::uint64_t threads_;
    mapped_words program_;
    std::unique_ptr<runtime> rt_;
    memory private_;
    std::unique_ptr<file_region> region_;
    std::vector<std::uint64_t> own_ = std::vector<std::uint64_t>(word_count), merged_ = own_;
    std::uint64_t counted_ = 0;
};

}  // namespace

void sharing(context& here) {
    here.use_file(2 * shared_bytes);
    {
        sharing_case runner(here);
        for (const std::uint64_t rounds : {10u, 100u, 1000u, 10000u}) runner.row(rounds);
    }
    here.forget_file();
}

}  // namespace penstock::bench
