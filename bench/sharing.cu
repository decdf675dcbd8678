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
#include "machine.hpp"
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
    ~mapped_words() {
        if (words_ != nullptr) ::munmap(words_, shared_bytes);
        if (fd_ >= 0) ::close(fd_);
    }
    status open(const std::string& path) {
        fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd_ < 0) return {-errno, "the file: " + error_text(-errno)};
        void* const at = ::mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) return {-errno, "mmap: " + error_text(-errno)};
        words_ = static_cast<std::uint64_t*>(at);
        std::memset(words_, 0, shared_bytes);
        return {};
    }
    [[nodiscard]] std::uint64_t* words() const { return words_; }
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_ = -1;
    std::uint64_t* words_ = nullptr;
};

class sharing_case {
public:
    explicit sharing_case(context& here)
        : here_(here), threads_(std::max<std::uint64_t>(1, host_threads(here) / 2)) {}

    status run() {
        if (status s = here_.use_file(2 * shared_bytes); !s) return s;
        if (status s = program_.open(here_.file().path()); !s) return s;
        if (status s = here_.make_runtime({.page_bytes = 65536,
                                           .cache_bytes = 64 * mib,
                                           .file_bytes = 2 * shared_bytes,
                                           .writable = true},
                                          rt_);
            !s)
            return s;
        if (status s = private_.make(rt_->where(), shared_bytes); !s) return s;
        if (status s = map_region(*rt_, here_.file().path(), 0, shared_bytes,
                                  protection::read_write, {}, region_);
            !s)
            return s;
        for (const std::uint64_t rounds : {10u, 100u, 1000u, 10000u})
            if (status s = row(rounds); !s) return s;
        return {};
    }

private:
    // Both at once, on these words each.
    status work(std::uint64_t* of_kernel, std::uint64_t* of_program, std::uint64_t rounds) {
        int code = 0;
        apps::on_threads(static_cast<std::uint32_t>(threads_) + 1, [&](std::uint32_t t) {
            if (t == 0)
                code = launch<width::lane>(*rt_, word_count / 2, count_up{of_kernel, rounds});
            else run_program(of_program, rounds, t - 1, threads_);
        });
        return code == 0 ? status{} : status{code, "kernel: " + error_text(code)};
    }
    status share(std::uint64_t rounds) {
        if (const std::int64_t code = region_->acquire(); code < 0)
            return {static_cast<int>(code), "acquire: " + error_text(code)};
        if (status s = work(static_cast<std::uint64_t*>(region_->data()), program_.words(), rounds);
            !s)
            return s;
        const std::int64_t code = region_->release();
        if (code < 0) return {static_cast<int>(code), "release: " + error_text(code)};
        return {};
    }
    // What each has in its own buffer comes together in the file's second half.
    status keep_apart(std::uint64_t rounds) {
        if (status s = work(private_.as<std::uint64_t>(), own_.data(), rounds); !s) return s;
        if (status s = private_.copy_out(merged_.data(), shared_bytes); !s) return s;
        for (std::uint64_t piece = piece_words; piece < word_count; piece += 2 * piece_words)
            std::copy_n(own_.begin() + static_cast<std::ptrdiff_t>(piece), piece_words,
                        merged_.begin() + static_cast<std::ptrdiff_t>(piece));
        if (::pwrite(program_.fd(), merged_.data(), shared_bytes, shared_bytes) !=
            static_cast<ssize_t>(shared_bytes))
            return {-EIO, "pwrite: not all bytes"};
        return {};
    }
    status check(const std::uint64_t* words, const char* whose) const {
        const auto wrong = std::count_if(words, words + word_count,
                                         [&](std::uint64_t word) { return word != counted_; });
        return wrong == 0 ? status{}
                          : status{-EIO, std::to_string(wrong) + " of the counts of " + whose +
                                             " are not " + std::to_string(counted_)};
    }

    status row(std::uint64_t rounds) {
        series shared, apart, cores;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(11); ++repeat) {
            counted_ += rounds;
            const stopwatch watch;
            if (status s = share(rounds); !s) return s;
            const double seconds = watch.seconds();
            shared.add(1e3 * seconds);
            cores.add(watch.cores(seconds));
            const stopwatch other;
            if (status s = keep_apart(rounds); !s) return s;
            apart.add(1e3 * other.seconds());
            if (status s = check(program_.words(), "the shared pages"); !s) return s;
            if (status s = check(merged_.data(), "the private buffers"); !s) return s;
        }
        return here_.add(
            {"S11",
             "16 pages that a kernel and a program change in turns of 64 bytes, " +
                 std::to_string(rounds) + " times each word",
             "", 4096, shared, "ms", "a buffer of its own for each, brought together at the end",
             apart, cores,
             std::to_string(threads_) + " threads of the program; every count is right"});
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

status sharing(context& here) {
    status ended;
    {
        sharing_case one(here);
        ended = one.run();
    }
    here.forget_file();
    return ended;
}

}  // namespace penstock::bench
