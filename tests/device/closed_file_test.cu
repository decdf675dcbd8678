// A pipeline of kernels: the second reads what the first wrote and closed, from the cache if
// nothing else wrote to the file, and from the file if another program did.
#include <fcntl.h>
#include <unistd.h>

#include "device/support.cuh"
#include "penstock/write.hpp"
#include "unit/leases.hpp"

namespace penstock::test::closed_files {

namespace {

constexpr std::uint64_t page_bytes = 64 << 10, cache_pages = 1024, file_pages = cache_pages / 2,
                        file_bytes = file_pages * page_bytes;

enum pipeline_counter { bad_calls, wrong_bytes, pipeline_counters };

// A group for each page opens the output, writes its page and closes it. Groups that come late find
// the file closed.
struct write_a_page {
    const char* name;
    unsigned long long* counters;
    std::uint64_t seed;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        __shared__ std::uint8_t rows[8][4096];  // a warp each
        std::uint8_t* const row = rows[threadIdx.x / 32];
        const int fd = open(g, fs, name, open_read_write | open_create);
        unsigned long long bad = fd < 0 ? 1 : 0;
        for (std::uint64_t at = index * page_bytes; fd >= 0 && at < (index + 1) * page_bytes;
             at += sizeof rows[0]) {
            for (std::uint64_t i = g.rank(); i < sizeof rows[0]; i += g.size())
                row[i] = pattern_byte(seed, at + i);
            g.sync();
            if (write(g, fs, fd, row, sizeof rows[0], static_cast<std::int64_t>(at)) !=
                sizeof rows[0])
                ++bad;
        }
        if (fd >= 0 && close(g, fs, fd) != 0) ++bad;
        if (bad != 0 && g.is_leader()) atomicAdd(&counters[bad_calls], bad);
    }
};

// Reads the same pages in another order.
struct read_a_page {
    const char* name;
    unsigned long long* counters;
    std::uint64_t seed;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        __shared__ std::uint8_t rows[8][4096];  // a warp each
        std::uint8_t* const row = rows[threadIdx.x / 32];
        const std::uint64_t page_number = index * 37 % file_pages;
        const int fd = open(g, fs, name, open_read);
        unsigned long long bad = fd < 0 ? 1 : 0, wrong = 0;
        for (std::uint64_t at = page_number * page_bytes;
             fd >= 0 && at < (page_number + 1) * page_bytes; at += sizeof rows[0]) {
            if (read(g, fs, fd, row, sizeof rows[0], static_cast<std::int64_t>(at)) !=
                sizeof rows[0])
                ++bad;
            for (std::uint64_t i = g.rank(); i < sizeof rows[0]; i += g.size())
                if (row[i] != pattern_byte(seed, at + i)) ++wrong;
            g.sync();
        }
        if (fd >= 0 && close(g, fs, fd) != 0) ++bad;
        if (bad != 0 && g.is_leader()) atomicAdd(&counters[bad_calls], bad);
        if (wrong != 0) atomicAdd(&counters[wrong_bytes], wrong);
    }
};

class closed_on_device : public testing::Test {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "out";
    std::unique_ptr<device_text> name;
    std::unique_ptr<device_counters> counters;

    void SetUp() override {
        PENSTOCK_NEEDS_GPU();
        options o = gpu_options(folder);
        o.page_bytes = page_bytes;
        o.cache_bytes = cache_pages * page_bytes;
        o.staging_bytes = 64 << 20;
        o.host_wait_ms = 20000;
        o.writable = true;
        rt = make_runtime(o);
        ASSERT_NE(rt, nullptr);
        name = std::make_unique<device_text>("out");
        counters = std::make_unique<device_counters>(pipeline_counters);
    }
    void write_all(std::uint64_t seed) {
        ASSERT_EQ(
            launch<width::warp>(*rt, file_pages, write_a_page{name->get(), counters->get(), seed}),
            0);
    }
    // Returns how many reads the host did for it.
    std::uint64_t read_all(std::uint64_t seed) {
        const std::uint64_t before = rt->stats().file_reads;
        EXPECT_EQ(
            launch<width::warp>(*rt, file_pages, read_a_page{name->get(), counters->get(), seed}),
            0);
        return rt->stats().file_reads - before;
    }
    void expect_right() {
        const auto count = counters->read();
        EXPECT_EQ(count[bad_calls], 0u);
        EXPECT_EQ(count[wrong_bytes], 0u);
    }
};

TEST_F(closed_on_device, the_second_kernel_reads_nothing_from_the_host) {
    if (!can_prove_writes(folder)) GTEST_SKIP() << "this file system or kernel allows no proof";
    write_all(1);
    EXPECT_TRUE(bytes_on_disk(path) == pattern(1, file_bytes));
    EXPECT_GT(rt->stats().kept_files, 0u);
    EXPECT_EQ(read_all(1), 0u);
    EXPECT_EQ(read_all(1), 0u);
    expect_right();
}

TEST_F(closed_on_device, a_chain_of_kernels_reads_nothing_from_the_host) {
    if (!can_prove_writes(folder)) GTEST_SKIP() << "this file system or kernel allows no proof";
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        write_all(seed);
        EXPECT_EQ(read_all(seed), 0u) << seed;
    }
    expect_right();
    EXPECT_TRUE(bytes_on_disk(path) == pattern(20, file_bytes));
}

TEST_F(closed_on_device, bytes_of_another_program_are_seen) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        write_all(seed);
        write_file(path, pattern(100 + seed, file_bytes));
        EXPECT_GT(read_all(100 + seed), 0u);
    }
    expect_right();
}

}  // namespace

}  // namespace penstock::test::closed_files
