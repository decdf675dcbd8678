#include "files/file_writer.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "files/marked_runs.hpp"
#include "penstock/base/atomic.hpp"

namespace penstock::host {

namespace {

// As many pieces as the operating system takes in one call, and no more bytes than it copies in a
// moment.
constexpr std::size_t most_pieces = 1024;
constexpr std::uint64_t most_bytes = 8u << 20;
// Calls that fail one after the other for want of room: then the rest is not tried.
constexpr int most_failures = 16;

// Other errors may take a disk long to find, and are not likely to be those of one page.
bool is_about_room(std::int64_t code) {
    return code == -ENOSPC || code == -EDQUOT || code == -EFBIG;
}

}  // namespace

void file_writer::put(const std::vector<write_order>& orders) {
    std::lock_guard lock(list_mutex_);
    list_.insert(list_.end(), orders.begin(), orders.end());
}

file_writer::stored_part file_writer::stored() {
    std::lock_guard lock(stored_mutex_);
    return {cutting_ == 0 ? stored_.bytes : 0, stored_.cuts};
}

void file_writer::begin_cut() {
    std::lock_guard lock(stored_mutex_);
    ++stored_.cuts;
    ++cutting_;
}

// What the file got longer by is zeros, whether it is there or not.
void file_writer::end_cut(std::uint64_t size_bytes) {
    std::lock_guard lock(stored_mutex_);
    ++stored_.cuts;
    --cutting_;
    stored_.bytes = std::min(stored_.bytes, size_bytes);
}

// A write beside a cut may have come before it, and its bytes are gone again then.
void file_writer::note_stored(std::uint64_t cuts_before, std::uint64_t end_bytes) {
    std::lock_guard lock(stored_mutex_);
    if (cutting_ == 0 && stored_.cuts == cuts_before)
        stored_.bytes = std::max(stored_.bytes, end_bytes);
}

// With the lock: is there work for a thread beside those that write?
bool file_writer::wants_another() const {
    return threads_ == 0 ? !list_.empty()
                         : threads_ < most_threads && list_.size() * page_bytes_ >= long_list_bytes;
}

// What others put before they asked is never left behind: either they write it, or a thread that
// does finds it under the lock when it is done, and the last such thread comes again.
bool file_writer::run(write_scratch& scratch, write_counters& counters,
                      write_error_log& write_errors) {
    {
        std::lock_guard lock(list_mutex_);
        if (!wants_another()) return false;
        ++threads_;
        scratch.taken.clear();
        scratch.taken.swap(list_);
    }
    write_list(scratch, counters, write_errors);
    std::lock_guard lock(list_mutex_);
    --threads_;
    return wants_another();
}

void file_writer::list_pieces(write_scratch& s) const {
    s.pieces.clear();
    s.orders.clear();
    for (std::size_t i = 0; i < s.taken.size(); ++i) {
        const write_order& order = s.taken[i];
        const std::size_t before = s.pieces.size();
        const auto add = [&](std::uint64_t begin, std::uint64_t end) {
            s.pieces.push_back({order.page + begin, end - begin, order.offset + begin, i});
            return true;
        };
        if (order.whole) add(0, page_bytes_);
        else for_marked_runs(order.page + page_bytes_, page_bytes_, add);
        s.orders.push_back({0, s.pieces.size() - before});
    }
    std::sort(s.pieces.begin(), s.pieces.end(),
              [](const write_piece& a, const write_piece& b) { return a.offset < b.offset; });
}

void file_writer::answer(const write_order& of, std::int64_t result, write_counters& counters) {
    if (result != 0) counters.errors.fetch_add(1, std::memory_order_relaxed);
    of.reply->result = result;
    // Release: pairs with await; the group sees the result, and its staging area is read for the
    // last time.
    atomic_store<order::release, scope::system>(&of.reply->completed, of.ticket + 1);
}

std::int64_t file_writer::write(const std::vector<memory_piece>& pieces, std::uint64_t offset) {
    if (unwatched_) {
        const std::int64_t done =
            env_.write_unwatched(file_->fd(), pieces.data(), pieces.size(), offset);
        if (done != -EOPNOTSUPP) return done;
    }
    return env_.write(file_->fd(), pieces.data(), pieces.size(), offset);
}

// Each order is answered as soon as its last piece is written: the device goes on with its slot
// while the rest is written.
void file_writer::write_list(write_scratch& s, write_counters& counters,
                             write_error_log& write_errors) {
    list_pieces(s);
    for (std::size_t i = 0; i < s.taken.size(); ++i)
        if (s.orders[i].pieces_left == 0) answer(s.taken[i], 0, counters);
    for (std::size_t first = 0; first < s.pieces.size();) {
        std::size_t end = first + 1;
        std::uint64_t bytes = s.pieces[first].bytes;
        while (end < s.pieces.size() && end - first < most_pieces && bytes < most_bytes &&
               s.pieces[end].offset == s.pieces[end - 1].offset + s.pieces[end - 1].bytes)
            bytes += s.pieces[end++].bytes;
        write_neighbours(s, first, end, counters, write_errors);
        for (; first < end; ++first) {
            const std::size_t of = s.pieces[first].order;
            if (--s.orders[of].pieces_left == 0) answer(s.taken[of], s.orders[of].result, counters);
        }
    }
}

// Pieces that follow each other in the file. Short writes go on where they stopped. After an error
// the orders of what is left have it. But if there was no room, the order at whose piece they
// stopped has it alone and the others are tried: on a full disk bytes that have their place can be
// written, behind a hole that cannot.
void file_writer::write_neighbours(write_scratch& s, std::size_t first, std::size_t end,
                                   write_counters& counters, write_error_log& write_errors) {
    std::uint64_t skip = 0;  // of the first piece
    int again = 0, failures = 0;
    while (first < end) {
        s.call.clear();
        for (std::size_t i = first; i < end; ++i)
            s.call.push_back({s.pieces[i].from, s.pieces[i].bytes});
        s.call[0].from += skip;
        s.call[0].bytes -= skip;
        const std::uint64_t offset = s.pieces[first].offset + skip,
                            all = s.pieces[end - 1].offset + s.pieces[end - 1].bytes - offset;
        const std::uint64_t cuts = stored().cuts;
        const std::int64_t done = hub_.change_told(env_, file_->fd(), {offset, all},
                                                   [&] { return write(s.call, offset); });
        if (done > 0) note_stored(cuts, offset + static_cast<std::uint64_t>(done));
        // Not for ever: a thread that serves others must not hang in it.
        if ((done == -EINTR || done == -EAGAIN) && ++again < most_attempts) continue;
        if (done <= 0) {
            // A write of nothing at all is a device that is full in a way of its own.
            const std::int64_t code = done < 0 ? done : -EIO;
            const std::uint64_t begin = s.pieces[first].offset + skip;
            const std::size_t of = s.pieces[first].order;
            const bool all_fail = !is_about_room(code) || ++failures == most_failures;
            for (; first < end && (all_fail || s.pieces[first].order == of); ++first)
                if (std::int64_t& result = s.orders[s.pieces[first].order].result; result == 0)
                    result = code;
            const write_piece& last = s.pieces[first - 1];
            write_errors.write_failed(key_, path_, begin, last.offset + last.bytes, code);
            skip = 0;
            continue;
        }
        failures = 0;
        counters.writes.fetch_add(1, std::memory_order_relaxed);
        counters.bytes.fetch_add(static_cast<std::uint64_t>(done), std::memory_order_relaxed);
        for (auto left = static_cast<std::uint64_t>(done) + skip;; ++first) {
            if (first == end || left < s.pieces[first].bytes) {
                skip = left;
                break;
            }
            left -= s.pieces[first].bytes;
        }
    }
}

}  // namespace penstock::host
