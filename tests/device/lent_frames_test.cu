// Kernels that miss pages which a buffer has in frames of the host and of the same GPU: the bytes
// are right, they come from there, and no kernel that fills the GPU waits for good.
#include <atomic>
#include <thread>

#include "buffer/pool/manager.hpp"
#include "device/support.cuh"

namespace penstock::test::lent_frames {

namespace {

constexpr std::uint64_t page = 4096, pages = 32768, size = pages * page;

enum counter { wrong_bytes, bad_results, calls, counters };

struct read_pages {
    const char* name;
    std::byte* scratch;  // a page for each warp
    unsigned long long* counts;
    std::uint64_t seed, rounds;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, name);
        std::byte* const to = scratch + index * page;
        for (std::uint64_t round = 0; round < rounds; ++round) {
            const std::uint64_t at =
                (rounds == 1 ? index : mix64(seed + index * rounds + round)) % pages * page;
            if (read(g, fs, fd, to, page, static_cast<std::int64_t>(at)) !=
                    static_cast<std::int64_t>(page) &&
                g.is_leader())
                atomicAdd(&counts[bad_results], 1ull);
            unsigned long long wrong = 0;
            for (std::uint64_t i = g.rank(); i < page; i += g.size())
                wrong += static_cast<std::uint8_t>(to[i]) != pattern_byte(3, at + i) ? 1 : 0;
            if (wrong != 0) atomicAdd(&counts[wrong_bytes], wrong);
            g.sync();
        }
        if (close(g, fs, fd) != 0 && g.is_leader()) atomicAdd(&counts[bad_results], 1ull);
        if (g.is_leader()) atomicAdd(&counts[calls], 1ull);
    }
};

class lent_frames : public testing::Test {
protected:
    void make(std::uint64_t cache_pages, std::uint64_t host_pages, buffer::policy_kind policy) {
        write_file(folder_ / "f", pattern(3, size));
        let_files_settle();
        options o = gpu_options(folder_);
        o.page_bytes = page;
        o.cache_bytes = cache_pages * page;
        o.window_bytes = 0;
        o.frame_wait_ms = 20000;
        o.host_wait_ms = 20000;
        runtime_ = make_runtime(o);
        ASSERT_NE(runtime_, nullptr);
        buffer::manager_settings tuning;
        tuning.stands_back = false;
        const status s = buffer::make_pool({.policy = policy,
                                            .where = backend::gpu,
                                            .host_bytes = host_pages * page,
                                            .device_bytes = 2 * size,
                                            .page_bytes = page,
                                            .sessions = 4,
                                            .fixed_pages = 1},
                                           tuning, pool_);
        ASSERT_TRUE(s.ok()) << s.message;
        ASSERT_TRUE(pool_->open_file(folder_ / "f", buffer::file_access::read, number_).ok());
        session_ = pool_->open_session();
        ASSERT_NE(session_, nullptr);
    }
    void read_in_session() {
        std::vector<std::uint8_t> there(size);
        ASSERT_EQ(session_->read(number_, 0, reinterpret_cast<std::byte*>(there.data()), size),
                  static_cast<std::int64_t>(size));
        EXPECT_TRUE(there == pattern(3, size));
    }
    void run_kernel(std::uint64_t groups, std::uint64_t rounds) {
        const device_text name("f");
        const device_counters counts(counters);
        std::byte* scratch = nullptr;
        ASSERT_EQ(cudaMalloc(&scratch, groups * page), cudaSuccess);
        EXPECT_EQ(launch<width::warp>(
                      *runtime_, groups,
                      read_pages{name.get(), scratch, counts.get(), groups + rounds, rounds}),
                  0);
        const auto seen = counts.read();
        EXPECT_EQ(seen[wrong_bytes], 0u);
        EXPECT_EQ(seen[bad_results], 0u);
        EXPECT_EQ(seen[calls], groups);
        EXPECT_TRUE(runtime_->health().ok());
        cudaFree(scratch);
    }
    void say(const char* about) {
        const statistics seen = runtime_->stats();
        std::printf("%s: %llu misses from host frames, %llu from device frames, %llu file reads\n",
                    about, static_cast<unsigned long long>(seen.buffer_loads),
                    static_cast<unsigned long long>(seen.buffer_device_loads),
                    static_cast<unsigned long long>(seen.file_reads));
    }

    const temporary_folder folder_;
    std::unique_ptr<runtime> runtime_;
    std::unique_ptr<buffer_pool> pool_;
    std::uint32_t number_ = 0;
    std::unique_ptr<buffer::session> session_;
};

}  // namespace

TEST_F(lent_frames, of_the_host_answer_every_miss) {
    PENSTOCK_NEEDS_GPU();
    make(2 * pages, 2 * pages, buffer::policy_kind::native);
    read_in_session();
    run_kernel(pages, 1);
    EXPECT_EQ(runtime_->stats().buffer_loads, pages);
    EXPECT_EQ(runtime_->stats().file_reads, 0u);
}

TEST_F(lent_frames, of_the_device_answer_most_misses) {
    PENSTOCK_NEEDS_GPU();
    make(2 * pages, 64, buffer::policy_kind::gram);
    for (int round = 0; round < 2; ++round) read_in_session();
    ASSERT_GT(pool_->counts().device_pages, pages / 2);
    run_kernel(pages, 1);
    say("of the device");
    EXPECT_GT(runtime_->stats().buffer_device_loads, 0u);
    read_in_session();
}

TEST_F(lent_frames, with_equal_blocks_answer_misses) {
    PENSTOCK_NEEDS_GPU();
    make(2 * pages, 2 * pages, buffer::policy_kind::dedu);
    read_in_session();
    run_kernel(pages, 1);
    say("dedu");
    EXPECT_GT(runtime_->stats().buffer_loads, 0u);
}

// As many groups as are resident, with a small cache, so that they miss all the time and the GPU is
// full; sessions move pages between host and device meanwhile, by kernels that have to wait.
TEST_F(lent_frames, are_read_by_kernels_that_fill_the_device_while_pages_move) {
    PENSTOCK_NEEDS_GPU();
    make(12288, 256, buffer::policy_kind::gram);
    read_in_session();
    std::atomic<bool> is_over{false};
    std::uint64_t reads = 0;
    std::thread user([&] {
        std::byte room[page];
        for (; !is_over; ++reads) {
            const std::uint64_t at = mix64(reads) % pages;
            EXPECT_EQ(session_->read(number_, at * page, room, page),
                      static_cast<std::int64_t>(page));
        }
    });
    run_kernel(16384, 8);
    is_over = true;
    user.join();
    say("on a full device");
    EXPECT_GT(reads, 0u);
}

// The pool ends while kernels read.
TEST_F(lent_frames, go_while_kernels_read) {
    PENSTOCK_NEEDS_GPU();
    make(4096, 256, buffer::policy_kind::gram);
    read_in_session();
    std::thread ender([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        session_.reset();
        pool_.reset();
    });
    run_kernel(1000, 64);
    ender.join();
    say("with an end");
}

}  // namespace penstock::test::lent_frames
