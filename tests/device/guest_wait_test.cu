// Waits for the end of kernels before memory and files go that they use, beside stream captures of
// the program: a wait sees every kernel, and ends no capture.
#include "device/guest.cuh"
#include "penstock/table.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t linger_ns = 100'000'000;

// Runs for a while and says then that it has ended.
__global__ void linger(std::uint64_t ns, int* ended) {
    const std::uint64_t begun = detail::device_now_ns();
    while (detail::device_now_ns() - begun < ns) __nanosleep(100'000);
    *ended = 1;
    __threadfence_system();
}

// Streams of each kind, and a kernel on each of them.
class lingering_kernels {
public:
    lingering_kernels() : ended_(3) {
        cudaStreamCreateWithFlags(&streams_[0], cudaStreamNonBlocking);
        cudaStreamCreateWithPriority(&streams_[1], cudaStreamNonBlocking, -1);
        // Not with cudaStreamDefault: the program that captures has such a stream.
        cudaStreamCreateWithPriority(&streams_[2], cudaStreamNonBlocking, 0);
        begin(0);  // is loaded
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    ~lingering_kernels() {
        for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    }
    // Two on the last stream, of which one waits for the other.
    void begin(std::uint64_t ns) {
        for (int i = 0; i < 3; ++i) {
            ended_[i] = 0;
            linger<<<1, 1, 0, streams_[i]>>>(ns, &ended_[i]);
        }
        linger<<<1, 1, 0, streams_[2]>>>(ns, &ended_[2]);
    }
    [[nodiscard]] bool have_ended() const {
        for (int i = 0; i < 3; ++i)
            if (ended_[i] != 1 || cudaStreamQuery(streams_[i]) != cudaSuccess) return false;
        return true;
    }
    [[nodiscard]] cudaStream_t stream() const { return streams_[0]; }

private:
    const shared_array<int> ended_;
    cudaStream_t streams_[3] = {};
};

// Of the calling thread, which may then query streams beside a capture of another thread.
class relaxed_thread {
public:
    relaxed_thread() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~relaxed_thread() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    relaxed_thread(const relaxed_thread&) = delete;
    relaxed_thread& operator=(const relaxed_thread&) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Runs `body` without a capture, and beside captures in each mode of this and of another thread.
void beside_captures(const std::function<void()>& body) {
    body();
    for (const bool blocking : {false, true}) {
        capturing_program program(blocking);
        for (const auto& [text, mode] : capture_modes) {
            SCOPED_TRACE(std::string(text) + (blocking ? ", blocking" : ""));
            program.capture(mode, body);
            program.capture(mode, [&] { std::thread(body).join(); });
        }
    }
}

// A writable table of one file, of which rows are scattered on a stream behind a kernel that
// lingers.
class scattered_table {
public:
    static constexpr std::uint64_t row = 256, rows = 1000, listed = 100;

    scattered_table() : numbers_(listed), memory_(listed * row) {
        options o = guest_options(folder_);
        o.frame_wait_ms = 5000;
        rt = make_runtime(o);
        layout_ = {.row_bytes = row};
        layout_.pieces.push_back({folder_ / "rows", 0, rows});
        write_file(folder_ / "rows", std::vector<std::uint8_t>(rows * row));
    }
    void open() {
        ++round_;
        const status s = table::make(*rt, layout_, {.writable = true}, table_);
        ASSERT_TRUE(s.ok()) << s.message;
        for (std::uint64_t i = 0; i < listed; ++i) numbers_[i] = static_cast<std::int32_t>(7 * i);
        std::memset(memory_.get(), round_, listed * row);
    }
    void scatter(cudaStream_t stream) {
        ASSERT_EQ(table_->scatter(numbers_.get(), listed, memory_.get(), {.stream = stream}), 0);
    }
    // As Array.close() of Python does it.
    void close() {
        EXPECT_EQ(device().wait_for_groups(), 0);
        const status noted = table_->check();
        EXPECT_TRUE(noted.ok()) << noted.message;
        const status s = table_->close();
        EXPECT_TRUE(s.ok()) << s.message;
        table_.reset();
    }
    void expect_all_written() const {
        std::vector<std::uint8_t> got(rows * row);
        std::ifstream(layout_.pieces[0].path, std::ios::binary)
            .read(reinterpret_cast<char*>(got.data()), static_cast<std::streamsize>(got.size()));
        for (std::uint64_t i = 0; i < listed * row; ++i)
            ASSERT_EQ(got[i / row * 7 * row + i % row], round_) << "row " << i / row;
    }
    [[nodiscard]] host::cache_device& device() const { return *rt->state().device; }

    std::unique_ptr<runtime> rt;

private:
    const temporary_folder folder_;
    table_layout layout_;
    std::unique_ptr<table> table_;
    const shared_array<std::int32_t> numbers_;
    const shared_array<std::uint8_t> memory_;
    std::uint8_t round_ = 0;
};

}  // namespace

TEST(guest_wait, sees_kernels_of_every_stream_and_ends_no_capture) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const auto rt = make_runtime(guest_options(folder));
    lingering_kernels kernels;
    beside_captures([&] {
        const relaxed_thread relaxed;
        kernels.begin(linger_ns);
        rt->state().device->wait_for_groups();
        EXPECT_TRUE(kernels.have_ended());
    });
}

TEST(guest_wait, without_a_runtime_too) {
    PENSTOCK_NEEDS_GPU();
    lingering_kernels kernels;
    beside_captures([&] {
        const relaxed_thread relaxed;
        kernels.begin(linger_ns);
        EXPECT_EQ(host::wait_for_gpu(0), 0);
        EXPECT_TRUE(kernels.have_ended());
    });
}

TEST(guest_wait, a_table_is_closed_once_its_verbs_have_ended) {
    PENSTOCK_NEEDS_GPU();
    scattered_table rows;
    lingering_kernels kernels;
    beside_captures([&] {
        const relaxed_thread relaxed;
        rows.open();
        kernels.begin(linger_ns);
        rows.scatter(kernels.stream());
        rows.close();
        rows.expect_all_written();
    });
}

TEST(guest_wait, a_graph_with_a_verb_is_waited_for_wherever_it_is_launched) {
    PENSTOCK_NEEDS_GPU();
    scattered_table rows;
    lingering_kernels kernels;
    rows.open();
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    rows.scatter(stream);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
    kernels.begin(linger_ns);
    ASSERT_EQ(cudaGraphLaunch(program, kernels.stream()), cudaSuccess);
    rows.close();
    rows.expect_all_written();
    cudaGraphExecDestroy(program);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

namespace {

__global__ void read_beside_a_wait(const __grid_constant__ runtime_ref fs,
                                   const __grid_constant__ guest_reader reader) {
    reader(warp{}, fs, blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
}

}  // namespace

// The wait must not keep service threads from what their answers need.
TEST(guest_wait, kernels_that_ask_the_host_get_their_answers_meanwhile) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    const device_text name("data");
    const guest_result result;
    const auto rt = make_runtime(guest_options(folder));
    lingering_kernels kernels;
    const guest_reader reader{name.get(), guest_file_bytes, 1, 10'000'000'000, 200, result.get()};
    for (int i = 0; i < 3; ++i) {
        read_beside_a_wait<<<16, 256, 0, kernels.stream()>>>(rt->ref(), reader);
        const auto begun = std::chrono::steady_clock::now();
        EXPECT_EQ(rt->state().device->wait_for_groups(), 0);
        std::printf(
            "    waited %.3f s\n",
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
        EXPECT_EQ(cudaStreamQuery(kernels.stream()), cudaSuccess);
    }
    const guest_counts c = result.read();
    EXPECT_EQ(c.reads, 3u * 128 * 200);
    EXPECT_EQ(c.wrong, 0u);
    EXPECT_EQ(c.stale + c.cancelled + c.other_errors, 0u) << error_text(c.last_error);
}

// The library queries events and streams while an error of the program is pending.
TEST(guest_errors, a_query_that_is_not_ready_replaces_no_pending_error) {
    PENSTOCK_NEEDS_GPU();
    lingering_kernels kernels;
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    kernels.begin(linger_ns);
    ASSERT_EQ(cudaEventRecord(event, kernels.stream()), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(9999), cudaErrorInvalidDevice);  // to ask for memory would wait
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamQuery(kernels.stream()), cudaErrorNotReady);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaEventDestroy(event);
}

}  // namespace penstock::test
