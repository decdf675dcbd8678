// Writes to files, the same on GPU and CPU: write, append, msync, fsync, truncate. For runtimes
// with options::writable.
//
// Groups, results and thread safety are those of penstock/file.hpp; the descriptor has to be open
// for writing (open_write, open_read_write), except for fsync and msync. Bytes go to cached pages,
// and from there to the file when their frame is needed, with msync, with fsync, and with the last
// close. Exactly the written bytes go to the file, so programs, runtimes and groups that write
// different bytes of a file, even of one page, do not disturb each other. If several write the same
// bytes between two synchronisations, the file has the bytes that were written back last.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/map_write.hpp"
#include "penstock/engine/unlink.hpp"
#include "penstock/file.hpp"

namespace penstock {

// A pinned piece of one page that may be changed. `data` may be read, and written by plain stores,
// until unmap, by every thread that the group's synchronisation reaches.
struct writable_mapping {
    std::byte* data;
    std::int64_t bytes;  // how many, or a negative errno, and then data is null
    std::uint64_t word_index;
    std::uint32_t frame;
    std::uint32_t in_page;
};

// Copies `bytes` bytes from `buffer` (any alignment; 16 bytes is fastest; memory that every thread
// of the group can read) to byte `offset` of the file, which grows if need be; bytes in between
// that were never written read as zeros. Returns the count, which is fewer than asked if a page
// failed after some bytes were written. When the call returns the buffer may be used again, and
// every later read of the device sees the bytes. Errors, if nothing was written: -EBADF, -EINVAL
// (null buffer, negative offset or count, sum past 2^63), -EFBIG (growth: docs/guide/writing.md),
// -ESTALE (another program cut the file), -ENOBUFS, -ENOMEM, errors of the file system or a wait.
// Cost: two atomics of a word of the file; for a page in the cache the copy, two atomics of its
// word, and one atomic for every 64 bytes; a page that is not in the cache and is not written whole
// is read first. If the cache is full of dirty pages, the caller has to write a page back; if that
// fails, it gets the error.
template <group Group>
PENSTOCK_HD std::int64_t write(const Group& g, const runtime_ref& fs, int fd, const void* buffer,
                               std::int64_t bytes, std::int64_t offset) {
    engine::file_handle file{};
    g.sync();  // every thread's part of the buffer is there before any of them copies it
    if (fs.view.writes == nullptr || !engine::find_file(g, fs.view, fd, file, engine::may_read))
        return detail::counted(g, fs, -EBADF);
    if (bytes < 0 || offset < 0 ||
        static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes) > INT64_MAX ||
        (buffer == nullptr && bytes > 0))
        return detail::counted(g, fs, -EINVAL);
    if (bytes == 0) return 0;
    const std::int64_t done = by_address(&engine::write_file<Group>)(
        g, fs.view, file.slot, static_cast<const std::byte*>(buffer),
        static_cast<std::uint64_t>(bytes), static_cast<std::uint64_t>(offset));
    if (g.is_leader() && done > 0)
        engine::count(g, fs.view, engine::count_bytes_written, static_cast<std::uint64_t>(done));
    return detail::counted(g, fs, done);
}

// Writes a record at the end of the file, which all groups of the device share: the record gets a
// place of its own, and no record is lost or torn by another record. Returns the offset at which it
// begins. Groups that read the file meanwhile may find zeros there until append returns. This
// runtime does not know of records that other runtimes and programs append at the same time: give
// each its own file. Errors: those of write; a record of which only a part could be written is an
// error, -EIO, and its place stays. A record of which nothing was written leaves the file as it
// was, and the next one begins in its place; unless a group began to append behind it before it
// failed: then the place stays, and reads as zeros.
template <group Group>
PENSTOCK_HD std::int64_t append(const Group& g, const runtime_ref& fs, int fd, const void* buffer,
                                std::int64_t bytes) {
    engine::file_handle file{};
    g.sync();  // every thread's part of the buffer is there before any of them copies it
    if (fs.view.writes == nullptr || !engine::find_file(g, fs.view, fd, file, engine::may_read))
        return detail::counted(g, fs, -EBADF);
    if (bytes < 0 || file.size_bytes + static_cast<std::uint64_t>(bytes) > INT64_MAX ||
        (buffer == nullptr && bytes > 0))
        return detail::counted(g, fs, -EINVAL);
    const std::int64_t at = by_address(&engine::append_file<Group>)(
        g, fs.view, file.slot, static_cast<const std::byte*>(buffer),
        static_cast<std::uint64_t>(bytes));
    if (g.is_leader() && at >= 0 && bytes > 0)
        engine::count(g, fs.view, engine::count_bytes_written, static_cast<std::uint64_t>(bytes));
    return detail::counted(g, fs, at);
}

// Writes back the bytes written to the pages that [offset, offset + bytes) touches. Other programs
// see them when this returns; they are on storage only after fsync. Returns 0 or a negative errno:
// -EBADF, -EINVAL, errors of the file system, errors of a wait. Up to 64 pages are under way at a
// time (engine::write_queue::depth), in each warp of a block where pages have at most 16 KiB; clean
// pages cost a look at their word.
template <group Group>
PENSTOCK_HD int msync(const Group& g, const runtime_ref& fs, int fd, std::int64_t offset,
                      std::int64_t bytes) {
    engine::file_handle file{};
    if (!engine::find_file(g, fs.view, fd, file, engine::nothing_unwanted))
        return static_cast<int>(detail::counted(g, fs, -EBADF));
    if (bytes < 0 || offset < 0 ||
        static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes) > INT64_MAX)
        return static_cast<int>(detail::counted(g, fs, -EINVAL));
    if (fs.view.writes == nullptr || bytes == 0) return 0;
    const std::uint64_t first = static_cast<std::uint64_t>(offset) >> fs.view.page_shift;
    const std::uint64_t end = engine::pages_of(
        fs.view, static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes));
    return static_cast<int>(detail::counted(
        g, fs, by_address(&engine::flush_pages<Group>)(g, fs.view, file.slot, first, end)));
}

// Pins the page that holds byte `offset`, to be read and changed through the pointer. As map, but
// the mapping may begin behind the end of the file and reach beyond it: then the file grows to the
// end of the mapping when it is unmapped. Changed bytes count as written from unmap, or from msync
// of the mapping, on. Only bytes that differ from their value when the page was first mapped for
// writing count as changed. If two groups change a page at once, each byte comes from the group
// that changed it. Errors (in `bytes`): those of write; -EBUSY if the same page is mapped through
// open_write_once and otherwise at the same time. Cost: that of map, and a copy of the page in a
// second frame of the cache, which all mappings of the page share (none with open_write_once);
// unmap compares the two at memory speed. Hold few mappings at a time.
template <group Group>
PENSTOCK_HD writable_mapping map_write(const Group& g, const runtime_ref& fs, int fd,
                                       std::int64_t offset, std::int64_t bytes) {
    writable_mapping out{nullptr, 0, engine::no_word, 0, 0};
    engine::file_handle file{};
    std::int64_t code = 0;
    if (fs.view.writes == nullptr || !engine::find_file(g, fs.view, fd, file, engine::may_read) ||
        engine::descriptor_access(fd) == engine::may_write)
        code = -EBADF;
    else if (bytes < 0 || offset < 0 ||
             static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes) > INT64_MAX)
        code = -EINVAL;
    const auto at = static_cast<std::uint64_t>(offset);
    engine::pinned_page page{};
    if (code == 0 && bytes > 0)
        code = by_address(&engine::map_to_change<Group>)(
            g, fs.view, file.slot, at >> fs.view.page_shift,
            engine::descriptor_access(fd) == engine::may_write_once, page);
    if (code != 0) out.bytes = detail::counted(g, fs, code);
    if (code != 0 || bytes == 0) return out;
    const auto in_page = static_cast<std::uint32_t>(at & (fs.view.page_bytes() - 1));
    const auto room = static_cast<std::int64_t>(fs.view.page_bytes() - in_page);
    return {fs.view.frame_address(page.frame) + in_page, bytes < room ? bytes : room,
            page.word_index, page.frame, in_page};
}

namespace detail {

// Is the mapping held? A pin keeps the word valid and its frame, and a holder keeps the pristine
// word.
template <typename Group>
PENSTOCK_HD inline bool is_held(const Group& g, const runtime_ref& fs,
                                const writable_mapping& mapped) {
    const engine::cache_view& c = fs.view;
    bool good = c.writes != nullptr && mapped.word_index < c.word_count &&
                mapped.frame < c.frame_count && mapped.bytes > 0 &&
                mapped.in_page + static_cast<std::uint64_t>(mapped.bytes) <= c.page_bytes();
    if (good && g.is_leader()) {
        const engine::page_word seen = engine::load_relaxed(&c.words[mapped.word_index]);
        const engine::pristine_word held = engine::load_pristine_relaxed(&c.pristine[mapped.frame]);
        good = engine::is_valid(seen) && engine::pins_of(seen) > 0 &&
               engine::frame_of(seen) == mapped.frame && held != engine::pristine_none;
    }
    return g.broadcast(good);
}

}  // namespace detail

// Gives a writable mapping back; changed bytes count as written, and the file reaches to the
// mapping's end. Returns 0; an error of a wait, if a truncate of the file does not end: then that
// may take the changes; or -EINVAL if the mapping is not held (for an empty or failed mapping:
// 0). A mapping may outlive its descriptor: if it is given back after the last close, its changes
// are written back at once, as by a close, and an error of a write is the result.
template <group Group>
PENSTOCK_HD int unmap(const Group& g, const runtime_ref& fs, const writable_mapping& mapped) {
    if (mapped.data == nullptr) return 0;
    if (!detail::is_held(g, fs, mapped)) return static_cast<int>(detail::counted(g, fs, -EINVAL));
    const engine::changed_part part{
        mapped.in_page, mapped.in_page + static_cast<std::uint32_t>(mapped.bytes), true};
    const engine::pinned_page page{mapped.word_index, mapped.frame, false};
    const std::int64_t code = by_address(&engine::unmap_changed<Group>)(g, fs.view, page, part);
    g.sync();  // the leader's steps come before the group's next call
    return static_cast<int>(detail::counted(g, fs, code));
}

// Writes back the bytes changed through the mapping so far; the mapping stays. Returns 0, or a
// negative errno like the other msync. Bytes of a page that are written back while it has a
// writable mapping are written once more after the last of its mappings is gone.
template <group Group>
PENSTOCK_HD int msync(const Group& g, const runtime_ref& fs, const writable_mapping& mapped) {
    if (mapped.data == nullptr) return 0;
    if (!detail::is_held(g, fs, mapped)) return static_cast<int>(detail::counted(g, fs, -EINVAL));
    const engine::changed_part part{
        mapped.in_page, mapped.in_page + static_cast<std::uint32_t>(mapped.bytes), false};
    const engine::pinned_page page{mapped.word_index, mapped.frame, false};
    return static_cast<int>(
        detail::counted(g, fs, by_address(&engine::flush_changed<Group>)(g, fs.view, page, part)));
}

// Returns after everything that was written to the file before is on storage (fdatasync): through
// any descriptor of this runtime, also one that is closed, and by other programs. A runtime that
// does not write returns 0 and does nothing. Returns 0; or -EBADF, -ESTALE (the file was replaced
// and is no longer at hand), an error of a wait, or the error of a write-back that failed, now or
// earlier without a caller being told of it yet. Pages that could not be written stay dirty, and
// the next fsync tries again. runtime::write_status() says which bytes of which file they are. If
// the sync itself fails, the operating system may have dropped the file's bytes that it held (Linux
// does so). An fsync that succeeds afterwards, or at the same time, says nothing about those bytes,
// so write them once more.
template <group Group>
PENSTOCK_HD int fsync(const Group& g, const runtime_ref& fs, int fd) {
    engine::file_handle file{};
    if (!engine::find_file(g, fs.view, fd, file, engine::nothing_unwanted))
        return static_cast<int>(detail::counted(g, fs, -EBADF));
    if (fs.view.writes == nullptr) return 0;
    return static_cast<int>(
        detail::counted(g, fs, by_address(&engine::sync_file<Group>)(g, fs.view, file.slot)));
}

// Gives the file another size. Bytes that are cut off are gone; new bytes read as zeros. Returns 0
// or a negative errno: -EBADF, -EINVAL, -EFBIG (growth: docs/guide/writing.md), errors of the file
// system, errors of a wait; if the host refuses, the file is as it was. A read behind the cut at
// the same time comes before or after it, byte by byte; a change by another group of the device
// wholly before or after it. Waits for changes that are under way. -ETIMEDOUT and -ECANCELED: the
// file may be cut, or may be yet, before its next change.
template <group Group>
PENSTOCK_HD int truncate(const Group& g, const runtime_ref& fs, int fd, std::int64_t size_bytes) {
    engine::file_handle file{};
    if (fs.view.writes == nullptr || !engine::find_file(g, fs.view, fd, file, engine::may_read))
        return static_cast<int>(detail::counted(g, fs, -EBADF));
    if (size_bytes < 0) return static_cast<int>(detail::counted(g, fs, -EINVAL));
    return static_cast<int>(
        detail::counted(g, fs,
                        by_address(&engine::truncate_file<Group>)(
                            g, fs.view, file.slot, static_cast<std::uint64_t>(size_bytes))));
}

// Removes a name; `path` as in open. The file itself goes with its last descriptor, here and in
// other programs; until then open descriptors go on working. An open of the name that begins after
// this has returned does not find the file. Returns 0 or a negative errno: those of open for
// writing, -EISDIR for a directory. Cost: one round trip to the host. Waits for an open of the same
// name that is under way.
template <group Group>
PENSTOCK_HD int unlink(const Group& g, const runtime_ref& fs, const char* path) {
    if (fs.view.writes == nullptr) return static_cast<int>(detail::counted(g, fs, -EROFS));
    return static_cast<int>(
        detail::counted(g, fs, by_address(&engine::unlink_file<Group>)(g, fs.view, path, true)));
}

}  // namespace penstock
