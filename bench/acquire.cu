// Acquire of a region after another device changed a part of the file, against bringing the whole
// file again; and release, against copying the region in its own memory.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "common/threads.hpp"
#include "machine.hpp"
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
struct change_words {
    std::uint64_t* words;
    std::uint64_t count, pages, value;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        words[i * pages / count * (region_page_bytes / 8) + i % (region_page_bytes / 8)] = value;
    }
};
struct count_other_words {
    const std::uint64_t* words;
    std::uint64_t count, pages, value;
    std::uint64_t* others;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        if (words[i * pages / count * (region_page_bytes / 8) + i % (region_page_bytes / 8)] !=
            value)
            atomic_add_relaxed(others, std::uint64_t{1});
    }
};

// On the cpu: all processors read the file into memory.
status read_again(const std::string& path, std::byte* to, std::uint64_t bytes,
                  std::uint64_t threads) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> code{0};
    apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t) {
        for (std::uint64_t at = next.fetch_add(4 * mib); at < bytes; at = next.fetch_add(4 * mib))
            if (::pread(fd, to + at, std::min(4 * mib, bytes - at), static_cast<off_t>(at)) <= 0)
                code = -EIO;
    });
    ::close(fd);
    return code == 0 ? status{} : status{code, "pread: " + error_text(code)};
}

class acquire_case {
public:
    explicit acquire_case(context& here) : here_(here) {}

    status run(std::uint64_t bytes) {
        bytes_ = bytes;
        if (status s = here_.use_file(bytes); !s) return s;
        if (status s = here_.make_runtime({.page_bytes = 65536,
                                           .cache_bytes = 64 * mib,
                                           .file_bytes = bytes,
                                           .writable = true},
                                          rt_);
            !s)
            return s;
        if (status s = others_.make(rt_->where(), 8); !s) return s;
        // Only regions write the file.
        const region_options alone{.outside_writers = false};
        if (status s =
                map_region(*rt_, here_.file().path(), 0, 0, protection::read, alone, reader_);
            !s)
            return s;
        if (status s =
                map_region(*rt_, here_.file().path(), 0, 0, protection::read_write, alone, writer_);
            !s)
            return s;
        pages_ = bytes / region_page_bytes;
        if (status s = make_baseline(); !s) return s;
        for (const double percent : {0.0, 0.1, 1.0, 10.0, 50.0, 75.0, 100.0})
            if (status s = row(percent); !s) return s;
        return release_rows();
    }

private:
    status make_baseline() {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) return hand_.make(here_);
#endif
        plain_.resize(bytes_);
        return {};
    }
    status copy_again(series& ms) {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) {
            series rate;
            status s = hand_.run(piece_bytes, rate);
            if (s.ok()) ms.add(1e-6 * static_cast<double>(bytes_) / rate.last());
            return s;
        }
#endif
        const stopwatch watch;
        status s = read_again(here_.file().path(), plain_.data(), bytes_, host_threads(here_));
        ms.add(1e3 * watch.seconds());
        return s;
    }

    status change(std::uint64_t count) {
        if (count == 0) return {};
        ++value_;
        const int code = launch<width::lane>(
            *rt_, count,
            change_words{static_cast<std::uint64_t*>(writer_->data()), count, pages_, value_});
        return code == 0 ? status{} : status{code, "kernel: " + error_text(code)};
    }
    // The reader has what the writer released.
    status check(std::uint64_t count) {
        if (count == 0) return {};
        const int code = launch<width::lane>(
            *rt_, count,
            count_other_words{static_cast<const std::uint64_t*>(reader_->data()), count, pages_,
                              value_, others_.as<std::uint64_t>()});
        std::uint64_t others = 0;
        if (code != 0) return {code, "kernel: " + error_text(code)};
        if (status s = others_.copy_out(&others, sizeof others); !s) return s;
        return others == 0
                   ? status{}
                   : status{-EIO, std::to_string(others) + " words are not as they were released"};
    }

    status row(double percent) {
        const auto count = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(pages_));
        if (percent != 0 && count == 0) return {};
        series took, again, cores;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            if (status s = change(count); !s) return s;
            if (const std::int64_t released = writer_->release();
                released != static_cast<std::int64_t>(count))
                return unexpected("release", released);
            const stopwatch watch;
            const std::int64_t fetched = reader_->acquire();
            const double seconds = watch.seconds();
            if (fetched != static_cast<std::int64_t>(count)) return unexpected("acquire", fetched);
            took.add(1e3 * seconds);
            cores.add(watch.cores(seconds));
            if (status s = check(count); !s) return s;
            if (status s = copy_again(again); !s) return s;
        }
        std::ostringstream what;
        what << "acquire of a region of which " << percent << " % of the pages changed";
        return here_.add({"S12", what.str(), "", region_page_bytes, took, "ms",
                          here_.on_gpu() ? "the whole file again, by a pipeline of all cores"
                                         : "the whole file again, by all cores",
                          again, cores,
                          std::to_string(count) + " of " + std::to_string(pages_) +
                              " pages, each found as released"});
    }

    status release_rows() {
        series rate, copied, cores;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            if (const std::int64_t released = writer_->release(); released != 0)
                return unexpected("release", released);
            const double seconds = watch.seconds();
            cores.add(watch.cores(seconds));
            rate.add(gigabytes_a_second(bytes_, seconds));
            if (status s = copy_inside(copied); !s) return s;
        }
        return here_.add({"issue-5", "release of a region of which nothing changed", "",
                          region_page_bytes, rate, "GB/s", "copying the region in its own memory",
                          copied, cores, "bytes of the region; each is compared with its base"});
    }
    status copy_inside(series& rate) {
        const stopwatch watch;
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) {
            cudaMemcpyAsync(hand_.device.as<void>(), writer_->data(), bytes_,
                            cudaMemcpyDeviceToDevice, nullptr);
            if (status s = cuda_status(cudaStreamSynchronize(nullptr), "copy"); !s) return s;
            rate.add(gigabytes_a_second(bytes_, watch.seconds()));
            return {};
        }
#endif
        std::memcpy(plain_.data(), writer_->data(), bytes_);
        rate.add(gigabytes_a_second(bytes_, watch.seconds()));
        return {};
    }
    static status unexpected(const char* what, std::int64_t result) {
        if (result < 0)
            return {static_cast<int>(result), std::string(what) + ": " + error_text(result)};
        return {-EIO, std::string(what) + " found " + std::to_string(result) +
                          " pages, other than were changed"};
    }

    context& here_;
    std::unique_ptr<runtime> rt_;
    memory others_;
    std::unique_ptr<file_region> reader_, writer_;
#if defined(PENSTOCK_WITH_CUDA)
    by_hand hand_;
#endif
    std::vector<std::byte> plain_;
    std::uint64_t bytes_ = 0, pages_ = 0, value_ = 0;
};

}  // namespace

status acquire_path(context& here) {
    status ended;
    {
        acquire_case one(here);
        ended = one.run(here.file_bytes(here.on_gpu() ? 5 * gib : 256 * mib));
    }
    here.forget_file();  // it has no longer the words that the other cases expect
    return ended;
}

}  // namespace penstock::bench
