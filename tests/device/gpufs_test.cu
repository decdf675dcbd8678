// Kernels written in the style of the original GPUfs, unchanged but for the host's set-up.
#include "device/support.cuh"
#include "penstock/gpufs.cuh"

namespace penstock::test {

namespace {

// A block copies the file page by page with gread; blocks share the pages out.
__global__ void copy_with_gread(const char* source, uchar* destination, std::size_t* size) {
    __shared__ uchar scratch[FS_BLOCKSIZE];
    const int fd = gopen(source, O_GRDONLY);
    const std::size_t file_size = fstat(fd);
    for (std::size_t at = std::size_t{blockIdx.x} * FS_BLOCKSIZE; at < file_size; at += std::size_t{FS_BLOCKSIZE} * gridDim.x) {
        const std::size_t want = file_size - at < FS_BLOCKSIZE ? file_size - at : FS_BLOCKSIZE;
        const std::size_t got = gread(fd, at, want, scratch);
        for (std::size_t i = threadIdx.x; i < got; i += blockDim.x) destination[at + i] = scratch[i];
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) *size = file_size;
    gclose(fd);
}

__global__ void sum_with_gmmap(const char* source, unsigned long long* sum) {
    const int fd = gopen(source, O_GRDONLY);
    const std::size_t file_size = fstat(fd);
    unsigned long long mine = 0;
    for (std::size_t at = std::size_t{blockIdx.x} * FS_BLOCKSIZE; at < file_size; at += std::size_t{FS_BLOCKSIZE} * gridDim.x) {
        const volatile uchar* page = static_cast<const volatile uchar*>(gmmap(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, at));
        if (page == GMAP_FAILED) continue;
        for (std::size_t i = threadIdx.x; i < FS_BLOCKSIZE && at + i < file_size; i += blockDim.x) mine += page[i];
        gmunmap(const_cast<uchar*>(page), FS_BLOCKSIZE);
    }
    atomicAdd(sum, mine);
    gclose(fd);
}

__global__ void sum_with_gmmap_warp(const char* source, unsigned long long* sum) {
    const int fd = gopen(source, O_GRDONLY);
    const std::size_t file_size = fstat(fd);
    const unsigned warp_number = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, warps = gridDim.x * (blockDim.x / 32);
    unsigned long long mine = 0;
    for (std::size_t at = std::size_t{warp_number} * FS_BLOCKSIZE; at < file_size; at += std::size_t{FS_BLOCKSIZE} * warps) {
        const volatile uchar* page = static_cast<const volatile uchar*>(gmmap_warp(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, at, 2));
        if (page == GMAP_FAILED) continue;
        for (std::size_t i = threadIdx.x % 32; i < FS_BLOCKSIZE && at + i < file_size; i += 32) mine += page[i];
        gmunmap_warp(const_cast<uchar*>(page), FS_BLOCKSIZE);
        gmunmap_warp(const_cast<uchar*>(page), FS_BLOCKSIZE, 1);
    }
    atomicAdd(sum, mine);
    __syncthreads();
    gclose(fd);
}

}  // namespace

TEST(device_gpufs, original_calls_read_and_map) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const std::uint64_t bytes = 1000 * 1000 + 13;
    const auto data = pattern(9, bytes);
    write_file(folder / "data", data);
    const auto rt = make_runtime(gpu_options(folder));
    ASSERT_EQ(gpufs_attach(*rt), 0);
    const device_text name("data");
    uchar* copy = nullptr;
    ASSERT_EQ(cudaMalloc(&copy, bytes), cudaSuccess);
    const shared_array<std::size_t> size(1);
    copy_with_gread<<<16, 256>>>(name.get(), copy, size.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(size[0], bytes);
    std::vector<std::uint8_t> got(bytes);
    cudaMemcpy(got.data(), copy, bytes, cudaMemcpyDeviceToHost);
    EXPECT_EQ(got, data);
    unsigned long long expected = 0;
    for (const std::uint8_t b : data) expected += b;
    const device_counters sums(2);
    sum_with_gmmap<<<16, 256>>>(name.get(), sums.get());
    sum_with_gmmap_warp<<<4, 256>>>(name.get(), sums.get() + 1);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(sums.read()[0], expected);
    EXPECT_EQ(sums.read()[1], expected);
    cudaFree(copy);
}

}  // namespace penstock::test
