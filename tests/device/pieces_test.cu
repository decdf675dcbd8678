// A file in pieces under kernels: CUB's sum piece by piece while the next pieces come, changes by
// others, poison, and streams.
#include <cub/device/device_reduce.cuh>

#include "device/support.cuh"

namespace penstock::test {

namespace {

constexpr std::uint64_t piece = 4 << 20, pieces = 12, size = pieces * piece - 8 * 1001;

class device_pieces : public testing::Test {
protected:
    void SetUp() override {
        PENSTOCK_NEEDS_GPU();
        bytes = pattern(3, size);
        write_file(path, bytes);
        rt = make_runtime(gpu_options(folder));
        ASSERT_NE(rt, nullptr);
        for (cudaStream_t& stream : streams)
            ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&sums, pieces * 8), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&memory, memory_bytes), cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    void TearDown() override {
        file.reset();
        for (const cudaStream_t stream : streams)
            if (stream != nullptr) cudaStreamDestroy(stream);
        cudaFree(sums);
        cudaFree(memory);
    }
    void map(std::uint64_t room, piece_options settings = {}) {
        settings.piece_bytes = piece;
        settings.device_bytes = room * piece;
        const status s = map_pieces(*rt, path, settings, file);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    static byte_range range_of(std::uint64_t n) {
        return {n * piece, std::min(piece, size - n * piece)};
    }
    [[nodiscard]] std::uint64_t right_sum(std::uint64_t n) const {
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < range_of(n).bytes; i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes.data() + n * piece + i, 8);
            sum += word;
        }
        return sum;
    }
    // Puts the sum of a piece on the stream.
    void sum_piece(std::uint64_t n, cudaStream_t stream) {
        const auto* const words = reinterpret_cast<const std::uint64_t*>(
            static_cast<const std::byte*>(file->data()) + n * piece);
        std::size_t wanted = memory_bytes;
        ASSERT_EQ(cub::DeviceReduce::Sum(memory, wanted, words, sums + n,
                                         static_cast<std::int64_t>(range_of(n).bytes / 8), stream),
                  cudaSuccess);
    }
    void expect_sums() {
        std::vector<std::uint64_t> got(pieces);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        ASSERT_EQ(cudaMemcpy(got.data(), sums, pieces * 8, cudaMemcpyDeviceToHost), cudaSuccess);
        for (std::uint64_t n = 0; n < pieces; ++n) EXPECT_EQ(got[n], right_sum(n)) << n;
        ASSERT_EQ(cudaMemset(sums, 0, pieces * 8), cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }

    static constexpr std::size_t memory_bytes = 4 << 20;
    const temporary_folder folder;
    const std::string path = folder / "data";
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<file_pieces> file;
    cudaStream_t streams[2] = {};
    std::uint64_t* sums = nullptr;
    void* memory = nullptr;
};

// Holds up the stream for some milliseconds.
__global__ void hold_up_stream() {
    for (int i = 0; i < 20000; ++i) __nanosleep(1000);
}

}  // namespace

// The next piece is expected while the sum of the one before is under way, on one stream and on
// another than the sum's.
TEST_F(device_pieces, are_summed_while_the_next_come) {
    map(pieces * 2 / 3);
    for (int round = 0; round < 3; ++round) {
        for (std::uint64_t n = 0; n < pieces; ++n) {
            ASSERT_EQ(file->expect(range_of(n), streams[0]), 1) << n;
            ASSERT_TRUE(file->verify(range_of(n)).ok());
            sum_piece(n, streams[0]);
            ASSERT_EQ(file->done(range_of(n), streams[0]), 0);
        }
        expect_sums();
    }
    EXPECT_EQ(file->traffic().pieces_read, 3 * pieces);
}

TEST_F(device_pieces, are_expected_on_another_stream) {
    map(3);
    cudaEvent_t came = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&came, cudaEventDisableTiming), cudaSuccess);
    for (std::uint64_t n = 0; n < pieces; ++n) {
        ASSERT_EQ(file->expect(range_of(n), streams[1]), 1) << n;
        ASSERT_EQ(cudaEventRecord(came, streams[1]), cudaSuccess);
        ASSERT_EQ(cudaStreamWaitEvent(streams[0], came, 0), cudaSuccess);
        sum_piece(n, streams[0]);
        ASSERT_EQ(file->done(range_of(n), streams[0]), 0);
    }
    expect_sums();
    cudaEventDestroy(came);
}

// A piece whose use has ended on the host, but not on its stream, must not leave under the kernel.
TEST_F(device_pieces, stay_until_the_work_before_done_has_ended) {
    map(1);
    for (std::uint64_t n = 0; n < pieces; ++n) {
        ASSERT_EQ(file->expect(range_of(n), streams[n % 2]), 1) << n;
        hold_up_stream<<<1, 1, 0, streams[n % 2]>>>();
        sum_piece(n, streams[n % 2]);
        ASSERT_EQ(file->done(range_of(n), streams[n % 2]), 0);
    }
    expect_sums();
}

TEST_F(device_pieces, have_what_others_wrote_when_they_come_again) {
    map(4, {.host_bytes = 4 * piece});
    for (std::uint64_t seed = 3; seed < 6; ++seed) {
        for (std::uint64_t n = 0; n < pieces; ++n) {
            ASSERT_GE(file->expect(range_of(n), streams[0]), 0) << n;
            sum_piece(n, streams[0]);
            ASSERT_EQ(file->done(range_of(n), streams[0]), 0);
        }
        expect_sums();
        // In place, as programs write that have it open.
        const std::vector<std::uint8_t> fresh = pattern(seed + 100, 3 * piece);
        std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
        out.seekp(static_cast<std::streamoff>((pieces - 4) * piece));
        out.write(reinterpret_cast<const char*>(fresh.data()),
                  static_cast<std::streamsize>(fresh.size()));
        out.close();
        std::copy(fresh.begin(), fresh.end(), bytes.begin() + (pieces - 4) * piece);
    }
}

TEST_F(device_pieces, come_back_from_host_memory) {
    let_files_settle();
    map(3, {.host_bytes = pieces * piece});
    for (int round = 0; round < 3; ++round) {
        for (std::uint64_t n = 0; n < pieces; ++n) {
            ASSERT_EQ(file->expect(range_of(n), streams[0]), 1) << n;
            sum_piece(n, streams[0]);
            ASSERT_EQ(file->done(range_of(n), streams[0]), 0);
        }
        expect_sums();
    }
    EXPECT_EQ(file->traffic().pieces_read, pieces);
    EXPECT_EQ(file->traffic().pieces_from_host, 2 * pieces);
}

TEST_F(device_pieces, that_are_absent_read_as_poison) {
    map(2, {.poison_absent = true});
    std::uint64_t poison = 0;
    std::memset(&poison, poison_byte, 8);
    for (std::uint64_t n = 0; n < pieces; ++n) sum_piece(n, streams[0]);
    std::vector<std::uint64_t> got(pieces);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(got.data(), sums, pieces * 8, cudaMemcpyDeviceToHost), cudaSuccess);
    for (std::uint64_t n = 0; n < pieces; ++n)
        EXPECT_EQ(got[n], poison * (range_of(n).bytes / 8)) << n;
    for (std::uint64_t n = 0; n < pieces; ++n) {
        ASSERT_EQ(file->expect(range_of(n), streams[0]), 1);
        sum_piece(n, streams[0]);
        ASSERT_EQ(file->done(range_of(n), streams[0]), 0);
    }
    expect_sums();
}

namespace {

__device__ unsigned load_pieces_flag(const unsigned* flag) {
    return atomic_load<order::relaxed, scope::system>(flag);
}

// Waits for the host, no longer than some two seconds.
__global__ void wait_for_pieces_flag(const unsigned* flag, const std::uint64_t* piece_in_use,
                                     std::uint64_t* out) {
    std::uint64_t sum = 0;
    for (int i = 0; i < 200000 && load_pieces_flag(flag) == 0; ++i) {
        sum += piece_in_use[i % 1000];
        __nanosleep(10000);
    }
    *out = sum;
}

}  // namespace

// Pieces come and leave beside a kernel that uses another piece. Whether the driver waits for that
// kernel when it changes addresses is told, and is no failure.
TEST_F(device_pieces, come_beside_a_kernel_that_runs_long) {
    map(2);
    const shared_array<unsigned> flag(1);
    ASSERT_EQ(file->expect(range_of(0), streams[0]), 1);
    wait_for_pieces_flag<<<1, 1, 0, streams[0]>>>(
        flag.get(), static_cast<const std::uint64_t*>(file->data()), sums);
    for (std::uint64_t n = 1; n < 4; ++n) {
        ASSERT_EQ(file->expect(range_of(n), streams[1]), 1);
        ASSERT_EQ(file->done(range_of(n), streams[1]), 0);
        if (n == 1) {
            ASSERT_EQ(cudaStreamSynchronize(streams[1]), cudaSuccess);
        }
        std::printf("the kernel %s when piece %llu had come%s\n",
                    cudaStreamQuery(streams[0]) == cudaErrorNotReady ? "ran on" : "had ended",
                    static_cast<unsigned long long>(n), n == 1 ? "" : " and another had left");
    }
    flag[0] = 1;
    ASSERT_EQ(file->done(range_of(0), streams[0]), 0);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (std::uint64_t n = 0; n < pieces; ++n) {
        ASSERT_GE(file->expect(range_of(n), streams[0]), 0);
        sum_piece(n, streams[0]);
        ASSERT_EQ(file->done(range_of(n), streams[0]), 0);
    }
    expect_sums();
}

TEST_F(device_pieces, are_not_expected_on_a_stream_that_is_captured) {
    map(2);
    ASSERT_EQ(file->expect(range_of(0), streams[0]), 1);
    ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(file->expect(range_of(1), streams[0]), -EBUSY);
    EXPECT_EQ(file->done(range_of(0), streams[0]), -EBUSY);
    EXPECT_EQ(file->expect(range_of(1), streams[1]), 1) << "another stream";
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess) << "the capture is whole";
    cudaGraphDestroy(graph);
    EXPECT_EQ(file->done(range_of(0), streams[0]), 0);
    EXPECT_EQ(file->done(range_of(1), streams[1]), 0);
    EXPECT_EQ(file->close(), 0);
}

}  // namespace penstock::test
