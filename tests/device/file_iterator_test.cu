// Iterators over the elements of a file in CUB, Thrust and a kernel of the test's own.
#include <cub/device/device_reduce.cuh>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/transform.h>

#include "device/support.cuh"

namespace penstock::test {

namespace {

constexpr std::uint64_t iterated_bytes = 5 * 1024 * 1024 + 1003;

struct wide_element {
    uint4 parts[4];
};

struct words_of {
    __host__ __device__ std::uint64_t operator()(uint4 v) const {
        return std::uint64_t{v.x} + v.y + v.z + v.w;
    }
    __host__ __device__ std::uint64_t operator()(const wide_element& v) const {
        std::uint64_t sum = 0;
        for (const uint4& part : v.parts) sum += (*this)(part);
        return sum;
    }
    __host__ __device__ std::uint64_t operator()(std::uint32_t v) const { return v; }
};
struct add_words {
    __host__ __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
        return a + b;
    }
};
struct negated_word {
    __host__ __device__ std::uint64_t operator()(std::uint64_t v) const { return ~v; }
};

// The sum of the 32-bit words of the first `bytes` bytes.
std::uint64_t sum_of_words(const std::vector<std::uint8_t>& bytes, std::uint64_t first,
                           std::uint64_t count) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = first; i < first + count; i += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, bytes.data() + i, 4);
        sum += word;
    }
    return sum;
}

class device_iterators : public testing::Test {
protected:
    void SetUp() override {
        PENSTOCK_NEEDS_GPU();
        bytes = pattern(7, iterated_bytes);
        write_file(folder / "data", bytes);
        start(4096, 512);
    }
    // A cache of so many frames, which the file does not fit into.
    void start(std::uint64_t page_bytes, std::uint64_t frames, std::uint64_t table_bytes = 0) {
        options o = gpu_options(folder);
        o.page_bytes = page_bytes;
        o.cache_bytes = page_bytes * frames;
        o.frame_wait_ms = 5000;
        if (table_bytes != 0) o.table_bytes = table_bytes;
        rt = make_runtime(o);
        ASSERT_NE(rt, nullptr);
        fd = rt->open(folder / "data");
        ASSERT_GE(fd, 0);
    }
    template <typename T>
    [[nodiscard]] file_range<T> range(std::uint64_t offset = 0) const {
        file_range<T> out;
        const status s = file_range<T>::make(*rt, fd, {.offset_bytes = offset}, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    template <typename T>
    void expect_sum(std::uint64_t offset) {
        const file_range<T> elements = range<T>(offset);
        ASSERT_EQ(elements.size(), (iterated_bytes - offset) / sizeof(T));
        thrust::device_vector<std::uint64_t> sum(1);
        std::size_t memory_bytes = 0;
        const auto reduce = [&](void* memory) {
            return cub::DeviceReduce::TransformReduce(memory, memory_bytes, elements.begin(),
                                                      thrust::raw_pointer_cast(sum.data()),
                                                      static_cast<std::int64_t>(elements.size()),
                                                      add_words{}, words_of{}, std::uint64_t{0});
        };
        ASSERT_EQ(reduce(nullptr), cudaSuccess);
        thrust::device_vector<std::uint8_t> memory(memory_bytes);
        ASSERT_EQ(reduce(thrust::raw_pointer_cast(memory.data())), cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        EXPECT_EQ(sum[0], sum_of_words(bytes, offset, elements.size() * sizeof(T)));
        EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    }
    void expect_all_sums() {
        expect_sum<std::uint32_t>(4);
        expect_sum<uint4>(16);
        expect_sum<wide_element>(64);
    }

    const temporary_folder folder;
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    int fd = -1;
};

}  // namespace

TEST_F(device_iterators, are_summed_by_cub_by_request) {
    expect_all_sums();
    EXPECT_GT(rt->stats().evictions, 1000u) << "the file is larger than the cache";
    EXPECT_EQ(rt->stats().window_loads, 0u);
}
TEST_F(device_iterators, are_summed_by_cub_through_windows) {
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(iterated_bytes));
    expect_all_sums();
    rt->close_windows();
}
TEST_F(device_iterators, are_summed_by_cub_in_the_cache) {
    start(65536, 96);
    ASSERT_EQ(rt->prefetch(fd, 0, iterated_bytes), static_cast<std::int64_t>(iterated_bytes));
    const std::uint64_t misses = rt->stats().misses;
    expect_all_sums();
    EXPECT_EQ(rt->stats().misses, misses);
}
TEST_F(device_iterators, go_through_a_table_of_leaves) {
    start(512, 4096, 128 << 10);
    expect_all_sums();
}

TEST_F(device_iterators, serve_thrust) {
    const file_range<std::uint64_t> elements = range<std::uint64_t>(8);
    const std::uint64_t count = elements.size();
    std::vector<std::uint64_t> expected(count);
    std::memcpy(expected.data(), bytes.data() + 8, count * 8);
    std::uint64_t sum = 0;
    for (const std::uint64_t v : expected) sum += v;
    EXPECT_EQ(thrust::reduce(thrust::device, elements.begin(), elements.end(), std::uint64_t{0}),
              sum);
    thrust::device_vector<std::uint64_t> out(count);
    thrust::copy(thrust::device, elements.begin(), elements.end(), out.begin());
    std::vector<std::uint64_t> got(count);
    thrust::copy(out.begin(), out.end(), got.begin());
    EXPECT_EQ(got, expected);
    EXPECT_TRUE(thrust::equal(thrust::device, elements.begin(), elements.end(), out.begin()));
    thrust::transform(thrust::device, elements.begin(), elements.end(), out.begin(),
                      negated_word{});
    thrust::copy(out.begin(), out.end(), got.begin());
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(got[i], ~expected[i]) << i;
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
}

TEST_F(device_iterators, are_searched_by_thrust) {
    std::vector<std::uint32_t> sorted(1 << 20);
    for (std::uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = 3 * i + 1;
    std::vector<std::uint8_t> raw(sorted.size() * 4);
    std::memcpy(raw.data(), sorted.data(), raw.size());
    write_file(folder / "sorted", raw);
    fd = rt->open(folder / "sorted");
    const file_range<std::uint32_t> elements = range<std::uint32_t>();
    std::vector<std::uint32_t> wanted(5000);
    for (std::uint32_t i = 0; i < wanted.size(); ++i)
        wanted[i] = static_cast<std::uint32_t>(mix64(i) % (3 * sorted.size() + 10));
    const thrust::device_vector<std::uint32_t> values(wanted.begin(), wanted.end());
    thrust::device_vector<std::int64_t> places(wanted.size());
    thrust::lower_bound(thrust::device, elements.begin(), elements.end(), values.begin(),
                        values.end(), places.begin());
    std::vector<std::int64_t> got(wanted.size());
    thrust::copy(places.begin(), places.end(), got.begin());
    for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_EQ(got[i],
                  std::lower_bound(sorted.begin(), sorted.end(), wanted[i]) - sorted.begin())
            << wanted[i];
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
}

namespace {

// A range made in the kernel; each lane takes elements at random, some lanes none.
__global__ void look_by_range(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t seed,
                              unsigned long long* counters) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const file_range<wide_element> elements(fs, fd, 64);
    unsigned long long wrong = 0, looked = 0;
    for (std::uint32_t round = 0; round < 20; ++round) {
        const std::uint64_t random = mix64(seed + thread * 20 + round);
        if (random % 5 == 0) continue;
        const std::uint64_t i = (random >> 8) % elements.size();
        const wide_element got = *(elements.begin() + static_cast<std::ptrdiff_t>(i));
        const auto* const seen = reinterpret_cast<const std::uint8_t*>(&got);
        bool right = true;
        for (std::uint64_t b = 0; b < sizeof(wide_element); ++b)
            right = right && seen[b] == pattern_byte(7, 64 + i * sizeof(wide_element) + b);
        wrong += right ? 0 : 1;
        ++looked;
    }
    atomicAdd(&counters[0], wrong);
    atomicAdd(&counters[1], looked);
}

__global__ void look_by_iterator(file_iterator<std::uint32_t> at, unsigned long long* counters) {
    if (at[threadIdx.x] != 0) atomicAdd(&counters[0], 1ull);
}

}  // namespace

// Wide elements of pages that leave the cache all the while: none may have a byte of another page.
TEST_F(device_iterators, are_whole_while_pages_leave) {
    for (const bool windows : {false, true}) {
        start(4096, 1024);
        if (windows) ASSERT_GT(rt->open_windows(fd), 0);
        const device_counters counters(2);
        look_by_range<<<96, 128>>>(rt->ref(), fd, windows ? 1 : 2, counters.get());
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        const auto count = counters.read();
        EXPECT_EQ(count[0], 0u);
        EXPECT_GT(count[1], 96u * 128 * 12);
        EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
        rt->close_windows();
    }
}

TEST_F(device_iterators, note_the_first_element_that_cannot_be_had) {
    const file_range<std::uint32_t> elements = range<std::uint32_t>();
    const device_counters counters(1);
    look_by_iterator<<<1, 32>>>(elements.end(), counters.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    rt->clear_view_status();
    std::filesystem::resize_file(folder / "data", 4096);
    look_by_iterator<<<1, 32>>>(elements.end() - 32, counters.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(counters.read()[0], 0u) << "an element that could not be loaded is zero";
    EXPECT_EQ(rt->view_status().code, -ESTALE);
    EXPECT_TRUE(rt->health().ok());
}

// The file was changed by another program: what is opened afterwards has the new bytes.
TEST_F(device_iterators, have_the_new_bytes_of_a_file_that_was_opened_again) {
    expect_sum<uint4>(0);
    ASSERT_EQ(rt->close(fd), 0);
    let_files_settle();
    bytes = pattern(8, iterated_bytes);
    write_file(folder / "data", bytes);
    let_files_settle();
    fd = rt->open(folder / "data");
    ASSERT_GE(fd, 0);
    expect_sum<uint4>(0);
}

}  // namespace penstock::test
