// Tables on a GPU: gathers on the caller's stream, in captured graphs that are launched again with
// new numbers while pages come and go, and what is noted when a row cannot be had.
#include <fcntl.h>
#include <unistd.h>

#include "device/gpu_context.cuh"
#include "device/support.cuh"
#include "penstock/group/coalesced.cuh"
#include "penstock/launch.hpp"
#include "penstock/table.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t file_rows = 20000;

class device_tables : public testing::Test {
protected:
    // Three files; their rows are pieces of one table.
    void start(std::uint64_t bytes_of_row, std::uint64_t page_bytes, std::uint64_t frames,
               bool windows, std::uint64_t first_byte = 0) {
        row = bytes_of_row;
        layout = {.row_bytes = row};
        for (std::uint64_t i = 0; i < 3; ++i) {
            const std::string path = folder / ("piece" + std::to_string(i));
            bytes.push_back(pattern(i + 1, first_byte + file_rows * row));
            write_file(path, bytes.back());
            layout.pieces.push_back({path, first_byte, file_rows});
        }
        options o = gpu_options(folder);
        o.page_bytes = page_bytes;
        o.cache_bytes = page_bytes * frames;
        o.table_bytes = 16 << 20;
        o.frame_wait_ms = 5000;
        rt = make_runtime(o);
        ASSERT_NE(rt, nullptr);
        const status s = table::make(*rt, layout, {}, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        if (windows) {
            ASSERT_GT(rows->open_windows(), 0);
        }
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    void TearDown() override {
        if (stream != nullptr) {
            cudaStreamSynchronize(stream);
            cudaStreamDestroy(stream);
        }
        rows.reset();
    }
    [[nodiscard]] const std::uint8_t* expected(std::uint64_t number) const {
        return &bytes[number / file_rows][layout.pieces[0].first_byte + number % file_rows * row];
    }
    template <typename Number>
    void choose(Number* numbers, std::uint64_t count, std::uint64_t seed) const {
        for (std::uint64_t i = 0; i < count; ++i)
            numbers[i] = static_cast<Number>(mix64(seed * 1000003 + i) % rows->size());
    }
    template <typename Number>
    [[nodiscard]] std::uint64_t wrong_rows(const Number* numbers, std::uint64_t count,
                                           const std::uint8_t* out) const {
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; i < count; ++i)
            wrong += std::memcmp(out + i * row, expected(static_cast<std::uint64_t>(numbers[i])),
                                 row) != 0;
        return wrong;
    }
    template <typename Number>
    void gather_twice(std::uint64_t count) {
        const shared_array<Number> numbers(count);
        const shared_array<std::uint8_t> out(count * row);
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
            choose(numbers.get(), count, seed);
            ASSERT_EQ(rows->gather(numbers.get(), count, out.get(), {.stream = stream}), 0);
            ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
            EXPECT_EQ(wrong_rows(numbers.get(), count, out.get()), 0u) << row;
        }
        const status s = rows->check();
        EXPECT_TRUE(s.ok()) << s.message;
    }
    void replay(cudaStreamCaptureMode mode, std::uint64_t replays);

    const temporary_folder folder;
    std::uint64_t row = 0;
    table_layout layout;
    std::vector<std::vector<std::uint8_t>> bytes;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
    cudaStream_t stream = nullptr;
};

std::uint64_t replays_wanted() {
    const char* const asked = std::getenv("PENSTOCK_TEST_REPLAYS");
    return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1000;
}

}  // namespace

TEST_F(device_tables, short_rows_by_request) {
    PENSTOCK_NEEDS_GPU();
    start(64, 512, 2048, false);
    gather_twice<std::int32_t>(5000);
}
TEST_F(device_tables, short_rows_through_windows_with_a_small_cache) {
    PENSTOCK_NEEDS_GPU();
    start(160, 512, 2048, true, 8);
    gather_twice<std::int64_t>(20000);
    EXPECT_GT(rt->stats().through_reads, 0u);
    EXPECT_EQ(rt->stats().file_reads, 0u) << "every row lies in a window";
}
TEST_F(device_tables, rows_that_straddle_pages) {
    PENSTOCK_NEEDS_GPU();
    start(1000, 4096, 1024, true, 4);
    gather_twice<std::uint32_t>(5000);
}
TEST_F(device_tables, rows_of_a_whole_page_at_odd_places) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 4096, 1024, true, 3);
    gather_twice<std::uint64_t>(3000);
}
TEST_F(device_tables, long_rows) {
    PENSTOCK_NEEDS_GPU();
    start(9000, 16384, 1024, true);
    gather_twice<std::int32_t>(1000);
}
TEST_F(device_tables, resident_rows) {
    PENSTOCK_NEEDS_GPU();
    start(512, 512, 65536, true);
    gather_twice<std::int32_t>(60000);
    gather_twice<std::int32_t>(60000);
    EXPECT_GT(rt->stats().misses, 0u) << "pages enter while the cache fills";
}

// While a graph is launched again and again, its pages are dropped from the system's page cache,
// evicted by other rows, and one of its files grows.
void device_tables::replay(cudaStreamCaptureMode mode, std::uint64_t replays) {
    constexpr std::uint64_t count = 96;
    const shared_array<std::int32_t> numbers(count);
    const shared_array<std::uint8_t> out(count * row);
    const shared_array<std::int32_t> others(4 * count);
    const shared_array<std::uint8_t> others_out(4 * count * row);
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
    const int captured =
        rows->gather(numbers.get(), count, out.get(), {.stream = stream, .padding = -1});
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(captured, 0);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    std::uint64_t wrong = 0, wrong_padding = 0;
    const int grows = ::open(layout.pieces[2].path.c_str(), O_WRONLY | O_APPEND);
    for (std::uint64_t i = 0; i < replays; ++i) {
        choose(numbers.get(), count, i);
        numbers[i % count] = -1;
        if (i % 16 == 0) {
            choose(others.get(), 4 * count, ~i);
            ASSERT_EQ(rows->gather(others.get(), 4 * count, others_out.get(), {.stream = stream}),
                      0);
        }
        if (i % 64 == 0) {
            const int fd = ::open(layout.pieces[i / 64 % 3].path.c_str(), O_RDONLY);
            ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            ::close(fd);
        }
        if (i % 128 == 0 && grows >= 0) {
            ASSERT_EQ(::write(grows, "more", 4), 4);
        }
        std::memset(out.get(), 0xa5, count * row);
        ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        for (std::uint64_t k = 0; k < row; ++k) wrong_padding += out[i % count * row + k] != 0;
        numbers[i % count] = 0;
        std::memcpy(out.get() + i % count * row, expected(0), row);
        wrong += wrong_rows(numbers.get(), count, out.get());
    }
    ::close(grows);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(wrong_padding, 0u);
    const status s = rows->check();
    EXPECT_TRUE(s.ok()) << s.message;
    std::printf("    %llu replays, %s\n", static_cast<unsigned long long>(replays),
                rt->stats().to_json().c_str());
    // An error in a graph arrives as well.
    choose(numbers.get(), count, 1);
    numbers[7] = 1 << 30;
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(rows->gather(numbers.get(), 1, out.get(), {.stream = stream}), -ERANGE);
    const status noted = rows->check();
    EXPECT_EQ(noted.code, -ERANGE);
    EXPECT_NE(noted.message.find("at place 7"), std::string::npos) << noted.message;
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}

TEST_F(device_tables, a_graph_is_replayed_while_pages_come_and_go) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 2048, true);
    replay(cudaStreamCaptureModeGlobal, replays_wanted());
}
TEST_F(device_tables, a_graph_asks_the_host_for_rows) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 1024, false);
    replay(cudaStreamCaptureModeThreadLocal, replays_wanted() / 4);
}
TEST_F(device_tables, a_graph_of_a_relaxed_capture) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 4096, 512, true);
    replay(cudaStreamCaptureModeRelaxed, replays_wanted() / 8);
}

TEST_F(device_tables, a_graph_brings_the_memory_of_its_gather) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 2048, true);
    constexpr std::uint64_t count = 96;
    const shared_array<std::int32_t> numbers(count);
    const shared_array<std::uint8_t> out(count * row);
    std::vector<std::uint8_t> of_the_host(count * row);
    void *list = nullptr, *to = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    cudaMallocAsync(&list, count * 4, stream);
    cudaMallocAsync(&to, count * row, stream);
    cudaMemcpyAsync(list, numbers.get(), count * 4, cudaMemcpyDefault, stream);
    const auto* const listed = static_cast<const std::int32_t*>(list);
    const int captured = rows->gather(listed, count, to, {.stream = stream});
    const int refused = rows->gather(listed, count, of_the_host.data(), {.stream = stream});
    cudaMemcpyAsync(out.get(), to, count * row, cudaMemcpyDefault, stream);
    cudaFreeAsync(list, stream);
    cudaFreeAsync(to, stream);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(refused, -EFAULT);
    ASSERT_EQ(captured, 0);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (std::uint64_t i = 0; i < 3; ++i) {
        choose(numbers.get(), count, i);
        ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        EXPECT_EQ(wrong_rows(numbers.get(), count, out.get()), 0u);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}

TEST_F(device_tables, two_streams_at_once) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 2048, true);
    cudaStream_t second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    constexpr std::uint64_t count = 20000;
    const shared_array<std::int32_t> a(count), b(count);
    const shared_array<std::uint8_t> of_a(count * row), of_b(count * row);
    choose(a.get(), count, 1);
    choose(b.get(), count, 2);
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(rows->gather(a.get(), count, of_a.get(), {.stream = stream}), 0);
        ASSERT_EQ(rows->gather(b.get(), count, of_b.get(), {.stream = second}), 0);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(wrong_rows(a.get(), count, of_a.get()), 0u);
    EXPECT_EQ(wrong_rows(b.get(), count, of_b.get()), 0u);
    cudaStreamDestroy(second);
}

TEST_F(device_tables, a_cut_file_and_unreachable_memory) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 2048, true);
    const shared_array<std::int32_t> numbers(3);
    const shared_array<std::uint8_t> out(3 * row);
    std::vector<std::int32_t> of_host(3);
    EXPECT_EQ(rows->gather(of_host.data(), 3, out.get(), {.stream = stream}), -EFAULT);
    ASSERT_EQ(::truncate(layout.pieces[1].path.c_str(), 100 * 256), 0);
    numbers[0] = 5, numbers[1] = file_rows + 15000, numbers[2] = 2 * file_rows + 9;
    ASSERT_EQ(rows->gather(numbers.get(), 3, out.get(), {.stream = stream}), 0);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(std::memcmp(out.get(), expected(5), row), 0);
    EXPECT_EQ(std::memcmp(out.get() + 2 * row, expected(2 * file_rows + 9), row), 0);
    for (std::uint64_t k = 0; k < row; ++k) ASSERT_EQ(out[row + k], 0) << k;
    EXPECT_EQ(rows->check().code, -ESTALE);
}

TEST_F(device_tables, an_interrupt_ends_a_gather) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 2048, true);
    const shared_array<std::int32_t> numbers(1000);
    const shared_array<std::uint8_t> out(1000 * row);
    choose(numbers.get(), 1000, 1);
    rt->interrupt();
    usleep(100000);  // the runtime tells kernels with its next beat
    ASSERT_EQ(rows->gather(numbers.get(), 1000, out.get(), {.stream = stream}), 0);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(rows->check().code, -ECANCELED);
    rt->resume();
    usleep(100000);
    ASSERT_EQ(rows->gather(numbers.get(), 1000, out.get(), {.stream = stream}), 0);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(wrong_rows(numbers.get(), 1000, out.get()), 0u);
}

namespace {

struct read_rows_alone {
    table_ref rows;
    std::uint8_t* out;
    unsigned long long* failed;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t i) const {
        const std::int64_t done =
            read_row(g, fs, rows, i * 31 % rows.size(), out + i * rows.row_bytes());
        if (done != static_cast<std::int64_t>(rows.row_bytes()) && g.is_leader())
            atomicAdd(failed, 1ull);
    }
};

}  // namespace

TEST_F(device_tables, kernels_read_rows_by_themselves) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 4096, true);
    constexpr std::uint64_t count = 2000;
    const shared_array<std::uint8_t> out(count * row);
    const device_counters failed(1);
    ASSERT_EQ(
        launch<width::warp>(*rt, count, read_rows_alone{rows->ref(), out.get(), failed.get()}), 0);
    EXPECT_EQ(failed.read()[0], 0u);
    for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(std::memcmp(out.get() + i * row, expected(i * 31 % rows->size()), row), 0) << i;
}

namespace {

// Rows that no table has, into memory of the block and of a thread. Counts what is not as it is
// told: a negative errno, and zeros.
__global__ void read_no_row(const __grid_constant__ runtime_ref fs,
                            const __grid_constant__ table_ref rows, unsigned long long* wrong) {
    constexpr std::uint32_t row_bytes = 96;
    __shared__ alignas(16) std::uint8_t shared[row_bytes];
    alignas(16) std::uint8_t local[row_bytes];
    const std::int64_t numbers[1] = {1 << 30};
    const auto fill = [&] {
        for (std::uint32_t i = 0; i < row_bytes; ++i) local[i] = 7;
        for (std::uint32_t i = threadIdx.x; i < row_bytes; i += blockDim.x) shared[i] = 7;
        __syncthreads();
    };
    const auto check = [&](const std::uint8_t* at, bool told) {
        __syncthreads();
        unsigned long long bad = told ? 0 : 1;
        for (std::uint32_t i = 0; i < row_bytes; ++i) bad += at[i] != 0 ? 1 : 0;
        atomicAdd(wrong, bad);
        __syncthreads();
    };
    fill();
    check(shared, read_row(this_warp(), fs, rows, 1 << 30, shared) == -ERANGE);
    fill();
    check(shared, read_row(this_block(), fs, rows, 1 << 30, shared) == -ERANGE);
    fill();
    check(shared, gather(this_warp(), fs, rows, numbers, 1, shared) == 1);
    fill();
    check(local, read_row(lane{}, fs, rows, 1 << 30, local) == -ERANGE);
}

}  // namespace

TEST_F(device_tables, a_row_that_is_not_there_is_zeros_in_memory_of_the_block_too) {
    PENSTOCK_NEEDS_GPU();
    start(96, 512, 4096, false);
    const device_counters wrong(1);
    read_no_row<<<1, 32>>>(rt->ref(), rows->ref(), wrong.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(wrong.read()[0], 0u);
}

namespace {

// Group `me` of `groups` gathers its share of the list.
template <typename Group>
__device__ void gather_share(const Group& g, const runtime_ref& fs, const table_ref& rows,
                             const std::int32_t* numbers, std::uint64_t count, std::uint8_t* out,
                             std::uint64_t stride, unsigned long long* failed, std::uint64_t me,
                             std::uint64_t groups) {
    const std::uint64_t begin = count * me / groups, end = count * (me + 1) / groups;
    const std::uint64_t missed =
        gather(g, fs, rows, numbers + begin, end - begin, out + begin * stride, stride);
    if (g.is_leader()) atomicAdd(failed, static_cast<unsigned long long>(missed));
}

enum class kind_of_group { lane, tile8, warp, block, coalesced };

__global__ void gather_by(kind_of_group kind, const __grid_constant__ runtime_ref fs,
                          const __grid_constant__ table_ref rows, const std::int32_t* numbers,
                          std::uint64_t count, std::uint8_t* out, std::uint64_t stride,
                          unsigned long long* failed) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * blockDim.x;
    const auto share = [&](const auto& g, std::uint64_t me, std::uint64_t groups) {
        gather_share(g, fs, rows, numbers, count, out, stride, failed, me, groups);
    };
    switch (kind) {
        case kind_of_group::lane: share(lane{}, thread, threads); break;
        case kind_of_group::tile8: share(this_tile<8>(), thread / 8, threads / 8); break;
        case kind_of_group::warp: share(this_warp(), thread / 32, threads / 32); break;
        case kind_of_group::block: share(this_block(), blockIdx.x, gridDim.x); break;
        case kind_of_group::coalesced:
            // The odd lanes of each warp.
            if (threadIdx.x % 2 != 0) share(coalesced(0xaaaaaaaau), thread / 32, threads / 32);
    }
}

}  // namespace

// Rows of every kind for groups of every kind: numbers out of range give zeros, and no byte between
// the rows is touched.
TEST_F(device_tables, groups_of_every_kind_gather) {
    PENSTOCK_NEEDS_GPU();
    constexpr std::uint64_t count = 3000;
    const struct {
        std::uint64_t row, page, frames, first;
        bool windows;
        std::uint32_t threads;  // of a block; 96 is no power of two
    } cases[] = {{160, 512, 2048, 8, true, 96},   {160, 512, 4096, 8, false, 256},
                 {512, 512, 2048, 0, true, 256},  {700, 4096, 512, 1, true, 64},
                 {1000, 512, 2048, 4, true, 96},  {16, 512, 2048, 0, true, 32},
                 {5000, 4096, 1024, 16, true, 64}};
    for (const auto& of : cases) {
        bytes.clear();
        TearDown();
        start(of.row, of.page, of.frames, of.windows, of.first);
        const std::uint64_t stride = row + 48;
        const shared_array<std::int32_t> numbers(count);
        const shared_array<std::uint8_t> out(count * stride);
        for (const kind_of_group kind :
             {kind_of_group::warp, kind_of_group::block, kind_of_group::tile8,
              kind_of_group::coalesced, kind_of_group::lane}) {
            choose(numbers.get(), count, static_cast<std::uint64_t>(kind));
            std::uint64_t outside = 0;
            for (std::uint64_t i = 5; i < count; i += 997, ++outside)
                numbers[i] = i % 2 != 0 ? -3 : static_cast<std::int32_t>(rows->size());
            std::memset(out.get(), 0xa5, count * stride);
            const device_counters failed(1);
            gather_by<<<2, of.threads, 0, stream>>>(kind, rt->ref(), rows->ref(), numbers.get(),
                                                    count, out.get(), stride, failed.get());
            ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
            EXPECT_EQ(failed.read()[0], outside);
            EXPECT_EQ(rows->check().code, -ERANGE);
            const std::vector<std::uint8_t> zeros(row), gap(48, 0xa5);
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::uint8_t* const right =
                    i % 997 == 5 ? zeros.data() : expected(static_cast<std::uint64_t>(numbers[i]));
                ASSERT_EQ(std::memcmp(out.get() + i * stride, right, row), 0)
                    << i << ", rows of " << row << ", kind " << static_cast<int>(kind);
                ASSERT_EQ(std::memcmp(out.get() + i * stride + row, gap.data(), 48), 0) << i;
            }
        }
    }
}

namespace {

// Memory of each kind that a program may hand in, of a device or of the host. Null: refused.
class foreign_memory {
public:
    static constexpr std::size_t bytes = 2 << 20;

    foreign_memory(const char* kind, int device) : kind_(kind), device_(device) {
        int before = 0;
        cudaGetDevice(&before);
        cudaSetDevice(device);
        cudaFree(nullptr);  // makes the context
        if (kind_ == "cudaMalloc") cudaMalloc(&data_, bytes);
        if (kind_ == "cudaMallocAsync") cudaMallocAsync(&data_, bytes, nullptr);
        if (kind_ == "cudaMallocManaged") cudaMallocManaged(&data_, bytes);
        if (kind_ == "cudaHostAlloc") cudaHostAlloc(&data_, bytes, cudaHostAllocDefault);
        if (kind_ == "cudaHostRegister") take_registered();
        if (kind_ == "cuMemMap" || kind_ == "cuMemMap to read" || kind_ == "cuMemMap, no access")
            map_range();
        cudaDeviceSynchronize();
        cudaSetDevice(before);
    }
    ~foreign_memory() {
        if (data_ == nullptr) return;
        if (range_ != 0) {
            host::driver().unmap(range_, bytes);
            host::driver().release(memory_);
            host::driver().free_addresses(range_, bytes);
        } else if (kind_ == "cudaHostAlloc") {
            cudaFreeHost(data_);
        } else if (kind_ == "cudaHostRegister") {
            cudaHostUnregister(data_);
            std::free(data_);
        } else {
            cudaFree(data_);
        }
    }
    foreign_memory(const foreign_memory&) = delete;
    foreign_memory& operator=(const foreign_memory&) = delete;
    [[nodiscard]] void* get() const { return data_; }

private:
    void take_registered() {
        data_ = std::aligned_alloc(4096, bytes);
        if (cudaHostRegister(data_, bytes, cudaHostRegisterDefault) == cudaSuccess) return;
        std::free(std::exchange(data_, nullptr));
    }
    void map_range() {
        CUmemAllocationProp of{};
        of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        of.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
        const CUmemAccessDesc access{of.location, kind_ == "cuMemMap"
                                                      ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                      : CU_MEM_ACCESS_FLAGS_PROT_READ};
        const host::gpu_driver& driver = host::driver();
        ASSERT_EQ(driver.reserve(&range_, bytes, 0, 0, 0), CUDA_SUCCESS);
        ASSERT_EQ(driver.create(&memory_, bytes, &of, 0), CUDA_SUCCESS);
        ASSERT_EQ(driver.map(range_, bytes, 0, memory_, 0), CUDA_SUCCESS);
        if (kind_ != "cuMemMap, no access") {
            ASSERT_EQ(driver.set_access(range_, bytes, &access, 1), CUDA_SUCCESS);
        }
        data_ = reinterpret_cast<void*>(range_);
    }

    const std::string kind_;
    const int device_;
    void* data_ = nullptr;
    CUdeviceptr range_ = 0;
    CUmemGenericAllocationHandle memory_{};
};

}  // namespace

TEST_F(device_tables, rows_go_to_all_memory_that_the_device_writes_and_to_no_other) {
    PENSTOCK_NEEDS_GPU();
    start(256, 512, 2048, false);
    const shared_array<std::int32_t> numbers(3);
    numbers[0] = 5, numbers[1] = file_rows + 7, numbers[2] = 2 * file_rows + 9;
    const std::pair<const char*, int> kinds[] = {{"cudaMalloc", 0},
                                                 {"cudaMallocAsync", 0},
                                                 {"cudaMallocManaged", 0},
                                                 {"cudaHostAlloc", 0},
                                                 {"cudaHostRegister", 0},
                                                 {"cuMemMap", 0},
                                                 {"cuMemMap to read", -EFAULT},
                                                 {"cuMemMap, no access", -EFAULT}};
    for (const auto& [kind, code] : kinds) {
        SCOPED_TRACE(kind);
        const foreign_memory out(kind, 0);
        ASSERT_NE(out.get(), nullptr);
        ASSERT_EQ(rows->gather(numbers.get(), 3, out.get(), {.stream = stream}), code);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        if (code != 0) continue;
        std::vector<std::uint8_t> got(3 * row);
        ASSERT_EQ(cudaMemcpy(got.data(), out.get(), got.size(), cudaMemcpyDefault), cudaSuccess);
        EXPECT_EQ(wrong_rows(numbers.get(), 3, got.data()), 0u);
    }
    EXPECT_TRUE(rows->check().ok());
    EXPECT_TRUE(rt->health().ok());
}

TEST_F(device_tables, memory_of_another_gpu_is_refused_unless_it_may_be_reached) {
    int devices = 0, may_reach = 0;
    if (!has_gpu() || cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2)
        GTEST_SKIP() << "no two GPUs in this machine";
    start(256, 512, 2048, false);
    const shared_array<std::int32_t> numbers(3);
    numbers[0] = 5, numbers[1] = file_rows + 7, numbers[2] = 2 * file_rows + 9;
    if (cudaDeviceDisablePeerAccess(1) != cudaSuccess) cudaGetLastError();  // it was not enabled
    const auto gather_to = [&](const char* kind) {
        const foreign_memory out(kind, 1);
        EXPECT_NE(out.get(), nullptr) << kind;
        const int code = rows->gather(numbers.get(), 3, out.get(), {.stream = stream});
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << kind;
        return code;
    };
    for (const char* const kind : {"cudaMalloc", "cudaMallocAsync", "cuMemMap"})
        EXPECT_EQ(gather_to(kind), -EFAULT) << kind;
    {
        const foreign_memory there("cudaMalloc", 1);
        const shared_array<std::uint8_t> out(row);
        EXPECT_EQ(rows->gather(static_cast<const std::int32_t*>(there.get()), 1, out.get(),
                               {.stream = stream}),
                  -EFAULT)
            << "numbers";
    }
    EXPECT_EQ(gather_to("cudaHostAlloc"), 0);
    ASSERT_EQ(cudaDeviceCanAccessPeer(&may_reach, 0, 1), cudaSuccess);
    if (may_reach != 0) {
        ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
        EXPECT_EQ(gather_to("cudaMalloc"), 0);
        EXPECT_EQ(gather_to("cuMemMap"), -EFAULT) << "which has rights of its own";
        EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
    }
    EXPECT_TRUE(rt->health().ok());
}

}  // namespace penstock::test
