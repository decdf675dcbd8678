// Kernel source of a program written to the original GPUfs that takes its macros as they are: each
// is a whole statement, and needs no semicolon.
//
// totals copies numbers by all threads of a block, and adds the blocks' counts under a lock.
#include "fs_constants.h"
#include "util.cu.h"
#include "fs_calls.cu.h"

#include "rows.h"

// Not a multiple of the size of an int.
#define TOTAL_BYTES 1003
#define TOTAL_BLOCKS 8

__device__ volatile int total_lock;
__device__ int total;
__device__ int total_tries;

__device__ void checked(int code) {
    if (code == 0) GPU_ASSERT(code >= 0)
    else ERROR("not a code")
    if (code) ERROR("a code");
    GPU_ASSERT(code < 1)
}

__device__ void copy_odd(uchar* to, volatile uchar* from, int size) {
    int copied = size >> 2;
    aligned_copy<int>(to, from, copied, TID);
    copied = copied << 2;
    __syncthreads();
    BEGIN_SINGLE_THREAD
    while (copied < size) {
        char2 next = readNoCache(from + copied);
        to[copied++] = next.x;
        if (copied < size) to[copied++] = next.y;
    }
    END_SINGLE_THREAD
}

__global__ void totals(uchar* from, uchar* to) {
    __shared__ int own;
    BEGIN_SINGLE_THREAD
    own = 0;
    END_SINGLE_THREAD
    uchar* mine = to + BLOCK_ID * (TOTAL_BYTES + 1);
    copy_odd(mine, from, TOTAL_BYTES);
    for (int i = TID; i < TOTAL_BYTES; i += blockDim.x * blockDim.y) atomicAdd(&own, mine[i]);
    __syncthreads();
    BEGIN_SINGLE_THREAD
    checked(0);
    MUTEX_LOCK(total_lock)
    GPU_ASSERT(!MUTEX_TRY_LOCK(total_lock))
    total = readNoCache(&total) + own;
    total_tries++;
    MUTEX_UNLOCK(total_lock)
    WAIT_ON_MEM_NE(total_tries, 0)
    END_SINGLE_THREAD
}

int wrong_totals() {
    uchar bytes[TOTAL_BYTES + 1] = {};
    int right = 0, found = 0, blocks = 0;
    for (int i = 0; i < TOTAL_BYTES; i++) {
        bytes[i] = (uchar)(i * 11 + 5);
        right += TOTAL_BLOCKS * bytes[i];
    }
    if (right < 0) ERROR("Too many bytes")
    uchar *from, *to;
    CUDA_SAFE_CALL(cudaMalloc(&from, TOTAL_BYTES + 1))
    CUDA_SAFE_CALL(cudaMalloc(&to, TOTAL_BLOCKS * (TOTAL_BYTES + 1)))
    CUDA_SAFE_CALL(cudaMemcpy(from, bytes, TOTAL_BYTES + 1, cudaMemcpyHostToDevice))
    totals<<<TOTAL_BLOCKS, 96>>>(from, to);
    CUDA_SAFE_CALL(cudaMemcpyFromSymbol(&found, total, sizeof(int)))
    CUDA_SAFE_CALL(cudaMemcpyFromSymbol(&blocks, total_tries, sizeof(int)))
    fprintf(stderr, "totals: %d of %d by %d blocks\n", found, right, blocks);
    return found != right || blocks != TOTAL_BLOCKS;
}
