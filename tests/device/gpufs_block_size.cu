// Compiled, and not run: a program of the original GPUfs that names the size of its blocks alone.
#define FS_BLOCKSIZE 65536

#include "penstock/gpufs_compat.cuh"

static_assert(FS_LOGBLOCKSIZE == 16 && FS_BLOCKMASK == 0xffff);
static_assert(PPOOL_FRAMES * FS_BLOCKSIZE == PPOOL_SIZE);

__global__ void block_of_byte(std::size_t byte, std::size_t* block) {
    *block = offset2block(byte, FS_LOGBLOCKSIZE);
}
