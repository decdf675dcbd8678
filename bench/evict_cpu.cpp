// In which order pages go: a cache that holds pages of a closed file, clean pages and dirty pages,
// each used twice, and then so many others come that all together are 1.25 to 64 times what fits.
// The share of each kind that is left, against what would be left if one page went as readily as
// another.
#include <algorithm>
#include <cerrno>
#include <sstream>
#include <string>
#include <vector>

#include "cases.hpp"
#include "context.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/write.hpp"

namespace penstock::bench {

namespace {

class evict_case {
public:
    evict_case(context& here, std::uint64_t page) : here_(here), page_(page) {}

    // The file's first pages are the clean ones, the next the dirty ones, the rest the others.
    status run(std::uint64_t bytes) {
        constexpr std::uint64_t most = 64;
        if (status s = here_.use_file(bytes); !s) return s;
        cache_ = std::max(bytes / most, 8 * page_);
        kept_ = cache_ / page_ / 4;
        if (status s = other_.make(here_.asked().directory, kept_ * page_); !s) return s;
        for (const double times : {1.25, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0})
            if (pages_of(times) * page_ <= bytes)
                if (status s = rows(times); !s) return s;
        return {};
    }

private:
    struct shares {
        double closed = 0, clean = 0, dirty = 0;
    };

    // How far the file is read, so that with the closed file's pages there are so many times as
    // many as fit.
    [[nodiscard]] std::uint64_t pages_of(double times) const {
        return static_cast<std::uint64_t>(times * static_cast<double>(cache_ / page_)) - kept_;
    }

    // Reads `count` pages from the page-th on, `step` apart.
    status touch(int fd, std::uint64_t first, std::uint64_t count, std::uint64_t step = 1) {
        std::vector<std::byte> at_hand(page_);
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::int64_t got =
                read(lane{}, rt_->ref(), fd, at_hand.data(), static_cast<std::int64_t>(page_),
                     static_cast<std::int64_t>((first + i * step) * page_));
            if (got != static_cast<std::int64_t>(page_))
                return {got < 0 ? static_cast<int>(got) : -EIO,
                        "reading a page: " + error_text(got < 0 ? static_cast<int>(got) : -EIO)};
        }
        return {};
    }
    status mark_dirty(int fd, std::uint64_t first, std::uint64_t count) {
        const std::vector<std::byte> zeros(page_);
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::int64_t done =
                write(lane{}, rt_->ref(), fd, zeros.data(), static_cast<std::int64_t>(page_),
                      static_cast<std::int64_t>((first + i) * page_));
            if (done != static_cast<std::int64_t>(page_))
                return {done < 0 ? static_cast<int>(done) : -EIO,
                        "writing a page: " + error_text(done < 0 ? static_cast<int>(done) : -EIO)};
        }
        return {};
    }
    // Of every eighth page, so that looking changes little.
    status share_left(int fd, std::uint64_t first, double& out) {
        const std::uint64_t step = kept_ < 8 ? 1 : 8, looked = kept_ / step,
                            before = rt_->stats().misses;
        if (status s = touch(fd, first, looked, step); !s) return s;
        out = 1 - static_cast<double>(rt_->stats().misses - before) / static_cast<double>(looked);
        return {};
    }

    status measure(double times, shares& out) {
        const runtime_shape shape{.page_bytes = page_,
                                  .cache_bytes = cache_,
                                  .file_bytes = here_.file().bytes(),
                                  .writable = true,
                                  .write_behind_bytes = cache_};
        if (status s = here_.make_runtime(shape, rt_); !s) return s;
        const int fd = rt_->open(here_.file().path(), open_read_write),
                  closed = rt_->open(other_.path());
        if (fd < 0 || closed < 0)
            return {std::min(fd, closed), "opening a file: " + error_text(std::min(fd, closed))};
        for (int round = 0; round < 2; ++round) {
            if (status s = touch(closed, 0, kept_); !s) return s;
            if (status s = touch(fd, 0, kept_); !s) return s;
            if (status s = mark_dirty(fd, kept_, kept_); !s) return s;
        }
        if (const int code = rt_->close(closed); code != 0)
            return {code, "closing: " + error_text(code)};
        if (status s = touch(fd, 2 * kept_, pages_of(times) - 2 * kept_); !s) return s;
        // Those that are left first: they are looked at without another page coming.
        if (status s = share_left(fd, kept_, out.dirty); !s) return s;
        if (status s = share_left(fd, 0, out.clean); !s) return s;
        const int again = rt_->open(other_.path());
        if (again < 0) return {again, "opening a file: " + error_text(again)};
        if (status s = share_left(again, 0, out.closed); !s) return s;
        victims_ = rt_->stats().dirty_victims;
        rt_->close(again);
        const int code = rt_->close(fd);
        return code == 0 ? status{} : status{code, "closing: " + error_text(code)};
    }

    status rows(double times) {
        series closed, clean, dirty, alike, cores;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            shares left;
            const stopwatch watch;
            if (status s = measure(times, left); !s) return s;
            cores.add(watch.cores(watch.seconds()));
            closed.add(left.closed), clean.add(left.clean), dirty.add(left.dirty);
            alike.add(1 / times);
        }
        std::ostringstream when;
        when << " left, with " << times << " times as many pages as fit";
        const std::string note = std::to_string(kept_) + " pages of each kind, " +
                                 std::to_string(victims_) + " dirty ones written for their frame";
        for (const auto& [kind, share] :
             {std::pair<const char*, const series*>{"pages of a closed file", &closed},
              {"clean pages", &clean},
              {"dirty pages", &dirty}})
            if (status s = here_.add({"evict", kind + when.str(), "", page_, *share, "hit ratio",
                                      "were all pages alike", alike, cores, note});
                !s)
                return s;
        return {};
    }

    context& here_;
    scratch_file other_;
    std::unique_ptr<runtime> rt_;
    std::uint64_t page_, cache_ = 0, kept_ = 0, victims_ = 0;
};

}  // namespace

status evict_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib})) {
        evict_case runner(here, page);
        if (status s = runner.run(here.file_bytes(64 * mib)); !s) return s;
        here.forget_file();  // it has no longer the words that the other cases expect
    }
    return {};
}

}  // namespace penstock::bench
