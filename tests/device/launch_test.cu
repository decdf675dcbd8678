// Launches as such: shapes that no device can run, and one functor in files of two compilers.
#include <thread>

#include "device/gpu_context.cuh"
#include "device/launch_test.hpp"
#include "device/support.cuh"

namespace penstock::test {

namespace {

static_assert(!detail::has_groups<width::lane>({.threads_per_block = 0}));
static_assert(!detail::has_groups<width::block>({.threads_per_block = 0}));
static_assert(!detail::has_groups<width::tile8>({.threads_per_block = 7}));
static_assert(!detail::has_groups<width::warp>({.threads_per_block = 31}));
static_assert(detail::has_groups<width::warp>({.threads_per_block = 33}));
static_assert(detail::has_groups<width::block>({.threads_per_block = 1}));

// Counts one number in 1024.
struct count_some {
    std::uint64_t* counted;
    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t number) const {
        if (number % 1024 == 0 && g.is_leader()) atomic_add_relaxed(counted, std::uint64_t{1});
    }
};

class device_launch : public testing::Test {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt;

    void SetUp() override {
        PENSTOCK_NEEDS_GPU();
        rt = make_runtime(gpu_options(folder));
        ASSERT_NE(rt, nullptr);
    }
};

}  // namespace

TEST_F(device_launch, refuses_blocks_without_a_group_and_blocks_that_are_too_large) {
    const shared_array<std::uint64_t> groups(1);
    const count_groups_of_both work{groups.get()};
    EXPECT_EQ(launch<width::warp>(*rt, 8, work, {.threads_per_block = 31}), -EINVAL);
    EXPECT_EQ(launch<width::tile8>(*rt, 8, work, {.threads_per_block = 4}), -EINVAL);
    EXPECT_EQ(launch<width::lane>(*rt, 8, work, {.threads_per_block = 0}), -EINVAL);
    EXPECT_EQ(launch<width::block>(*rt, 8, work, {.threads_per_block = 0}), -EINVAL);
    EXPECT_EQ(launch<width::warp>(*rt, 8, work, {.threads_per_block = 4096}), -EINVAL);
    EXPECT_EQ(launch_on<width::warp>(*rt, 0, 8, work, {.threads_per_block = 1}), -EINVAL);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the program's own error state";
    EXPECT_EQ(groups[0], 0u);
    EXPECT_EQ(launch<width::warp>(*rt, 8, work, {.threads_per_block = 33}), 0);
    EXPECT_EQ(groups[0], 8u);
    EXPECT_TRUE(rt->health().ok());
}

TEST_F(device_launch, leaves_an_error_of_the_program_where_it_is) {
    const shared_array<std::uint64_t> groups(1);
    const count_groups_of_both work{groups.get()};
    ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
    EXPECT_EQ(launch<width::warp>(*rt, 8, work, {.threads_per_block = 31}), -EINVAL);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(launch<width::warp>(*rt, 8, work), 0);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(groups[0], 8u);
}

TEST_F(device_launch, leaves_a_thread_without_a_context_as_it_is) {
    const shared_array<std::uint64_t> groups(1);
    const count_groups_of_both work{groups.get()};
    std::thread([&] {
        CUcontext before = nullptr, after = nullptr;
        ASSERT_EQ(host::driver().current_context(&before), CUDA_SUCCESS);
        EXPECT_EQ(before, nullptr);
        EXPECT_EQ(launch<width::warp>(*rt, 8, work), 0);
        ASSERT_EQ(host::driver().current_context(&after), CUDA_SUCCESS);
        EXPECT_EQ(after, nullptr);
    }).join();
    EXPECT_EQ(groups[0], 8u);
}

// 2^24 blocks of 256 groups would be 2^32 groups that draw: one more than their count holds.
TEST_F(device_launch, of_more_blocks_than_it_counts_groups_of_runs_every_number) {
    const shared_array<std::uint64_t> counted(1);
    const count_some work{counted.get()};
    const launch_shape shape{.threads_per_block = 1024, .blocks = UINT32_MAX};
    const std::uint64_t groups = (std::uint64_t{1} << 32) + 4096;
    EXPECT_EQ(launch<width::tile4>(*rt, groups, work, shape), 0);
    EXPECT_EQ(counted[0], groups / 1024);
    EXPECT_EQ(launch<width::tile4>(*rt, 4096, work), 0) << "the count is as it was before";
    EXPECT_EQ(counted[0], groups / 1024 + 4);
}

// A linker keeps one of two functions of one name: the other file would get its body.
TEST_F(device_launch, of_one_functor_by_two_compilers_has_a_body_each) {
    const shared_array<std::uint64_t> groups(1);
    EXPECT_EQ(launch_from_plain_file(*rt, 8, {groups.get()}), -EOPNOTSUPP);
    EXPECT_EQ(launch(*rt, 8, count_groups_of_both{groups.get()}), 0);
    EXPECT_EQ(groups[0], 8u);
}

}  // namespace penstock::test
