// Element views by the lanes of a GPU: resident, missing, with other lanes in other files, through
// windows and by request.
#include "device/support.cuh"
#include "penstock/view.hpp"

namespace penstock::test {

namespace {

constexpr std::uint32_t file_count = 3;
constexpr std::uint64_t file_bytes = 2 * 1024 * 1024 + 1003;

enum view_counter { wrong_elements, looked_at, view_counters };

template <typename T>
__device__ bool is_right(const T& got, std::uint64_t file, std::uint64_t at) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&got);
    bool right = true;
    for (std::uint64_t i = 0; i < sizeof(T); ++i)
        right = right && bytes[i] == pattern_byte(file, at + i);
    return right;
}

// Lanes choose their files and elements by themselves, and some lanes nothing at all.
template <typename T>
__global__ void look(const __grid_constant__ runtime_ref fs, const int* fds, std::uint32_t rounds,
                     std::uint64_t seed, bool in_order, unsigned long long* counters) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    unsigned long long wrong = 0, looked = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        const std::uint64_t random = mix64(seed + thread * rounds + round);
        if (random % 5 == 0) continue;
        const std::uint64_t file = in_order ? 0 : (random >> 8) % file_count;
        const view<T> v(fs, fds[file], 16);
        const std::uint64_t i =
            in_order ? (thread * rounds + round) % v.size() : (random >> 16) % v.size();
        const T got = v[i];
        wrong += !is_right(got, file, 16 + i * sizeof(T));
        ++looked;
    }
    atomicAdd(&counters[wrong_elements], wrong);
    atomicAdd(&counters[looked_at], looked);
}

template <typename T>
void look_at_all(std::uint64_t page_bytes, std::uint64_t frames, bool windows, bool in_order) {
    const temporary_folder folder;
    options o = gpu_options(folder);
    o.page_bytes = page_bytes;
    o.cache_bytes = page_bytes * frames;
    o.frame_wait_ms = 5000;
    for (std::uint32_t i = 0; i < file_count; ++i)
        write_file(folder / ("f" + std::to_string(i)), pattern(i, file_bytes));
    const auto rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    shared_array<int> fds(file_count);
    for (std::uint32_t i = 0; i < file_count; ++i)
        ASSERT_GE(fds[i] = rt->open(folder / ("f" + std::to_string(i))), 0);
    if (windows) {
        ASSERT_EQ(rt->open_windows(folder / "f*"),
                  static_cast<std::int64_t>(file_count * file_bytes));
    }
    const device_counters counters(view_counters);
    for (std::uint64_t seed = 1; seed <= 2; ++seed)
        look<T><<<48, 128>>>(rt->ref(), fds.get(), 50, seed, in_order, counters.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto count = counters.read();
    EXPECT_EQ(count[wrong_elements], 0u);
    EXPECT_GT(count[looked_at], 48u * 128 * 60);
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    const statistics s = rt->stats();
    EXPECT_GT(s.misses, 0u);
    EXPECT_EQ(s.window_loads, windows ? s.misses : 0u);
    rt->close_windows();
}

}  // namespace

TEST(device_view, random_elements_by_request) {
    PENSTOCK_NEEDS_GPU();
    look_at_all<double>(4096, 8192, false, false);
}
TEST(device_view, random_elements_through_windows) {
    PENSTOCK_NEEDS_GPU();
    look_at_all<std::uint32_t>(4096, 8192, true, false);
}
TEST(device_view, random_elements_with_a_tiny_cache) {
    PENSTOCK_NEEDS_GPU();
    look_at_all<std::uint64_t>(512, 1024, true, false);
}
TEST(device_view, elements_in_order) {
    PENSTOCK_NEEDS_GPU();
    look_at_all<std::uint8_t>(4096, 1024, false, true);
}
TEST(device_view, elements_of_16_bytes) {
    PENSTOCK_NEEDS_GPU();
    look_at_all<uint4>(65536, 512, true, false);
}
TEST(device_view, elements_of_2_bytes) {
    PENSTOCK_NEEDS_GPU();
    look_at_all<std::uint16_t>(65536, 512, false, false);
}

namespace {

// Every group takes a range of its own.
struct sum_up {
    int fd;
    std::uint64_t piece;
    unsigned long long* counters;  // sum of element * (index + 1), elements, pieces that came short

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const view<std::uint32_t> v(fs, fd, 4);
        unsigned long long sum = 0, seen = 0;
        const std::int64_t n =
            v.for_each(g, index * piece, piece, [&](std::uint64_t i, std::uint32_t element) {
                sum += element * (i + 1);
                ++seen;
            });
        const std::uint64_t first = index * piece, left = first < v.size() ? v.size() - first : 0;
        atomicAdd(&counters[0], sum);
        atomicAdd(&counters[1], seen);
        if (g.is_leader() && n != static_cast<std::int64_t>(left < piece ? left : piece))
            atomicAdd(&counters[2], 1ull);
    }
};

template <width Width>
void sum_all(std::uint64_t page_bytes, std::uint64_t frames) {
    const temporary_folder folder;
    const auto bytes = pattern(1, file_bytes);
    write_file(folder / "data", bytes);
    options o = gpu_options(folder);
    o.page_bytes = page_bytes;
    o.cache_bytes = page_bytes * frames;
    o.frame_wait_ms = 5000;
    const auto rt = make_runtime(o);
    const int fd = rt->open(folder / "data");
    constexpr std::uint64_t piece = 3333, elements = (file_bytes - 4) / 4;
    unsigned long long expected = 0;
    for (std::uint64_t i = 0; i < elements; ++i) {
        std::uint32_t element = 0;
        std::memcpy(&element, bytes.data() + 4 + 4 * i, 4);
        expected += element * (i + 1);
    }
    for (int round = 0; round < 2; ++round) {
        const device_counters counters(3);
        EXPECT_EQ(launch<Width>(*rt, (elements + piece - 1) / piece + 1,
                                sum_up{fd, piece, counters.get()}),
                  0);
        const auto count = counters.read();
        EXPECT_EQ(count[0], expected);
        EXPECT_EQ(count[1], elements);
        EXPECT_EQ(count[2], 0u);
    }
}

}  // namespace

TEST(device_view, for_each_by_warps) {
    PENSTOCK_NEEDS_GPU();
    sum_all<width::warp>(4096, 1024);
}
TEST(device_view, for_each_by_warps_with_a_small_cache) {
    PENSTOCK_NEEDS_GPU();
    sum_all<width::warp>(512, 2048);
}
TEST(device_view, for_each_by_blocks) {
    PENSTOCK_NEEDS_GPU();
    sum_all<width::block>(65536, 64);
}

namespace {

__global__ void look_outside(const __grid_constant__ runtime_ref fs, int fd,
                             unsigned long long* counters) {
    const view<std::uint32_t> v(fs, fd);
    if (threadIdx.x % 2 == 0) counters[0] += v[v.size() + threadIdx.x] != 0;
}

__global__ void look_at_the_end(const __grid_constant__ runtime_ref fs, int fd,
                                unsigned long long* counters) {
    const view<std::uint32_t> v(fs, fd);
    counters[0] += v[v.size() - 1 - threadIdx.x] != 0;
}

}  // namespace

// One warp that goes through a file by v[i].
__global__ void sum_in_order(const __grid_constant__ runtime_ref fs, int fd,
                             unsigned long long* counters) {
    const view<std::uint64_t> v(fs, fd);
    unsigned long long wrong = 0;
    for (std::uint64_t i = threadIdx.x; i < v.size(); i += 32) wrong += !is_right(v[i], 0, i * 8);
    atomicAdd(&counters[wrong_elements], wrong);
    atomicAdd(&counters[looked_at], 1);
}

TEST(device_view, elements_in_order_are_read_ahead) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    options o = gpu_options(folder);
    o.page_bytes = 4096;
    o.cache_bytes = 4096 * 1024;
    o.tier_bytes = 4096 * 1024;
    write_file(folder / "f0", pattern(0, file_bytes));
    const auto rt = make_runtime(o);
    ASSERT_NE(rt, nullptr);
    const int fd = rt->open(folder / "f0");
    ASSERT_GE(fd, 0);
    const device_counters counters(view_counters);
    sum_in_order<<<1, 32>>>(rt->ref(), fd, counters.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto count = counters.read();
    EXPECT_EQ(count[wrong_elements], 0u);
    EXPECT_EQ(count[looked_at], 32u);
    const statistics got = rt->stats();
    EXPECT_GT(got.read_ahead_pages, file_bytes / 4096 / 2)
        << "of " << file_bytes / 4096 << " pages";
    EXPECT_GT(got.tier_loads, file_bytes / 4096 / 2);
}

TEST(device_view, errors_are_zero_and_told) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 1 << 20));
    const auto rt = make_runtime(gpu_options(folder));
    const int fd = rt->open(folder / "data");
    const device_counters counters(1);
    look_outside<<<1, 32>>>(rt->ref(), fd, counters.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(counters.read()[0], 0u);
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    rt->clear_view_status();
    EXPECT_TRUE(rt->view_status().ok());
    std::filesystem::resize_file(folder / "data", 4096);
    look_at_the_end<<<1, 32>>>(rt->ref(), fd, counters.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(counters.read()[0], 0u) << "an element that could not be loaded is zero";
    EXPECT_EQ(rt->view_status().code, -ESTALE);
    EXPECT_NE(rt->view_status().message.find(folder / "data"), std::string::npos)
        << rt->view_status().message;
    EXPECT_TRUE(rt->health().ok());
}

}  // namespace penstock::test
