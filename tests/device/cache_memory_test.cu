// Page frames in device memory of the caller, which memory is refused, and whether a runtime says
// what it takes of the GPU.
#include <array>

#include "device/gpu_context.cuh"
#include "device/support.cuh"
#include "penstock/launch.hpp"
#include "unit/frame_memory.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t mib = 1 << 20, given_frames = 1024;

struct compare_file {
    const char* name;
    std::uint64_t bytes;
    unsigned long long* counters;  // wrong bytes, calls that failed

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const std::uint64_t offset = index * page;
        const int fd = open(g, fs, name);
        const mapping m = map(g, fs, fd, static_cast<std::int64_t>(offset), page);
        const std::uint64_t expected = bytes - offset < page ? bytes - offset : page;
        unsigned long long wrong = 0;
        for (std::uint64_t i = g.rank(); m.data != nullptr && i < expected; i += g.size())
            wrong += static_cast<std::uint8_t>(m.data[i]) != pattern_byte(7, offset + i);
        if (wrong != 0) atomicAdd(&counters[0], wrong);
        const bool good = m.bytes == static_cast<std::int64_t>(expected) && unmap(g, fs, m) == 0 &&
                          close(g, fs, fd) == 0;
        if (!good && g.is_leader()) atomicAdd(&counters[1], 1ull);
    }
};

class device_cache_memory : public testing::Test {
protected:
    void SetUp() override {
        if (has_gpu()) write_file(folder / "data", pattern(7, file_bytes));
    }
    [[nodiscard]] options with_frames(void* memory, std::uint64_t bytes) const {
        options o = gpu_options(folder);
        o.cache_bytes = bytes;
        o.cache_memory = memory;
        o.frame_wait_ms = 5000;
        return o;
    }
    // Reads the file twice by warps, in a cache of a third of its size.
    void expect_right_reads(runtime& rt) const {
        const device_text name("data");
        const device_counters counters(2);
        for (int round = 0; round < 2; ++round)
            ASSERT_EQ(launch<width::warp>(rt, (file_bytes + page - 1) / page,
                                          compare_file{name.get(), file_bytes, counters.get()}),
                      0);
        EXPECT_EQ(counters.read(), (std::vector<unsigned long long>{0, 0}));
        EXPECT_GT(rt.stats().evictions, given_frames);
    }
    void expect_refused(void* memory, std::uint64_t bytes, const std::string& has) const {
        std::unique_ptr<runtime> rt;
        const status s = runtime::make(with_frames(memory, bytes), rt);
        EXPECT_EQ(s.code, -EINVAL) << has;
        std::stringstream address;
        address << "cache_memory: " << memory;
        EXPECT_EQ(s.message.rfind(address.str(), 0), 0u) << s.message;
        EXPECT_NE(s.message.find(has), std::string::npos) << s.message;
        EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the program's own error state";
    }

    static constexpr std::uint64_t file_bytes = 3 * given_frames * page + 77;
    const temporary_folder folder;
};

}  // namespace

TEST_F(device_cache_memory, lies_inside_a_larger_allocation) {
    PENSTOCK_NEEDS_GPU();
    constexpr std::uint64_t bytes = given_frames * page, before = 3 * mib + 256, all = 12 * mib;
    std::byte* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, all), cudaSuccess);
    std::vector<std::byte> seen(all);
    for (int turn = 0; turn < 2; ++turn) {
        ASSERT_EQ(cudaMemset(memory, 0xa5, all), cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        auto rt = make_runtime(with_frames(memory + before, bytes));
        ASSERT_NE(rt, nullptr);
        expect_right_reads(*rt);
        rt.reset();
        ASSERT_EQ(cudaMemcpy(seen.data(), memory, all, cudaMemcpyDeviceToHost), cudaSuccess);
        const auto is_filler = [](std::byte b) { return b == std::byte{0xa5}; };
        EXPECT_TRUE(std::all_of(seen.begin(), seen.begin() + before, is_filler));
        EXPECT_TRUE(std::all_of(seen.begin() + before + bytes, seen.end(), is_filler));
        EXPECT_FALSE(std::all_of(seen.begin() + before, seen.begin() + before + bytes, is_filler));
    }
    EXPECT_EQ(cudaFree(memory), cudaSuccess) << "it is the caller's";
}

TEST_F(device_cache_memory, may_be_of_a_memory_pool) {
    PENSTOCK_NEEDS_GPU();
    void* memory = nullptr;
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMallocAsync(&memory, given_frames * page, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    auto rt = make_runtime(with_frames(memory, given_frames * page));
    ASSERT_NE(rt, nullptr);
    expect_right_reads(*rt);
    rt.reset();
    EXPECT_EQ(cudaFreeAsync(memory, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
}

// As a framework's segments that grow: pieces of memory at one range of addresses.
TEST_F(device_cache_memory, may_be_mapped_in_pieces) {
    PENSTOCK_NEEDS_GPU();
    constexpr std::uint64_t piece = 2 * mib, pieces = 4;
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // makes the context current
    const host::gpu_driver& cuda = host::driver();
    CUdeviceptr range = 0;
    ASSERT_EQ(cuda.reserve(&range, (pieces + 1) * piece, piece, 0, 0), CUDA_SUCCESS);
    CUmemAllocationProp kind{};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access{kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (std::uint64_t i = 0; i < pieces; ++i) {
        CUmemGenericAllocationHandle memory{};
        ASSERT_EQ(cuda.create(&memory, piece, &kind, 0), CUDA_SUCCESS);
        ASSERT_EQ(cuda.map(range + i * piece, piece, 0, memory, 0), CUDA_SUCCESS);
        ASSERT_EQ(cuda.set_access(range + i * piece, piece, &access, 1), CUDA_SUCCESS);
        ASSERT_EQ(cuda.release(memory), CUDA_SUCCESS);
    }
    auto* const begin = reinterpret_cast<std::byte*>(range + piece / 2);  // in three pieces
    auto rt = make_runtime(with_frames(begin, given_frames * page));
    ASSERT_NE(rt, nullptr);
    expect_right_reads(*rt);
    rt.reset();
    expect_refused(begin, pieces * piece, "has 7 MiB up to the end of its allocation");
    for (std::uint64_t i = 0; i < pieces; ++i)
        EXPECT_EQ(cuda.unmap(range + i * piece, piece), CUDA_SUCCESS);
    EXPECT_EQ(cuda.free_addresses(range, (pieces + 1) * piece), CUDA_SUCCESS);
}

TEST_F(device_cache_memory, other_memory_is_refused) {
    PENSTOCK_NEEDS_GPU();
    constexpr std::uint64_t bytes = given_frames * page;
    frame_memory of_process(bytes);
    expect_refused(of_process.data(), bytes, "is host memory, not of GPU 0; give ");
    EXPECT_FALSE(of_process.is_touched());
    void *pinned = nullptr, *managed = nullptr, *other = nullptr;
    ASSERT_EQ(cudaHostAlloc(&pinned, bytes, cudaHostAllocMapped), cudaSuccess);
    expect_refused(pinned, bytes, "is host memory, not of GPU 0; give ");
    cudaFreeHost(pinned);
    ASSERT_EQ(cudaMallocManaged(&managed, bytes), cudaSuccess);
    expect_refused(managed, bytes, "is managed memory, not of GPU 0; give ");
    cudaFree(managed);
    int devices = 0;
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    if (devices < 2) return;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&other, bytes), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    expect_refused(other, bytes, "is memory of GPU 1, not of GPU 0; give ");
    cudaFree(other);
}

TEST_F(device_cache_memory, a_range_past_the_end_of_the_allocation_is_refused) {
    PENSTOCK_NEEDS_GPU();
    std::byte* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, 8 * mib), cudaSuccess);
    expect_refused(memory + 5 * mib, 4 * mib,
                   "has 3 MiB up to the end of its allocation, and 4 MiB are wanted; give ");
    expect_refused(memory + 64, 4 * mib, "no multiple of 256");
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

namespace {

std::uint64_t free_now() {
    std::size_t free_bytes = 0, all_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess ? free_bytes : 0;
}

// What the free memory of the GPU falls by while a runtime is made, and what the runtime says.
struct taken_memory {
    std::uint64_t fell = 0, said = 0;
};
taken_memory taken_by(const options& o) {
    const std::uint64_t before = free_now();
    const auto rt = make_runtime(o);
    if (rt == nullptr) return {};
    return {before - free_now(), rt->stats().device_bytes};
}

}  // namespace

// The driver gives device memory in pieces of 2 MiB, and keeps some of them for small allocations;
// a runtime asks for fewer than 48 pieces. Streams and the tables of pinned memory take more, for
// which 32 MiB are allowed. Code and stacks of kernels are there from the first runtime on.
TEST_F(device_cache_memory, what_the_runtime_says_is_what_the_gpu_has_less) {
    PENSTOCK_NEEDS_GPU();
    constexpr std::uint64_t bytes = 1024 * mib, allowance = (48 * 2 + 32) * mib;
    options own = with_frames(nullptr, bytes);
    own.page_bytes = 65536;
    own.table_bytes = 256 * mib;
    own.writable = true;
    taken_by(own);
    const taken_memory allocated = taken_by(own);
    EXPECT_GT(allocated.said, bytes + bytes / 8 + own.table_bytes);
    EXPECT_NEAR(static_cast<double>(allocated.fell), static_cast<double>(allocated.said),
                static_cast<double>(allowance));

    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    options given = own;
    given.cache_memory = memory;
    const taken_memory beside = taken_by(given);
    EXPECT_EQ(allocated.said - beside.said, bytes);
    EXPECT_NEAR(static_cast<double>(beside.fell), static_cast<double>(beside.said),
                static_cast<double>(allowance));
    cudaFree(memory);
    std::printf(
        "    device_bytes %llu, free memory fell by %llu; in memory of the caller %llu, %llu\n",
        static_cast<unsigned long long>(allocated.said),
        static_cast<unsigned long long>(allocated.fell),
        static_cast<unsigned long long>(beside.said), static_cast<unsigned long long>(beside.fell));
}

}  // namespace penstock::test
