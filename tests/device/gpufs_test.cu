// Kernels written in the style of the original GPUfs, unchanged but for the host's set-up.
#include <thread>

#include "device/gpu_context.cuh"
#include "device/gpufs_second_file.hpp"
#include "device/support.cuh"
#include "penstock/gpufs.cuh"

namespace penstock::test {

namespace {

// A block copies the file page by page with gread; blocks share the pages out.
__global__ void copy_with_gread(const char* source, uchar* destination, std::size_t* size) {
    __shared__ uchar scratch[FS_BLOCKSIZE];
    const int fd = gopen(source, O_GRDONLY);
    const std::size_t file_size = fstat(fd);
    for (std::size_t at = std::size_t{blockIdx.x} * FS_BLOCKSIZE; at < file_size;
         at += std::size_t{FS_BLOCKSIZE} * gridDim.x) {
        const std::size_t want = file_size - at < FS_BLOCKSIZE ? file_size - at : FS_BLOCKSIZE;
        const std::size_t got = gread(fd, at, want, scratch);
        for (std::size_t i = threadIdx.x; i < got; i += blockDim.x)
            destination[at + i] = scratch[i];
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) *size = file_size;
    gclose(fd);
}

__global__ void sum_with_gmmap(const char* source, unsigned long long* sum) {
    const int fd = gopen(source, O_GRDONLY);
    const std::size_t file_size = fstat(fd);
    unsigned long long own_sum = 0;
    for (std::size_t at = std::size_t{blockIdx.x} * FS_BLOCKSIZE; at < file_size;
         at += std::size_t{FS_BLOCKSIZE} * gridDim.x) {
        const volatile uchar* page =
            static_cast<const volatile uchar*>(gmmap(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, at));
        if (page == GMAP_FAILED) continue;
        for (std::size_t i = threadIdx.x; i < FS_BLOCKSIZE && at + i < file_size; i += blockDim.x)
            own_sum += page[i];
        gmunmap(const_cast<uchar*>(page), FS_BLOCKSIZE);
    }
    atomicAdd(sum, own_sum);
    gclose(fd);
}

__global__ void sum_with_gmmap_warp(const char* source, unsigned long long* sum) {
    const int fd = gopen(source, O_GRDONLY);
    const std::size_t file_size = fstat(fd);
    const unsigned warp_number = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32,
                   warps = gridDim.x * (blockDim.x / 32);
    unsigned long long own_sum = 0;
    for (std::size_t at = std::size_t{warp_number} * FS_BLOCKSIZE; at < file_size;
         at += std::size_t{FS_BLOCKSIZE} * warps) {
        const volatile uchar* page = static_cast<const volatile uchar*>(
            gmmap_warp(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, at, 2));
        if (page == GMAP_FAILED) continue;
        for (std::size_t i = threadIdx.x % 32; i < FS_BLOCKSIZE && at + i < file_size; i += 32)
            own_sum += page[i];
        gmunmap_warp(const_cast<uchar*>(page), FS_BLOCKSIZE);
        gmunmap_warp(const_cast<uchar*>(page), FS_BLOCKSIZE, 1);
    }
    atomicAdd(sum, own_sum);
    __syncthreads();
    gclose(fd);
}

// A block doubles each byte of its pages through a mapping, and adds a line of its own with gwrite.
__global__ void change_with_gmmap(const char* name, std::size_t bytes, int* bad) {
    __shared__ uchar line[64];
    const int fd = gopen(name, O_GRDWR);
    if (fd < 0 && threadIdx.x == 0) atomicAdd(bad, 1);
    for (std::size_t at = std::size_t{blockIdx.x} * FS_BLOCKSIZE; fd >= 0 && at < bytes;
         at += std::size_t{FS_BLOCKSIZE} * gridDim.x) {
        const std::size_t size = bytes - at < FS_BLOCKSIZE ? bytes - at : FS_BLOCKSIZE;
        volatile uchar* page = static_cast<volatile uchar*>(
            gmmap(nullptr, size, PROT_READ | PROT_WRITE, O_GRDWR, fd, at));
        if (page == GMAP_FAILED) {
            if (threadIdx.x == 0) atomicAdd(bad, 1);
            continue;
        }
        for (std::size_t i = threadIdx.x; i < FS_BLOCKSIZE && at + i < bytes; i += blockDim.x)
            page[i] = static_cast<uchar>(page[i] * 2);
        const int synced = at == 0 ? gmsync(page, FS_BLOCKSIZE, 0) : 0,
                  unmapped = gmunmap(page, FS_BLOCKSIZE);
        if ((synced != 0 || unmapped != 0) && threadIdx.x == 0) atomicAdd(bad, 1);
    }
    for (std::size_t i = threadIdx.x; i < 64; i += blockDim.x)
        line[i] = static_cast<uchar>(blockIdx.x + i);
    if (gwrite(fd, bytes + blockIdx.x * 64, 64, line) != 64 && threadIdx.x == 0) atomicAdd(bad, 1);
    if (gfsync(fd) != 0 && threadIdx.x == 0) atomicAdd(bad, 1);
    if (gclose(fd) != 0 && threadIdx.x == 0) atomicAdd(bad, 1);
}

// A new file, by warps that store each byte once.
__global__ void fill_with_gmmap_warp(const char* name, std::size_t bytes, int* bad) {
    const int fd = gopen(name, O_GWRONCE | O_GCREAT);
    const unsigned number = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32,
                   warps = gridDim.x * (blockDim.x / 32);
    for (std::size_t at = std::size_t{number} * FS_BLOCKSIZE; fd >= 0 && at < bytes;
         at += std::size_t{FS_BLOCKSIZE} * warps) {
        const std::size_t size = bytes - at < FS_BLOCKSIZE ? bytes - at : FS_BLOCKSIZE;
        volatile uchar* page = static_cast<volatile uchar*>(
            gmmap_warp(nullptr, size, PROT_WRITE, O_GWRONCE, fd, at, 2));
        if (page == GMAP_FAILED) {
            if (threadIdx.x % 32 == 0) atomicAdd(bad, 1);
            continue;
        }
        for (std::size_t i = threadIdx.x % 32; i < FS_BLOCKSIZE && at + i < bytes; i += 32)
            page[i] = static_cast<uchar>((at + i) % 251 + 1);
        if (gmunmap_warp(page, FS_BLOCKSIZE) + gmunmap_warp(page, FS_BLOCKSIZE) != 0 &&
            threadIdx.x % 32 == 0)
            atomicAdd(bad, 1);
    }
    __syncthreads();
    if (gclose(fd) != 0 && threadIdx.x == 0) atomicAdd(bad, 1);
}

enum refusal { warp_neighbour, warp_own, shared_of_warp, refusals };

// Each of two warps tries to unmap what the other mapped, and both what one mapped with two
// references.
__global__ void unmap_what_is_another_warps(const char* name, int* results, int* bad) {
    __shared__ unsigned long long addresses[2], both;
    const int fd = gopen(name, O_GRDONLY);
    const int warp_number = static_cast<int>(threadIdx.x / 32);
    const off_t at = static_cast<off_t>(warp_number) * FS_BLOCKSIZE;
    volatile uchar* const page =
        static_cast<volatile uchar*>(gmmap_warp(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, at));
    if (warp_number == 0) {
        volatile void* const shared_page =
            gmmap_warp(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, 2 * FS_BLOCKSIZE, 2);
        if (threadIdx.x == 0) both = reinterpret_cast<unsigned long long>(shared_page);
    }
    if (threadIdx.x % 32 == 0) addresses[warp_number] = reinterpret_cast<unsigned long long>(page);
    __syncthreads();
    if (warp_number == 0) {
        const int theirs = gmunmap_warp(reinterpret_cast<volatile uchar*>(addresses[1]), 0);
        if (threadIdx.x == 0) results[warp_neighbour] = theirs;
    }
    __syncthreads();
    const int own_result = gmunmap_warp(page, 0),
              shared_by_both = gmunmap_warp(reinterpret_cast<volatile uchar*>(both), 0);
    if ((own_result != 0 || shared_by_both != 0) && threadIdx.x % 32 == 0) atomicAdd(bad, 1);
    __syncthreads();
    if (warp_number == 1) {
        const int again = gmunmap_warp(page, 0),
                  once_more = gmunmap_warp(reinterpret_cast<volatile uchar*>(both), 0);
        if (threadIdx.x % 32 == 0) results[warp_own] = again;
        if (threadIdx.x % 32 == 0) results[shared_of_warp] = once_more;
    }
    __syncthreads();
    gclose(fd);
}

__global__ void cut_and_remove(const char* kept, const char* removed, int* bad) {
    const int fd = gopen(kept, O_GRDWR);
    const int cut = gftruncate(fd, 1000), gone = gunlink(removed),
              absent = gopen(removed, O_GRDONLY);
    if (threadIdx.x == 0 && (cut != 0 || gone != 0 || absent != -ENOENT)) atomicAdd(bad, 1);
    gclose(fd);
}

}  // namespace

TEST(device_gpufs, a_thread_that_attaches_keeps_its_context) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const auto rt = make_runtime(gpu_options(folder));
    std::thread([&] {
        CUcontext after = nullptr;
        EXPECT_EQ(gpufs_attach(*rt), 0);
        ASSERT_EQ(host::driver().current_context(&after), CUDA_SUCCESS);
        EXPECT_EQ(after, nullptr);
    }).join();
}

TEST(device_gpufs, original_calls_write) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const std::uint64_t bytes = 300 * 1000 + 13;
    auto data = pattern(9, bytes);
    write_file(folder / "data", data);
    options o = gpu_options(folder);
    o.writable = true;
    o.cache_bytes = 48 * o.page_bytes;
    const auto rt = make_runtime(o);
    ASSERT_EQ(gpufs_attach(*rt), 0);
    const device_text name("data"), fresh("fresh");
    const shared_array<int> bad(1);
    change_with_gmmap<<<16, 256>>>(name.get(), bytes, bad.get());
    fill_with_gmmap_warp<<<4, 256>>>(fresh.get(), bytes, bad.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(bad[0], 0);
    for (std::uint8_t& b : data) b = static_cast<std::uint8_t>(b * 2);
    for (std::uint64_t block = 0; block < 16; ++block)
        for (std::uint64_t i = 0; i < 64; ++i) data.push_back(static_cast<std::uint8_t>(block + i));
    std::ifstream changed(folder / "data", std::ios::binary),
        filled(folder / "fresh", std::ios::binary);
    EXPECT_TRUE((std::vector<std::uint8_t>{std::istreambuf_iterator<char>(changed), {}}) == data);
    const std::vector<std::uint8_t> got{std::istreambuf_iterator<char>(filled), {}};
    ASSERT_EQ(got.size(), bytes) << "as far as the mappings go";
    for (std::uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(got[i], i % 251 + 1) << i;
    cut_and_remove<<<1, 64>>>(name.get(), fresh.get(), bad.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(bad[0], 0);
    EXPECT_EQ(std::filesystem::file_size(folder / "data"), 1000u);
    EXPECT_FALSE(std::filesystem::exists(folder / "fresh"));
}

TEST(device_gpufs, pages_of_other_warps_are_refused) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(4, 8 * FS_BLOCKSIZE));
    options o = gpu_options(folder);
    o.page_bytes = FS_BLOCKSIZE;
    const auto rt = make_runtime(o);
    ASSERT_EQ(gpufs_attach(*rt), 0);
    const device_text name("data");
    const shared_array<int> results(refusals), bad(1);
    unmap_what_is_another_warps<<<1, 64>>>(name.get(), results.get(), bad.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(bad[0], 0) << "each warp gave its own page and its share of the other back";
    for (int i = 0; i < refusals; ++i) EXPECT_EQ(results[i], -EINVAL) << i;
}

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
    const device_counters sums(3);
    sum_with_gmmap<<<16, 256>>>(name.get(), sums.get());
    sum_with_gmmap_warp<<<4, 256>>>(name.get(), sums.get() + 1);
    sum_in_second_file(name.get(), sums.get() + 2);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(sums.read()[2], expected) << "by a kernel of another source file";
    EXPECT_EQ(sums.read()[0], expected);
    EXPECT_EQ(sums.read()[1], expected);
    cudaFree(copy);
}

}  // namespace penstock::test
