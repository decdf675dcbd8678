// What kernels of the original GPUfs use besides its calls: single_thread_*, helper macros, locks,
// constants.
//
// Names, arguments and meaning are those of its headers fs_calls.cu.h, fs_constants.h,
// fs_debug.cu.h and util.cu.h; files of these names that lead here are in include/penstock/gpufs.
// Its host loop is in penstock/gpufs_host.cuh.
//
//   single_thread_open single_thread_close      by one thread; the block's others need not wait
//   single_thread_fsync single_thread_ftruncate
//   BEGIN_SINGLE_THREAD END_SINGLE_THREAD       what is between them the first thread runs
//   INIT_LOCK LAST_SEMAPHORE                    the first block of a launch to come, and the last
//   TID LANE_ID WARP_ID NUM_WARPS BLOCK_ID      of the calling thread
//   GPU_ASSERT ERROR CUDA_SAFE_CALL             end the kernel, or the program, with a message
//   MUTEX_LOCK MUTEX_TRY_LOCK MUTEX_UNLOCK      a lock that is an int
//
// Differences: results are 0 or a negative errno; LAST_SEMAPHORE names one last block even if
// several come together; counters for statistics are not kept, and PRINT_* print nothing. READ and
// WRITE, FREE and MALLOC are no macros here. Without a counterpart are what the last version of
// util.cu.h has of copies by warps and of 16 bytes (*_warp, copy_block_16, valcpy_*), broadcast and
// GET_SMID.
#pragma once

#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "penstock/gpufs.cuh"

#define FILENAME_SIZE 64
#define MAX_NUM_FILES (128)
#define FSTABLE_SIZE MAX_NUM_FILES
#define PPOOL_SIZE (1024 * 1024 * 1024 * 2L)
#define PPOOL_FRAMES (PPOOL_SIZE >> FS_LOGBLOCKSIZE)
#define PAGE_READ_ACCESS 0
#define PAGE_WRITE_ACCESS 1
#define E_FSTABLE_FULL (-ENFILE)
#define E_IPC_OPEN_ERROR (-EIO)

typedef char Page[FS_BLOCKSIZE];

#define TID (threadIdx.x + threadIdx.y * blockDim.x + threadIdx.z * blockDim.x * blockDim.y)
#define LANE_ID (TID & 0x1f)
#define WARP_ID (TID >> 5)
#define NUM_WARPS ((blockDim.x * blockDim.y * blockDim.z) >> 5)
#define BLOCK_ID (blockIdx.x + gridDim.x * blockIdx.y + gridDim.x * gridDim.y * blockIdx.z)

// The block waits for its first thread, and for each other before it.
#define BEGIN_SINGLE_THREAD \
    __syncthreads();        \
    if (TID == 0) {
#define END_SINGLE_THREAD \
    }                     \
    __syncthreads();

// From here on each macro that is a statement is a whole one, as in the original: programs write it
// with a semicolon or without, and before `else` without.
#if defined(RELEASE)
#define GPU_ASSERT(condition)
#else
#define GPU_ASSERT(condition) assert(condition);
#endif

// In a kernel: prints the text with its place and ends the kernel, which the host sees as a launch
// failure. On the host: prints the same and aborts.
#define ERROR(text) penstock::gpufs::end_kernel(text, __FILE__, __LINE__);

// On the host: ends the program if a call of CUDA fails.
#define CUDA_SAFE_CALL(call) penstock::gpufs::check_cuda(call, __FILE__, __LINE__);

#define MUTEX_WAS_LOCKED(lock) atomicExch((int*)&(lock), 1)
#define MUTEX_TRY_LOCK(lock) (!MUTEX_WAS_LOCKED(lock))
#define MUTEX_LOCK(lock)                 \
    {                                    \
        while (MUTEX_WAS_LOCKED(lock)) { \
        }                                \
        __threadfence();                 \
    }
#define MUTEX_UNLOCK(lock)            \
    {                                 \
        __threadfence();              \
        atomicExch((int*)&(lock), 0); \
    }

#define WAIT_ON_MEM(word, value)              \
    while (readNoCache(&(word)) != (value)) { \
    }
#define WAIT_ON_MEM_NE(word, value)           \
    while (readNoCache(&(word)) == (value)) { \
    }

namespace penstock::gpufs {

PENSTOCK_HD PENSTOCK_NOINLINE inline void end_kernel(const char* text, const char* file, int line) {
#if defined(__CUDA_ARCH__)
    printf("%s:%d: %s\n", file, line, text);
    __trap();
#else
    std::fprintf(stderr, "%s:%d: %s\n", file, line, text);
    std::abort();
#endif
}

inline void check_cuda(cudaError_t code, const char* file, int line) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "CUDA ERROR %s: %d %s\n", file, line, cudaGetErrorString(code));
    std::exit(-1);
}

}  // namespace penstock::gpufs

// The first block to call try_wait gets 1, does what is to be done once, and calls signal; all
// others get 0 after that. All zero before the launch. To be called by one thread of each block.
struct INIT_LOCK {
    int lock;

    __device__ int try_wait() volatile {
        int* const word = const_cast<int*>(&lock);
        if (atomicCAS(word, 0, 1) == 0) return 1;
        for (std::uint32_t round = 0; atomicAdd(word, 0) != 2; ++round)
            penstock::detail::device_pause(round);
        __threadfence();  // pairs with that of signal: what the first block did is seen
        return 0;
    }
    __device__ void signal() volatile {
        __threadfence();
        atomicExch(const_cast<int*>(&lock), 2);
    }
};

// 1 for the last block to call is_last, which may rely on what the others did before. All zero
// before the launch. To be called by one thread of each block.
struct LAST_SEMAPHORE {
    int count;

    __device__ int is_last() volatile {
        __threadfence();
        const int before = atomicAdd(const_cast<int*>(&count), 1);
        __threadfence();
        return static_cast<unsigned>(before) + 1 == gridDim.x * gridDim.y * gridDim.z ? 1 : 0;
    }
};

// The calls that one thread makes by itself: as gopen, gclose, gfsync, gftruncate.
PENSTOCK_D inline int single_thread_open(const char* filename, int flags) {
    return penstock::by_address(&penstock::gpufs::open_as_original<penstock::lane>)(
        penstock::lane{}, filename, flags);
}
PENSTOCK_D inline int single_thread_close(int fd) {
    return penstock::by_address(&penstock::gpufs::close_as_original<penstock::lane>)(
        penstock::lane{}, fd);
}
PENSTOCK_D inline int single_thread_fsync(int fd) {
    if (!penstock::gpufs::is_attached()) return -ENODEV;
    return penstock::fsync(penstock::lane{}, penstock::gpufs::attached, fd);
}
PENSTOCK_D inline int single_thread_ftruncate(int fd, int size) {
    if (!penstock::gpufs::is_attached()) return -ENODEV;
    return penstock::truncate(penstock::lane{}, penstock::gpufs::attached, fd, size);
}

// Memory and strings, by one thread.
PENSTOCK_D inline void bzero_thread(volatile void* to, unsigned size) {
    for (unsigned i = 0; i < size; ++i) static_cast<volatile char*>(to)[i] = 0;
}
PENSTOCK_D inline void memcpy_thread(volatile char* to, const volatile char* from, unsigned size) {
    for (unsigned i = 0; i < size; ++i) to[i] = from[i];
}
PENSTOCK_D inline void write_thread(uchar* to, uchar* from, int size) {
    for (int i = 0; i < size; ++i) to[i] = from[i];
}
PENSTOCK_D inline void copyNoCache_thread(char* to, volatile char* from, int size) {
    for (int i = 0; i < size; ++i) to[i] = from[i];
}
// At most `size` characters, and the end of the string if it comes among them.
PENSTOCK_D inline void strcpy_thread(volatile char* to, const volatile char* from, unsigned size) {
    for (unsigned i = 0; i < size; ++i) {
        to[i] = from[i];
        if (to[i] == '\0') return;
    }
}
// 0 if the first `size` characters are equal, else 1.
PENSTOCK_D inline char strcmp_thread(const volatile char* first, const volatile char* second,
                                     unsigned size) {
    for (unsigned i = 0; i < size; ++i) {
        if (first[i] != second[i]) return 1;
        if (first[i] == '\0') return 0;
    }
    return 0;
}

// By all threads of a block: zeros to a page; bytes from one place to another.
PENSTOCK_D inline void bzero_page(volatile char* to) {
    for (int i = TID; i < FS_BLOCKSIZE; i += blockDim.x * blockDim.y * blockDim.z) to[i] = 0;
}
PENSTOCK_D inline void copy_block(uchar* to, volatile uchar* from, int size) {
    for (int i = TID; i < size; i += blockDim.x * blockDim.y * blockDim.z) to[i] = from[i];
    __syncthreads();
}
PENSTOCK_D inline void copyNoCache_block(uchar* to, volatile uchar* from, int size) {
    copy_block(to, from, size);
}
// `count` values of type T, of which thread `tid` of a block copies its share. It waits for none.
template <typename T>
PENSTOCK_D void aligned_copy(uchar* to, volatile uchar* from, int count, int tid) {
    const T* const values = reinterpret_cast<const T*>(const_cast<const uchar*>(from));
    for (int i = tid; i < count; i += blockDim.x * blockDim.y * blockDim.z)
        reinterpret_cast<T*>(to)[i] = values[i];
}

// What is in memory now; of a pointer to uchar two bytes, as the original has it.
template <typename T>
PENSTOCK_D T readNoCache(const volatile T* from) {
    return *from;
}
PENSTOCK_D inline char2 readNoCache(const volatile uchar* from) {
    return {static_cast<char>(from[0]), static_cast<char>(from[1])};
}

// Which block of a file an offset lies in, and where in the block.
PENSTOCK_D inline std::size_t offset2block(std::size_t offset, int log_blocksize) {
    return offset >> log_blocksize;
}
PENSTOCK_D inline unsigned offset2blockoffset(std::size_t offset, int blocksize) {
    return static_cast<unsigned>(offset & (static_cast<std::size_t>(blocksize) - 1));
}

#include "penstock/gpufs_no_statistics.cuh"
