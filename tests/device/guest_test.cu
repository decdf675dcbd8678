// Penstock as a guest: stream captures of the program, its pending errors, its interrupts, and
// files that others change while kernels read them.
#include <csignal>

#include "device/guest.cuh"

namespace penstock::test {

namespace {

// Kernels that read without end in a thread of their own, until this goes.
class reading_thread {
public:
    reading_thread(runtime& rt, const char* name)
        : reader_([this, &rt, name] {
              while (!stop_) {
                  code_ = launch<width::warp>(rt, 256,
                                              guest_reader{name, guest_file_bytes, 1, 200'000'000,
                                                           1u << 30, result_.get()});
                  ++launches_;
              }
          }) {}
    ~reading_thread() { join(); }
    // Kernels have come and gone.
    void go_on() const {
        const std::uint64_t before = launches_;
        while (launches_ < before + 2) std::this_thread::yield();
    }
    guest_counts join() {
        stop_ = true;
        if (reader_.joinable()) reader_.join();
        EXPECT_EQ(code_, 0);
        return result_.read();
    }

private:
    guest_result result_;
    std::atomic<bool> stop_{false};
    std::atomic<int> code_{0};
    std::atomic<std::uint64_t> launches_{0};
    std::thread reader_;
};

void expect_all_right(const guest_counts& c) {
    EXPECT_GT(c.reads, 0u);
    EXPECT_EQ(c.wrong, 0u);
    EXPECT_EQ(c.stale + c.cancelled + c.other_errors, 0u) << error_text(c.last_error);
}

}  // namespace

TEST(guest_capture, beside_a_runtime_that_serves_kernels) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    capturing_program program(true);
    const device_text name("data");
    const auto rt = make_runtime(guest_options(folder));
    ASSERT_NE(rt, nullptr);
    launch<width::warp>(
        *rt, 1, guest_reader{name.get(), guest_file_bytes, 1, 1'000'000, 8, guest_result().get()});
    reading_thread reader(*rt, name.get());
    reader.go_on();
    for (const auto& [text, mode] : capture_modes) {
        SCOPED_TRACE(text);
        program.capture(
            mode, [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });  // 15 beats
        EXPECT_TRUE(rt->health().ok()) << rt->health().message;
        reader.go_on();
    }
    expect_all_right(reader.join());
}

TEST(guest_capture, calls_of_the_thread_that_captures) {
    PENSTOCK_NEEDS_GPU();
    for (const bool blocking : {false, true}) {
        const temporary_folder folder;
        guest_calls calls(folder);
        capturing_program program(blocking);
        for (const auto& [text, mode] : capture_modes) {
            SCOPED_TRACE(std::string(text) + (blocking ? ", blocking" : ""));
            program.capture(mode, [&] { EXPECT_EQ(calls.make(), ""); });
        }
    }
}

TEST(guest_capture, calls_of_another_thread) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    guest_calls calls(folder);
    capturing_program program(true);
    for (const auto& [text, mode] : capture_modes) {
        SCOPED_TRACE(text);
        program.capture(mode, [&] { std::thread([&] { EXPECT_EQ(calls.make(), ""); }).join(); });
    }
}

TEST(guest_capture, a_launch_in_the_thread_that_captures) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    const device_text name("data");
    const guest_result result;
    const auto rt = make_runtime(guest_options(folder));
    capturing_program program(true);
    for (const auto& [text, mode] : capture_modes) {
        SCOPED_TRACE(text);
        program.capture(mode, [&] {
            EXPECT_EQ(launch<width::warp>(*rt, 64,
                                          guest_reader{name.get(), guest_file_bytes, 1,
                                                       10'000'000'000, 50, result.get()}),
                      0);
        });
    }
    expect_all_right(result.read());
}

TEST(guest_capture, a_region_refuses_the_captured_stream) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_guest_file(folder / "out", 0);
    const auto rt = make_runtime(guest_options(folder));
    std::unique_ptr<file_region> region;
    ASSERT_TRUE(map_region(*rt, folder / "out", 0, 0, protection::read_write, {}, region).ok());
    capturing_program program(true);
    for (const auto& [text, mode] : capture_modes) {
        SCOPED_TRACE(text);
        const std::uint32_t word = guest_word(1, 0);
        ASSERT_EQ(cudaMemcpy(region->data(), &word, 4, cudaMemcpyHostToDevice), cudaSuccess);
        program.capture(mode, [&] {
            for (const cudaStream_t stream : {program.stream(), cudaStream_t{nullptr}})
                EXPECT_EQ(region->release(stream), -EBUSY);
            EXPECT_EQ(region->close(program.stream()), -EBUSY);
        });
        EXPECT_EQ(region->release(nullptr), 1);
        const std::uint32_t old = guest_word(0, 0);
        ASSERT_EQ(cudaMemcpy(region->data(), &old, 4, cudaMemcpyHostToDevice), cudaSuccess);
        EXPECT_EQ(region->release(nullptr), 1);
    }
    EXPECT_EQ(region->close(), 0);
}

namespace {

__global__ void read_by_graph(const __grid_constant__ runtime_ref fs,
                              const __grid_constant__ guest_reader reader) {
    reader(warp{}, fs, blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
}

}  // namespace

TEST(guest_capture, a_captured_kernel_reads_whenever_it_is_replayed) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    const device_text name("data");
    const guest_result result;
    const auto rt = make_runtime(guest_options(folder));
    const guest_reader reader{name.get(), guest_file_bytes, 1, 10'000'000'000, 100, result.get()};
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    read_by_graph<<<16, 256, 0, stream>>>(rt->ref(), reader);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(cudaGraphLaunch(program, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const guest_counts c = result.read();
    EXPECT_EQ(c.reads, 5u * 128 * 100);
    expect_all_right(c);
    EXPECT_GT(rt->stats().requests, 0u);
    cudaGraphExecDestroy(program);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

TEST(guest_errors, what_was_pending_is_pending_still) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    guest_calls calls(folder);
    const auto rt = make_runtime(guest_options(folder));
    const device_text name("data");
    const guest_result result;
    for (const cudaError_t pending :
         {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorInvalidResourceHandle}) {
        SCOPED_TRACE(cudaGetErrorName(pending));
        void* none = nullptr;
        cudaGetLastError();
        if (pending == cudaErrorMemoryAllocation) cudaMalloc(&none, std::size_t{1} << 50);
        else if (pending == cudaErrorInvalidValue)
            cudaMemcpy(nullptr, nullptr, 1, static_cast<cudaMemcpyKind>(77));
        else
            cudaLaunchKernel(reinterpret_cast<const void*>(&calls), dim3(1), dim3(1), nullptr, 0,
                             nullptr);
        const cudaError_t before = cudaPeekAtLastError();
        EXPECT_NE(before, cudaSuccess);
        EXPECT_EQ(calls.make(), "");
        EXPECT_EQ(calls.use(*rt), "");
        EXPECT_EQ(launch<width::warp>(*rt, 64,
                                      guest_reader{name.get(), guest_file_bytes, 1, 10'000'000'000,
                                                   20, result.get()}),
                  0);
        EXPECT_TRUE(rt->health().ok()) << rt->health().message;
        // Also after calls of ours that fail.
        std::unique_ptr<runtime> refused;
        options too_large = guest_options(folder);
        too_large.cache_bytes = std::uint64_t{1} << 45;
        EXPECT_EQ(runtime::make(too_large, refused).code, -EINVAL);
        EXPECT_EQ(rt->gather(77, {128}, nullptr, 5, nullptr), -EINVAL);
        EXPECT_EQ(cudaPeekAtLastError(), before);
    }
    expect_all_right(result.read());
    cudaGetLastError();
    EXPECT_EQ(calls.make(), "");
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

namespace {

enum class source { hits, maps, windows, requests };

// Maps pages, looks at a word of each and gives them back, until a map fails or the time is over.
struct guest_mapper {
    guest_reader as;  // what is read, and where it is counted

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, as.name);
        if (fd < 0) return as.note(g, fd);
        const std::uint64_t begun = g.now_ns();
        for (std::uint64_t i = 0; g.now_ns() - begun < as.deadline_ns; ++i) {
            const std::uint64_t at = mix64(index * 1000003 + i) % (as.span / 128) * 128;
            const mapping m = map(g, fs, fd, static_cast<std::int64_t>(at), 128);
            if (m.bytes < 0) as.note(g, m.bytes);
            if (m.bytes < 0) break;
            count(g, *reinterpret_cast<const std::uint32_t*>(m.data) == guest_word(0, at / 4));
            unmap(g, fs, m);
        }
        close(g, fs, fd);
    }

    template <typename Group>
    PENSTOCK_HD void count(const Group& g, bool is_right) const {
#if defined(__CUDA_ARCH__)
        if (!g.is_leader()) return;
        atomicAdd(&as.counts->reads, 1ull);
        if (!is_right) atomicAdd(&as.counts->wrong, 1ull);
#else
        static_cast<void>(g), static_cast<void>(is_right);
#endif
    }
};

// How long kernels without end of their own went on after the interrupt, in seconds.
double seconds_after(source from, bool by_signal) {
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    options o = guest_options(folder);
    const bool is_cached = from == source::hits || from == source::maps;
    if (is_cached) o.cache_bytes = 4 * guest_file_bytes;
    const auto rt = make_runtime(o);
    const device_text name("data");
    const guest_result result;
    const int fd = rt->open(folder / "data");
    if (from == source::windows) EXPECT_GT(rt->open_windows(fd), 0);
    if (is_cached) EXPECT_GT(rt->prefetch(fd, 0, static_cast<std::int64_t>(guest_file_bytes)), 0);
    std::chrono::steady_clock::time_point ended;
    std::thread kernel([&] {
        const guest_reader reader{name.get(),    guest_file_bytes, 1,
                                  8'000'000'000, 1u << 30,         result.get()};
        EXPECT_EQ(from == source::maps ? launch<width::warp>(*rt, 2048, guest_mapper{reader})
                                       : launch<width::warp>(*rt, 2048, reader),
                  0);
        ended = std::chrono::steady_clock::now();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    const auto asked = std::chrono::steady_clock::now();
    if (by_signal) std::raise(SIGTERM);
    else rt->interrupt();
    kernel.join();
    const guest_counts c = result.read();
    std::printf(
        "    %s, %s: %.3f s after the interrupt; %llu reads, %llu cancelled, %llu other errors\n",
        from == source::hits      ? "hits"
        : from == source::maps    ? "maps"
        : from == source::windows ? "windows"
                                  : "requests",
        by_signal ? "signal" : "interrupt()", std::chrono::duration<double>(ended - asked).count(),
        c.reads, c.cancelled, c.other_errors);
    EXPECT_EQ(c.wrong, 0u);
    return std::chrono::duration<double>(ended - asked).count();
}

}  // namespace

TEST(guest_interrupt, ends_kernels_that_hit) {
    PENSTOCK_NEEDS_GPU();
    EXPECT_LT(seconds_after(source::hits, false), 1.0);
}
TEST(guest_interrupt, ends_kernels_that_only_map) {
    PENSTOCK_NEEDS_GPU();
    EXPECT_LT(seconds_after(source::maps, false), 1.0);
}
TEST(guest_interrupt, ends_kernels_that_miss_through_windows) {
    PENSTOCK_NEEDS_GPU();
    EXPECT_LT(seconds_after(source::windows, false), 1.0);
}
TEST(guest_interrupt, ends_kernels_that_miss_by_request) {
    PENSTOCK_NEEDS_GPU();
    EXPECT_LT(seconds_after(source::requests, false), 1.0);
}
TEST(guest_interrupt_DeathTest, a_signal_does_the_same) {
    PENSTOCK_NEEDS_GPU();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(end_with([]() -> std::string {
                    interrupt_on_signals();
                    return seconds_after(source::requests, true) < 1.0 ? "" : "too late";
                }),
                testing::ExitedWithCode(7), "");
}

namespace {

enum class change { cut, extended, replaced, written_anew };

// Kernels read at random while the file is changed a hundred times. Nothing that it never held is
// ever given.
void change_under(change kind, bool windows) {
    const temporary_folder folder;
    const std::string path = folder / "data";
    write_guest_file(path, 0);
    let_files_settle();
    const auto rt = make_runtime(guest_options(folder));
    const device_text name("data");
    const guest_result result;
    const int fd = rt->open(path);
    ASSERT_GE(fd, 0);
    if (windows) {
        EXPECT_GT(rt->open_windows(fd), 0);
    }
    std::thread kernel([&] {
        EXPECT_EQ(launch<width::warp>(*rt, 512,
                                      guest_reader{name.get(), guest_file_bytes, 8, 2'000'000'000,
                                                   1u << 30, result.get()}),
                  0);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (std::uint64_t round = 1; round < 60; ++round) {
        if (kind == change::cut)
            std::filesystem::resize_file(path, guest_file_bytes - round * 4096 * 16 - 100);
        if (kind == change::extended) {
            std::ofstream more(path, std::ios::binary | std::ios::app);
            for (std::uint64_t i = 0; i < 1024; ++i) {
                const std::uint32_t word =
                    guest_word(0, guest_file_bytes / 4 + (round - 1) * 1024 + i);
                more.write(reinterpret_cast<const char*>(&word), 4);
            }
        }
        if (kind == change::replaced) {
            write_guest_file(folder / "new", round % 8);
            std::filesystem::rename(folder / "new", path);
        }
        if (kind == change::written_anew) {
            std::filesystem::remove(path);
            write_guest_file(path, round % 8);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    kernel.join();
    const guest_counts c = result.read();
    std::printf(
        "    %llu reads, %llu words: %llu wrong, %llu zeros; %llu short, %llu stale, %llu other "
        "errors (last %lld)\n",
        c.reads, c.words, c.wrong, c.zeros, c.short_reads, c.stale, c.other_errors, c.last_error);
    EXPECT_GT(c.reads, 0u);
    EXPECT_EQ(c.wrong, 0u);
    EXPECT_EQ(c.zeros, 0u);
    EXPECT_TRUE(c.other_errors == 0 || kind == change::written_anew || kind == change::replaced)
        << error_text(c.last_error);
    EXPECT_TRUE(rt->health().ok());
    EXPECT_EQ(rt->close(fd), 0);
}

}  // namespace

TEST(guest_change, cut_under_windows) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::cut, true);
}
TEST(guest_change, cut_under_requests) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::cut, false);
}
TEST(guest_change, extended_under_windows) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::extended, true);
}
TEST(guest_change, extended_under_requests) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::extended, false);
}
TEST(guest_change, replaced_under_windows) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::replaced, true);
}
TEST(guest_change, replaced_under_requests) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::replaced, false);
}
TEST(guest_change, written_anew_under_windows) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::written_anew, true);
}
TEST(guest_change, written_anew_under_requests) {
    PENSTOCK_NEEDS_GPU();
    change_under(change::written_anew, false);
}

}  // namespace penstock::test
