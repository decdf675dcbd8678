// Copies open files, or compares them, by one kernel (on the cpu back end by its threads); and
// the kernel's part: pieces of files, taken in order, each copied or compared page by page.
#pragma once

#include <cerrno>
#include <cstdint>
#include <vector>

#include "common/whole_write.hpp"
#include "common/work_items.hpp"
#include "penstock/runtime.hpp"

namespace penstock::cp {

struct file_range {
    std::uint64_t offset_bytes = 0, bytes = 0;
};

// The parts of the first `size_bytes` bytes that are not holes, in order: each begins at a multiple
// of `piece_bytes`, and ends at one or at the end of the file. Holes that have no whole piece count
// as data. All of it, where the file system does not tell.
std::vector<file_range> data_of(int fd, std::uint64_t size_bytes, std::uint64_t piece_bytes);

struct open_copy {
    int from = -1, to = -1;        // descriptors
    std::uint64_t bytes = 0;       // how long the source is
    std::vector<file_range> data;  // what of it is copied; the rest are holes

    // What became of it. All that lies before `reached_bytes` was done.
    std::uint64_t reached_bytes = 0;
    int code = 0;  // 0, or why it stopped there: -EILSEQ, the byte there differs; -ECANCELED, it
                   // never came to it
    bool reading = false;  // the source could not be read; else the copy could not be written, or
                           // compared
};

// Blocks until all is done or has failed. The status is that of the kernel; each file's own is in
// it.
status copy_open_files(runtime& rt, std::vector<open_copy>& files);
status compare_open_files(runtime& rt, std::vector<open_copy>& files);

// What follows is for the groups of the kernel.

// Pieces of one file that lie side by side. Those of all files of a job stand in one array, ordered
// by `first_item`.
struct copy_extent {
    std::uint64_t offset_bytes, bytes, first_item;
    std::uint64_t file;  // in the job's list
};

struct copy_file {
    int from, to;           // descriptors
    std::uint64_t failure;  // 0: none; else the one nearest to the file's beginning, see below
};

struct copy_view {
    const copy_extent* extents;
    copy_file* files;
    apps::work_totals* totals;
    std::uint64_t extent_count, items, piece_bytes;
};

// A failure is one word, so that where it was and what it was stay together, and the complement of
// that, so that the larger of two is the one nearer to the file's beginning. Pieces are taken in
// order and none before a failure is left out: so all that lies before the failure that remains was
// done. Of files that are compared, `reading` is of the source, and `writing` of the copy.
enum class failed_at : std::uint64_t { writing = 0, reading = 1 };
inline constexpr std::uint64_t most_bytes = std::uint64_t{1} << 51;

PENSTOCK_HD constexpr std::uint64_t failure_word(std::uint64_t offset_bytes, failed_at step,
                                                 std::int64_t code) {
    return ~(offset_bytes << 13 | static_cast<std::uint64_t>(step) << 12 |
             (static_cast<std::uint64_t>(-code) & 4095));
}
PENSTOCK_HD constexpr std::uint64_t offset_of(std::uint64_t failure) { return ~failure >> 13; }
PENSTOCK_HD constexpr failed_at step_of(std::uint64_t failure) {
    return static_cast<failed_at>(~failure >> 12 & 1);
}
PENSTOCK_HD constexpr int code_of(std::uint64_t failure) {
    return -static_cast<int>(~failure & 4095);
}

PENSTOCK_HD PENSTOCK_INLINE void note_failure(copy_file& file, std::uint64_t offset_bytes,
                                              failed_at step, std::int64_t code) {
    atomic_raise<order::relaxed>(&file.failure, failure_word(offset_bytes, step, code));
}

// The extent with this piece: the last that begins at it or before.
PENSTOCK_HD PENSTOCK_INLINE const copy_extent& extent_of(const copy_view& view,
                                                         std::uint64_t item) {
    std::uint64_t low = 0, high = view.extent_count;
    while (high - low > 1) {
        const std::uint64_t middle = (low + high) / 2;
        if (view.extents[middle].first_item <= item) low = middle;
        else high = middle;
    }
    return view.extents[low];
}

// Pages of the source are pinned and written from where they lie in the cache. The piece goes to
// the file at once: so an error shows before much else is done, and pages that are needed for the
// next pieces are clean.
template <typename Group>
PENSTOCK_HD void copy_piece(const Group& g, const runtime_ref& fs, copy_file& file,
                            std::int64_t begin, std::int64_t bytes) {
    if (bytes > static_cast<std::int64_t>(fs.view.page_bytes()))
        prefetch(g, fs, file.from, begin, bytes);  // what cannot be had is met again by map
    std::int64_t done = 0;
    for (std::int64_t length = 0; done < bytes; done += length) {
        const mapping page = map(g, fs, file.from, begin + done, bytes - done);
        length = page.bytes;
        const bool reading = length <= 0;
        const std::int64_t code =
            reading ? (length < 0 ? length : -ESTALE)
                    : apps::write_whole(g, fs, file.to, page.data, length, begin + done);
        unmap(g, fs, page);
        if (code == 0) continue;
        if (g.is_leader())
            note_failure(file, static_cast<std::uint64_t>(begin + done),
                         reading ? failed_at::reading : failed_at::writing, code);
        break;
    }
    const int code = msync(g, fs, file.to, begin, done);
    if (code != 0 && g.is_leader())
        note_failure(file, static_cast<std::uint64_t>(begin), failed_at::writing, code);
}

// Where the first byte that differs lies, among those that this thread of the group looks at;
// `bytes` if none does. Both begin at an address that words can be loaded from.
template <typename Group>
PENSTOCK_HD std::int64_t first_difference(const Group& g, const std::byte* a, const std::byte* b,
                                          std::int64_t bytes) {
    const auto* const words_a = reinterpret_cast<const std::uint64_t*>(a);
    const auto* const words_b = reinterpret_cast<const std::uint64_t*>(b);
    std::int64_t at = 8 * static_cast<std::int64_t>(g.rank());
    const auto step = 8 * static_cast<std::int64_t>(g.size());
    while (at + 8 <= bytes && words_a[at / 8] == words_b[at / 8]) at += step;
    const std::int64_t end = at + 8 < bytes ? at + 8 : bytes;
    for (; at < end; ++at)
        if (a[at] != b[at]) return at;
    return bytes;
}

// The same pages of both files, the copy's as the file has it now: it was closed in between.
template <typename Group>
PENSTOCK_HD void compare_piece(const Group& g, const runtime_ref& fs, copy_file& file,
                               std::int64_t begin, std::int64_t bytes) {
    if (bytes > static_cast<std::int64_t>(fs.view.page_bytes())) {
        prefetch(g, fs, file.from, begin, bytes);
        prefetch(g, fs, file.to, begin, bytes);
    }
    std::int64_t length = 0;
    for (std::int64_t done = 0; done < bytes; done += length) {
        const mapping ours = map(g, fs, file.from, begin + done, bytes - done);
        const mapping copy = map(g, fs, file.to, begin + done, bytes - done);
        length = ours.bytes < copy.bytes ? ours.bytes : copy.bytes;
        const std::int64_t differs =
            length > 0 ? first_difference(g, ours.data, copy.data, length) : 0;
        if (length > 0 && differs < length)
            note_failure(file, static_cast<std::uint64_t>(begin + done + differs),
                         failed_at::writing, -EILSEQ);
        const bool reading = ours.bytes <= 0;
        const std::int64_t failed = reading ? ours.bytes : copy.bytes;
        unmap(g, fs, copy);
        unmap(g, fs, ours);
        if (length > 0) continue;
        if (g.is_leader())
            note_failure(file, static_cast<std::uint64_t>(begin + done),
                         reading ? failed_at::reading : failed_at::writing,
                         failed < 0 ? failed : -ESTALE);
        return;
    }
}

// Piece after piece until none is left, or the user interrupts. Of a file that failed, pieces
// behind the failure are left out.
template <bool Compare, typename Group>
PENSTOCK_HD void work_through(const Group& g, const runtime_ref& fs, const copy_view& view) {
    for (;;) {
        const std::uint64_t item =
            apps::take_item(g, view.totals, view.items, apps::user_interrupt{fs});
        if (item == view.items) return;
        const copy_extent& extent = extent_of(view, item);
        copy_file& file = view.files[extent.file];
        const std::uint64_t in_extent = (item - extent.first_item) * view.piece_bytes,
                            begin = extent.offset_bytes + in_extent;
        const std::uint64_t left = extent.bytes - in_extent,
                            bytes = left < view.piece_bytes ? left : view.piece_bytes;
        const std::uint64_t failure =
            g.broadcast(g.is_leader() ? atomic_load<order::relaxed>(&file.failure) : 0);
        if (failure != 0 && offset_of(failure) <= begin) continue;
        if constexpr (Compare)
            compare_piece(g, fs, file, static_cast<std::int64_t>(begin),
                          static_cast<std::int64_t>(bytes));
        else
            copy_piece(g, fs, file, static_cast<std::int64_t>(begin),
                       static_cast<std::int64_t>(bytes));
    }
}

}  // namespace penstock::cp
