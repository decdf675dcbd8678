// Reading and mapping by every width of group: random ranges of several files against the pattern,
// with a cache much smaller than the data.
#include "device/support.cuh"

namespace penstock::test {

namespace {

constexpr std::uint32_t files_read = 4;
constexpr std::uint64_t bytes_of_file = 3 * 1024 * 1024 + 777;

enum read_counter { wrong_bytes, bad_results, calls, read_counters };

struct random_ranges {
    const char* names;  // files_read names of 8 bytes each
    std::byte* scratch;
    std::uint64_t scratch_bytes;
    unsigned long long* counters;
    std::uint64_t seed;

    template <typename Group>
    __device__ void check(const Group& g, const std::byte* data, std::uint64_t count,
                          std::uint64_t file, std::uint64_t offset) const {
        unsigned long long wrong = 0;
        for (std::uint64_t i = g.rank(); i < count; i += g.size())
            if (static_cast<std::uint8_t>(data[i]) != pattern_byte(file, offset + i)) ++wrong;
        if (wrong != 0) atomicAdd(&counters[wrong_bytes], wrong);
    }

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const std::uint64_t file = mix64(seed + index) % files_read;
        const int fd = open(g, fs, names + 8 * file);
        if (fd < 0) {
            if (g.is_leader()) atomicAdd(&counters[bad_results], 1ull);
            return;
        }
        std::byte* const own_scratch = scratch + index * scratch_bytes;
        for (int round = 0; round < 4; ++round) {
            const std::uint64_t random = mix64(seed * 31 + index * 4 + round);
            const std::uint64_t offset = random % (bytes_of_file + 1000);
            const std::uint64_t want = (random >> 32) % scratch_bytes;
            const std::uint64_t left = offset < bytes_of_file ? bytes_of_file - offset : 0;
            const std::uint64_t expected = want < left ? want : left;
            if (round % 2 == 0) {
                const std::int64_t got =
                    read(g, fs, fd, own_scratch, static_cast<std::int64_t>(want),
                         static_cast<std::int64_t>(offset));
                if (got != static_cast<std::int64_t>(expected) && g.is_leader())
                    atomicAdd(&counters[bad_results], 1ull);
                if (got > 0) check(g, own_scratch, got, file, offset);
                g.sync();
            } else {
                const mapping m = map(g, fs, fd, static_cast<std::int64_t>(offset),
                                      static_cast<std::int64_t>(want));
                const bool plausible = m.bytes >= 0 && (m.bytes > 0) == (expected > 0) &&
                                       m.bytes <= static_cast<std::int64_t>(expected);
                if (!plausible && g.is_leader()) atomicAdd(&counters[bad_results], 1ull);
                if (m.bytes > 0) check(g, m.data, m.bytes, file, offset);
                if (unmap(g, fs, m) != 0 && g.is_leader()) atomicAdd(&counters[bad_results], 1ull);
            }
        }
        if (close(g, fs, fd) != 0 && g.is_leader()) atomicAdd(&counters[bad_results], 1ull);
        if (g.is_leader()) atomicAdd(&counters[calls], 1ull);
    }
};

template <width Width>
void run_random(std::uint64_t page_bytes, std::uint64_t frames, std::uint64_t groups,
                bool through_windows = false) {
    const temporary_folder folder;
    shared_array<char> names(8 * files_read);
    for (std::uint32_t i = 0; i < files_read; ++i) {
        constexpr const char* of_all_lengths[files_read] = {
            "f0", "f1.long", "f2.to",
            "f3.i"};  // a word is eight characters, compilers unroll by four
        std::snprintf(&names[8 * i], 8, "%s", of_all_lengths[i]);
        write_file(folder / &names[8 * i], pattern(i, bytes_of_file));
    }
    options o = gpu_options(folder);
    o.page_bytes = page_bytes;
    o.cache_bytes = page_bytes * frames;
    o.frame_wait_ms = 5000;
    const auto rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    if (through_windows) {
        ASSERT_EQ(rt->open_windows(folder / "f*"),
                  static_cast<std::int64_t>(files_read * bytes_of_file));
    }
    constexpr std::uint64_t scratch_bytes = 12000;
    std::byte* scratch = nullptr;
    ASSERT_EQ(cudaMalloc(&scratch, groups * scratch_bytes), cudaSuccess);
    const device_counters counters(read_counters);
    const launch_shape shape{128, Width == width::lane ? 32u : 64u};
    EXPECT_EQ(launch<Width>(*rt, groups,
                            random_ranges{names.get(), scratch, scratch_bytes, counters.get(),
                                          page_bytes + frames},
                            shape),
              0);
    const auto count = counters.read();
    EXPECT_EQ(count[wrong_bytes], 0u);
    EXPECT_EQ(count[bad_results], 0u);
    EXPECT_EQ(count[calls], groups);
    EXPECT_TRUE(rt->health().ok());
    const statistics s = rt->stats();
    if (through_windows) {
        EXPECT_EQ(s.window_loads, s.misses);
        EXPECT_EQ(s.file_reads, 0u) << "pages were asked for though they lie in windows";
        rt->close_windows();
    } else {
        EXPECT_EQ(s.window_loads, 0u);
    }
    cudaFree(scratch);
}

}  // namespace

TEST(device_read, warps_of_4096_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(4096, 2048, 20000);
}
TEST(device_read, warps_with_a_tiny_cache) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(4096, 600, 4000);
}
TEST(device_read, warps_of_512_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(512, 4096, 10000);
}
TEST(device_read, warps_of_64_kib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(65536, 512, 10000);
}
TEST(device_read, warps_of_2_mib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(2 << 20, 512, 1000);
}
TEST(device_read, blocks_of_4096_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::block>(4096, 512, 4000);
}
TEST(device_read, blocks_of_64_kib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::block>(65536, 128, 4000);
}
TEST(device_read, tiles_of_4096_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::tile8>(4096, 4096, 10000);
}
TEST(device_read, lanes_of_4096_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::lane>(4096, 8192, 4000);
}
TEST(device_windows, warps_of_4096_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(4096, 600, 20000, true);
}
TEST(device_windows, warps_of_512_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(512, 4096, 20000, true);
}
TEST(device_windows, warps_of_2_mib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::warp>(2 << 20, 512, 1000, true);
}
TEST(device_windows, blocks_of_64_kib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::block>(65536, 128, 4000, true);
}
TEST(device_windows, lanes_of_4096_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_random<width::lane>(4096, 8192, 4000, true);
}

// The window of a file shows what write(2) wrote; a file that was replaced is another file, without
// a window.
TEST(device_windows, changes_on_the_host) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 5 << 20));
    options o = gpu_options(folder);
    const auto rt = make_runtime(o);
    int fd = rt->open(folder / "data");
    ASSERT_EQ(rt->open_windows(fd), 5 << 20);
    {
        std::fstream file(folder / "data", std::ios::in | std::ios::out | std::ios::binary);
        const auto fresh = pattern(2, 1 << 20);
        file.seekp(3 << 20);
        file.write(reinterpret_cast<const char*>(fresh.data()),
                   static_cast<std::streamsize>(fresh.size()));
    }
    std::vector<std::uint8_t> got(1 << 20);
    ASSERT_EQ(rt->read(fd, got.data(), 1 << 20, 3 << 20), 1 << 20);
    EXPECT_TRUE(got == pattern(2, 1 << 20));
    EXPECT_EQ(rt->close(fd), 0);
    std::filesystem::remove(folder / "data");
    write_file(folder / "data", pattern(3, 5 << 20));
    fd = rt->open(folder / "data");
    ASSERT_GE(fd, 0);
    got.resize(5 << 20);
    ASSERT_EQ(rt->read(fd, got.data(), 5 << 20, 0), 5 << 20);
    EXPECT_TRUE(got == pattern(3, 5 << 20));
    // Shrunk under its window: the pages that were cut off live on in the window and do no harm.
    ASSERT_EQ(rt->open_windows(fd), 5 << 20);
    std::filesystem::resize_file(folder / "data", 1 << 20);
    EXPECT_GT(rt->prefetch(fd, 0, 5 << 20), 0);
    EXPECT_TRUE(rt->health().ok());
    rt->close_windows();
    EXPECT_TRUE(rt->health().ok());
}

}  // namespace penstock::test
