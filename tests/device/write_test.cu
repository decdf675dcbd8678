// Writing by every width of group, in a cache smaller than the data: what the file has afterwards
// is what was written.
#include <algorithm>
#include <thread>

#include "device/support.cuh"
#include "penstock/write.hpp"

namespace penstock::test {

namespace {

options small_cache(const temporary_folder& folder, std::uint64_t page_bytes,
                    std::uint64_t frames) {
    options o = gpu_options(folder);
    o.page_bytes = page_bytes;
    o.cache_bytes = page_bytes * frames;
    o.frame_wait_ms = 5000;
    o.writable = true;
    return o;
}

enum write_counter { bad_writes, wrong_after_writing, write_counters };

// Pieces of `stride` bytes: each group writes every groups-th one of them, reads it back, and
// writes back now and then.
struct write_pieces {
    const char* name;
    const std::uint8_t* wanted;
    std::byte* scratch;
    unsigned long long* counters;
    std::uint64_t bytes, stride, groups;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, name, open_read_write | open_create);
        std::byte* const own_scratch = scratch + index * stride;
        unsigned long long bad = fd < 0 ? 1 : 0, wrong = 0;
        for (std::uint64_t at = index * stride; fd >= 0 && at < bytes; at += groups * stride) {
            const auto length = static_cast<std::int64_t>(min(stride, bytes - at));
            if (write(g, fs, fd, wanted + at, length, static_cast<std::int64_t>(at)) != length)
                ++bad;
            if (read(g, fs, fd, own_scratch, length, static_cast<std::int64_t>(at)) != length)
                ++bad;
            for (std::int64_t i = g.rank(); i < length; i += g.size())
                if (static_cast<std::uint8_t>(own_scratch[i]) != wanted[at + i]) ++wrong;
            g.sync();
            if (mix64(at) % 16 == 0 && msync(g, fs, fd, static_cast<std::int64_t>(at), length) != 0)
                ++bad;
        }
        if (fd >= 0 && close(g, fs, fd) != 0) ++bad;
        if (bad != 0 && g.is_leader()) atomicAdd(&counters[bad_writes], bad);
        if (wrong != 0) atomicAdd(&counters[wrong_after_writing], wrong);
    }
};

template <width Width>
void run_pieces(std::uint64_t page_bytes, std::uint64_t frames, std::uint64_t bytes,
                std::uint64_t stride, std::uint64_t groups) {
    const temporary_folder folder;
    const auto rt = make_runtime(small_cache(folder, page_bytes, frames));
    ASSERT_NE(rt, nullptr);
    const auto wanted = pattern(page_bytes + stride, bytes);
    shared_array<std::uint8_t> source(bytes);
    std::copy(wanted.begin(), wanted.end(), source.get());
    shared_array<char> name(8);
    std::snprintf(name.get(), 8, "out");
    std::byte* scratch = nullptr;
    ASSERT_EQ(cudaMalloc(&scratch, groups * stride), cudaSuccess);
    const device_counters counters(write_counters);
    EXPECT_EQ(launch<Width>(*rt, groups,
                            write_pieces{name.get(), source.get(), scratch, counters.get(), bytes,
                                         stride, groups}),
              0);
    const auto count = counters.read();
    EXPECT_EQ(count[bad_writes], 0u);
    EXPECT_EQ(count[wrong_after_writing], 0u);
    EXPECT_TRUE(bytes_on_disk(folder / "out") == wanted) << "all groups have closed it";
    EXPECT_TRUE(rt->health().ok());
    if (frames * page_bytes < bytes / 2) {
        EXPECT_GT(rt->stats().dirty_victims, 0u);
    }
    EXPECT_EQ(cudaFree(scratch), cudaSuccess);
}

constexpr std::uint64_t record_bytes = 52;

// Every second stripe of a file, from `half` on; what is written follows from where it is.
struct write_stripes {
    int fd;
    std::uint64_t stripe, half;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        __shared__ std::uint8_t stripes[8][4100];  // a warp each
        std::uint8_t* const own_stripe = stripes[threadIdx.x / 32];
        const std::uint64_t at = (2 * index + half) * stripe;
        for (std::uint64_t i = g.rank(); i < stripe; i += g.size())
            own_stripe[i] = pattern_byte(9, at + i);
        g.sync();
        write(g, fs, fd, own_stripe, static_cast<std::int64_t>(stripe),
              static_cast<std::int64_t>(at));
    }
};

struct append_records {
    const char* name;
    unsigned long long* counters;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        __shared__ std::uint8_t records[8][record_bytes];  // a warp each
        std::uint8_t* const own_record = records[threadIdx.x / 32];
        const int fd = open(g, fs, name, open_write | open_create);
        unsigned long long bad = fd < 0 ? 1 : 0;
        for (std::uint64_t i = 0; fd >= 0 && i < 20; ++i) {
            for (std::uint64_t k = g.rank(); k < record_bytes; k += g.size())
                own_record[k] = pattern_byte(index * 20 + i, k);
            g.sync();
            if (append(g, fs, fd, own_record, record_bytes) < 0) ++bad;
        }
        if (fd >= 0 && close(g, fs, fd) != 0) ++bad;
        if (bad != 0 && g.is_leader()) atomicAdd(&counters[bad_writes], bad);
    }
};

}  // namespace

TEST(device_write, warps_more_than_the_cache) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::warp>(4096, 256, 16 << 20, 4096, 1000);
}
TEST(device_write, warps_of_odd_pieces) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::warp>(4096, 512, 8 << 20, 1237, 600);
}
TEST(device_write, warps_of_512_byte_pages) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::warp>(512, 2048, 4 << 20, 700, 600);
}
TEST(device_write, warps_of_64_kib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::warp>(65536, 128, 64 << 20, 65536, 100);
}
TEST(device_write, blocks) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::block>(4096, 512, 8 << 20, 5000, 200);
}
TEST(device_write, tiles) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::tile8>(4096, 2048, 8 << 20, 900, 600);
}
TEST(device_write, lanes) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::lane>(4096, 512, 1 << 20, 333, 100);
}
// The cache holds all, and each close has a share in what is dirty.
TEST(device_write, closes_of_warps_share) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::warp>(4096, 16384, 32u << 20, 16384, 64);
}

TEST(device_write, closes_of_blocks_share) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::block>(4096, 16384, 32u << 20, 16384, 64);
}

TEST(device_write, closes_of_lanes_share) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::lane>(4096, 4096, 8u << 20, 4096, 64);
}

TEST(device_write, seven_bytes_apart_in_shared_pages) {
    PENSTOCK_NEEDS_GPU();
    run_pieces<width::warp>(4096, 64, 256 << 10, 7, 500);
}

TEST(device_write, appended_records_are_whole_and_all_there) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const auto rt = make_runtime(small_cache(folder, 4096, 256));
    ASSERT_NE(rt, nullptr);
    shared_array<char> name(8);
    std::snprintf(name.get(), 8, "log");
    const device_counters counters(write_counters);
    constexpr std::uint64_t groups = 2000;
    EXPECT_EQ(launch<width::warp>(*rt, groups, append_records{name.get(), counters.get()}), 0);
    EXPECT_EQ(counters.read()[bad_writes], 0u);
    const auto bytes = bytes_on_disk(folder / "log");
    ASSERT_EQ(bytes.size(), groups * 20 * record_bytes);
    std::vector<std::vector<std::uint8_t>> got, wanted;
    for (std::size_t at = 0; at < bytes.size(); at += record_bytes)
        got.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + record_bytes));
    for (std::uint64_t i = 0; i < groups * 20; ++i) wanted.push_back(pattern(i, record_bytes));
    std::sort(got.begin(), got.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_TRUE(got == wanted);
}

// Every second stripe each, of one file, at the same time; on two GPUs where there are two, on one
// else.
TEST(device_write, two_runtimes_write_between_each_other) {
    PENSTOCK_NEEDS_GPU();
    int devices = 0;
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    std::printf("on %d GPUs\n", devices > 1 ? 2 : 1);
    for (const std::uint64_t stripe : {1, 7, 64, 4095, 4097}) {
        const temporary_folder folder;
        options o = small_cache(folder, 4096, 256);
        const auto first = make_runtime(o);
        o.device = devices > 1 ? 1 : 0;
        const auto second = make_runtime(o);
        ASSERT_TRUE(first != nullptr && second != nullptr);
        constexpr std::uint64_t stripes = 1000;
        const auto write_half = [&](runtime& rt, std::uint64_t half) {
            const int fd = rt.open(folder / "file", open_write | open_create);
            EXPECT_GE(fd, 0) << error_text(fd);
            EXPECT_EQ(launch<width::warp>(rt, stripes, write_stripes{fd, stripe, half}), 0);
            EXPECT_EQ(rt.close(fd), 0);
        };
        std::thread other([&] { write_half(*second, 1); });
        write_half(*first, 0);
        other.join();
        EXPECT_TRUE(bytes_on_disk(folder / "file") == pattern(9, 2 * stripes * stripe))
            << "stripes of " << stripe;
        EXPECT_EQ(first->stats().errors + second->stats().errors, 0u);
        EXPECT_TRUE(first->write_status().ok() && second->write_status().ok());
    }
}

TEST(device_write, host_calls) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const auto rt = make_runtime(small_cache(folder, 4096, 512));
    ASSERT_NE(rt, nullptr);
    auto bytes = pattern(5, 5 << 20);
    const int fd = rt->open(folder / "file", open_read_write | open_create | open_exclusive);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(rt->open(folder / "file", open_write | open_create | open_exclusive), -EEXIST);
    ASSERT_EQ(rt->write(fd, bytes.data(), 5 << 20, 0), 5 << 20);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_TRUE(bytes_on_disk(folder / "file") == bytes);
    EXPECT_EQ(rt->append(fd, "end", 3), 5 << 20);
    EXPECT_EQ(rt->msync(fd, 5 << 20, 3), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file").size(), (5u << 20) + 3);
    EXPECT_EQ(rt->truncate(fd, 1000), 0);
    EXPECT_EQ(rt->truncate(fd, 9000), 0);
    bytes.resize(1000);
    bytes.resize(9000);
    std::vector<std::uint8_t> got(9000, 0xee);
    EXPECT_EQ(rt->read(fd, got.data(), 10000, 0), 9000);
    EXPECT_TRUE(got == bytes);
    ASSERT_EQ(rt->write(fd, "late", 4, 20000), 4);
    bytes.resize(20000);
    bytes.insert(bytes.end(), {'l', 'a', 't', 'e'});
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_TRUE(bytes_on_disk(folder / "file") == bytes);
    EXPECT_EQ(rt->open(folder / "missing", open_write), -ENOENT);
    // What is not closed is written when the runtime ends.
    const int left = rt->open(folder / "left", open_write | open_create);
    ASSERT_EQ(rt->write(left, bytes.data(), 9000, 0), 9000);
}

TEST(device_write, what_is_left_is_written_at_the_end) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    auto rt = make_runtime(small_cache(folder, 4096, 512));
    ASSERT_NE(rt, nullptr);
    const auto bytes = pattern(6, 100000);
    const int fd = rt->open(folder / "left", open_write | open_create);
    ASSERT_EQ(rt->write(fd, bytes.data(), 100000, 0), 100000);
    rt.reset();
    EXPECT_TRUE(bytes_on_disk(folder / "left") == bytes);
}

}  // namespace penstock::test
