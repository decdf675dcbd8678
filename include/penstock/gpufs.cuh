// The device calls of the original GPUfs (Silberstein et al., ACM TOCS 32(1), 2014; warp calls: Shahar, SYSTOR 2016), by
// their names, flags and argument order, over Penstock's engine, so that kernels written for it compile unchanged.
//
// The original kept its state in device globals, so its kernels are not handed a runtime. Here one constant of each
// source file that includes this header holds the reference; call gpufs_attach(rt) once before launching its kernels.
//
//   gopen gclose gread gmmap gmunmap fstat        by all threads of a block together
//   gmmap_warp gmunmap_warp                       by all threads of a warp together
//
// Differences: errors are negative errno values (cast to the call's type) and not aborts; gmmap maps to the end of the
// page at most, as before; the page size is the runtime's, of which FS_BLOCKSIZE must be a divisor.
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

template <typename Group>
PENSTOCK_D void* map_pages(const Group& g, std::size_t size, int fd, off_t offset, int references) {
    const mapping first = map(g, attached, fd, offset, static_cast<std::int64_t>(size));
    if (first.bytes <= 0) return MAP_FAILED;
    if (g.is_leader())
        for (int i = 1; i < references; ++i) engine::pin(&attached.view.words[first.word_index]);
    g.sync();
    return const_cast<std::byte*>(first.data);
}

template <typename Group>
PENSTOCK_D int unmap_pages(const Group& g, const void* address, int references) {
    const mapping what = mapping_of(address);
    if (what.data == nullptr) return -EINVAL;
    int result = 0;
    for (int i = 0; i < references && result == 0; ++i) result = unmap(g, attached, what);
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

// A descriptor, the same for all blocks that open the name, or a negative errno.
PENSTOCK_D inline int gopen(const char* filename, int flags) {
    return flags == O_GRDONLY ? penstock::open(penstock::this_block(), penstock::gpufs::attached, filename) : -EROFS;
}

// 0 or -EBADF.
PENSTOCK_D inline int gclose(int fd) { return penstock::close(penstock::this_block(), penstock::gpufs::attached, fd); }

// Bytes read, fewer than `size` at the end of the file; a negative errno as size_t on error.
PENSTOCK_D inline std::size_t gread(int fd, std::size_t offset, std::size_t size, uchar* buffer) {
    return static_cast<std::size_t>(penstock::read(penstock::this_block(), penstock::gpufs::attached, fd, buffer,
                                                   static_cast<std::int64_t>(size), static_cast<std::int64_t>(offset)));
}

// A pointer to the byte at `offset`, good to the end of its page; GMAP_FAILED on error or at the end of the file. addr,
// prot and flags are taken for the sake of the original signature; the memory must not be written.
PENSTOCK_D inline volatile void* gmmap(void* addr, std::size_t size, int prot, int flags, int fd, off_t offset) {
    static_cast<void>(addr), static_cast<void>(prot), static_cast<void>(flags);
    return penstock::gpufs::map_pages(penstock::this_block(), size, fd, offset, 1);
}

// 0, or -EINVAL if the pointer is not mapped.
PENSTOCK_D inline int gmunmap(volatile void* addr, std::size_t length) {
    static_cast<void>(length);
    return penstock::gpufs::unmap_pages(penstock::this_block(), const_cast<const void*>(addr), 1);
}

// As gmmap and gmunmap, by a warp; `ref` is how many references are taken or given back at once.
PENSTOCK_D inline volatile void* gmmap_warp(void* addr, std::size_t size, int prot, int flags, int fd, off_t offset,
                                            int ref = 1) {
    static_cast<void>(addr), static_cast<void>(prot), static_cast<void>(flags);
    return penstock::gpufs::map_pages(penstock::this_warp(), size, fd, offset, ref);
}
PENSTOCK_D inline int gmunmap_warp(volatile void* addr, std::size_t length, int ref = 1) {
    static_cast<void>(length);
    return penstock::gpufs::unmap_pages(penstock::this_warp(), const_cast<const void*>(addr), ref);
}

// The size at the first open, or a negative errno as size_t.
PENSTOCK_D inline std::size_t fstat(int fd) {
    __shared__ penstock::file_stat facts;
    const int code = penstock::stat(penstock::this_block(), penstock::gpufs::attached, fd, &facts);
    const std::size_t size = code == 0 ? facts.size_bytes : static_cast<std::size_t>(static_cast<std::int64_t>(code));
    __syncthreads();  // everybody has read the shared copy before the next call may write it
    return size;
}
