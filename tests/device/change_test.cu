// Pages changed through pointers and elements written by lanes, in a cache smaller than the file.
#include "device/support.cuh"
#include "penstock/write_view.hpp"

namespace penstock::test {

namespace {

options patient_writing(const temporary_folder& folder, std::uint64_t page_bytes,
                        std::uint64_t frames) {
    options o = gpu_options(folder);
    o.page_bytes = page_bytes;
    o.cache_bytes = page_bytes * frames;
    o.frame_wait_ms = 20000;
    o.writable = true;
    return o;
}

// Adds one to every stride-th byte, from `index` on, page by page through writable mappings.
struct count_up {
    const char* name;
    unsigned long long* bad;
    std::uint64_t bytes, stride;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, name, open_read_write);
        unsigned long long failed = fd < 0 ? 1 : 0;
        for (std::uint64_t at = 0; fd >= 0 && at < bytes;) {
            const writable_mapping mapped = map_write(g, fs, fd, static_cast<std::int64_t>(at),
                                                      static_cast<std::int64_t>(bytes - at));
            if (mapped.bytes <= 0) {
                ++failed;
                break;
            }
            const auto end = at + static_cast<std::uint64_t>(mapped.bytes);
            for (std::uint64_t i = at + (stride + index - at % stride) % stride + g.rank() * stride;
                 i < end; i += g.size() * stride) {
                auto* const byte = reinterpret_cast<std::uint8_t*>(mapped.data) + (i - at);
                *byte = static_cast<std::uint8_t>(*byte + 1);
            }
            if (unmap(g, fs, mapped) != 0) ++failed;
            at = end;
        }
        if (fd >= 0 && close(g, fs, fd) != 0) ++failed;
        if (failed != 0 && g.is_leader()) atomicAdd(bad, failed);
    }
};

template <width Width>
void run_count_up(std::uint64_t page_bytes, std::uint64_t frames, std::uint64_t bytes,
                  std::uint64_t groups) {
    const temporary_folder folder;
    auto wanted = pattern(page_bytes, bytes);
    write_file(folder / "data", wanted);
    const auto rt = make_runtime(patient_writing(folder, page_bytes, frames));
    ASSERT_NE(rt, nullptr);
    const device_text name("data");
    const device_counters counters(1);
    EXPECT_EQ(launch<Width>(*rt, groups, count_up{name.get(), counters.get(), bytes, groups}), 0);
    EXPECT_EQ(counters.read()[0], 0u);
    for (std::uint8_t& b : wanted) ++b;
    EXPECT_TRUE(bytes_on_disk(folder / "data") == wanted);
    EXPECT_TRUE(rt->health().ok());
}

// Every thread writes its elements of a permutation, then adds to counters that all share.
__global__ void fill_elements(const __grid_constant__ runtime_ref fs, const char* name,
                              std::uint64_t count, std::uint64_t counters) {
    const int fd = open(this_warp(), fs, name, open_read_write | open_create);
    const writable_view<std::uint32_t> out(fs, fd, count);
    const writable_view<std::uint64_t> sums(fs, fd, counters, count * 4);
    const std::uint64_t threads = gridDim.x * blockDim.x,
                        me = blockIdx.x * blockDim.x + threadIdx.x;
    for (std::uint64_t i = me; i < count; i += threads) {
        const std::uint64_t place = i % 64 < 32 ? i
                                                : (i * 2654435761u) % count / 64 * 64 + 32 +
                                                      i % 32;  // half in order, half far apart
        if (place < count) out[place] = static_cast<std::uint32_t>(place * 7 + 1);
        if (i % 8 == 0) sums.atomic_add(mix64(i) % counters, 1);
    }
    if (me == 0) sums.put(counters, 5);  // outside: dropped, and noted
    close(this_warp(), fs, fd);
}

// Quarters are exact in binary, so any order of additions gives the same sums.
template <typename T>
__global__ void add_quarters(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t sums) {
    const writable_view<T> out(fs, fd, sums);
    const std::uint64_t me = blockIdx.x * blockDim.x + threadIdx.x;
    for (std::uint64_t i = 0; i < 16; ++i) out.atomic_add((me + i) % sums, T{0.25});
}

template <typename T>
void run_add_quarters() {
    const temporary_folder folder;
    const auto rt = make_runtime(patient_writing(folder, 4096, 64));
    ASSERT_NE(rt, nullptr);
    constexpr std::uint64_t sums = 256, threads = 64 * 128;
    const int fd = rt->open(folder / "sums", open_read_write | open_create);
    ASSERT_GE(fd, 0);
    add_quarters<T><<<64, 128>>>(rt->ref(), fd, sums);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(rt->close(fd), 0);
    const std::vector<std::uint8_t> got = bytes_on_disk(folder / "sums");
    ASSERT_EQ(got.size(), sums * sizeof(T));
    for (std::uint64_t i = 0; i < sums; ++i) {
        T sum = 0;
        std::memcpy(&sum, &got[i * sizeof(T)], sizeof(T));
        ASSERT_EQ(sum, T(threads * 16 / sums) / 4) << i;
    }
}

}  // namespace

TEST(device_change, floating_point_sums) {
    PENSTOCK_NEEDS_GPU();
    run_add_quarters<double>();
    run_add_quarters<float>();
}

TEST(device_change, warps_of_4_kib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_count_up<width::warp>(4096, 256, 2 << 20, 97);
}
TEST(device_change, warps_in_few_frames) {
    PENSTOCK_NEEDS_GPU();
    run_count_up<width::warp>(4096, 64, 1 << 20, 200);
}
TEST(device_change, warps_of_64_kib_pages) {
    PENSTOCK_NEEDS_GPU();
    run_count_up<width::warp>(65536, 64, 8 << 20, 50);
}
TEST(device_change, blocks) {
    PENSTOCK_NEEDS_GPU();
    run_count_up<width::block>(4096, 256, 1 << 20, 40);
}
TEST(device_change, lanes) {
    PENSTOCK_NEEDS_GPU();
    run_count_up<width::lane>(512, 512, 64 << 10, 20);
}

TEST(device_change, elements_by_lanes) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    const auto rt = make_runtime(patient_writing(folder, 4096, 256));
    ASSERT_NE(rt, nullptr);
    constexpr std::uint64_t count = 1 << 20, counters = 3000;  // 4 MiB through a cache of one
    const device_text name("out");
    const int held = rt->open(folder / "out", open_read_write | open_create);
    fill_elements<<<64, 128>>>(rt->ref(), name.get(), count, counters);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(rt->close(held), 0);
    const status found = rt->view_status();
    EXPECT_EQ(found.code, -ERANGE) << found.message;
    std::vector<std::uint8_t> wanted(count * 4 + counters * 8);
    std::vector<std::uint64_t> sums(counters);
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t place =
            i % 64 < 32 ? i : (i * 2654435761u) % count / 64 * 64 + 32 + i % 32;
        const auto value = static_cast<std::uint32_t>(place * 7 + 1);
        if (place < count) std::memcpy(&wanted[place * 4], &value, 4);
        if (i % 8 == 0) ++sums[mix64(i) % counters];
    }
    std::memcpy(&wanted[count * 4], sums.data(), counters * 8);
    auto got = bytes_on_disk(folder / "out");
    got.resize(wanted.size());
    EXPECT_TRUE(got == wanted);
}

}  // namespace penstock::test
