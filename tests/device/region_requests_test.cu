// Requests of regions on streams: what comes before them, what waits for them, and that no thread
// of the host does.
#include <thread>

#include "device/support.cuh"
#include "penstock/region.hpp"

namespace penstock::test::region_requests {

namespace {

constexpr std::uint64_t page_words = 512, pages = 5000, word_count = pages * page_words;
constexpr unsigned long long longest_ns = 5'000'000'000;

// Lets nothing later on the stream begin until the host stores a value there, or too long passed.
__global__ void wait_for_host(const unsigned* open) {
    unsigned long long began = 0, now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    for (now = began; now - began < longest_ns;) {
        if (atomic_load<order::relaxed, scope::system>(open) != 0) return;
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    }
}

// A word of every `step`th page becomes `value`.
__global__ void store_words(std::uint64_t* region, std::uint64_t step, std::uint64_t value) {
    const std::uint64_t page = (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (page < pages) region[page * page_words + page % page_words] = value;
}
__global__ void count_others(const std::uint64_t* region, std::uint64_t step, std::uint64_t value,
                             unsigned* others) {
    const std::uint64_t page = (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (page < pages && region[page * page_words + page % page_words] != value)
        atomicAdd_system(others, 1u);
}

// Nothing launches it before a request is under way.
__global__ void loaded_late(unsigned* words) { words[0] += 0; }

class region_streams : public testing::Test {
protected:
    void SetUp() override {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
        if (count == 0) GTEST_SKIP() << "this machine has no GPU";
        write_file(path_, pattern(7, word_count * 8));
        let_files_settle();
        options o = gpu_options(folder_);
        o.writable = true;
        o.request_wait_ms = 2000;
        rt_ = make_runtime(o);
        ASSERT_NE(rt_, nullptr);
        // A first launch would wait for the kernels that run (penstock/region.hpp).
        cudaFuncAttributes attributes;
        for (const void* const kernel : {reinterpret_cast<const void*>(wait_for_host),
                                         reinterpret_cast<const void*>(store_words),
                                         reinterpret_cast<const void*>(count_others)})
            ASSERT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaSuccess);
        writer_ = map(protection::read_write);
        reader_ = map(protection::read);
        for (cudaStream_t* stream : {&first_, &second_})
            ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
        words_ = std::make_unique<shared_array<unsigned>>(2);
    }
    void TearDown() override {
        for (cudaStream_t stream : {first_, second_})
            if (stream != nullptr) cudaStreamDestroy(stream);
    }
    std::unique_ptr<file_region> map(protection access) {
        std::unique_ptr<file_region> out;
        const status s = map_region(*rt_, path_, 0, 0, access, {.outside_writers = false}, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    static std::uint64_t* words_of(const file_region& r) {
        return static_cast<std::uint64_t*>(r.data());
    }
    void store(cudaStream_t stream, std::uint64_t step, std::uint64_t value) {
        store_words<<<(pages + 255) / 256, 256, 0, stream>>>(words_of(*writer_), step, value);
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    }
    // By a kernel on the stream.
    void count(cudaStream_t stream, std::uint64_t step, std::uint64_t value) {
        count_others<<<(pages + 255) / 256, 256, 0, stream>>>(words_of(*reader_), step, value,
                                                              words_->get() + 1);
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    }
    [[nodiscard]] unsigned others() const { return std::atomic_ref<unsigned>((*words_)[1]).load(); }
    void hold(cudaStream_t stream) {
        std::atomic_ref<unsigned>((*words_)[0]).store(0);
        wait_for_host<<<1, 1, 0, stream>>>(words_->get());
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    }
    void let_go() { std::atomic_ref<unsigned>((*words_)[0]).store(1); }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    std::unique_ptr<runtime> rt_;
    std::unique_ptr<file_region> writer_, reader_;
    cudaStream_t first_ = nullptr, second_ = nullptr;
    std::unique_ptr<shared_array<unsigned>> words_;
};

}  // namespace

TEST_F(region_streams, a_request_waits_for_its_stream_and_the_caller_for_nothing) {
    hold(first_);
    store(first_, 1, 11);
    const region_request out = writer_->release_async({}, first_);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(out.is_done());
    EXPECT_EQ(cudaStreamQuery(first_), cudaErrorNotReady);
    let_go();
    EXPECT_EQ(out.wait(), static_cast<std::int64_t>(pages));
    EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
}

TEST_F(region_streams, work_behind_an_acquire_waits_for_it) {
    for (std::uint64_t round = 1; round <= 50; ++round) {
        const std::uint64_t step = 1 + round % 7;
        hold(first_);
        store(first_, step, round);
        const region_request out = writer_->release_async({}, first_);
        // Another stream, which the end of the release lets go on.
        const region_request again = writer_->release_async({}, second_);
        const region_request in = reader_->acquire_async({}, second_);
        count(second_, step, round);
        let_go();
        EXPECT_EQ(out.wait(), static_cast<std::int64_t>((pages + step - 1) / step));
        EXPECT_EQ(again.wait(), 0);
        EXPECT_EQ(in.wait(), static_cast<std::int64_t>((pages + step - 1) / step));
        ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
        ASSERT_EQ(others(), 0u) << "round " << round;
    }
}

// One too many is refused at once, and the others end.
TEST_F(region_streams, more_requests_than_a_region_has_turns) {
    constexpr int most = 4096, streams = 16;
    std::vector<cudaStream_t> others(streams);
    for (cudaStream_t& stream : others)
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    hold(first_);
    std::vector<region_request> requests{reader_->acquire_async({}, first_)};
    while (requests.size() < most)
        requests.push_back(reader_->acquire_async({}, others[requests.size() % streams]));
    EXPECT_FALSE(requests.back().is_done());
    EXPECT_EQ(reader_->acquire_async({}, second_).wait(), -EAGAIN);
    EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess) << "nothing was put on the stream";
    let_go();
    for (const region_request& request : requests) ASSERT_EQ(request.wait(), 0);
    EXPECT_EQ(reader_->acquire_async({}, second_).wait(), 0);
    for (cudaStream_t stream : others) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(region_streams, a_stream_that_is_captured_is_refused_and_goes_on) {
    ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(writer_->release_async({}, first_).wait(), -EBUSY);
    EXPECT_EQ(reader_->acquire_async({}, first_).wait(), -EBUSY);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(first_, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    EXPECT_EQ(writer_->release_async({}, first_).wait(), 0);
}

// A capture of the mode `global` forbids other threads, too, what might wait for the stream.
TEST_F(region_streams, requests_go_on_beside_a_capture_of_another_stream) {
    for (const cudaStreamCaptureMode mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
          cudaStreamCaptureModeRelaxed}) {
        ASSERT_EQ(cudaStreamBeginCapture(first_, mode), cudaSuccess);
        EXPECT_EQ(writer_->release_async({}, second_).wait(), 0);
        std::thread([&] { EXPECT_EQ(reader_->acquire_async({}, second_).wait(), 0); }).join();
        EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
        cudaGraph_t graph = nullptr;
        ASSERT_EQ(cudaStreamEndCapture(first_, &graph), cudaSuccess) << "mode " << mode;
        cudaGraphDestroy(graph);
    }
}

TEST_F(region_streams, a_close_waits_for_streams_that_pass_the_last_end) {
    for (int round = 0; round < 30; ++round) {
        auto r = map(protection::read);
        for (int i = 0; i < 5; ++i) r->acquire_async({}, i % 2 == 0 ? first_ : second_);
        EXPECT_EQ(r->close(), 0);
    }
    EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(region_streams, a_failed_request_lets_its_stream_go_on) {
    ASSERT_EQ(::truncate(path_.c_str(), 4096), 0);
    const region_request in = reader_->acquire_async({}, first_);
    EXPECT_EQ(in.wait(), -ESTALE);
    EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
}

// The driver may hold the request up until the stream goes on, which must go on then.
TEST_F(region_streams, a_kernel_that_is_loaded_behind_a_request_ends_all_the_same) {
    hold(first_);
    store(first_, 1, 3);
    const region_request out = writer_->release_async({}, first_),
                         in = reader_->acquire_async({}, first_);
    std::thread opener([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        let_go();
    });
    loaded_late<<<1, 1, 0, first_>>>(words_->get() + 1);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    opener.join();
    EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
    const std::int64_t released = out.wait(), acquired = in.wait();
    EXPECT_TRUE(released == static_cast<std::int64_t>(pages) || released == -ETIMEDOUT) << released;
    EXPECT_TRUE(acquired >= 0 || acquired == -ETIMEDOUT) << acquired;
    std::cout << "released " << released << ", acquired " << acquired << "\n";
    EXPECT_GE(writer_->release(), 0) << "after what the request still does";
    EXPECT_GE(reader_->acquire(), 0);
    count(nullptr, 1, 3);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(others(), 0u);
}

TEST_F(region_streams, the_default_stream_waits_too) {
    store(nullptr, 1, 5);
    const region_request out = writer_->release_async();
    const region_request in = reader_->acquire_async();
    EXPECT_EQ(out.wait(), static_cast<std::int64_t>(pages));
    EXPECT_EQ(in.wait(), static_cast<std::int64_t>(pages));
    count(nullptr, 1, 5);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(others(), 0u);
}

}  // namespace penstock::test::region_requests
