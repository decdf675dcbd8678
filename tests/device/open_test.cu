// Opening from kernels: shared descriptors, changes on the host, files that come and go, wrong
// arguments.
#include "device/support.cuh"
#include "penstock/launch.hpp"

namespace penstock::test {

namespace {

struct open_and_close {
    const char* name;
    unsigned long long* counters;  // 0: failures

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        const int fd = open(g, fs, name);
        if (fd < 0 || close(g, fs, fd) != 0) atomicAdd(&counters[0], 1ull);
    }
};

struct only_close {
    int fd;
    unsigned long long* counters;  // 0: how many were told that it is not open

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        if (close(g, fs, fd) == -EBADF) atomicAdd(&counters[0], 1ull);
    }
};

struct open_each {
    const char* names;  // `stride` bytes each
    std::uint32_t stride, files;
    unsigned long long* counters;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const std::uint64_t which = mix64(index) % files;
        const int fd = open(g, fs, names + std::uint64_t{stride} * which);
        std::byte bytes[64];
        __shared__ std::byte shared[8][64];
        std::byte* const to = g.size() == 1 ? bytes : shared[(threadIdx.x / 32) % 8];
        const std::int64_t got = fd < 0 ? -1 : read(g, fs, fd, to, 64, 100);
        bool wrong = got != 64;
        for (std::uint32_t i = g.rank(); !wrong && i < 64; i += g.size())
            wrong = static_cast<std::uint8_t>(to[i]) != pattern_byte(which, 100 + i);
        if (wrong) atomicAdd(&counters[0], 1ull);
        g.sync();
        if (fd >= 0) close(g, fs, fd);
    }
};

struct wrong_calls {
    const char* name;
    std::int64_t* results;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        int n = 0;
        const auto note = [&](std::int64_t r) {
            if (g.is_leader()) results[n] = r;
            ++n;
        };
        __shared__ char buffer[64];
        note(open(g, fs, nullptr));
        note(open(g, fs, "absent"));
        note(open(g, fs, "../outside"));
        note(open(g, fs, name, 7));
        const int fd = open(g, fs, name);
        note(fd >= 0 ? 0 : fd);
        note(read(g, fs, fd + 1, buffer, 1, 0));
        note(read(g, fs, -5, buffer, 1, 0));
        note(read(g, fs, fd, buffer, -1, 0));
        note(read(g, fs, fd, buffer, 1, -1));
        note(read(g, fs, fd, static_cast<void*>(nullptr), 1, 0));
        note(read(g, fs, fd, buffer, INT64_MAX, 5));
        note(map(g, fs, 0x7fffffff, 0, 1).bytes);
        note(unmap(g, fs, mapping{reinterpret_cast<const std::byte*>(buffer), 1, ~0ull >> 1, 3}));
        note(close(g, fs, fd));
        note(close(g, fs, fd));
    }
};

}  // namespace

TEST(device_open, a_million_opens_of_one_name_ask_the_host_once) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 100));
    const auto rt = make_runtime(gpu_options(folder));
    const int held = rt->open(folder / "data");
    const device_text name(folder / "data");
    const device_counters failures(1);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(launch<width::lane>(*rt, 1000000, open_and_close{name.get(), failures.get()}), 0);
    const double took_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("a million opens and closes took %.2f s\n", took_s);
    EXPECT_LT(took_s, 300);  // 40 to 50 when each lane took its reference by itself
    EXPECT_EQ(failures.read()[0], 0u);
    EXPECT_EQ(rt->stats().open_requests, 1u);
    EXPECT_EQ(rt->close(held), 0);
}

// Lanes of a warp take and give references together: as many as there are, and no more.
TEST(device_open, lanes_close_no_more_than_was_opened) {
    PENSTOCK_NEEDS_GPU();
    for (const bool writable : {false, true}) {
        const temporary_folder folder;
        write_file(folder / "data", pattern(1, 100));
        options o = gpu_options(folder);
        o.writable = writable;
        const auto rt = make_runtime(o);
        std::vector<int> own;
        for (std::uint32_t i = 0; i < engine::most_numbers; ++i)
            own.push_back(rt->open(folder / "data"));
        const int fd = rt->open(folder / "data");  // and all that follow share one number
        for (int i = 1; i < 1037; ++i) ASSERT_EQ(rt->open(folder / "data"), fd);
        const device_counters refused(1);
        EXPECT_EQ(launch<width::lane>(*rt, 5000, only_close{fd, refused.get()}), 0);
        EXPECT_EQ(refused.read()[0], 5000u - 1037u);
        EXPECT_EQ(rt->close(fd), -EBADF);
        for (const int own_fd : own) {
            EXPECT_EQ(rt->close(own_fd), 0);
            EXPECT_EQ(rt->close(own_fd), -EBADF) << "a second close of its own";
        }
    }
}

TEST(device_open, an_open_storm_without_a_holder_shares_host_calls) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 100));
    const auto rt = make_runtime(gpu_options(folder));
    const device_text name("data");
    const device_counters failures(1);
    EXPECT_EQ(launch<width::warp>(*rt, 100000, open_and_close{name.get(), failures.get()}), 0);
    EXPECT_EQ(failures.read()[0], 0u);
    std::printf("100000 opens and closes without a holder asked the host %llu times\n",
                static_cast<unsigned long long>(rt->stats().open_requests));
    EXPECT_LT(rt->stats().open_requests, 10000u);
}

TEST(device_open, more_files_than_slots) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    constexpr std::uint32_t files = 3000;
    shared_array<char> names(16 * files);
    for (std::uint32_t i = 0; i < files; ++i) {
        std::snprintf(&names[16 * i], 16, "f%u", i);
        write_file(folder / &names[16 * i], pattern(i, 200));
    }
    options o = gpu_options(folder);
    o.max_files = 1024;
    const auto rt = make_runtime(o);
    const device_counters failures(1);
    const launch_shape shape{128, 64};
    EXPECT_EQ(
        launch<width::warp>(*rt, 20000, open_each{names.get(), 16, files, failures.get()}, shape),
        0);
    EXPECT_EQ(failures.read()[0], 0u);
}

// Names are compared and sent by words; a compiler that got the last, shorter one wrong did so for
// some lengths and not for others.
TEST(device_open, names_of_every_length) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    constexpr std::uint32_t longest = 40, stride = 48;
    shared_array<char> names(std::size_t{stride} * longest);
    for (std::uint32_t i = 0; i < longest; ++i) {
        for (std::uint32_t k = 0; k <= i; ++k)
            names[std::size_t{stride} * i + k] = static_cast<char>('a' + (i + k) % 26);
        write_file(folder / &names[std::size_t{stride} * i], pattern(i, 200));
    }
    const auto rt = make_runtime(gpu_options(folder));
    const device_counters failures(1);
    std::vector<int> held;
    // At first each name is sent to the host, and then found in the table.
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(
            launch<width::warp>(*rt, 2000, open_each{names.get(), stride, longest, failures.get()},
                                {128, 64}),
            0);
        EXPECT_EQ(failures.read()[0], 0u) << "round " << round;
        for (std::uint32_t i = 0; round == 0 && i < longest; ++i)
            held.push_back(rt->open(folder / &names[std::size_t{stride} * i]));
    }
    for (const int fd : held) EXPECT_EQ(rt->close(fd), 0);
}

TEST(device_open, a_change_on_the_host_is_seen_after_reopen_and_pages_outlive_kernels) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const auto rt = make_runtime(gpu_options(folder));
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        const auto bytes = pattern(seed, 10000);
        write_file(folder / "data", bytes);
        std::vector<std::uint8_t> got(bytes.size());
        for (int round = 0; round < 2; ++round) {
            const std::uint64_t misses = rt->stats().misses;
            const int fd = rt->open(folder / "data");
            ASSERT_GE(fd, 0) << error_text(fd);
            EXPECT_EQ(rt->read(fd, got.data(), 10000, 0), 10000);
            EXPECT_EQ(got, bytes);
            EXPECT_EQ(rt->close(fd), 0);
            EXPECT_EQ(rt->stats().misses - misses, round == 0 ? 3u : 0u);
        }
    }
}

TEST(device_open, wrong_arguments_are_refused) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 100));
    const auto rt = make_runtime(gpu_options(folder));
    const device_text name("data");
    const std::vector<std::int64_t> expected = {-EFAULT, -ENOENT, -ENOENT, -EINVAL, 0,
                                                -EBADF,  -EBADF,  -EINVAL, -EINVAL, -EINVAL,
                                                -EINVAL, -EBADF,  -EINVAL, 0,       -EBADF};
    const shared_array<std::int64_t> results(expected.size());
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(launch<width::warp>(*rt, 1, wrong_calls{name.get(), results.get()}), 0);
        for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_EQ(results[i], expected[i]) << "call " << i;
    }
    EXPECT_TRUE(rt->health().ok());
}

TEST(device_open, several_runtimes_do_not_disturb_each_other) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(7, 100000));
    const auto first = make_runtime(gpu_options(folder)),
               second = make_runtime(gpu_options(folder));
    const int a = first->open(folder / "data"), b = second->open(folder / "data");
    std::vector<std::uint8_t> got(100000);
    EXPECT_EQ(first->read(a, got.data(), 100000, 0), 100000);
    EXPECT_EQ(got, pattern(7, 100000));
    first->interrupt();
    EXPECT_EQ(second->read(b, got.data(), 100000, 0), 100000);
    EXPECT_EQ(got, pattern(7, 100000));
}

}  // namespace penstock::test
