#include "host/file_writer.hpp"

#include <algorithm>
#include <cerrno>

#include "host/marked_runs.hpp"
#include "penstock/base/atomic.hpp"

namespace penstock::host {

namespace {

// As many pieces as the operating system takes in one call, and no more bytes than it copies in a moment.
constexpr std::size_t most_pieces = 1024;
constexpr std::uint64_t most_bytes = 8u << 20;
constexpr int most_attempts = 1000;

}  // namespace

void file_writer::put(const write_order& order) {
    std::lock_guard lock(list_mutex_);
    list_.push_back(order);
}

// True: this thread is the one that writes, and has work. It stays so until it finds the list empty under the lock, so what others put
// before they asked is never left behind.
bool file_writer::take_list() {
    std::lock_guard lock(list_mutex_);
    taken_.clear();
    taken_.swap(list_);
    writing_ = !taken_.empty();
    return writing_;
}

void file_writer::run(write_counters& counters, write_troubles& troubles) {
    {
        std::lock_guard lock(list_mutex_);
        if (writing_ || list_.empty()) return;
        writing_ = true;
    }
    while (take_list()) write_list(counters, troubles);
}

void file_writer::list_pieces() {
    pieces_.clear();
    for (std::size_t i = 0; i < taken_.size(); ++i) {
        const write_order& order = taken_[i];
        const marked_runs runs(order.page + page_bytes_, page_bytes_, order.whole);
        for (std::uint64_t begin = 0, end = 0; runs.next(end, begin, end);) pieces_.push_back({order.page + begin, end - begin, order.offset + begin, i});
    }
    std::sort(pieces_.begin(), pieces_.end(), [](const piece& a, const piece& b) { return a.offset < b.offset; });
}

void file_writer::write_list(write_counters& counters, write_troubles& troubles) {
    list_pieces();
    results_.assign(taken_.size(), 0);
    for (std::size_t first = 0; first < pieces_.size();) {
        std::size_t end = first + 1;
        std::uint64_t bytes = pieces_[first].bytes;
        while (end < pieces_.size() && end - first < most_pieces && bytes < most_bytes && pieces_[end].offset == pieces_[end - 1].offset + pieces_[end - 1].bytes)
            bytes += pieces_[end++].bytes;
        write_neighbours(first, end, counters, troubles);
        first = end;
    }
    for (std::size_t i = 0; i < taken_.size(); ++i) {
        if (results_[i] != 0) counters.errors.fetch_add(1, std::memory_order_relaxed);
        taken_[i].reply->result = results_[i];
        // Release: pairs with await; the group sees the result, and its staging area is read for the last time.
        atomic_store<order::release, scope::system>(&taken_[i].reply->completed, taken_[i].ticket + 1);
    }
}

// Pieces that follow each other in the file. Short writes go on where they stopped; after an error the orders of what is left have it.
void file_writer::write_neighbours(std::size_t first, std::size_t end, write_counters& counters, write_troubles& troubles) {
    std::uint64_t skip = 0;  // of the first piece
    int again = 0;
    while (first < end) {
        call_.clear();
        for (std::size_t i = first; i < end; ++i) call_.push_back({pieces_[i].from, pieces_[i].bytes});
        call_[0].from += skip;
        call_[0].bytes -= skip;
        const std::int64_t done = env_.write(file_->fd(), call_.data(), call_.size(), pieces_[first].offset + skip);
        // Not for ever: a thread that serves others must not hang in it.
        if ((done == -EINTR || done == -EAGAIN) && ++again < most_attempts) continue;
        if (done <= 0) {
            // A write of nothing at all is a device that is full in a way of its own.
            for (std::size_t i = first; i < end; ++i)
                if (results_[pieces_[i].order] == 0) results_[pieces_[i].order] = done < 0 ? done : -EIO;
            troubles.write_failed(key_, path_, pieces_[first].offset + skip, pieces_[end - 1].offset + pieces_[end - 1].bytes, done < 0 ? done : -EIO);
            return;
        }
        counters.writes.fetch_add(1, std::memory_order_relaxed);
        counters.bytes.fetch_add(static_cast<std::uint64_t>(done), std::memory_order_relaxed);
        for (auto left = static_cast<std::uint64_t>(done) + skip; ; ++first) {
            if (first == end || left < pieces_[first].bytes) {
                skip = left;
                break;
            }
            left -= pieces_[first].bytes;
        }
    }
}

}  // namespace penstock::host
