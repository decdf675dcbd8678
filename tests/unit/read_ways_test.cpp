// Which way a read of a file goes: at once from the page cache, or through the queue.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "fault/faulty_environment.hpp"
#include "host/shared_handle.hpp"
#include "unit/support.hpp"

namespace penstock::host {

using penstock::test::make_runtime;
using penstock::test::pattern;
using penstock::test::small_options;
using penstock::test::temporary_folder;

namespace {

class engine_stub final : public io_engine {
public:
    explicit engine_stub(bool at_once) : at_once_(at_once) {}
    [[nodiscard]] const char* name() const override { return "stub"; }
    [[nodiscard]] std::uint32_t capacity() const override { return 1; }
    void start(const read_operation&) override {}
    void submit() override {}
    void reap(std::vector<read_result>&, std::uint64_t) override {}
    [[nodiscard]] bool reads_at_once() const override { return at_once_; }

private:
    bool at_once_;
};

class ways : public testing::Test {
protected:
    static constexpr int some_fd = 12345;  // never read from
    fault::faulty_environment env;
    engine_stub engine{true};
    shared_handle file{env, some_fd};

    read_operation operation;
    read_way next() {
        operation = {-1, nullptr, 4096, 0, 7};
        const read_way way = file.choose(operation, engine);
        EXPECT_EQ(operation.fd, some_fd);
        EXPECT_EQ(operation.at_once, way == read_way::at_once);
        return way;
    }
};

void drop_from_page_cache(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::fsync(fd), 0);
    EXPECT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    ::close(fd);
}

}  // namespace

TEST_F(ways, what_is_in_memory_is_read_at_once) {
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(next(), read_way::at_once);
        EXPECT_FALSE(file.must_go_another_way(read_way::at_once, 4096));
    }
}

TEST_F(ways, an_engine_that_cannot_is_not_asked_to) {
    engine_stub other(false);
    read_operation one{-1, nullptr, 4096, 0, 7};
    EXPECT_EQ(file.choose(one, other), read_way::queued);
    EXPECT_FALSE(one.at_once);
}

TEST_F(ways, a_page_that_is_not_in_memory_goes_through_the_queue) {
    EXPECT_EQ(next(), read_way::at_once);
    EXPECT_TRUE(file.must_go_another_way(read_way::at_once, -EAGAIN));
    EXPECT_EQ(file.choose_other(operation), read_way::queued);
    EXPECT_FALSE(operation.at_once);
    EXPECT_FALSE(file.must_go_another_way(read_way::queued, 4096));
    EXPECT_FALSE(file.must_go_another_way(read_way::queued, -EAGAIN)) << "of the queue it means what it always meant";
}

// Reading at once in vain costs a system call.
TEST_F(ways, a_cold_file_is_tried_only_now_and_then_until_it_is_warm) {
    EXPECT_TRUE(file.must_go_another_way(read_way::at_once, -EAGAIN));
    int tries = 0;
    for (int i = 0; i < 80; ++i) {
        if (next() != read_way::at_once) continue;
        ++tries;
        EXPECT_TRUE(file.must_go_another_way(read_way::at_once, -EAGAIN));
    }
    EXPECT_EQ(tries, 10);
    for (int i = 0; i < 80; ++i) EXPECT_FALSE(file.must_go_another_way(next(), 4096));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(next(), read_way::at_once) << "eight in a row were there";
}

TEST_F(ways, a_file_system_that_cannot_tell_is_asked_once) {
    for (const int refusal : {-EOPNOTSUPP, -EINVAL, -ENOSYS}) {
        shared_handle other(env, some_fd);
        read_operation one{-1, nullptr, 4096, 0, 7};
        ASSERT_EQ(other.choose(one, engine), read_way::at_once);
        EXPECT_TRUE(other.must_go_another_way(read_way::at_once, refusal));
        for (int i = 0; i < 50; ++i) EXPECT_EQ(other.choose(one, engine), read_way::queued);
    }
}

TEST_F(ways, a_disk_that_fails_is_not_asked_another_way) {
    EXPECT_FALSE(file.must_go_another_way(read_way::at_once, -EIO));
    EXPECT_FALSE(file.must_go_another_way(read_way::at_once, 0)) << "the end of the file";
}

TEST(read_ways, a_file_that_is_not_in_memory_arrives_whole_and_each_read_counts_once) {
    const temporary_folder folder;
    const auto bytes = pattern(3, 200 * 4096 + 77);
    test::write_file(folder / "a", bytes);
    drop_from_page_cache(folder / "a");
    const auto rt = make_runtime(small_options(folder));
    const int fd = rt->open("a");
    ASSERT_GE(fd, 0);
    std::vector<std::uint8_t> got(bytes.size());
    for (std::size_t page = 0; page < 201; ++page) {
        const std::size_t at = page * 77 % 201 * 4096;
        const std::size_t count = std::min<std::size_t>(4096, bytes.size() - at);
        EXPECT_EQ(rt->read(fd, got.data() + at, static_cast<std::int64_t>(count), static_cast<std::int64_t>(at)), static_cast<std::int64_t>(count));
    }
    EXPECT_EQ(got, bytes);
    EXPECT_EQ(rt->stats().file_reads, 201u);
    EXPECT_EQ(rt->stats().file_read_errors, 0u);
    EXPECT_EQ(rt->stats().file_read_bytes, bytes.size());
}

}  // namespace penstock::host
