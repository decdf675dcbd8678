// Cases of regions: what acquire and release cost.
#include <sstream>

#include "cases.hpp"
#include "penstock/region.hpp"
#include "region_words.hpp"
#if defined(PENSTOCK_WITH_CUDA)
#include "pipeline_by_hand.cuh"
#endif

namespace penstock::bench {

// Acquire of a region after another region changed a part of the file, against bringing the whole
// file again; and release, against copying the region in its own memory.
//
// Both regions are of one device. As long as the other one is mapped, the pages that it changed
// come from its memory, and no byte of them crosses the bus. So the rows of changed pages come in
// twos: with it, and with it closed before the acquire, when they come from the file as those of
// another program do.

namespace {

// On the cpu: threads read the file into memory.
timed_run read_again(const scratch_file& from, std::byte* to, std::uint64_t threads) {
    const apps::unique_fd fd = from.open(O_RDONLY);
    std::atomic<std::uint64_t> next{0};
    const stopwatch watch;
    const double seconds = seconds_of_threads(threads, [&](std::uint64_t) {
        take_pieces(next, from.bytes(), 4 * mib, [&](std::uint64_t at, std::uint64_t bytes) {
            require(apps::read_all(fd, to + at, bytes, at), "pread");
        });
    });
    return {seconds, watch.cores(seconds)};
}

class acquire_case {
public:
    explicit acquire_case(context& here) : here_(here) {}

    void run(std::uint64_t bytes) {
        bytes_ = here_.use_file(bytes);
        pages_ = bytes / region_page_bytes;
        rt_ = here_.make_runtime({.page_bytes = 65536, .cache_bytes = 64 * mib, .writable = true});
        others_ = memory(rt_->where(), 8);
        map(protection::read, reader_);
        map(protection::read_write, writer_);
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) hand_ = std::make_unique<by_hand>(here_);
#endif
        if (!here_.on_gpu()) plain_.resize(bytes_);
        for (const double percent : {0.0, 0.1, 1.0, 10.0, 50.0, 75.0, 100.0}) rows(percent);
        for (const double percent : {0.0, 1.0}) request_row(percent);
        release_rows();
    }

private:
    void map(protection access, std::unique_ptr<file_region>& out) {
        // Only regions write the file.
        require(
            map_region(*rt_, here_.file().path(), 0, 0, access, {.outside_writers = false}, out));
    }
    [[nodiscard]] by_threads tried() const {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) return hand_->tried();
#endif
        return {{8, 16}, here_.host_threads()};
    }
    timed_run copy_again(std::uint64_t threads, std::uint64_t piece) {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) return hand_->run(piece, threads);
#endif
        static_cast<void>(piece);
        return read_again(here_.file(), plain_.data(), threads);
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

    // `from_file`: no region has the changed pages when they are brought.
    void bring(std::uint64_t count, bool from_file, measured& took) {
        change(count);
        expect_pages(count, "release", writer_->release());
        if (from_file) require(writer_->close(), "close");
        const std::uint64_t before = reader_->traffic().pages_from_neighbours;
        const stopwatch watch;
        const std::int64_t fetched = reader_->acquire();
        const double seconds = watch.seconds();
        expect_pages(count, "acquire", fetched);
        took.add(1e3 * seconds, watch, seconds);
        check(count);
        if (!from_file) return;
        expect(reader_->traffic().pages_from_neighbours == before,
               "pages came from another region, and not from the file");
        map(protection::read_write, writer_);
    }
    void rows(double percent) {
        const auto count = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(pages_));
        if (percent != 0 && count == 0) return;
        measured from_region, from_file;
        by_threads again = tried();
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            bring(count, false, from_region);
            if (count != 0) bring(count, true, from_file);
            again.measure([&](std::uint64_t threads, std::uint64_t piece) {
                return copy_again(threads, piece);
            });
        }
        const auto add = [&](measured& took, const char* by) {
            took.baseline = again.seconds().times(1e3);
            std::ostringstream title;
            title << "acquire of a region, " << percent << " % of its pages changed" << by;
            here_.add("S12", title.str(), region_page_bytes, "ms", took,
                      (here_.on_gpu() ? "the whole file again, by a pipeline, "
                                      : "the whole file again, ") +
                          again.name(),
                      std::to_string(count) + " of " + std::to_string(pages_) +
                          " pages, each found as released");
        };
        add(from_region, count == 0 ? "" : of_region);
        if (count != 0) add(from_file, ", which come from the file");
    }

    // How long the caller of acquire_async is held up, beside how long acquire takes.
    void request_row(double percent) {
        const auto count = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(pages_));
        measured took;
        series ends;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(21); ++repeat) {
            change(count);
            expect_pages(count, "release", writer_->release());
            const stopwatch watch;
            const region_request request = reader_->acquire_async();
            const double seconds = watch.seconds();
            took.add(1e6 * seconds, watch, seconds);
            expect_pages(count, "acquire_async", request.wait());
            ends.add(1e6 * watch.seconds());
            check(count);
            change(count);
            expect_pages(count, "release", writer_->release());
            const stopwatch other;
            expect_pages(count, "acquire", reader_->acquire());
            took.baseline.add(1e6 * other.seconds());
        }
        std::ostringstream title;
        title << "the caller's time in acquire_async, " << percent << " % of the pages changed"
              << (count == 0 ? "" : of_region);
        here_.add("32.2", title.str(), region_page_bytes, "us", took, "acquire, which waits",
                  "the request ended after " + std::to_string(static_cast<int>(ends.median())) +
                      " us in the median; each page found as released");
    }

    void release_rows() {
        measured rates;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            const std::int64_t released = writer_->release();
            const double seconds = watch.seconds();
            expect_pages(0, "release", released);
            rates.add(gigabytes_a_second(bytes_, seconds), watch, seconds);
            const stopwatch other;
            copy_inside();
            rates.baseline.add(gigabytes_a_second(bytes_, other.seconds()));
        }
        here_.add("issue-5", "release of a region of which nothing changed", region_page_bytes,
                  "GB/s", rates, "copying the region in its own memory",
                  "bytes of the region; each is compared with its base");
    }
    void copy_inside() {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) {
            require_cuda(cudaMemcpyAsync(hand_->device.as<void>(), writer_->data(), bytes_,
                                         cudaMemcpyDeviceToDevice, nullptr),
                         "copy");
            return require_cuda(cudaStreamSynchronize(nullptr), "copy");
        }
#endif
        std::memcpy(plain_.data(), writer_->data(), bytes_);
    }

    static constexpr const char* of_region = " by another region of this device";

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
