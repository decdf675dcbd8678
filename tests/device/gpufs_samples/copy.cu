// A program written to the original GPUfs, which names nothing of Penstock: it has to compile
// unchanged and give right files.
//
//   gpufs_samples     in a folder that it may write to; ends with "right" and exit status 0
//
// Two rounds, each with a new GPUGlobals: a copy by gread and gwrite, then the sums of rows
// (rows.cu), whose last numbers are zeros. Then totals.cu, which needs no file.
#include <stdio.h>
#include <errno.h>

#include "fs_calls.cu.h"
#include "host_loop.h"

#include "rows.h"

#define ROWS 5001
#define ROWS_OF_ZEROS 700

__shared__ int zfd, zfd1;

__global__ void copy_file(char* source, char* copy) {
    __shared__ uchar* scratch;
    __shared__ size_t filesize;
    BEGIN_SINGLE_THREAD
    scratch = (uchar*)malloc(FS_BLOCKSIZE);
    GPU_ASSERT(scratch != NULL);
    END_SINGLE_THREAD

    zfd = gopen(source, O_GRDONLY);
    zfd1 = gopen(copy, O_GWRONCE);
    if (zfd < 0 || zfd1 < 0) ERROR("Failed to open");
    filesize = fstat(zfd);

    for (size_t me = blockIdx.x * FS_BLOCKSIZE; me < filesize; me += FS_BLOCKSIZE * gridDim.x) {
        int toRead = min((unsigned int)FS_BLOCKSIZE, (unsigned int)(filesize - me));
        if (toRead != gread(zfd, me, toRead, scratch)) ERROR("Failed to read");
        if (toRead != gwrite(zfd1, me, toRead, scratch)) ERROR("Failed to write");
    }
    gclose(zfd);
    gclose(zfd1);
    BEGIN_SINGLE_THREAD
    free(scratch);
    END_SINGLE_THREAD
}

void init_device_app() { CUDA_SAFE_CALL(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 25)); }

char* update_filename(const char* h_filename) {
    int n = strlen(h_filename);
    assert(n > 0);
    if (n > FILENAME_SIZE) {
        fprintf(stderr, "Filename %s too long, should be only %d symbols including \\0", h_filename,
                FILENAME_SIZE);
        exit(-1);
    }
    char* d_filename;
    CUDA_SAFE_CALL(cudaMalloc(&d_filename, n + 1));
    CUDA_SAFE_CALL(cudaMemcpy(d_filename, h_filename, n + 1, cudaMemcpyHostToDevice));
    return d_filename;
}

uchar byte_at(int r, int i) { return r < ROWS - ROWS_OF_ZEROS ? (uchar)(r * 7 + i * 13 + 1) : 0; }

void make_rows(const char* name) {
    FILE* f = fopen(name, "wb");
    if (f == NULL) {
        perror(name);
        exit(-1);
    }
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < ROW_BYTES; i++) fputc(byte_at(r, i), f);
    fclose(f);
}

int wrong_copy(const char* name) {
    FILE* f = fopen(name, "rb");
    if (f == NULL) {
        perror(name);
        return 1;
    }
    int wrong = 0;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < ROW_BYTES; i++) wrong += fgetc(f) != byte_at(r, i);
    wrong += fgetc(f) != EOF;
    fclose(f);
    fprintf(stderr, "%s: %d bytes wrong\n", name, wrong);
    return wrong;
}

int wrong_sums(const char* name) {
    struct stat s;
    if (stat(name, &s)) {
        perror(name);
        return 1;
    }
    fprintf(stderr, "%s: %ld of %ld bytes\n", name, (long)s.st_size, (long)(ROWS * sizeof(int)));
    int wrong = s.st_size != ROWS * sizeof(int);
    FILE* f = fopen(name, "rb");
    for (int r = 0; r < ROWS; r++) {
        int sum = 0, found = 0;
        for (int i = 0; i < ROW_BYTES; i++) sum += byte_at(r, i);
        wrong += fread(&found, sizeof(int), 1, f) != 1 || found != sum;
    }
    fclose(f);
    fprintf(stderr, "%s: %d numbers wrong\n", name, wrong);
    return wrong;
}

int main() {
    CUDA_SAFE_CALL(cudaSetDevice(0));
    int wrong = 0;
    for (int round = 0; round < 2; round++) {
        make_rows("rows");
        unlink("copy");
        if (round == 0) unlink("sums");

        volatile GPUGlobals* gpuGlobals;
        initializer(&gpuGlobals);
        init_device_app();
        init_app();
        char* rows = update_filename("rows");
        char* copy = update_filename("copy");
        char* sums = update_filename("sums");
        double time_before = _timestamp();

        copy_file<<<8, 128, 0, gpuGlobals->streamMgr->kernelStream>>>(rows, copy);
        run_gpufs_handler(gpuGlobals, 0);
        row_sums<<<4, 64, 0, gpuGlobals->streamMgr->kernelStream>>>(rows, sums);
        while (true) {
            open_loop(gpuGlobals, 0);
            rw_loop(gpuGlobals);
            if (cudaErrorNotReady != cudaStreamQuery(gpuGlobals->streamMgr->kernelStream)) {
                fprintf(stderr, "kernel is complete\n");
                fprintf(stderr, "Max pending requests: %d\n", max_req);
                break;
            }
        }
        cudaError_t error = cudaDeviceSynchronize();
        fprintf(stderr, "time %.0f us\n", _timestamp() - time_before);
        if (error != cudaSuccess) {
            printf("Device failed, CUDA error message is: %s\n\n", cudaGetErrorString(error));
            return 1;
        }
        delete gpuGlobals;
        PRINT_MALLOC;
        PRINT_FLUSHED_WRITE;
        cudaDeviceReset();

        wrong += wrong_copy("copy") + wrong_sums("sums");
    }
    wrong += wrong_totals();
    printf("%s\n", wrong == 0 ? "right" : "wrong");
    return wrong != 0;
}
