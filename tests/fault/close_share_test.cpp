// Closes that write back their share, on a disk that fails or does not answer: which close tells,
// and that nothing is missing once the cause is gone.
#include "fault/write_scenario.hpp"

namespace penstock::fault {

namespace {

class failing_share : public testing::Test {
protected:
    static constexpr std::uint64_t pages = 48;
    temporary_folder folder;
    faulty_environment disk;
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";
    const std::vector<std::uint8_t> bytes = test::pattern(9, pages* page);
    std::vector<int> fds;

    void SetUp() override {
        host::runtime_hooks hooks;
        hooks.env = &disk;
        options o = test::small_options(folder);
        o.writable = true;
        o.write_behind_bytes = o.cache_bytes;
        rt = test::make_runtime(o, hooks);
        for (int i = 0; i < 4; ++i) {
            fds.push_back(rt->open(path, open_read_write | open_create));
            ASSERT_GE(fds.back(), 0);
        }
        ASSERT_EQ(rt->write(fds[0], bytes.data(), static_cast<std::int64_t>(bytes.size()), 0),
                  static_cast<std::int64_t>(bytes.size()));
    }
    void fail(int error) {
        fault_plan plan;
        plan.calls = call_write;
        plan.nth = 1;
        plan.for_ever = true;
        plan.error = error;
        disk.set(plan);
    }
    [[nodiscard]] std::uint64_t dirty_pages() const {
        const engine::cache_view& c = rt->ref().view;
        return engine::dirty_pages_of(c, engine::descriptor_slot(c, fds[0]));
    }
};

}  // namespace

TEST_F(failing_share, the_close_that_meets_the_error_tells_it) {
    fail(-ENOSPC);
    EXPECT_EQ(rt->close(fds[0]), -ENOSPC);
    EXPECT_EQ(rt->close(fds[0]), -EBADF) << "it is closed all the same";
    EXPECT_EQ(dirty_pages(), pages) << "what could not be written stays dirty";
    EXPECT_EQ(rt->close(fds[1]), -ENOSPC) << "it met the error again";
    disk.clear();
    EXPECT_EQ(rt->close(fds[2]), 0);
    EXPECT_LT(dirty_pages(), pages);
    EXPECT_EQ(rt->close(fds[3]), 0);
    EXPECT_EQ(test::bytes_on_disk(path), bytes);
}

TEST_F(failing_share, the_last_close_tells_what_it_meets_itself) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(rt->close(fds[static_cast<std::size_t>(i)]), 0);
    ASSERT_EQ(rt->write(fds[3], bytes.data(), page, 0), static_cast<std::int64_t>(page));
    fail(-EIO);
    EXPECT_EQ(rt->close(fds[3]), -EIO);
    disk.clear();
    const int again = rt->open(path, open_read_write);
    EXPECT_EQ(rt->close(again), 0);
    EXPECT_EQ(test::bytes_on_disk(path), bytes);
}

// With an error that no caller was told of, a close does not try the disk once more: it tells.
TEST_F(failing_share, an_error_of_before_is_told_without_another_try) {
    fail(-ENOSPC);
    EXPECT_EQ(rt->msync(fds[0], 0, static_cast<std::int64_t>(page)), -ENOSPC);
    const std::uint64_t tried = rt->stats().write_backs;
    EXPECT_EQ(rt->close(fds[0]), -ENOSPC);
    EXPECT_EQ(rt->stats().write_backs, tried);
    disk.clear();
    for (std::size_t i = 1; i < fds.size(); ++i) EXPECT_EQ(rt->close(fds[i]), 0);
    EXPECT_EQ(test::bytes_on_disk(path), bytes);
}

// A runtime that ends while shares were refused writes the rest back.
TEST_F(failing_share, the_runtime_s_end_writes_the_rest) {
    fail(-EIO);
    EXPECT_EQ(rt->close(fds[0]), -EIO);
    disk.clear();
    rt.reset();
    EXPECT_EQ(test::bytes_on_disk(path), bytes);
}

}  // namespace penstock::fault
