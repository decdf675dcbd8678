// The file API, the same on GPU and CPU: open, close, read, map, unmap, stat, prefetch. Writing:
// penstock/write.hpp.
//
// Every call takes the calling group first: penstock::lane (one thread), warp, tile<N> or block.
// All threads of the group call together with equal arguments and all get the same result. On the
// host, a thread calls as penstock::lane{}.
//
// Results: a count or 0, or a negative errno (penstock/error.hpp). No call aborts, prints or hangs:
// every wait ends with the answer, the runtime's interrupt, or a time-out of its options.
//
// Interrupts: after runtime::interrupt(), or a signal (interrupt_on_signals), each call that reads,
// writes, maps, gathers or opens gives -ECANCELED, whether or not it would wait. Opens,
// gathers and accesses to pages not in the cache check for it every time; on a GPU, reads and maps
// of cached pages and writes check about every 32nd time. So a kernel that heeds its results ends
// within a second, whatever calls it makes. Elements of a view have no result: elements that are
// not in the cache are zero then (view_status() says why), and the kernel goes on to its own end.
//
// Thread safety: any number of groups may make any calls at once, on the same descriptors too; each
// open needs its close, which any group may make. A descriptor belongs to its opener alone if at
// most six descriptors of the file are open then (and options::max_files is 65536 or less). After
// its close every call with it gives -EBADF, a second close too, until an open of the same file and
// access gets that number again; an open gets the lowest number that is free. Further opens of a
// name with the same access share one number, so that a million of them ask the host once. A close
// too many of the shared number takes the reference of another opener that shares it. It never
// takes the reference of a descriptor with a number of its own, nor that of a writer as long as no
// reader shares the number.
//
// Consistency: within one device all groups see the same pages, and every later read sees a write
// that has returned. The first open after the last close sees the changes that other programs made
// to a file (close-to-open); where the last close failed, after the next one that succeeds. While a
// file stays open, its size is the size at its first open, or as far as this runtime has written
// since. Where another program cuts it meanwhile, pages that are not in the cache and that the file
// has no more in full give -ESTALE.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/file_table.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/truncate.hpp"
#include "penstock/group/lane.hpp"

namespace penstock {

// A kernel's reference to its runtime, or to one device of a runtime that has several. Trivially
// copyable; pass it by value. Valid while the runtime lives.
struct runtime_ref {
    engine::cache_view view;
    std::uint32_t device;  // which of the runtime's devices, in the order of options::devices
};

// Flags of an open: an access (the first values below), and any other flags that make sense with
// it. The values are those of Linux's O_* flags.
enum open_flags : int {
    open_read = 0,
    open_write = 1,
    open_read_write = 2,
    open_write_once = 3,  // for new files: mappings of it need no copy of the page, and zeros that
                          // are stored through them are not written. Otherwise as open_read_write
    // Creates the file if it does not exist, with mode 0666 less the umask. Where the name is a
    // link that leads to nothing the open gives -ENOENT and creates nothing: the link may lead out
    // of the roots.
    open_create = engine::flag_create,
    open_exclusive = engine::flag_exclusive,  // with open_create: -EEXIST if it exists
    // Cuts the file to size 0, unless this runtime has it open for writing already. So all groups
    // of a kernel may open their output with this flag, if the host holds the file open meanwhile.
    open_truncate = engine::flag_truncate,
};

struct file_stat {
    std::uint64_t size_bytes;  // when the file was first opened, or as written since
    std::uint64_t inode;
    std::int64_t modified_ns;  // since 1970
    std::uint64_t page_bytes;  // reads of whole aligned pages are cheapest
};

// A pinned piece of one page. `data` may be read until unmap; the bytes change meanwhile only if a
// group writes them.
struct mapping {
    const std::byte* data;
    std::int64_t bytes;  // how many, or a negative errno, and then data is null
    std::uint64_t word_index;
    std::uint32_t frame;
};

// A position in a file, for groups that read from front to back. Each thread of the group keeps an
// equal copy.
struct cursor {
    int fd = -1;
    std::uint64_t offset_bytes = 0;
};

namespace detail {

// Counts a failed verb and passes its result on.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t counted(const Group& g, const runtime_ref& fs,
                                                 std::int64_t result) {
    if (result < 0 && g.is_leader()) engine::count(g, fs.view, engine::count_errors);
    return result;
}

}  // namespace detail

// Opens a regular file below the runtime's roots. `path` ends with a zero byte, may be relative to
// the first root, and lies in memory that every thread of the group can read. Returns a descriptor
// (>= 0). Errors: -EFAULT null path, -EINVAL unknown flags or flags that do not go together,
// -ENOENT, -EACCES, -EISDIR, -EOPNOTSUPP, -ENAMETOOLONG, -ENFILE, -ENOMEM, -EMFILE, -EEXIST, -EROFS
// (for writing: options::writable is off, or the file system is read only), errors of the file
// system, and errors of a wait (-ETIMEDOUT, -ECANCELED, -ESHUTDOWN, -EAGAIN). Cost: for a file that
// is open already (for writing: that has a writer already), a few loads and one atomic; else one
// round trip to the host, which all groups that open the name meanwhile share. A file that was
// closed and has not changed keeps its cached pages.
template <group Group>
PENSTOCK_HD int open(const Group& g, const runtime_ref& fs, const char* path,
                     int flags = open_read) {
    if (flags == open_read) return static_cast<int>(engine::open_file(g, fs.view, path));
    if (flags < 0 || !engine::sound_flags(static_cast<std::uint32_t>(flags))) return -EINVAL;
    if (fs.view.writes == nullptr) return -EROFS;
    return static_cast<int>(
        engine::open_written(g, fs.view, path, static_cast<std::uint32_t>(flags)));
}

// Gives one reference back. Returns 0 or -EBADF. The file's pages stay in the cache. Waits for
// nothing if the file was not written. Else the last close of the file writes back all bytes that
// the file does not have yet, so that every program that opens it afterwards sees them (they are on
// storage only after fsync). An earlier close of a descriptor that may write writes back a share of
// the dirty pages if there are many, and may wait for its turn to do so (docs/guide/writing.md). If
// bytes could not be written, now or earlier without a caller being told, the result is that error.
// The descriptor is closed all the same, the pages stay dirty in the cache, and the next open of
// the file finds them.
template <group Group>
PENSTOCK_HD int close(const Group& g, const runtime_ref& fs, int fd) {
    std::int64_t result = 0;
    g.sync();  // no thread of the group is still using the descriptor
    const std::uint32_t slot = engine::descriptor_slot(fs.view, fd),
                        number = engine::descriptor_number(fs.view, fd);
    const bool known = fd >= 0 && slot < fs.view.file_slots;
    if (known && fs.view.writes != nullptr)
        return static_cast<int>(
            detail::counted(g, fs, by_address(&engine::close_written<Group>)(g, fs.view, fd)));
    if (g.is_leader()) {
        const std::uint32_t generation = engine::descriptor_generation(fd);
        if (!known || !(number == 0 ? engine::try_release(&fs.view.file_words[slot], generation)
                                    : engine::release_number(&fs.view.file_words[slot], generation,
                                                             number))) {
            result = -EBADF;
            engine::count(g, fs.view, engine::count_errors);
        }
    }
    return g.broadcast(static_cast<int>(result));
}

// Copies up to `bytes` bytes from byte `offset` of the file to `buffer` (any alignment; 16 bytes is
// fastest; global, shared or host memory that the group's threads can write). Returns the count,
// which is smaller than asked only at the end of the file, and 0 at or behind it. After it returns,
// every thread of the group may read the whole buffer. Errors: -EBADF, -EINVAL (null buffer,
// negative offset or count, sum past 2^63), -ENOBUFS, -ESTALE, errors of the file system (also of
// another file's, if all frames are pinned or dirty and the dirty frames cannot be written), errors
// of a wait. If some bytes were delivered before the error, the call returns their count. Cost: for
// a page in the cache, two loads of its word and the copy, no atomic on it (host threads: one of
// the thread's own counter, and two on the word where copies may race: ARM, ThreadSanitizer); for
// another page, one round trip to the host, with up to eight pages of this call in flight together.
template <group Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t read(const Group& g, const runtime_ref& fs, int fd,
                                              void* buffer, std::int64_t bytes,
                                              std::int64_t offset) {
    engine::file_handle file{};
    engine::page_word early = 0;
    if (!engine::find_to_read(g, fs.view, fd, offset, file, early))
        return detail::counted(g, fs, -EBADF);
    if (bytes < 0 || offset < 0 ||
        static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes) > INT64_MAX ||
        (buffer == nullptr && bytes > 0))
        return detail::counted(g, fs, -EINVAL);
    const std::int64_t done = engine::read_file(g, fs.view, file, static_cast<std::byte*>(buffer),
                                                static_cast<std::uint64_t>(bytes),
                                                static_cast<std::uint64_t>(offset), early);
    g.sync();  // every thread's part is in the buffer before any of them reads it
    if (g.is_leader() && done > 0)
        engine::count(g, fs.view, engine::count_bytes_read, static_cast<std::uint64_t>(done));
    return detail::counted(g, fs, done);
}

// The same from the cursor's position, which moves on by the count.
template <group Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t read(const Group& g, const runtime_ref& fs, cursor& at,
                                              void* buffer, std::int64_t bytes) {
    const std::int64_t done =
        read(g, fs, at.fd, buffer, bytes, static_cast<std::int64_t>(at.offset_bytes));
    if (done > 0) at.offset_bytes += static_cast<std::uint64_t>(done);
    return done;
}

// Pins the page that holds byte `offset` and returns a pointer to that byte. The mapping reaches to
// the end of the page, of the file, or of the range asked for, whichever comes first: ask again for
// the rest. Alignment of `data` is that of `offset`, up to 256 bytes. Each map needs its unmap, by
// the same or another group; while a mapping is held, its frame is not evicted, so hold few at a
// time. Errors (in `bytes`): those of read; -ENOBUFS if every frame stayed pinned for the frame
// wait. Cost: for a page in the cache, one atomic; else a round trip.
template <group Group>
PENSTOCK_HD mapping map(const Group& g, const runtime_ref& fs, int fd, std::int64_t offset,
                        std::int64_t bytes) {
    mapping out{nullptr, 0, engine::no_word, 0};
    engine::file_handle file{};
    engine::page_word early = 0;
    if (!engine::find_to_read(g, fs.view, fd, offset, file, early)) {
        out.bytes = detail::counted(g, fs, -EBADF);
        return out;
    }
    if (bytes < 0 || offset < 0 ||
        static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes) > INT64_MAX) {
        out.bytes = detail::counted(g, fs, -EINVAL);
        return out;
    }
    const auto at = static_cast<std::uint64_t>(offset);
    if (at >= file.size_bytes || bytes == 0) return out;
    engine::pinned_page page{};
    if (const std::int64_t code =
            engine::map_page(g, fs.view, file, at >> fs.view.page_shift, page, early);
        code != 0) {
        out.bytes = detail::counted(g, fs, code);
        return out;
    }
    const std::uint64_t in_page = at & (fs.view.page_bytes() - 1);
    std::uint64_t length = fs.view.page_bytes() - in_page;
    if (length > static_cast<std::uint64_t>(bytes)) length = static_cast<std::uint64_t>(bytes);
    if (length > file.size_bytes - at) length = file.size_bytes - at;
    return {fs.view.frame_address(page.frame) + in_page, static_cast<std::int64_t>(length),
            page.word_index, page.frame};
}

// Gives a mapping back. Returns 0, or -EINVAL if the mapping is not held (for an empty or failed
// mapping: 0).
template <group Group>
PENSTOCK_HD int unmap(const Group& g, const runtime_ref& fs, const mapping& mapped) {
    g.sync();  // no thread of the group still reads through the pointer
    if (mapped.data == nullptr) return 0;
    std::int64_t result = 0;
    if (g.is_leader()) {
        result = -EINVAL;
        if (mapped.word_index < fs.view.word_count &&
            engine::unpin_if_held(&fs.view.words[mapped.word_index], mapped.frame))
            result = 0;
        if (result < 0) engine::count(g, fs.view, engine::count_errors);
    }
    return g.broadcast(static_cast<int>(result));
}

// Fills in the file_stat of an open file, by the leader: `out` is memory that the whole group can
// read, or each lane calls by itself. Returns 0, -EBADF, or -EFAULT for a null `out`; never
// waits, and does not ask the host.
template <group Group>
PENSTOCK_HD int stat(const Group& g, const runtime_ref& fs, int fd, file_stat* out) {
    engine::file_handle file{};
    if (!engine::find_file(g, fs.view, fd, file, engine::nothing_unwanted))
        return static_cast<int>(detail::counted(g, fs, -EBADF));
    if (out == nullptr) return static_cast<int>(detail::counted(g, fs, -EFAULT));
    const engine::file_record& record = fs.view.file_records[file.slot];
    if (g.is_leader())
        *out = {file.size_bytes, record.inode, record.modified_ns, fs.view.page_bytes()};
    g.sync();  // *out may be shared by the group
    return 0;
}

// Brings the pages of a range into the cache, up to eight in flight at a time, and returns when
// they are there; the calls of other groups go on meanwhile. Does not wait for pages that other
// groups are loading. Returns how many bytes of the range lie in pages that were found or brought
// in before the end of the range or the first error. Errors: those of read, if the first page
// failed. Cost: for a page that is there already only a look at its word.
template <group Group>
PENSTOCK_HD std::int64_t prefetch(const Group& g, const runtime_ref& fs, int fd,
                                  std::int64_t offset, std::int64_t bytes) {
    engine::file_handle file{};
    if (!engine::find_file(g, fs.view, fd, file)) return detail::counted(g, fs, -EBADF);
    if (bytes < 0 || offset < 0 ||
        static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(bytes) > INT64_MAX)
        return detail::counted(g, fs, -EINVAL);
    const auto begin = static_cast<std::uint64_t>(offset);
    if (begin >= file.size_bytes || bytes == 0) return 0;
    const std::uint64_t left = file.size_bytes - begin;
    const std::uint64_t end =
        begin +
        (static_cast<std::uint64_t>(bytes) < left ? static_cast<std::uint64_t>(bytes) : left);
    return detail::counted(g, fs,
                           by_address(&engine::bring_in<Group>)(g, fs.view, file.slot, begin, end));
}

}  // namespace penstock
