// A runtime of several GPUs: files, launches, windows and tables on all of them. Skipped, and says
// so, on a machine with one.
#include "device/support.cuh"
#include "penstock/launch.hpp"
#include "penstock/table.hpp"

namespace penstock::test {

namespace {

int gpu_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
    return count;
}

constexpr std::uint64_t file_pages = 3000;

// Pinned, so that all devices reach it. A word of `device_of` and `times` has one writer if every
// number runs once. Words of `wrong` only need to become other than 0: additions of groups to host
// memory may get lost.
struct noted {
    std::uint32_t* device_of;  // of each number: 1 + the device that ran it
    std::uint32_t* times;      // of each number
    std::uint64_t* wrong;      // of each device
};

// Reads page `index` by the descriptor of its device.
struct read_page {
    shared_file file;
    noted out;
    std::uint64_t seed;
    std::uint64_t slow_numbers;  // numbers below take a while

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
#if defined(__CUDA_ARCH__)
        __shared__ std::uint8_t bytes[8][512];
        std::uint8_t* const to = bytes[threadIdx.x / 32];
        const std::uint64_t at = index % file_pages * page;
        const std::int64_t got = read(g, fs, file.of(fs), to, 512, static_cast<std::int64_t>(at));
        // Long beside the comparison below, also in code that is not optimised.
        for (int i = 0; i < 16 && index < slow_numbers; ++i) __nanosleep(1000000);
        if (g.is_leader()) {
            bool good = got == 512;
            for (std::uint32_t i = 0; i < 512; ++i)
                good = good && to[i] == pattern_byte(seed, at + i);
            if (!good) out.wrong[fs.device] = index + 1;
            out.device_of[index] = fs.device + 1;
            ++out.times[index];
        }
        g.sync();
#endif
    }
};

class several_gpus : public testing::Test {
protected:
    void SetUp() override {
        if (gpu_count() < 2) GTEST_SKIP() << "this machine has fewer than two GPUs";
        const auto bytes = pattern(1, file_pages * page);
        write_file(path, bytes);
        o = gpu_options(folder);
        for (int i = 0; i < gpu_count() && i < 8; ++i) o.devices.push_back(i);
        o.frame_wait_ms = 5000;
    }
    void make() {
        rt = make_runtime(o);
        ASSERT_NE(rt, nullptr);
        file = rt->open_everywhere(path);
        ASSERT_EQ(file.code(), 0) << error_text(file.code());
    }
    // Counts of each device; wrong ones fail.
    std::vector<std::uint64_t> run(std::uint64_t groups, std::uint64_t slow_numbers = 0) {
        const shared_array<std::uint32_t> device_of(groups), times(groups);
        const shared_array<std::uint64_t> wrongs(8);
        const noted out{device_of.get(), times.get(), wrongs.get()};
        EXPECT_EQ(launch<width::warp>(*rt, groups, read_page{file, out, 1, slow_numbers}), 0);
        std::vector<std::uint64_t> on(rt->device_count());
        std::uint64_t other_than_once = 0;
        taken_over = 0;
        for (std::uint64_t i = 0; i < groups; ++i) {
            other_than_once += times[i] != 1;
            if (device_of[i] != 0) ++on[device_of[i] - 1];
            taken_over += i < slow_numbers && device_of[i] > 1;
        }
        EXPECT_EQ(other_than_once, 0u);
        for (int i = 0; i < 8; ++i) EXPECT_EQ(wrongs[i], 0u) << "device " << i;
        return on;
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    options o;
    std::unique_ptr<runtime> rt;
    shared_file file{};
    std::uint64_t taken_over = 0;  // slow numbers of the last run that were not the first device's
};

}  // namespace

TEST_F(several_gpus, all_run_groups_and_read_what_the_file_holds) {
    make();
    for (const std::uint64_t groups : {1, 33, 10000, 300000}) {
        const auto on = run(groups);
        if (groups < 10000) continue;
        for (std::uint32_t i = 0; i < rt->device_count(); ++i) EXPECT_GT(on[i], 0u) << i;
    }
    for (std::uint32_t i = 0; i < rt->device_count(); ++i) EXPECT_GT(rt->stats(i).misses, 0u);
    EXPECT_EQ(rt->close(file), 0);
    EXPECT_TRUE(rt->health().ok()) << rt->health().message;
}

// All of the first one's share takes 16 ms a number, and the others have done theirs before the
// first one has begun its second part.
TEST_F(several_gpus, one_that_is_slow_leaves_numbers_to_the_others) {
    make();
    const std::uint64_t groups = std::uint64_t{10000} * rt->device_count();
    run(groups);  // the pages are in the caches
    run(groups, groups / rt->device_count());
    EXPECT_GT(taken_over, 0u) << "no other device ran a number of the slow share";
}

TEST_F(several_gpus, launch_on_runs_on_one) {
    make();
    const shared_array<std::uint32_t> device_of(1000), times(1000);
    const shared_array<std::uint64_t> wrongs(8);
    const noted out{device_of.get(), times.get(), wrongs.get()};
    int before = 0, after = 1;
    cudaGetDevice(&before);
    EXPECT_EQ(launch_on<width::warp>(*rt, 1, 1000, read_page{file, out, 1, 0}), 0);
    cudaGetDevice(&after);
    EXPECT_EQ(before, after);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(device_of[i], 2u);
    EXPECT_EQ(rt->stats(0).misses, 0u);
}

TEST_F(several_gpus, launches_at_a_time_do_not_disturb_each_other) {
    make();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([this] { run(50000); });
    for (std::thread& thread : threads) thread.join();
    run(50000);
}

TEST_F(several_gpus, windows_serve_all_from_one_registration) {
    make();
    ASSERT_EQ(rt->open_windows(file), static_cast<std::int64_t>(file_pages * page));
    run(100000);
    for (std::uint32_t i = 0; i < rt->device_count(); ++i) {
        EXPECT_EQ(rt->stats(i).file_reads, 0u) << i;
        EXPECT_GT(rt->stats(i).window_loads + rt->stats(i).through_reads, 0u) << i;
    }
    EXPECT_EQ(rt->stats().window_bytes % (file_pages * page), 0u);
    if (rt->stats().window_bytes != file_pages * page)
        std::printf("no leases here: each GPU has a registration of its own\n");
    rt->close_windows();
    run(1000);
}

TEST_F(several_gpus, rows_go_to_the_device_of_the_stream) {
    make();
    constexpr std::uint64_t row = 256, rows = file_pages * page / row;
    table_layout layout{.row_bytes = row};
    layout.pieces.push_back({path, 0, rows});
    std::unique_ptr<table> made;
    const status s = table::make(*rt, layout, {}, made);
    ASSERT_TRUE(s.ok()) << s.message;
    const shared_array<std::uint64_t> numbers(1000);
    const shared_array<std::uint8_t> out(1000 * row);
    for (std::uint64_t i = 0; i < 1000; ++i) numbers[i] = mix64(i) % rows;
    const auto expect_on = [&](std::uint32_t device, const row_options& settings) {
        const std::uint64_t before = rt->stats(device).hits + rt->stats(device).misses;
        std::memset(out.get(), 0, 1000 * row);
        ASSERT_EQ(made->gather(numbers.get(), 1000, out.get(), settings), 0);
        cudaSetDevice(static_cast<int>(device));
        ASSERT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(settings.stream)), cudaSuccess);
        for (std::uint64_t i = 0; i < 1000; ++i)
            ASSERT_EQ(out[i * row + 9], pattern_byte(1, numbers[i] * row + 9)) << i;
        EXPECT_GT(rt->stats(device).hits + rt->stats(device).misses, before) << device;
        EXPECT_TRUE(made->check().ok());
    };
    for (std::uint32_t i = 0; i < rt->device_count(); ++i) {
        cudaSetDevice(static_cast<int>(i));
        cudaStream_t stream = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        expect_on(i, {});  // of the current device
        cudaSetDevice(0);
        expect_on(i, {.stream = stream});
        // A capture of the stream holds the gather, and asking for its device does not end it.
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
        EXPECT_EQ(made->gather(numbers.get(), 1000, out.get(), {.stream = stream}), 0);
        ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
        std::memset(out.get(), 0, 1000 * row);
        cudaSetDevice(static_cast<int>(i));
        ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        EXPECT_EQ(out[5 * row], pattern_byte(1, numbers[5] * row));
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
        cudaStreamDestroy(stream);
        expect_on(i, {.device = i});
    }
    cudaSetDevice(0);
}

TEST_F(several_gpus, each_pair_says_how_it_is_linked) {
    make();
    for (std::uint32_t from = 0; from < rt->device_count(); ++from)
        for (std::uint32_t to = 0; to < rt->device_count(); ++to) {
            host::cache_device& device = *rt->state(from).device;
            const host::device_link link = device.link_to(*rt->state(to).device);
            std::printf("%u to %u: %s, %s\n", from, to, host::name_of(link.kind),
                        link.reason.c_str());
            EXPECT_FALSE(link.reason.empty());
            if (from == to) {
                EXPECT_EQ(link.kind, host::link_kind::same_memory);
            }
            int can = 0;
            cudaDeviceCanAccessPeer(&can, static_cast<int>(from), static_cast<int>(to));
            if (from != to) {
                EXPECT_EQ(link.kind != host::link_kind::none, can != 0);
            }
            std::string why;
            EXPECT_EQ(device.reach(*rt->state(to).device, why), link.kind != host::link_kind::none)
                << why;
            EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the program's state is as it was";
        }
}

TEST(one_gpu, a_second_that_is_not_there_refuses_all_or_leaves_the_cpu) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    options o = gpu_options(folder);
    o.devices = {0, 63};
    std::unique_ptr<runtime> rt;
    const status s = runtime::make(o, rt);
    EXPECT_EQ(s.code, -ENODEV);
    EXPECT_NE(s.message.find("63"), std::string::npos) << s.message;
    std::vector<std::string> log;
    o.where = backend::automatic;
    o.log = [&](const std::string& line) { log.push_back(line); };
    rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    EXPECT_EQ(rt->where(), backend::cpu);
    EXPECT_EQ(rt->device_count(), 2u);
    ASSERT_EQ(log.size(), 1u);
    EXPECT_EQ(log[0].rfind("using CPU threads: GPU 63: ", 0), 0u) << log[0];
}

}  // namespace penstock::test
