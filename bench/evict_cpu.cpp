// In which order pages go: a cache that holds pages of a closed file, clean pages and dirty pages,
// each used twice, and then so many others come that all together are 1.25 to 64 times what fits.
// The share of each kind that is left, against what would be left if one page went as readily as
// another.
#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include "cases.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/write.hpp"

namespace penstock::bench {

namespace {

class evict_case {
public:
    // The file's first pages are the clean ones, the next the dirty ones, the rest the others.
    evict_case(context& here, std::uint64_t page, std::uint64_t bytes)
        : here_(here), page_(page), cache_(std::max(bytes / 64, 8 * page)), buffer_(page) {
        here.use_file(bytes);
        kept_ = cache_ / page_ / 4;
        other_.make(here.asked().directory, kept_ * page_);
    }

    void run() {
        for (const double times : {1.25, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0})
            if (pages_of(times) * page_ <= here_.file().bytes()) rows(times);
    }

private:
    // How far the file is read, so that with the closed file's pages there are so many times as
    // many as fit.
    [[nodiscard]] std::uint64_t pages_of(double times) const {
        return static_cast<std::uint64_t>(times * static_cast<double>(cache_ / page_)) - kept_;
    }

    // Reads or writes `count` pages from the page-th on, `step` apart; what is written are zeros.
    enum class access { read, write };
    void touch(int fd, std::uint64_t first, std::uint64_t count, std::uint64_t step = 1,
               access kind = access::read) {
        const auto bytes = static_cast<std::int64_t>(page_);
        if (kind == access::write) std::fill(buffer_.begin(), buffer_.end(), std::byte{0});
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::int64_t>((first + i * step) * page_);
            if (kind == access::read)
                require_all(read(lane{}, rt_->ref(), fd, buffer_.data(), bytes, at), page_,
                            "reading a page");
            else
                require_all(write(lane{}, rt_->ref(), fd, buffer_.data(), bytes, at), page_,
                            "writing a page");
        }
    }
    // Of every eighth page, so that looking changes little.
    double share_left(int fd, std::uint64_t first) {
        const std::uint64_t step = kept_ < 8 ? 1 : 8, looked = kept_ / step,
                            before = rt_->stats().misses;
        touch(fd, first, looked, step);
        return 1 - static_cast<double>(rt_->stats().misses - before) / static_cast<double>(looked);
    }
    int open(const scratch_file& file, int flags) {
        return static_cast<int>(require(rt_->open(file.path(), flags), "opening a file"));
    }

    // The shares that are left of a closed file's pages, of clean and of dirty ones.
    std::array<double, 3> measure(double times) {
        rt_.reset();
        rt_ = here_.make_runtime({.page_bytes = page_,
                                  .cache_bytes = cache_,
                                  .file_bytes = here_.file().bytes(),
                                  .writable = true,
                                  .write_behind_bytes = cache_});
        const int fd = open(here_.file(), open_read_write), closed = open(other_, open_read);
        for (int round = 0; round < 2; ++round) {
            touch(closed, 0, kept_);
            touch(fd, 0, kept_);
            touch(fd, kept_, kept_, 1, access::write);
        }
        require(rt_->close(closed), "closing");
        touch(fd, 2 * kept_, pages_of(times) - 2 * kept_);
        // Those that are left first: they are looked at without another page coming.
        const double dirty = share_left(fd, kept_), clean = share_left(fd, 0);
        const int again = open(other_, open_read);
        const double of_closed = share_left(again, 0);
        victims_ = rt_->stats().dirty_victims;
        rt_->close(again);
        require(rt_->close(fd), "closing");
        return {of_closed, clean, dirty};
    }

    void rows(double times) {
        static constexpr const char* kinds[] = {"pages of a closed file", "clean pages",
                                                "dirty pages"};
        std::array<measured, 3> left;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            const std::array<double, 3> shares = measure(times);
            const double seconds = watch.seconds();
            for (std::size_t kind = 0; kind < left.size(); ++kind) {
                left[kind].add(shares[kind], watch, seconds);
                left[kind].baseline.add(1 / times);
            }
        }
        std::ostringstream when;
        when << " left, with " << times << " times as many pages as fit";
        for (std::size_t kind = 0; kind < left.size(); ++kind)
            here_.add({"evict", kinds[kind] + when.str(), page_, "hit ratio", left[kind],
                       "were all pages alike",
                       std::to_string(kept_) + " pages of each kind, " + std::to_string(victims_) +
                           " dirty ones written for their frame"});
    }

    context& here_;
    scratch_file other_;
    std::unique_ptr<runtime> rt_;
    const std::uint64_t page_, cache_;
    std::vector<std::byte> buffer_;
    std::uint64_t kept_ = 0, victims_ = 0;
};

}  // namespace

void evict_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib})) {
        evict_case(here, page, here.file_bytes(64 * mib)).run();
        here.forget_file();
    }
}

}  // namespace penstock::bench
