// Acquire of a region after another device changed a part of the file, against bringing the whole
// file again; and release, against copying the region in its own memory.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "host.hpp"
#include "penstock/region.hpp"
#include "workload.hpp"
#if defined(PENSTOCK_WITH_CUDA)
#include "pipeline_by_hand.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr std::uint64_t region_page_bytes = 4096;

// Kernels that know nothing of Penstock: plain loads and stores, a word of `count` pages spread
// over the region.
struct spread_words {
    std::uint64_t* words;
    std::uint64_t count, pages, value;

    [[nodiscard]] PENSTOCK_HD std::uint64_t& word(std::uint64_t i) const {
        return words[i * pages / count * (region_page_bytes / 8) + i % (region_page_bytes / 8)];
    }
};
struct change_words {
    spread_words to;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        to.word(i) = to.value;
    }
};
struct count_other_words {
    spread_words in;
    std::uint64_t* others;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        if (in.word(i) != in.value) atomic_add_relaxed(others, std::uint64_t{1});
    }
};

// On the cpu: all processors read the file into memory.
void read_again(const scratch_file& from, std::byte* to, std::uint64_t threads) {
    const apps::unique_fd fd = from.open(O_RDONLY);
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> code{0};
    apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t) {
        take_pieces(next, from.bytes(), 4 * mib, [&](std::uint64_t at, std::uint64_t bytes) {
            if (::pread(fd, to + at, bytes, static_cast<off_t>(at)) <= 0) code = -EIO;
        });
    });
    require(code, "pread");
}

class acquire_case {
public:
    explicit acquire_case(context& here) : here_(here) {}

    void run(std::uint64_t bytes) {
        bytes_ = bytes;
        pages_ = bytes / region_page_bytes;
        here_.use_file(bytes);
        rt_ = here_.make_runtime(
            {.page_bytes = 65536, .cache_bytes = 64 * mib, .file_bytes = bytes, .writable = true});
        others_ = memory(rt_->where(), 8);
        const std::string& path = here_.file().path();
        // Only regions write the file.
        const region_options alone{.outside_writers = false};
        require(map_region(*rt_, path, 0, 0, protection::read, alone, reader_));
        require(map_region(*rt_, path, 0, 0, protection::read_write, alone, writer_));
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) hand_ = std::make_unique<by_hand>(here_);
#endif
        if (!here_.on_gpu()) plain_.resize(bytes_);
        for (const double percent : {0.0, 0.1, 1.0, 10.0, 50.0, 75.0, 100.0}) row(percent);
        release_rows();
    }

private:
    // Seconds.
    double copy_again() {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) return hand_->seconds(piece_bytes);
#endif
        const stopwatch watch;
        read_again(here_.file(), plain_.data(), here_.host_threads());
        return watch.seconds();
    }

    [[nodiscard]] spread_words spread(const file_region& in, std::uint64_t count) const {
        return {static_cast<std::uint64_t*>(in.data()), count, pages_, value_};
    }
    void change(std::uint64_t count) {
        if (count == 0) return;
        ++value_;
        run_kernel<width::lane>(*rt_, count, change_words{spread(*writer_, count)});
    }
    // The reader has what the writer released.
    void check(std::uint64_t count) {
        if (count == 0) return;
        run_kernel<width::lane>(*rt_, count,
                                count_other_words{spread(*reader_, count), others_.as()});
        require_none(others_, "words are not as they were released");
    }

    void row(double percent) {
        const auto count = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(pages_));
        if (percent != 0 && count == 0) return;
        measured took;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            change(count);
            expect(count, "release", writer_->release());
            const stopwatch watch;
            const std::int64_t fetched = reader_->acquire();
            const double seconds = watch.seconds();
            expect(count, "acquire", fetched);
            took.add(1e3 * seconds, watch, seconds);
            check(count);
            took.baseline.add(1e3 * copy_again());
        }
        std::ostringstream title;
        title << "acquire of a region of which " << percent << " % of the pages changed";
        here_.add({"S12", title.str(), region_page_bytes, "ms", took,
                   here_.on_gpu() ? "the whole file again, by a pipeline of all cores"
                                  : "the whole file again, by all cores",
                   std::to_string(count) + " of " + std::to_string(pages_) +
                       " pages, each found as released"});
    }

    void release_rows() {
        measured rates;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            const std::int64_t released = writer_->release();
            const double seconds = watch.seconds();
            expect(0, "release", released);
            rates.add(gigabytes_a_second(bytes_, seconds), watch, seconds);
            const stopwatch other;
            copy_inside();
            rates.baseline.add(gigabytes_a_second(bytes_, other.seconds()));
        }
        here_.add({"issue-5", "release of a region of which nothing changed", region_page_bytes,
                   "GB/s", rates, "copying the region in its own memory",
                   "bytes of the region; each is compared with its base"});
    }
    void copy_inside() {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) {
            cudaMemcpyAsync(hand_->device.as<void>(), writer_->data(), bytes_,
                            cudaMemcpyDeviceToDevice, nullptr);
            return require_cuda(cudaStreamSynchronize(nullptr), "copy");
        }
#endif
        std::memcpy(plain_.data(), writer_->data(), bytes_);
    }
    static void expect(std::uint64_t pages, const char* act, std::int64_t found) {
        require(found, act);
        if (found != static_cast<std::int64_t>(pages))
            throw failure(-EIO, std::string(act) + " found " + std::to_string(found) +
                                    " pages, other than were changed");
    }

    context& here_;
    std::unique_ptr<runtime> rt_;
    memory others_;
    std::unique_ptr<file_region> reader_, writer_;
#if defined(PENSTOCK_WITH_CUDA)
    std::unique_ptr<by_hand> hand_;
#endif
    std::vector<std::byte> plain_;
    std::uint64_t bytes_ = 0, pages_ = 0, value_ = 0;
};

}  // namespace

void acquire_path(context& here) {
    acquire_case(here).run(here.file_bytes(5 * gib, 256 * mib));
    here.forget_file();
}

}  // namespace penstock::bench
