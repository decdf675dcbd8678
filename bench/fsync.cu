// fsync of one file with few or many dirty pages, while another file has none or as many as the
// file has pages; against pwrite of the same bytes and fdatasync. What it costs must follow the
// pages of its own file, and not what else the cache holds.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "penstock/write.hpp"
#include "workload.hpp"

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
    fsync_case(context& here, std::uint64_t page, std::uint64_t bytes)
        : here_(here), page_(page), pages_(bytes / page), expected_(page / 8) {
        here.use_file(bytes);
        other_.make_empty(here.asked().directory, bytes);
        // Room for both files: no page is written back because its frame is needed.
        rt_ = here.make_runtime({.page_bytes = page,
                                 .cache_bytes = 2 * bytes + bytes / 2,
                                 .file_bytes = bytes,
                                 .writable = true});
        groups_ = group_count(here, *rt_, page);
        words_ = memory(rt_->where(), page);
        failures_ = memory(rt_->where(), 8);
        file_ = rt_->open(here.file().path(), open_write);
        require(file_, "opening a file for writing");
        hand_ = here.file().open(O_RDWR);
    }

    void run() {
        const int other = rt_->open(other_.path(), open_write);
        require(other, "opening a file for writing");
        rows("no dirty page");
        mark_dirty(other, pages_, 1);
        rows(std::to_string(pages_) + " dirty pages");
        require(rt_->close(other), "closing");
        require(rt_->close(file_), "closing");
    }

private:
    void mark_dirty(int fd, std::uint64_t count, std::uint64_t step) {
        ++seed_;
        for (std::uint64_t i = 0; i < expected_.size(); ++i)
            expected_[i] = mix64(seed_ * expected_.size() + i);
        run_kernel<width::warp>(
            *rt_, groups_,
            fill_words{words_.as(), expected_.size(), groups_, seed_ * expected_.size()});
        run_kernel<width::warp>(
            *rt_, groups_,
            write_pages{fd, words_.as<std::byte>(), failures_.as(), count, step, groups_});
        require_none(failures_, "pages could not be written");
    }

    // The file has what was written, as other programs see it.
    void check(std::uint64_t count, std::uint64_t step) const {
        std::vector<std::uint64_t> got(expected_.size());
        for (std::uint64_t i = 0; i < count; ++i)
            if (apps::read_all(hand_, got.data(), page_, i * step * page_) != 0 || got != expected_)
                throw failure(
                    -EIO, "page " + std::to_string(i * step) + " is not in the file after fsync");
    }

    // Microseconds. Zeros, so that the next fsync has something to show.
    [[nodiscard]] double by_hand(std::uint64_t count, std::uint64_t step) const {
        const std::vector<std::byte> zeros(page_);
        const stopwatch watch;
        for (std::uint64_t i = 0; i < count; ++i)
            if (::pwrite(hand_, zeros.data(), page_, static_cast<off_t>(i * step * page_)) !=
                static_cast<ssize_t>(page_))
                throw failure(errno != 0 ? -errno : -EIO, "pwrite by hand failed");
        if (::fdatasync(hand_) != 0) require(-errno, "fdatasync by hand");
        return 1e6 * watch.seconds();
    }

    void rows(const std::string& others) {
        std::vector<std::uint64_t> counts = {1, std::min<std::uint64_t>(1000, pages_), pages_};
        counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
        for (const std::uint64_t count : counts) {
            measured times;
            const std::uint64_t step = pages_ / count;
            for (std::uint64_t repeat = 0; repeat < here_.repeats(5); ++repeat) {
                mark_dirty(file_, count, step);
                const stopwatch watch;
                const int code = rt_->fsync(file_);
                const double seconds = watch.seconds();
                require(code, "fsync");
                times.add(1e6 * seconds, watch, seconds);
                check(count, step);
                times.baseline.add(by_hand(count, step));
            }
            here_.add({"fsync",
                       "fsync of a file of " + std::to_string(pages_) + " pages, " +
                           std::to_string(count) + " of them dirty; another file has " + others,
                       page_, "us", times, "pwrite of the same bytes and fdatasync, one thread",
                       "each page found in the file"});
        }
    }

    context& here_;
    scratch_file other_;
    std::unique_ptr<runtime> rt_;
    memory words_, failures_;
    const std::uint64_t page_, pages_;
    std::vector<std::uint64_t> expected_;
    std::uint64_t groups_ = 1, seed_ = 0;
    int file_ = -1;
    apps::unique_fd hand_;
};

}  // namespace

void fsync_path(context& here) {
    const std::uint64_t bytes = here.file_bytes(gib, 64 * mib);
    for (const std::uint64_t page : here.pages({64 * kib})) {
        fsync_case(here, page, bytes).run();
        here.forget_file();
    }
}

}  // namespace penstock::bench
