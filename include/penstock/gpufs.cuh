// The device calls of the original GPUfs (Silberstein et al., ACM TOCS 32(1), 2014; warp calls: Shahar, SYSTOR 2016), by
// their names, flags and argument order, over Penstock's engine, so that kernels written for it compile unchanged.
//
// The original kept its state in device globals, so its kernels are not handed a runtime. Here one constant of each
// source file that includes this header holds the reference; call gpufs_attach(rt) once before launching its kernels.
//
//   gopen gclose gread gwrite gmmap gmunmap gmsync gfsync gftruncate gunlink fstat     by all threads of a block together
//   gmmap_warp gmunmap_warp                                                            by all threads of a warp together
//
// Differences: errors are negative errno values (cast to the call's type) and not aborts; gmmap maps to the end of the
// page at most, as before; the page size is the runtime's, of which FS_BLOCKSIZE must be a divisor. Writing needs a runtime with
// options::writable. A file is opened for writing before anybody maps it, since gmunmap is told only the address: pages of a file that
// was opened for writing are mapped to be changed, whatever prot says.
#pragma once

#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <string>

#include "penstock/group/block.cuh"
#include "penstock/group/warp.cuh"
#include "penstock/penstock.hpp"

#ifndef FS_LOGBLOCKSIZE
#define FS_LOGBLOCKSIZE 12
#endif
#ifndef FS_BLOCKSIZE
#define FS_BLOCKSIZE (1 << FS_LOGBLOCKSIZE)
#endif
#ifndef FS_BLOCKMASK
#define FS_BLOCKMASK (FS_BLOCKSIZE - 1)
#endif

#define O_GRDONLY (O_RDONLY)
#define O_GRDWR (O_RDWR)
#define O_GCREAT (O_CREAT)
#define O_GWRONCE (O_WRONLY | O_RDWR)  // penstock::open_write_once; usually with O_GCREAT
#define GMAP_FAILED MAP_FAILED

typedef unsigned char uchar;

namespace penstock::gpufs {

static __constant__ runtime_ref attached;

// The mapping that a pointer into a frame belongs to; null data if the pointer lies in no frame that holds a page.
PENSTOCK_D inline mapping mapping_of(const void* address) {
    const engine::cache_view& c = attached.view;
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - c.frames);
    const std::uint64_t frame = offset >> c.page_shift;
    if (frame >= c.frame_count) return {nullptr, 0, engine::no_word, 0};
    const engine::frame_word owner = atomic_load<order::acquire>(&c.frame_words[frame]);
    if ((owner & engine::frame_state_mask) != engine::frame_owned) return {nullptr, 0, engine::no_word, 0};
    return {static_cast<const std::byte*>(address), 1, engine::owner_word_index(owner), static_cast<std::uint32_t>(frame)};
}

// Leader only, with a mapping of the page. More references to it.
PENSTOCK_D inline void add_references(std::uint64_t word_index, std::uint32_t frame, int more, bool changes, bool once) {
    const engine::cache_view& c = attached.view;
    for (int i = 0; i < more; ++i) {
        engine::pin(&c.words[word_index]);
        while (changes && engine::share_pristine(&c.pristine[frame], once) == -EAGAIN) {}  // held, so it is there to be shared
    }
    if (changes && more > 0) engine::count_mappings(c, engine::owner_file_slot(engine::look_at_frame(c, frame)), static_cast<std::uint64_t>(more));
}

template <typename Group>
PENSTOCK_D void* map_pages(const Group& g, std::size_t size, int fd, off_t offset, int references) {
    const engine::cache_view& c = attached.view;
    engine::file_handle file{};
    if (!engine::find_file(g, c, fd, file, engine::nothing_unwanted) || offset < 0) return MAP_FAILED;
    const bool changes = g.broadcast(engine::is_granted(c, file.slot) ? 1 : 0) != 0, once = engine::descriptor_access(fd) == engine::may_write_once;
    mapping first{nullptr, 0, engine::no_word, 0};
    if (changes && size > 0) {
        engine::pinned_page page{};
        const auto at = static_cast<std::uint64_t>(offset);
        if (by_address(&engine::map_to_change<Group>)(g, c, file.slot, at >> c.page_shift, once, page) == 0)
            first = {c.frame_address(page.frame) + (at & (c.page_bytes() - 1)), 1, page.word_index, page.frame};
    } else {
        first = map(g, attached, fd, offset, static_cast<std::int64_t>(size));
    }
    if (first.bytes <= 0) return MAP_FAILED;
    if (g.is_leader()) add_references(first.word_index, first.frame, references - 1, changes, once);
    g.sync();
    return const_cast<std::byte*>(first.data);
}

// Of an address in a page that is mapped to be changed: its page, and which of its bytes; false if it is not mapped so.
template <typename Group>
PENSTOCK_D bool changed_page(const Group& g, const mapping& what, std::size_t length, engine::pinned_page& page, engine::changed_part& part) {
    const engine::cache_view& c = attached.view;
    if (c.writes == nullptr || g.broadcast(engine::glance_pristine(&c.pristine[what.frame])) == engine::pristine_none) return false;
    page = {what.word_index, what.frame, false};
    const auto begin = static_cast<std::uint32_t>(static_cast<std::uint64_t>(what.data - c.frames) & (c.page_bytes() - 1));
    const std::uint64_t room = c.page_bytes() - begin;
    part = {begin, begin + static_cast<std::uint32_t>(length > 0 && length < room ? length : room), length > 0};
    return true;
}

template <typename Group>
PENSTOCK_D int unmap_pages(const Group& g, const void* address, std::size_t length, int references) {
    const mapping what = mapping_of(address);
    if (what.data == nullptr) return -EINVAL;
    engine::pinned_page page{};
    engine::changed_part part{};
    int result = 0;
    for (int i = 0; i < references && result == 0; ++i) {
        g.sync();  // the leader has let go before anybody looks again
        if (changed_page(g, what, length, page, part)) result = static_cast<int>(by_address(&engine::unmap_changed<Group>)(g, attached.view, page, part));
        else result = unmap(g, attached, what);
    }
    return result;
}

}  // namespace penstock::gpufs

// Host: lets the kernels of this source file use the runtime. 0; -EOPNOTSUPP if it is not on a GPU; -EINVAL if its page
// size is no multiple of FS_BLOCKSIZE; -EIO. Call it with no kernel of the file running.
inline int gpufs_attach(const penstock::runtime& rt) {
    if (rt.where() != penstock::backend::gpu) return -EOPNOTSUPP;
    if (rt.settings().page_bytes % FS_BLOCKSIZE != 0) return -EINVAL;
    if (cudaSetDevice(rt.settings().device) != cudaSuccess) return -ENODEV;
    const penstock::runtime_ref ref = rt.ref();
    return cudaMemcpyToSymbol(penstock::gpufs::attached, &ref, sizeof ref) == cudaSuccess ? 0 : -EIO;
}

// A descriptor, the same for all blocks that open the name alike, or a negative errno.
PENSTOCK_D inline int gopen(const char* filename, int flags) { return penstock::open(penstock::this_block(), penstock::gpufs::attached, filename, flags); }

// 0 or -EBADF.
PENSTOCK_D inline int gclose(int fd) { return penstock::close(penstock::this_block(), penstock::gpufs::attached, fd); }

// Bytes read, fewer than `size` at the end of the file; a negative errno as size_t on error.
PENSTOCK_D inline std::size_t gread(int fd, std::size_t offset, std::size_t size, uchar* buffer) {
    return static_cast<std::size_t>(penstock::read(penstock::this_block(), penstock::gpufs::attached, fd, buffer,
                                                   static_cast<std::int64_t>(size), static_cast<std::int64_t>(offset)));
}

// Bytes written; a negative errno as size_t on error.
PENSTOCK_D inline std::size_t gwrite(int fd, std::size_t offset, std::size_t size, const uchar* buffer) {
    return static_cast<std::size_t>(penstock::write(penstock::this_block(), penstock::gpufs::attached, fd, buffer,
                                                    static_cast<std::int64_t>(size), static_cast<std::int64_t>(offset)));
}

// 0 or a negative errno: what was written is on storage; the file has another size; the name is gone.
PENSTOCK_D inline int gfsync(int fd) { return penstock::fsync(penstock::this_block(), penstock::gpufs::attached, fd); }
PENSTOCK_D inline int gftruncate(int fd, std::size_t size) {
    return penstock::truncate(penstock::this_block(), penstock::gpufs::attached, fd, static_cast<std::int64_t>(size));
}
PENSTOCK_D inline int gunlink(const char* filename) { return penstock::unlink(penstock::this_block(), penstock::gpufs::attached, filename); }

// A pointer to the byte at `offset`, good to the end of its page; GMAP_FAILED on error, or at the end of a file that was not opened for
// writing; of another the file grows as far as something was changed. addr, prot and flags are taken for the sake of the original
// signature; memory of a file that was opened for reading only must not be written.
PENSTOCK_D inline volatile void* gmmap(void* addr, std::size_t size, int prot, int flags, int fd, off_t offset) {
    static_cast<void>(addr), static_cast<void>(prot), static_cast<void>(flags);
    return penstock::gpufs::map_pages(penstock::this_block(), size, fd, offset, 1);
}

// 0, or -EINVAL if the pointer is not mapped.
PENSTOCK_D inline int gmunmap(volatile void* addr, std::size_t length) {
    return penstock::gpufs::unmap_pages(penstock::this_block(), const_cast<const void*>(addr), length, 1);
}

// What was changed in the mapped range so far is in the file, for other programs to see. 0 or a negative errno.
PENSTOCK_D inline int gmsync(volatile void* addr, std::size_t length, int flags) {
    static_cast<void>(flags);
    const penstock::mapping what = penstock::gpufs::mapping_of(const_cast<const void*>(addr));
    penstock::engine::pinned_page page{};
    penstock::engine::changed_part part{};
    if (what.data == nullptr || !penstock::gpufs::changed_page(penstock::this_block(), what, length, page, part)) return -EINVAL;
    part.grows_to_end = false;
    return static_cast<int>(penstock::by_address(&penstock::engine::flush_changed<penstock::block>)(
        penstock::this_block(), penstock::gpufs::attached.view, page, part));
}

// As gmmap and gmunmap, by a warp; `ref` is how many references are taken or given back at once.
PENSTOCK_D inline volatile void* gmmap_warp(void* addr, std::size_t size, int prot, int flags, int fd, off_t offset,
                                            int ref = 1) {
    static_cast<void>(addr), static_cast<void>(prot), static_cast<void>(flags);
    return penstock::gpufs::map_pages(penstock::this_warp(), size, fd, offset, ref);
}
PENSTOCK_D inline int gmunmap_warp(volatile void* addr, std::size_t length, int ref = 1) {
    return penstock::gpufs::unmap_pages(penstock::this_warp(), const_cast<const void*>(addr), length, ref);
}

// The size at the first open, or a negative errno as size_t.
PENSTOCK_D inline std::size_t fstat(int fd) {
    __shared__ penstock::file_stat facts;
    const int code = penstock::stat(penstock::this_block(), penstock::gpufs::attached, fd, &facts);
    const std::size_t size = code == 0 ? facts.size_bytes : static_cast<std::size_t>(static_cast<std::int64_t>(code));
    __syncthreads();  // everybody has read the shared copy before the next call may write it
    return size;
}
