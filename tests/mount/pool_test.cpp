// A mount of this process that reads files through a pool which the program uses too.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "hub/hub.hpp"
#include "mount/mounted_backend.hpp"

namespace penstock::test::mount_pool {

namespace {

using bytes = std::vector<std::uint8_t>;
constexpr region_options by_page{.outside_writers = false};
constexpr std::uint64_t page = 1 << 14, file_bytes = 64 * page;  // twice the pool

class pooled_mount : public mounted_backend {
protected:
    void make_files() {
        write_file(source(), pattern(1, file_bytes));
        write_file(folder_ / "source/own", pattern(2, 16 * page));
    }
    [[nodiscard]] std::unique_ptr<file_region> map_source() {
        return map_whole(*runtime_, source(), protection::read_write, by_page);
    }
    void set_word(file_region& r, std::uint64_t at, std::uint64_t value) {
        bytes out(8);
        std::memcpy(out.data(), &value, 8);
        poke(r, where(), at, out);
        EXPECT_EQ(r.release(), 1);
    }
};

}  // namespace

TEST_P(pooled_mount, serves_programs_beside_sessions_of_its_own) {
    make_files();
    std::uint32_t own = 0;
    ASSERT_TRUE(
        pool_->open_file(folder_ / "source/own", buffer::file_access::read_write, own).ok());
    const auto session = pool_->open_session();
    ASSERT_NE(session, nullptr);
    bytes there(16 * page);
    std::thread beside([&] {
        for (int round = 0; round < 50; ++round) {
            EXPECT_EQ(
                session->read(own, 0, reinterpret_cast<std::byte*>(there.data()), there.size()),
                static_cast<std::int64_t>(there.size()));
            EXPECT_EQ(there, pattern(2, 16 * page));
        }
    });
    for (int round = 0; round < 8; ++round)
        EXPECT_EQ(read_file(seen_as()), pattern(1, file_bytes)) << round;
    beside.join();
    EXPECT_GT(pool_->counts().misses + pool_->counts().prefetched, file_bytes / page);
    EXPECT_EQ(mount_->report().reads_outside, 0u);
    EXPECT_FALSE(mount_->report().passes_through);
}

TEST_P(pooled_mount, outlives_its_pool) {
    make_files();
    EXPECT_EQ(read_file(seen_as()), pattern(1, file_bytes));
    pool_.reset();
    EXPECT_EQ(read_file(seen_as()), pattern(1, file_bytes));
    EXPECT_EQ(mount_->report().reads_outside, 0u);
}

TEST_P(pooled_mount, gives_its_numbers_and_sessions_back) {
    make_files();
    for (const std::string name : {"a", "b", "c", "d", "e", "g"}) {
        write_file(folder_ / "source/" + name, pattern(3, 2 * page));
        EXPECT_EQ(read_file(folder_ / "point/" + name), pattern(3, 2 * page));
    }
    EXPECT_GT(pool_->counts().pages, 0u);
    EXPECT_EQ(mount_->unmount(), 0);
    mount_.reset();
    EXPECT_EQ(pool_->counts().pages, 0u) << "its files have left the pool";
    std::vector<std::unique_ptr<buffer::session>> all;
    for (int i = 0; i < 4; ++i) EXPECT_NE(all.emplace_back(pool_->open_session()), nullptr) << i;
    for (const std::string name : {"a", "b", "c", "d", "e", "g", "f", "own"}) {
        std::uint32_t number = 0;
        EXPECT_TRUE(
            pool_->open_file(folder_ / "source/" + name, buffer::file_access::read, number).ok())
            << name;
    }
}

// The buffer has read it ahead; no program has seen it.
TEST_P(pooled_mount, forgets_a_page_that_no_program_asked_for_when_a_region_releases_it) {
    make_files();
    const auto r = map_source();
    ASSERT_GE(one_.open(seen_as(), O_RDONLY), 0);
    for (std::uint64_t round = 1; round < 20; ++round) {
        const std::uint64_t at = page + round % 4 * 4096 + 64, before = pool_->counts().prefetched;
        set_word(*r, at, 2 * round);
        EXPECT_EQ(one_.read(0).code, 8);
        EXPECT_EQ(one_.read(8).code, 8);  // in order
        // It reads ahead when it has answered; without that the test would be of no use.
        for (int tries = 0; pool_->counts().prefetched == before && tries < 1000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        set_word(*r, at, 2 * round + 1);
        EXPECT_EQ(one_.read(at).value, 2 * round + 1);
    }
    EXPECT_GT(pool_->counts().prefetched, 0u);
    EXPECT_EQ(one_.close_file(), 0);
}

// The canary: a buffer that is told nothing gives programs what was before.
TEST_P(pooled_mount, that_is_told_nothing_is_found_out) {
    make_files();
    const auto r = map_source();
    ASSERT_GE(one_.open(seen_as(), O_RDONLY), 0);
    const std::uint64_t before = one_.read(4096).value;
    host::hub& shared = host::hub::of_process();
    for (const auto& views : shared.views()) shared.remove_views(*views);
    set_word(*r, 4096, before + 1);
    EXPECT_EQ(one_.read(4096).value, before);
    EXPECT_EQ(one_.close_file(), 0);
}

TEST_P(pooled_mount, refuses_pools_that_it_cannot_use) {
    std::filesystem::create_directory(folder_ / "empty");
    std::unique_ptr<buffer_pool> pool;
    const buffer_options small{.policy = buffer::policy_kind::native,
                               .where = backend::cpu,
                               .host_bytes = 1 << 20,
                               .page_bytes = 512,
                               .sessions = 2};
    ASSERT_TRUE(buffer_pool::make(small, pool).ok());
    std::unique_ptr<file_mount> out;
    status s = mount_directory(*runtime_, folder_ / "source", folder_ / "empty",
                               {.buffer = pool.get()}, out);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("512"), std::string::npos) << s.message;
    EXPECT_NE(s.message.find("buffer_options::page_bytes"), std::string::npos) << s.message;
    std::vector<std::unique_ptr<buffer::session>> all;
    while (all.emplace_back(pool_->open_session()) != nullptr) {
    }
    s = mount_directory(*runtime_, folder_ / "source", folder_ / "empty", {.buffer = pool_.get()},
                        out);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("buffer_options::sessions"), std::string::npos) << s.message;
    EXPECT_EQ(out, nullptr);
}

INSTANTIATE_TEST_SUITE_P(on, pooled_mount,
                         testing::Values(mounted_as(backend::cpu, true),
                                         mounted_as(backend::gpu, true)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test::mount_pool
