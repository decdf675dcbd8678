// Lanes of one warp that use files of two runtimes at once: their files have the same numbers, and
// each lane must read and change its own.
#include "device/support.cuh"
#include "penstock/write_view.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t words_of_each = 1 << 17;

struct both_runtimes {
    runtime_ref fs[2];
    int fd[2];
};

__device__ std::uint32_t pattern_word(std::uint64_t file, std::uint64_t i) {
    std::uint32_t word = 0;
    for (std::uint32_t k = 0; k < 4; ++k)
        word |= std::uint32_t{pattern_byte(file, i * 4 + k)} << (8 * k);
    return word;
}

__global__ void look_in_both(const __grid_constant__ both_runtimes both,
                             unsigned long long* wrong) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const std::uint32_t side = threadIdx.x % 2;
    const view<std::uint32_t> v(both.fs[side], both.fd[side]);
    for (std::uint64_t k = 0; k < 16; ++k) {
        const std::uint64_t i = mix64(thread * 16 + k) % words_of_each;
        if (v[i] != pattern_word(side + 1, i)) atomicAdd(wrong, 1ull);
    }
}

__global__ void put_in_both(const __grid_constant__ both_runtimes both) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const std::uint32_t side = threadIdx.x % 2;
    const writable_view<std::uint32_t> v(both.fs[side], both.fd[side], words_of_each);
    v.put(thread / 2, pattern_word(side + 3, thread / 2));
}

class device_two_runtimes : public testing::Test {
protected:
    void start(bool writable) {
        for (std::uint32_t side = 0; side < 2; ++side) {
            write_file(path(side), pattern(side + 1, words_of_each * 4));
            options o = gpu_options(folder);
            o.page_bytes = 4096;
            o.cache_bytes = 4096 * 256;
            o.frame_wait_ms = 20000;
            o.writable = writable;
            rt[side] = make_runtime(o);
            ASSERT_NE(rt[side], nullptr);
            const int fd = rt[side]->open(path(side), writable ? open_read_write : open_read);
            ASSERT_GE(fd, 0);
            both.fs[side] = rt[side]->ref();
            both.fd[side] = fd;
        }
    }
    // How many bytes of a file are other than those of a pattern.
    std::uint64_t wrong_bytes(std::uint32_t side, std::uint64_t number) {
        const auto expected = pattern(number, words_of_each * 4);
        std::vector<std::uint8_t> have(expected.size());
        EXPECT_EQ(rt[side]->read(both.fd[side], have.data(), have.size(), 0),
                  static_cast<std::int64_t>(have.size()));
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < have.size(); ++i) wrong += have[i] != expected[i] ? 1 : 0;
        return wrong;
    }
    std::string path(std::uint32_t side) const { return folder / ("f" + std::to_string(side)); }

    const temporary_folder folder;
    std::unique_ptr<runtime> rt[2];
    both_runtimes both{};
};

}  // namespace

TEST_F(device_two_runtimes, lanes_read_elements_each_of_its_own) {
    PENSTOCK_NEEDS_GPU();
    start(false);
    const device_counters wrong(1);
    look_in_both<<<64, 128>>>(both, wrong.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(wrong.read()[0], 0u);
    // And neither cache has bytes of the other for later readers.
    for (std::uint32_t side = 0; side < 2; ++side) EXPECT_EQ(wrong_bytes(side, side + 1), 0u);
}

TEST_F(device_two_runtimes, lanes_change_elements_each_of_its_own) {
    PENSTOCK_NEEDS_GPU();
    start(true);
    put_in_both<<<words_of_each / 128, 256>>>(both);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (std::uint32_t side = 0; side < 2; ++side) EXPECT_EQ(wrong_bytes(side, side + 3), 0u);
}

}  // namespace penstock::test
