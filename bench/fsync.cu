// fsync of one file with few or many dirty pages, while another file has none or as many as the
// file has pages; against pwrite of the same bytes and fdatasync. What it costs must follow the
// pages of its own file, and not what else the cache holds.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "workload.hpp"
#include "machine.hpp"
#include "penstock/write.hpp"

namespace penstock::bench {

namespace {

// `count` whole pages, `step` pages from one to the next, all with the words of one page.
struct write_pages {
    int fd;
    const std::byte* page;
    std::uint64_t* failures;
    std::uint64_t count, step, groups;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const auto bytes = static_cast<std::int64_t>(fs.view.page_bytes());
        for (std::uint64_t i = index; i < count; i += groups)
            if (write(g, fs, fd, page, bytes, static_cast<std::int64_t>(i * step) * bytes) !=
                    bytes &&
                g.is_leader())
                atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

class fsync_case {
public:
    explicit fsync_case(context& here) : here_(here) {}

    status run(std::uint64_t page, std::uint64_t bytes) {
        page_ = page;
        pages_ = bytes / page;
        if (status s = here_.use_file(bytes); !s) return s;
        if (status s = other_.make_empty(here_.asked().directory, bytes); !s) return s;
        // Room for both files: no page is written back because its frame is needed.
        if (status s = here_.make_runtime({.page_bytes = page,
                                           .cache_bytes = 2 * bytes + bytes / 2,
                                           .file_bytes = bytes,
                                           .writable = true},
                                          rt_);
            !s)
            return s;
        groups_ = group_count(here_, *rt_, page);
        if (status s = words_.make(rt_->where(), page); !s) return s;
        if (status s = failures_.make(rt_->where(), 8); !s) return s;
        expected_.resize(page / 8);
        file_ = rt_->open(here_.file().path(), open_write);
        const int other = rt_->open(other_.path(), open_write);
        if (file_ < 0 || other < 0)
            return {std::min(file_, other),
                    "opening a file for writing: " + error_text(std::min(file_, other))};
        hand_ = ::open(here_.file().path().c_str(), O_RDWR | O_CLOEXEC);
        if (hand_ < 0) return {-errno, here_.file().path() + ": " + error_text(-errno)};
        status ended = rows("no dirty page");
        if (ended.ok()) ended = mark_dirty(other, pages_, 1);
        if (ended.ok()) ended = rows(std::to_string(pages_) + " dirty pages");
        ::close(hand_);
        if (!ended.ok()) return ended;
        int code = rt_->close(other);
        if (const int closed = rt_->close(file_); code == 0) code = closed;
        return code == 0 ? status{} : status{code, "closing: " + error_text(code)};
    }

private:
    status mark_dirty(int fd, std::uint64_t count, std::uint64_t step) {
        ++seed_;
        for (std::uint64_t i = 0; i < expected_.size(); ++i)
            expected_[i] = mix64(seed_ * expected_.size() + i);
        int code = launch<width::warp>(*rt_, groups_,
                                       fill_words{words_.as<std::uint64_t>(), expected_.size(),
                                                  groups_, seed_ * expected_.size()});
        if (code == 0)
            code = launch<width::warp>(
                *rt_, groups_,
                write_pages{fd, words_.as<std::byte>(), failures_.as<std::uint64_t>(), count, step,
                            groups_});
        std::uint64_t failed = 0;
        if (code != 0) return {code, "kernel: " + error_text(code)};
        if (status s = failures_.copy_out(&failed, sizeof failed); !s) return s;
        return failed == 0 ? status{}
                           : status{-EIO, std::to_string(failed) + " pages could not be written"};
    }

    // The file has what was written, as other programs see it.
    status check(std::uint64_t count, std::uint64_t step) const {
        std::vector<std::uint64_t> got(expected_.size());
        for (std::uint64_t i = 0; i < count; ++i)
            if (::pread(hand_, got.data(), page_, static_cast<off_t>(i * step * page_)) !=
                    static_cast<ssize_t>(page_) ||
                got != expected_)
                return {-EIO,
                        "page " + std::to_string(i * step) + " is not in the file after fsync"};
        return {};
    }

    // Zeros, so that the next fsync has something to show.
    status by_hand(std::uint64_t count, std::uint64_t step, series& out) const {
        const std::vector<std::byte> zeros(page_);
        const stopwatch watch;
        for (std::uint64_t i = 0; i < count; ++i)
            if (::pwrite(hand_, zeros.data(), page_, static_cast<off_t>(i * step * page_)) !=
                static_cast<ssize_t>(page_))
                return {errno != 0 ? -errno : -EIO, "pwrite by hand failed"};
        if (::fdatasync(hand_) != 0) return {-errno, "fdatasync by hand: " + error_text(-errno)};
        out.add(1e6 * watch.seconds());
        return {};
    }

    status rows(const std::string& others) {
        std::vector<std::uint64_t> counts = {1, std::min<std::uint64_t>(1000, pages_), pages_};
        counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
        for (const std::uint64_t count : counts) {
            series times, hand, cores;
            const std::uint64_t step = pages_ / count;
            for (std::uint64_t repeat = 0; repeat < here_.repeats(5); ++repeat) {
                if (status s = mark_dirty(file_, count, step); !s) return s;
                const stopwatch watch;
                const int code = rt_->fsync(file_);
                const double seconds = watch.seconds();
                if (code != 0) return {code, "fsync: " + error_text(code)};
                times.add(1e6 * seconds);
                cores.add(watch.cores(seconds));
                if (status s = check(count, step); !s) return s;
                if (status s = by_hand(count, step, hand); !s) return s;
            }
            const std::string name = "fsync of a file of " + std::to_string(pages_) + " pages, " +
                                     std::to_string(count) + " of them dirty; another file has " +
                                     others;
            if (status s = here_.add({"fsync", name, "", page_, times, "us",
                                      "pwrite of the same bytes and fdatasync, one thread", hand,
                                      cores, "each page found in the file"});
                !s)
                return s;
        }
        return {};
    }

    context& here_;
    scratch_file other_;
    std::unique_ptr<runtime> rt_;
    memory words_, failures_;
    std::vector<std::uint64_t> expected_;
    std::uint64_t page_ = 0, pages_ = 0, groups_ = 1, seed_ = 0;
    int file_ = -1, hand_ = -1;
};

}  // namespace

status fsync_path(context& here) {
    const std::uint64_t bytes = here.file_bytes(here.on_gpu() ? 1 * gib : 64 * mib);
    for (const std::uint64_t page : here.pages({64 * kib})) {
        fsync_case runner(here);
        if (status s = runner.run(page, bytes); !s) return s;
        here.forget_file();  // it has no longer the words that the other cases expect
    }
    return {};
}

}  // namespace penstock::bench
