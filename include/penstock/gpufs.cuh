// The device calls of the original GPUfs, over Penstock's engine: its names, flags, order of
// arguments and results. (Silberstein et al., ACM TOCS 32(1), 2014; warp calls: Shahar, SYSTOR
// 2016.)
//
// Kernels written for the original compile unchanged with this header, or with
// penstock/gpufs_compat.cuh if they use its helper macros or single_thread_*. Whole programs, with
// the original's includes and its host loop, compile with `-I include -I include/penstock/gpufs`
// (penstock/gpufs_host.cuh). With and without -rdc=true, from any number of source files. Call
// gpufs_attach(rt) once before the first kernel.
//
//   gopen gclose gread gwrite gmmap gmunmap      by all threads of a block together
//   gmsync gfsync gftruncate gunlink
//   gmmap_threadblock gmunmap_threadblock        the same, names of the last version
//   gmmap_warp gmunmap_warp                      by all threads of a warp together
//   fstat                                        by one thread, or by any number
//
// In a graph that is launched again a block has the number that it had before. So a block that ends
// without gmunmap or gclose may leave the block of the next launch its mapping and its file.
//
// In the last version of the original gmmap and gmunmap belong to a warp: so they do with
// PENSTOCK_GPUFS_WARP_CALLS defined, in all source files of a program alike.
//
// Differences from the original
// - Errors are negative errno values, cast to the call's type, and not failed assertions.
// - O_GWRONLY gives a file that may be read and mapped too, as the original's host did.
// - The page size is the runtime's, of which FS_BLOCKSIZE must be a divisor. A mapping ends with
//   its page.
// - A block unmaps what it mapped, a warp what it or (with ref > 1) another warp of its block
//   mapped; other addresses give -EINVAL. A block holds at most 128 mappings at a time.
// - gread returns fewer bytes than asked at the end of the file. gunlink works. gclose writes back
//   before it returns.
// - A runtime with options::writable is needed to write.
// - gvmmap, FatPointer and TLB are missing: penstock/view.hpp has elements without mapping.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include "penstock/gpufs_attach.cuh"
#include "penstock/gpufs_notes.cuh"

// A program may define either, or both alike.
#ifndef FS_LOGBLOCKSIZE
#ifdef FS_BLOCKSIZE
#define FS_LOGBLOCKSIZE (penstock::gpufs::log_of_block(FS_BLOCKSIZE))
#else
#define FS_LOGBLOCKSIZE 12
#endif
#endif
#ifndef FS_BLOCKSIZE
#define FS_BLOCKSIZE (1 << FS_LOGBLOCKSIZE)
#endif
#ifndef FS_BLOCKMASK
#define FS_BLOCKMASK (FS_BLOCKSIZE - 1)
#endif

// O_GWRONCE, O_GWRONLY and O_GCREAT make a file that is not there, O_GRDWR does not. Pages of an
// O_GWRONCE file are mapped without a copy, and zeros that are stored in them count as not written.
#define O_GRDONLY (O_RDONLY)
#define O_GWRONLY (O_WRONLY)
#define O_GRDWR (O_RDWR)
#define O_GCREAT (O_CREAT)
#define O_GWRONCE (O_GCREAT | O_GWRONLY)
#define GMAP_FAILED MAP_FAILED

typedef unsigned char uchar;

namespace penstock::gpufs {

constexpr PENSTOCK_HD int log_of_block(std::uint64_t bytes) {
    int log = 0;
    while ((bytes >> log) > 1) ++log;
    return log;
}
static_assert(FS_BLOCKSIZE > 0 && FS_BLOCKSIZE == 1 << FS_LOGBLOCKSIZE,
              "FS_BLOCKSIZE is 2 to the power of FS_LOGBLOCKSIZE");

// What Penstock's open is told. The original opens every file that is created or written to be read
// as well.
constexpr PENSTOCK_HD int open_flags_of(int flags) {
    if ((flags & O_GWRONCE) == 0) return flags;
    const int others = flags & ~(O_ACCMODE | O_CREAT);
    return others | open_create |
           ((flags & O_GWRONCE) == O_GWRONCE ? open_write_once : open_read_write);
}

// The functions below that are called by address keep their registers out of the calling kernel's
// (penstock/base/macros.hpp).
template <typename Group>
PENSTOCK_D PENSTOCK_NOINLINE int open_as_original(const Group g, const char* filename, int flags) {
    if (!is_attached()) return -ENODEV;
    const int fd = open(g, attached, filename, open_flags_of(flags));
    if (fd >= 0 && g.is_leader())
        note_open(fd, engine::size_of(attached.view, engine::descriptor_slot(attached.view, fd)));
    g.sync();  // the note is there before any thread asks for the size
    return fd;
}

template <typename Group>
PENSTOCK_D PENSTOCK_NOINLINE int close_as_original(const Group g, int fd) {
    if (!is_attached()) return -ENODEV;
    g.sync();
    if (g.is_leader()) forget_open(fd);
    return close(g, attached, fd);
}

// What map_pages has of one reference.
struct mapped_page {
    std::byte* data;
    std::uint64_t word_index;
    std::uint32_t frame;
};

// Whole group. 0 or a negative errno.
template <typename Group>
PENSTOCK_D std::int64_t map_once(const Group& g, int fd, off_t offset, std::int64_t bytes,
                                 mapped_page& out) {
    if (engine::descriptor_access(fd) != engine::may_read) {
        const writable_mapping m = map_write(g, attached, fd, offset, bytes);
        if (m.data == nullptr) return m.bytes;
        out = {m.data, m.word_index, m.frame};
        return 0;
    }
    const mapping m = map(g, attached, fd, offset, bytes);
    if (m.data == nullptr) return m.bytes < 0 ? m.bytes : -EINVAL;  // behind the end of the file
    out = {const_cast<std::byte*>(m.data), m.word_index, m.frame};
    return 0;
}

// Whole group. Gives one reference back. What changed in the page up to `end` counts as written,
// and the file reaches to there.
template <typename Group>
PENSTOCK_D int unmap_once(const Group& g, const mapped_page& page, std::uint32_t end,
                          bool changes) {
    const engine::cache_view& c = attached.view;
    std::byte* const begin = c.frame_address(page.frame);
    if (changes)
        return unmap(g, attached, writable_mapping{begin, end, page.word_index, page.frame, 0});
    return unmap(g, attached, mapping{begin, end, page.word_index, page.frame});
}

// How far into its page a mapping reaches: as far as asked for, and the file grows to there. A
// mapping that is only to be read does not grow the file, so it ends with it. 0: there is nothing
// to map.
template <typename Group>
PENSTOCK_D std::uint32_t end_of_mapping(const Group& g, int fd, std::uint64_t offset,
                                        std::uint64_t size, bool grows) {
    const engine::cache_view& c = attached.view;
    const std::uint64_t page_begin = offset & ~(c.page_bytes() - 1);
    const std::uint64_t rest = c.page_bytes() - (offset - page_begin);
    std::uint64_t end = offset + (size < rest ? size : rest);
    if (!grows) {
        const std::uint64_t file_end =
            g.broadcast(engine::size_of(c, engine::descriptor_slot(c, fd)));
        if (offset >= file_end) return 0;
        if (end > file_end || size == 0)
            end = file_end < page_begin + c.page_bytes() ? file_end : page_begin + c.page_bytes();
    }
    return static_cast<std::uint32_t>(end - page_begin);
}

template <typename Group>
PENSTOCK_D std::int64_t map_noted(const Group& g, std::size_t size, bool grows, int fd,
                                  off_t offset, int references, std::uint32_t place,
                                  mapped_page& page) {
    const std::uint32_t end =
        end_of_mapping(g, fd, static_cast<std::uint64_t>(offset), size, grows);
    if (end == 0) return -EINVAL;
    const std::uint64_t in_page =
        static_cast<std::uint64_t>(offset) & (attached.view.page_bytes() - 1);
    const auto bytes = static_cast<std::int64_t>(end - in_page);
    const bool changes = engine::descriptor_access(fd) != engine::may_read;
    int taken = 0;
    std::int64_t code = 0;
    while (code == 0 && taken < references) {
        code = map_once(g, fd, offset, bytes, page);
        taken += code == 0 ? 1 : 0;
    }
    if (code == 0) {
        const std::uint32_t holder = references > 1 ? 0 : holder_of(g);
        if (g.is_leader())
            note_mapping(notes_memory(), place, mapping_key(page.frame, holder, changes), end,
                         references);
        g.sync();  // the note is there before any thread of the group unmaps
        return 0;
    }
    while (taken-- > 0) unmap_once(g, page, end, changes);
    return code;
}

template <typename Group>
PENSTOCK_D PENSTOCK_NOINLINE void* map_pages(const Group g, std::size_t size, int prot, int flags,
                                             int fd, off_t offset, int references) {
    engine::file_handle file{};
    if (offset < 0 || references < 1 ||
        !engine::find_file(g, attached.view, fd, file, engine::nothing_unwanted))
        return MAP_FAILED;
    std::uint64_t place = 0;
    if (g.is_leader()) place = reserve_mapping(notes_of_block());
    place = g.broadcast(place);
    if (place == block_notes::most_mappings) return MAP_FAILED;
    const bool to_write = flags != O_GRDONLY || (prot & PROT_WRITE) != 0;
    const bool grows = to_write && size > 0 && engine::descriptor_access(fd) != engine::may_read;
    mapped_page page{};
    const std::int64_t code =
        map_noted(g, size, grows, fd, offset, references, static_cast<std::uint32_t>(place), page);
    if (code == 0) return page.data;
    if (g.is_leader()) drop_reserved(notes_memory(), static_cast<std::uint32_t>(place));
    return MAP_FAILED;
}

// Whole group, which may have different addresses of one page: the leader's counts. With `take` the
// reference leaves the notes.
template <typename Group>
PENSTOCK_D held_mapping look_for_mapping(const Group& g, const void* address, bool take,
                                         mapped_page& page) {
    const engine::cache_view& c = attached.view;
    held_mapping found{};
    if (g.is_leader()) {
        const auto offset =
            static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - c.frames);
        const std::uint64_t frame = offset >> c.page_shift;
        if (frame < c.frame_count)
            found = held_by(static_cast<std::uint32_t>(frame), holder_of(g), take);
    }
    const std::uint64_t told =
        g.broadcast(std::uint64_t{found.end} << 2 | (found.held ? 2 : 0) | (found.changes ? 1 : 0));
    found = {g.broadcast(found.frame), static_cast<std::uint32_t>(told >> 2), (told & 2) != 0,
             (told & 1) != 0};
    if (!found.held) return found;
    const std::uint64_t word_index =
        g.broadcast(engine::owner_word_index(engine::look_at_frame(c, found.frame)));
    page = {c.frame_address(found.frame), word_index, found.frame};
    return found;
}

template <typename Group>
PENSTOCK_D PENSTOCK_NOINLINE int unmap_pages(const Group g, const void* address, int references) {
    if (!is_attached()) return -ENODEV;
    int result = 0;
    for (int i = 0; i < references && result == 0; ++i) {
        mapped_page page{};
        const held_mapping found = look_for_mapping(g, address, true, page);
        if (!found.held) return static_cast<int>(penstock::detail::counted(g, attached, -EINVAL));
        result = unmap_once(g, page, found.end, found.changes);
    }
    return result;
}

template <typename Group>
PENSTOCK_D PENSTOCK_NOINLINE int sync_page(const Group g, const void* address) {
    if (!is_attached()) return -ENODEV;
    mapped_page page{};
    const held_mapping found = look_for_mapping(g, address, false, page);
    if (!found.held || !found.changes)
        return static_cast<int>(penstock::detail::counted(g, attached, -EINVAL));
    return msync(g, attached,
                 writable_mapping{page.data, found.end, page.word_index, page.frame, 0});
}

#if defined(PENSTOCK_GPUFS_WARP_CALLS)
using mapping_group = warp;
#else
using mapping_group = block;
#endif

}  // namespace penstock::gpufs

// Host: lets the kernels of all source files use the runtime, on its device. 0; -EOPNOTSUPP if it
// is not on a GPU; -EINVAL if its page size is no multiple of FS_BLOCKSIZE; -ENODEV; -EIO. Call it
// while none of these kernels runs, and once more after a library with such kernels was loaded.
// Until then their calls give -ENODEV, and gmmap GMAP_FAILED.
inline int gpufs_attach(const penstock::runtime& rt) {
    return penstock::gpufs::attach_all(rt, FS_BLOCKSIZE);
}

// A descriptor, or a negative errno. Blocks that open one name may get different descriptors.
PENSTOCK_D inline int gopen(const char* filename, int flags) {
    return penstock::by_address(&penstock::gpufs::open_as_original<penstock::block>)(
        penstock::block{}, filename, flags);
}

// 0 or a negative errno: -EBADF, or what could not be written back.
PENSTOCK_D inline int gclose(int fd) {
    return penstock::by_address(&penstock::gpufs::close_as_original<penstock::block>)(
        penstock::block{}, fd);
}

// Bytes read, fewer than `size` at the end of the file; a negative errno as size_t on error.
PENSTOCK_D inline std::size_t gread(int fd, std::size_t offset, std::size_t size, uchar* buffer) {
    if (!penstock::gpufs::is_attached()) return static_cast<std::size_t>(std::int64_t{-ENODEV});
    return static_cast<std::size_t>(
        penstock::read(penstock::this_block(), penstock::gpufs::attached, fd, buffer,
                       static_cast<std::int64_t>(size), static_cast<std::int64_t>(offset)));
}

// Bytes written; a negative errno as size_t on error.
PENSTOCK_D inline std::size_t gwrite(int fd, std::size_t offset, std::size_t size,
                                     const uchar* buffer) {
    if (!penstock::gpufs::is_attached()) return static_cast<std::size_t>(std::int64_t{-ENODEV});
    return static_cast<std::size_t>(
        penstock::write(penstock::this_block(), penstock::gpufs::attached, fd, buffer,
                        static_cast<std::int64_t>(size), static_cast<std::int64_t>(offset)));
}

// 0 or a negative errno: what was written is on storage; the file has another size; the name is
// gone.
PENSTOCK_D inline int gfsync(int fd) {
    if (!penstock::gpufs::is_attached()) return -ENODEV;
    return penstock::fsync(penstock::this_block(), penstock::gpufs::attached, fd);
}
PENSTOCK_D inline int gftruncate(int fd, std::size_t size) {
    if (!penstock::gpufs::is_attached()) return -ENODEV;
    return penstock::truncate(penstock::this_block(), penstock::gpufs::attached, fd,
                              static_cast<std::int64_t>(size));
}
PENSTOCK_D inline int gunlink(const char* filename) {
    if (!penstock::gpufs::is_attached()) return -ENODEV;
    return penstock::unlink(penstock::this_block(), penstock::gpufs::attached, filename);
}

// A pointer to the byte at `offset`, good for `size` bytes and at most to the end of its page, or
// GMAP_FAILED. The page of a file that was opened for writing may be changed as far as the mapping
// goes, and gmunmap makes the file reach to the end of the mapping: not if `flags` is O_GRDONLY and
// `prot` has no PROT_WRITE, then it must begin in the file. `addr` means nothing. Memory of a file
// that was opened for reading must not be written.
PENSTOCK_D inline volatile void* gmmap_threadblock(void*, std::size_t size, int prot, int flags,
                                                   int fd, off_t offset) {
    return penstock::by_address(&penstock::gpufs::map_pages<penstock::block>)(
        penstock::block{}, size, prot, flags, fd, offset, 1);
}
PENSTOCK_D inline volatile void* gmmap(void*, std::size_t size, int prot, int flags, int fd,
                                       off_t offset) {
    return penstock::by_address(&penstock::gpufs::map_pages<penstock::gpufs::mapping_group>)(
        penstock::gpufs::mapping_group{}, size, prot, flags, fd, offset, 1);
}

// `addr` is any address in the page, of the first thread; the length means nothing. 0; -EINVAL if
// the block has no mapping of the page, and then nothing happens; after the last gclose what could
// not be written back.
PENSTOCK_D inline int gmunmap_threadblock(volatile void* addr, std::size_t) {
    return penstock::by_address(&penstock::gpufs::unmap_pages<penstock::block>)(
        penstock::block{}, const_cast<const void*>(addr), 1);
}
PENSTOCK_D inline int gmunmap(volatile void* addr, std::size_t) {
    return penstock::by_address(&penstock::gpufs::unmap_pages<penstock::gpufs::mapping_group>)(
        penstock::gpufs::mapping_group{}, const_cast<const void*>(addr), 1);
}

// What was changed in the mapped page so far is in the file, for other programs to see. 0 or a
// negative errno: -EINVAL as gmunmap, and for a page of a file that was opened for reading.
PENSTOCK_D inline int gmsync(volatile void* addr, std::size_t, int) {
    return penstock::by_address(&penstock::gpufs::sync_page<penstock::gpufs::mapping_group>)(
        penstock::gpufs::mapping_group{}, const_cast<const void*>(addr));
}

// As gmmap and gmunmap, by a warp; `ref` is how many references are taken or given back at once.
// With more than one, all warps of the block may give them back.
PENSTOCK_D inline volatile void* gmmap_warp(void*, std::size_t size, int prot, int flags, int fd,
                                            off_t offset, int ref = 1) {
    return penstock::by_address(&penstock::gpufs::map_pages<penstock::warp>)(
        penstock::warp{}, size, prot, flags, fd, offset, ref);
}
PENSTOCK_D inline int gmunmap_warp(volatile void* addr, std::size_t, int ref = 1) {
    return penstock::by_address(&penstock::gpufs::unmap_pages<penstock::warp>)(
        penstock::warp{}, const_cast<const void*>(addr), ref);
}

// The size of the file when the block opened it, or less if it was cut since; a negative errno as
// size_t. By one thread or by any number.
PENSTOCK_D inline std::size_t fstat(int fd) {
    penstock::engine::file_handle file{};
    if (!penstock::engine::find_file(penstock::gpufs::attached.view, fd, file,
                                     penstock::engine::nothing_unwanted))
        return static_cast<std::size_t>(std::int64_t{-EBADF});
    std::uint64_t size = file.size_bytes;
    return penstock::gpufs::size_at_open(fd, size) && file.size_bytes < size ? file.size_bytes
                                                                             : size;
}
