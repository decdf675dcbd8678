// Kernel source of a program written to the original GPUfs, and nothing but it: the second source
// file of copy.cu.
//
// row_sums reads a file of rows and writes the sum of each row, a number, to another file that
// blocks map page by page.
#include "fs_constants.h"
#include "util.cu.h"
#include "fs_calls.cu.h"

#include "rows.h"

__device__ volatile INIT_LOCK init_lock;
__device__ volatile LAST_SEMAPHORE last_lock;

#define NUMBERS_PER_PAGE (FS_BLOCKSIZE / sizeof(int))

__shared__ uchar row[ROW_BYTES];

__device__ int sum_of_row() {
    __shared__ int sum;
    BEGIN_SINGLE_THREAD
    sum = 0;
    END_SINGLE_THREAD
    int own_sum = 0;
    for (int i = TID; i < ROW_BYTES; i += blockDim.x) own_sum += row[i];
    atomicAdd(&sum, own_sum);
    __syncthreads();
    return sum;
}

__global__ void row_sums(char* rows_name, char* sums_name) {
    __shared__ int zfd_rows;
    __shared__ int zfd_sums;
    __shared__ size_t rows;
    __shared__ int to_init;

    BEGIN_SINGLE_THREAD
    zfd_rows = single_thread_open(rows_name, O_GRDONLY);
    if (zfd_rows < 0) ERROR("Failed to open the rows");
    zfd_sums = single_thread_open(sums_name, O_GWRONCE);
    if (zfd_sums < 0) ERROR("Failed to open the output");
    rows = fstat(zfd_rows) / ROW_BYTES;
    to_init = init_lock.try_wait();
    END_SINGLE_THREAD

    if (to_init == 1) {
        BEGIN_SINGLE_THREAD
        single_thread_ftruncate(zfd_sums, 0);
        __threadfence();
        init_lock.signal();
        END_SINGLE_THREAD
    }

    for (size_t first = blockIdx.x * NUMBERS_PER_PAGE; first < rows;
         first += gridDim.x * NUMBERS_PER_PAGE) {
        size_t count = rows - first < NUMBERS_PER_PAGE ? rows - first : NUMBERS_PER_PAGE;
        volatile int* sums = (volatile int*)gmmap(NULL, count * sizeof(int), 0, O_GWRONCE, zfd_sums,
                                                  first * sizeof(int));
        if (sums == GMAP_FAILED) ERROR("GMMAP failed");
        for (size_t i = 0; i < count; i++) {
            if (gread(zfd_rows, (first + i) * ROW_BYTES, ROW_BYTES, row) != ROW_BYTES)
                ERROR("Failed to read a row");
            int sum = sum_of_row();
            BEGIN_SINGLE_THREAD
            *sums = sum;
            END_SINGLE_THREAD
            sums++;
        }
        sums--;
        if (gmunmap(sums, 0)) ERROR("Failed to unmap");
    }

    GPU_ASSERT(fstat(zfd_rows) / ROW_BYTES == rows);
    BEGIN_SINGLE_THREAD
    single_thread_close(zfd_rows);
    if (last_lock.is_last()) {
        single_thread_fsync(zfd_sums);
    }
    single_thread_close(zfd_sums);
    END_SINGLE_THREAD
}

void init_app() {
    void* inited;
    CUDA_SAFE_CALL(cudaGetSymbolAddress(&inited, init_lock));
    CUDA_SAFE_CALL(cudaMemset(inited, 0, sizeof(INIT_LOCK)));
    CUDA_SAFE_CALL(cudaGetSymbolAddress(&inited, last_lock));
    CUDA_SAFE_CALL(cudaMemset(inited, 0, sizeof(LAST_SEMAPHORE)));
}
