// Gathers by GPU groups and by the whole device: resident, missing, evicted meanwhile, through
// windows and by request.
#include "device/support.cuh"
#include "penstock/gather.hpp"
#include "penstock/write.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t gathered_bytes = 4 * 1024 * 1024 + 1003;

// A device array that the host fills and reads.
template <typename T>
class device_array {
public:
    explicit device_array(std::size_t count) : count_(count) {
        if (cudaMalloc(&data_, count * sizeof(T)) != cudaSuccess) std::abort();
    }
    // cudaMemcpy from memory that is not pinned returns before its last piece has arrived, and the
    // runtime's stream does not wait for it.
    explicit device_array(const std::vector<T>& from) : device_array(from.size()) {
        cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
        cudaStreamSynchronize(nullptr);
    }
    ~device_array() { cudaFree(data_); }
    device_array(const device_array&) = delete;
    device_array& operator=(const device_array&) = delete;
    T* get() const { return data_; }
    std::vector<T> read() const {
        std::vector<T> out(count_);
        cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
        return out;
    }

private:
    T* data_ = nullptr;
    std::size_t count_;
};

std::vector<std::uint64_t> random_indices(std::uint64_t count, std::uint64_t rows,
                                          std::uint64_t seed) {
    std::vector<std::uint64_t> out(count);
    for (std::uint64_t i = 0; i < count; ++i) out[i] = mix64(seed * 1000003 + i) % rows;
    return out;
}

std::uint64_t rows_in_file(const row_shape& shape) {
    return engine::rows_of(gathered_bytes, shape.first_byte,
                           shape.stride_bytes != 0 ? shape.stride_bytes : shape.row_bytes,
                           shape.row_bytes)
        .rows;
}

// How many of the delivered rows are wrong, and whether the margin behind them was written.
std::uint64_t wrong_rows(const std::vector<std::uint8_t>& bytes, const row_shape& shape,
                         const std::vector<std::uint64_t>& indices,
                         const std::vector<std::uint8_t>& out) {
    const std::uint64_t stride = shape.stride_bytes != 0 ? shape.stride_bytes : shape.row_bytes;
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < indices.size(); ++i)
        wrong += std::memcmp(&out[i * shape.row_bytes],
                             &bytes[shape.first_byte + indices[i] * stride], shape.row_bytes) != 0;
    for (std::uint64_t i = indices.size() * shape.row_bytes; i < out.size(); ++i)
        wrong += out[i] != 0xa5;
    return wrong;
}

// Every group takes a piece of the list.
struct gather_pieces {
    int fd;
    row_shape shape;
    const std::uint64_t* indices;
    std::uint64_t count, piece;
    std::byte* out;
    unsigned long long* failures;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t number) const {
        const std::uint64_t first = number * piece, n = min(piece, count - first);
        const row_view rows(fs, fd, shape);
        const std::int64_t done =
            gather(g, rows, indices + first, n, out + first * shape.row_bytes);
        if (g.is_leader() && done != static_cast<std::int64_t>(n)) atomicAdd(failures, 1ull);
    }
};

// Group 0 cuts half of the file off and has it grow again, while the others gather eight rows at a
// time. Counts threads that got another result than their leader, calls that brought all rows, and
// changes that failed.
struct gather_beside_cuts {
    int fd;
    row_shape shape;
    const std::uint64_t* indices;
    std::uint64_t lists;
    std::byte* out;
    unsigned long long* counters;

    template <typename Group>
    __device__ void cut(const Group& g, const runtime_ref& fs) const {
        for (int i = 0; i < 200; ++i) {
            const int cut = truncate(g, fs, fd, gathered_bytes / 2);
            const std::int64_t grown = write(g, fs, fd, out, 1, gathered_bytes - 1);
            if (g.is_leader() && (cut != 0 || grown != 1)) atomicAdd(counters + 2, 1ull);
        }
    }
    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t number) const {
        if (number == 0) {
            cut(g, fs);
            return;
        }
        for (std::uint64_t i = 0; i < 1000; ++i) {
            const row_view rows(fs, fd, shape);
            const std::int64_t done = gather(g, rows, indices + 8 * ((number * 977 + i) % lists), 8,
                                             out + number * 8 * shape.row_bytes);
            if (g.broadcast(done) != done) atomicAdd(counters, 1ull);
            if (g.is_leader() && done == 8) atomicAdd(counters + 1, 1ull);
        }
    }
};

class device_gather : public testing::Test {
protected:
    void start(std::uint64_t page_bytes, std::uint64_t frames, bool windows,
               bool writable = false) {
        bytes = pattern(3, gathered_bytes);
        write_file(folder / "data", bytes);
        options o = gpu_options(folder);
        o.page_bytes = page_bytes;
        o.cache_bytes = page_bytes * frames;
        o.frame_wait_ms = 5000;
        o.writable = writable;
        rt = make_runtime(o);
        ASSERT_NE(rt, nullptr);
        ASSERT_GE(fd = rt->open(folder / "data", writable ? open_read_write : open_read), 0);
        if (windows) {
            ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(gathered_bytes));
        }
    }
    // Twice, so that the second time meets pages that are there.
    template <width Width>
    void by_groups(const row_shape& shape, std::uint64_t count, std::uint64_t piece) {
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
            const std::vector<std::uint64_t> indices =
                random_indices(count, rows_in_file(shape), seed);
            const device_array<std::uint64_t> list(indices);
            const device_array<std::uint8_t> out(
                std::vector<std::uint8_t>(count * shape.row_bytes + 64, 0xa5));
            const device_counters failures(1);
            ASSERT_EQ(launch<Width>(
                          *rt, (count + piece - 1) / piece,
                          gather_pieces{fd, shape, list.get(), count, piece,
                                        reinterpret_cast<std::byte*>(out.get()), failures.get()}),
                      0);
            EXPECT_EQ(failures.read()[0], 0u) << shape.row_bytes;
            EXPECT_EQ(wrong_rows(bytes, shape, indices, out.read()), 0u) << shape.row_bytes;
        }
        EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    }
    template <width Width>
    void all_shapes() {
        for (const row_shape shape : {row_shape{64, 0, 0},
                                      {48, 64, 16},
                                      {512, 0, 0},
                                      {4096, 0, 0},
                                      {1024, 0, 0},
                                      {2000, 2048, 48},
                                      {24, 0, 8},
                                      {100, 0, 0},
                                      {1000, 1024, 4},
                                      {33, 65, 7},
                                      {1, 0, 0}})
            by_groups<Width>(shape, 20000, 61);
        by_groups<Width>({20000, 0, 0}, 600, 3);
        by_groups<Width>({300 * 1024, 4096, 32}, 40, 2);
    }

    const temporary_folder folder;
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    int fd = -1;
};

}  // namespace

TEST_F(device_gather, by_warps_resident) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 4096, false);
    all_shapes<width::warp>();
}
TEST_F(device_gather, by_warps_with_a_tiny_cache) {
    PENSTOCK_NEEDS_GPU();
    start(512, 2048, true);
    all_shapes<width::warp>();
}
TEST_F(device_gather, by_warps_through_windows) {
    PENSTOCK_NEEDS_GPU();
    start(65536, 32, true);
    all_shapes<width::warp>();
}
TEST_F(device_gather, by_warps_by_request) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 512, false);
    all_shapes<width::warp>();
}
TEST_F(device_gather, by_tiles) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 700, true);
    all_shapes<width::tile8>();
}
TEST_F(device_gather, by_lanes) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 4096, true);
    all_shapes<width::lane>();
}
TEST_F(device_gather, by_blocks) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 700, true);
    all_shapes<width::block>();
}

TEST_F(device_gather, from_the_host_in_every_order) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 700, true);
    for (const row_shape shape :
         {row_shape{512, 0, 0}, {64, 0, 0}, {1000, 1003, 3}, {5000, 4096, 0}}) {
        for (const std::uint64_t count : {1, 1000, 70001}) {
            const std::vector<std::uint64_t> indices =
                random_indices(count, rows_in_file(shape), count);
            const device_array<std::uint64_t> list(indices);
            for (const gather_order order :
                 {gather_order::automatic, gather_order::as_given, gather_order::by_span}) {
                const device_array<std::uint8_t> out(
                    std::vector<std::uint8_t>(count * shape.row_bytes + 64, 0xa5));
                ASSERT_EQ(rt->gather(fd, shape, list.get(), count, out.get(), {order, 2 << 20}),
                          static_cast<std::int64_t>(count));
                EXPECT_EQ(wrong_rows(bytes, shape, indices, out.read()), 0u)
                    << shape.row_bytes << ", " << count;
            }
        }
    }
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
}

namespace {

__global__ void gather_elements(const __grid_constant__ runtime_ref fs, int fd,
                                const std::uint64_t* indices, std::uint64_t count,
                                std::uint32_t* out, std::int64_t* result) {
    const view<std::uint32_t> v(fs, fd, 4);
    const std::int64_t done = gather(this_block(), v, indices, count, out);
    if (threadIdx.x == 0) *result = done;
}

}  // namespace

TEST_F(device_gather, elements_of_a_view) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 4096, false);
    const std::vector<std::uint64_t> indices = random_indices(5000, (gathered_bytes - 4) / 4, 9);
    const device_array<std::uint64_t> list(indices);
    const device_array<std::uint32_t> out(5000);
    const shared_array<std::int64_t> result(1);
    gather_elements<<<1, 256>>>(rt->ref(), fd, list.get(), 5000, out.get(), result.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(result[0], 5000);
    const auto got = out.read();
    for (std::uint64_t i = 0; i < 5000; ++i)
        ASSERT_EQ(std::memcmp(&got[i], &bytes[4 + 4 * indices[i]], 4), 0) << i;
}

namespace {

// Takes its time, so that what does not wait for it reads the list as it was.
__global__ void write_late(const std::uint64_t* from, std::uint64_t* to, std::uint64_t count,
                           std::uint64_t wait_ns) {
    std::uint64_t begun = 0, now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begun < wait_ns);
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

constexpr std::uint64_t late_ns = 50'000'000;

}  // namespace

TEST_F(device_gather, comes_after_what_is_on_the_callers_stream) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 700, false);
    const row_shape shape{512, 0, 0};
    const std::uint64_t count = 5000;
    const std::vector<std::uint64_t> indices = random_indices(count, rows_in_file(shape), 11);
    const device_array<std::uint64_t> source(indices);
    cudaStream_t own = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
    for (const cudaStream_t stream : {own, cudaStreamLegacy, cudaStreamPerThread})
        for (const gather_order order : {gather_order::as_given, gather_order::by_span}) {
            // Rows that are not there, so that a gather which comes too early fails.
            const device_array<std::uint64_t> list(
                std::vector<std::uint64_t>(count, rows_in_file(shape)));
            const device_array<std::uint8_t> out(
                std::vector<std::uint8_t>(count * shape.row_bytes + 64, 0xa5));
            write_late<<<1, 256, 0, stream>>>(source.get(), list.get(), count, late_ns);
            ASSERT_EQ(cudaGetLastError(), cudaSuccess);
            ASSERT_EQ(rt->gather(fd, shape, list.get(), count, out.get(), {order, 2 << 20, stream}),
                      static_cast<std::int64_t>(count));
            EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess) << "it returns when it has ended";
            EXPECT_EQ(wrong_rows(bytes, shape, indices, out.read()), 0u);
        }
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    cudaStreamDestroy(own);
}

// The canary of the test above: on the runtime's own stream nothing waits.
TEST_F(device_gather, without_a_stream_does_not_wait_for_the_callers) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 700, false);
    const row_shape shape{512, 0, 0};
    const device_array<std::uint64_t> source(random_indices(5000, rows_in_file(shape), 11)),
        list(std::vector<std::uint64_t>(5000, rows_in_file(shape)));
    const device_array<std::uint8_t> out(5000 * shape.row_bytes);
    cudaStream_t own = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
    write_late<<<1, 256, 0, own>>>(source.get(), list.get(), 5000, 20 * late_ns);
    EXPECT_EQ(rt->gather(fd, shape, list.get(), 5000, out.get()), -ERANGE);
    EXPECT_EQ(cudaStreamSynchronize(own), cudaSuccess);
    cudaStreamDestroy(own);
}

TEST_F(device_gather, on_a_stream_that_is_captured_is_refused) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 700, false);
    const row_shape shape{512, 0, 0};
    const std::vector<std::uint64_t> indices = random_indices(100, rows_in_file(shape), 12);
    const device_array<std::uint64_t> list(indices), copy(100);
    const device_array<std::uint8_t> out(
        std::vector<std::uint8_t>(100 * shape.row_bytes + 64, 0xa5));
    cudaStream_t own = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(own, cudaStreamCaptureModeGlobal), cudaSuccess);
    write_late<<<1, 256, 0, own>>>(list.get(), copy.get(), 100, 0);
    EXPECT_EQ(rt->gather(fd, shape, list.get(), 100, out.get(), {.stream = own}), -EBUSY);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(own, &graph), cudaSuccess) << "the capture goes on";
    if (graph != nullptr) cudaGraphDestroy(graph);
    EXPECT_EQ(rt->gather(fd, shape, list.get(), 100, out.get(), {.stream = own}), 100);
    EXPECT_EQ(wrong_rows(bytes, shape, indices, out.read()), 0u);
    cudaStreamDestroy(own);
}

// Warps of a block that each looked for the size would wait at different barriers for ever.
TEST_F(device_gather, blocks_go_one_way_while_the_file_is_cut) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 512, false, true);
    const row_shape shape{512, 0, 0};
    constexpr std::uint64_t lists = 512, groups = 65;
    const device_array<std::uint64_t> list(random_indices(8 * lists, rows_in_file(shape), 5));
    const device_array<std::uint8_t> out(groups * 8 * shape.row_bytes);
    const device_counters counters(3);
    ASSERT_EQ(launch<width::block>(
                  *rt, groups,
                  gather_beside_cuts{fd, shape, list.get(), lists,
                                     reinterpret_cast<std::byte*>(out.get()), counters.get()},
                  {.threads_per_block = 128}),
              0);
    EXPECT_EQ(counters.read()[0], 0u) << "threads of one group got different results";
    EXPECT_GT(counters.read()[1], 0u);
    EXPECT_EQ(counters.read()[2], 0u);
}

TEST_F(device_gather, errors_name_the_row) {
    PENSTOCK_NEEDS_GPU();
    start(4096, 4096, false);
    const row_shape shape{512, 0, 0};
    std::vector<std::uint64_t> indices = random_indices(5000, rows_in_file(shape), 1);
    indices[2000] = ~std::uint64_t{0} / 512;
    const device_array<std::uint8_t> out(std::vector<std::uint8_t>(5000 * 512 + 64, 0xa5));
    for (const gather_order order : {gather_order::as_given, gather_order::by_span}) {
        const device_array<std::uint64_t> list(indices);
        EXPECT_EQ(rt->gather(fd, shape, list.get(), 5000, out.get(), {order, 2 << 20}), -ERANGE);
        EXPECT_NE(rt->view_status().message.find("row " + std::to_string(indices[2000]) + ":"),
                  std::string::npos)
            << rt->view_status().message;
        rt->clear_view_status();
    }
    const auto written = out.read();
    for (std::uint64_t i = 5000 * 512; i < written.size(); ++i) ASSERT_EQ(written[i], 0xa5);
    EXPECT_EQ(rt->gather(fd, shape, indices.data(), 5000, out.get()), -EFAULT)
        << "memory that the device does not reach";
    EXPECT_EQ(
        rt->gather(fd + 1, shape, device_array<std::uint64_t>(indices).get(), 5000, out.get()),
        -EBADF);
    const device_array<std::uint64_t> gone(std::vector<std::uint64_t>{0, rows_in_file(shape) - 1});
    rt.reset();
    start(4096, 64, false);
    std::filesystem::resize_file(folder / "data", 4096);
    EXPECT_EQ(rt->gather(fd, shape, gone.get(), 2, out.get()), -ESTALE);
    EXPECT_EQ(rt->view_status().code, -ESTALE);
    EXPECT_TRUE(rt->health().ok());
}

}  // namespace penstock::test
