// Every wait of a kernel ends: frames all pinned, an interrupt, a dead service thread, a host that
// stands still.
#include <thread>

#include "device/support.cuh"
#include "runtime/runtime_state.hpp"

namespace penstock::test {

namespace {

enum wait_counter {
    succeeded,
    no_frames,
    cancelled,
    shut_down,
    timed_out,
    other,
    wrong_after_waiting,
    counter_count
};

// Holds one page and asks for a second one.
struct hold_two_pages {
    const char* name;
    std::uint64_t pages;
    unsigned long long* counters;

    template <typename Group>
    __device__ void note(const Group& g, std::int64_t result) const {
        if (!g.is_leader()) return;
        const int which = result >= 0            ? succeeded
                          : result == -ENOBUFS   ? no_frames
                          : result == -ECANCELED ? cancelled
                          : result == -ESHUTDOWN ? shut_down
                          : result == -ETIMEDOUT ? timed_out
                                                 : other;
        atomicAdd(&counters[which], 1ull);
    }

    template <typename Group>
    __device__ void check(const Group& g, const mapping& m, std::uint64_t page) const {
        for (std::int64_t i = g.rank(); i < m.bytes; i += g.size())
            if (static_cast<std::uint8_t>(m.data[i]) != pattern_byte(5, page * 4096 + i))
                atomicAdd(&counters[wrong_after_waiting], 1ull);
    }

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, name);
        if (fd < 0) return note(g, fd);
        const std::uint64_t first_page = mix64(index) % pages, second_page = mix64(~index) % pages;
        const mapping first = map(g, fs, fd, static_cast<std::int64_t>(first_page * 4096), 4096);
        const mapping second = map(g, fs, fd, static_cast<std::int64_t>(second_page * 4096), 4096);
        check(g, first, first_page);
        check(g, second, second_page);
        note(g, first.bytes);
        note(g, second.bytes);
        unmap(g, fs, second);
        unmap(g, fs, first);
        close(g, fs, fd);
    }
};

// Pins pages until it is refused, and never lets go.
struct pin_everything {
    const char* name;
    std::int64_t* result;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        const int fd = open(g, fs, name);
        std::int64_t last = fd;
        for (std::int64_t page = 0; page < 200 && last >= 0; ++page)
            last = map(g, fs, fd, page * 4096, 4096).bytes;
        if (g.is_leader()) *result = last;
    }
};

// Reads or maps one page after the other, over and over, until a call fails or half a minute has
// gone. Waits for nothing for long.
struct go_round {
    const char* name;
    std::int64_t* result;
    std::byte* to;
    std::uint64_t pages;
    bool maps;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        const int fd = open(g, fs, name);
        std::int64_t last = fd;
        const std::uint64_t begun = g.now_ns();
        for (std::uint64_t i = 0; last >= 0 && g.broadcast(g.now_ns() - begun) < 30'000'000'000;
             ++i) {
            const auto at = static_cast<std::int64_t>(i % pages * 4096);
            if (!maps) {
                last = read(g, fs, fd, to, 4096, at);
                continue;
            }
            const mapping mapped = map(g, fs, fd, at, 4096);
            last = mapped.bytes;
            unmap(g, fs, mapped);
        }
        if (g.is_leader()) *result = last;
    }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs the pinning kernel with an endless frame wait and does something meanwhile; how long the
// kernel lasted after it.
template <typename Action>
double release_time(runtime& rt, const device_text& name, std::int64_t& result,
                    const Action& action) {
    const shared_array<std::int64_t> shared(1);
    std::thread kernel([&] {
        launch<width::warp>(rt, 1, pin_everything{name.get(), shared.get()});
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto start = std::chrono::steady_clock::now();
    action();
    kernel.join();
    result = shared[0];
    return seconds_since(start);
}

options endless(const temporary_folder& folder) {
    options o = gpu_options(folder);
    o.frame_wait_ms = 600000;
    o.request_wait_ms = 600000;
    return o;
}

}  // namespace

TEST(device_bounded_wait, ten_thousand_warps_hold_two_pages_of_64_frames) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 512 * 4096));
    const auto rt = make_runtime(gpu_options(folder));
    const device_text name("data");
    const device_counters counters(counter_count);
    const int held = rt->open(folder / "data");
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(launch<width::warp>(*rt, 10000, hold_two_pages{name.get(), 512, counters.get()}), 0);
    const double seconds = seconds_since(start);
    const auto count = counters.read();
    std::printf(
        "64 frames, 10000 warps with two pages each: %.3f s, %llu maps granted, %llu refused\n",
        seconds, count[succeeded], count[no_frames]);
    EXPECT_EQ(count[succeeded] + count[no_frames], 20000u);
    EXPECT_EQ(count[wrong_after_waiting], 0u);
    // Afterwards nothing is lost: all 64 frames can be pinned at once.
    const shared_array<std::int64_t> result(1);
    EXPECT_EQ(launch<width::warp>(*rt, 1, pin_everything{name.get(), result.get()}), 0);
    EXPECT_EQ(result[0], -ENOBUFS);
    EXPECT_EQ(rt->close(held), 0);
}

TEST(device_bounded_wait, all_frames_pinned_is_an_error_in_time) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 512 * 4096));
    const auto rt = make_runtime(gpu_options(folder));
    const device_text name("data");
    const shared_array<std::int64_t> result(1);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(launch<width::warp>(*rt, 1, pin_everything{name.get(), result.get()}), 0);
    EXPECT_LT(seconds_since(start), 120.0);
    EXPECT_EQ(result[0], -ENOBUFS);
}

TEST(device_bounded_wait, an_interrupt_releases_the_kernel) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 512 * 4096));
    const auto rt = make_runtime(endless(folder));
    const device_text name("data");
    std::int64_t result = 0;
    EXPECT_LT(release_time(*rt, name, result, [&] { rt->interrupt(); }), 1.0);
    EXPECT_EQ(result, -ECANCELED);
}

// Hits, misses by request and misses through a window: a kernel that never waits for long ends as
// well.
TEST(device_bounded_wait, an_interrupt_ends_a_kernel_that_does_not_wait) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 512 * 4096));
    const device_text name("data");
    for (const bool window : {false, true})
        for (const bool maps : {false, true})
            for (const std::uint64_t pages : {16u, 512u}) {
                const auto rt = make_runtime(gpu_options(folder));
                const int held = rt->open(folder / "data");
                if (window && rt->open_windows(held) <= 0) continue;
                const shared_array<std::int64_t> result(1);
                const shared_array<std::byte> to(4096);
                std::thread kernel([&] {
                    launch<width::warp>(*rt, 1,
                                        go_round{name.get(), result.get(), to.get(), pages, maps});
                });
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
                const auto start = std::chrono::steady_clock::now();
                rt->interrupt();
                kernel.join();
                EXPECT_LT(seconds_since(start), 1.0)
                    << "window " << window << ", maps " << maps << ", pages " << pages;
                EXPECT_EQ(result[0], -ECANCELED)
                    << "window " << window << ", maps " << maps << ", pages " << pages;
            }
}

TEST(device_bounded_wait, a_dead_service_thread_releases_the_kernel) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 512 * 4096));
    const auto rt = make_runtime(endless(folder));
    const device_text name("data");
    std::int64_t result = 0;
    EXPECT_LT(release_time(*rt, name, result, [&] { rt->state().services[0]->kill(); }), 1.0);
    EXPECT_EQ(result, -ESHUTDOWN);
    EXPECT_EQ(rt->health().code, -ESHUTDOWN);
}

TEST(device_bounded_wait, a_host_without_heartbeat_releases_the_kernel) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 512 * 4096));
    options o = endless(folder);
    o.host_wait_ms = 500;
    host::runtime_hooks hooks;
    hooks.beat_ns = 3'000'000'000;  // the monitor beats once and then stands still
    const auto rt = make_runtime(o, hooks);
    const device_text name("data");
    std::int64_t result = 0;
    EXPECT_LT(release_time(*rt, name, result, [] {}), 1.0);
    EXPECT_EQ(result, -ETIMEDOUT);
}

// The fault breaks the whole process's device context, so it happens in a child (threadsafe death
// test style).
TEST(device_bounded_wait_DeathTest, a_faulting_kernel_is_reported) {
    PENSTOCK_NEEDS_GPU();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const temporary_folder folder;
            write_file(folder / "data", pattern(5, 4096));
            const auto rt = make_runtime(gpu_options(folder));
            const device_text name("data");
            const int code = launch<width::warp>(
                *rt, 1, pin_everything{name.get(), reinterpret_cast<std::int64_t*>(8)});
            const status health = rt->health();
            std::fprintf(stderr, "launch %d, health %d: %s\n", code, health.code,
                         health.message.c_str());
            const bool reported =
                code == -EIO && health.code == -EIO && rt->open(folder / "data") < 0;
            std::_Exit(reported ? 7 : 1);
        },
        testing::ExitedWithCode(7), "a kernel faulted");
}

}  // namespace penstock::test
