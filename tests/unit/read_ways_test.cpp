// Which way a read of a file goes: at once from the page cache, through the queue, or past the page
// cache.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "fault/faulty_environment.hpp"
#include "fault/plain_environment.hpp"
#include "files/shared_handle.hpp"
#include "unit/support.hpp"

namespace penstock::host {

using penstock::test::make_runtime;
using penstock::test::pattern;
using penstock::test::small_options;
using penstock::test::temporary_folder;

namespace {

class silent_engine final : public io_engine {
public:
    explicit silent_engine(bool at_once) : at_once_(at_once) {}
    [[nodiscard]] const char* name() const override { return "silent"; }
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
    silent_engine engine{true};
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

// A file none of which is in the page cache, on a file system with direct reads in pieces of 512
// bytes.
class cold_file final : public fault::no_files {
public:
    int cached = 0, opened = 777;  // what the calls below answer
    int opens = 0, closes = 0;

    void close(int) override { ++closes; }
    int open_direct(int, std::uint32_t& grain_bytes) override {
        ++opens;
        grain_bytes = 512;
        return opened;
    }
    int in_page_cache(int, std::uint64_t, std::uint64_t) override { return cached; }
};

class direct : public testing::Test {
protected:
    cold_file env;
    silent_engine engine{true};
    read_settings settings;
    int lines = 0;
    std::unique_ptr<shared_handle> file;
    alignas(4096) std::array<std::byte, 8192> place{};
    read_operation operation;

    void make(direct_mode mode) {
        settings.direct = mode;
        settings.page_bytes = 4096;
        settings.say = [this](const std::string&) { ++lines; };
        file = std::make_unique<shared_handle>(env, 1, &settings);
    }
    // As after a read at once that found nothing.
    void make_cold() {
        make(direct_mode::automatic);
        EXPECT_TRUE(file->must_go_another_way(read_way::at_once, -EAGAIN));
    }
    read_way next(std::uint64_t offset, std::uint32_t bytes = 4096, std::size_t shift = 0) {
        operation = {-1, place.data() + shift, bytes, offset, 7};
        const read_way way = file->choose(operation, engine);
        EXPECT_EQ(operation.fd, way == read_way::direct ? 777 : 1);
        return way;
    }
    // Far from all others.
    static std::uint64_t far(std::uint64_t i) {
        return (i * 7919 % 10007) * (std::uint64_t{16} << 20);
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
    silent_engine other(false);
    read_operation request{-1, nullptr, 4096, 0, 7};
    EXPECT_EQ(file.choose(request, other), read_way::queued);
    EXPECT_FALSE(request.at_once);
}

TEST_F(ways, a_page_that_is_not_in_memory_goes_through_the_queue) {
    EXPECT_EQ(next(), read_way::at_once);
    EXPECT_TRUE(file.must_go_another_way(read_way::at_once, -EAGAIN));
    EXPECT_EQ(file.choose_other(operation), read_way::queued);
    EXPECT_FALSE(operation.at_once);
    EXPECT_FALSE(file.must_go_another_way(read_way::queued, 4096));
    EXPECT_FALSE(file.must_go_another_way(read_way::queued, -EAGAIN))
        << "of the queue it means what it always meant";
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
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(next(), read_way::at_once) << "eight in a row were there";
}

TEST_F(ways, a_file_system_that_cannot_tell_is_asked_once) {
    for (const int refusal : {-EOPNOTSUPP, -EINVAL, -ENOSYS}) {
        shared_handle other(env, some_fd);
        read_operation request{-1, nullptr, 4096, 0, 7};
        ASSERT_EQ(other.choose(request, engine), read_way::at_once);
        EXPECT_TRUE(other.must_go_another_way(read_way::at_once, refusal));
        for (int i = 0; i < 50; ++i) EXPECT_EQ(other.choose(request, engine), read_way::queued);
    }
}

TEST_F(ways, a_disk_that_fails_is_not_asked_another_way) {
    EXPECT_FALSE(file.must_go_another_way(read_way::at_once, -EIO));
    EXPECT_FALSE(file.must_go_another_way(read_way::at_once, 0)) << "the end of the file";
}

TEST_F(direct, on_takes_every_read_that_is_aligned) {
    make(direct_mode::on);
    EXPECT_EQ(next(0), read_way::direct);
    EXPECT_EQ(next(4096), read_way::direct);
    EXPECT_EQ(operation.bytes, 4096u);
    EXPECT_NE(next(100), read_way::direct) << "offset";
    EXPECT_NE(next(8192, 4096, 8), read_way::direct) << "address";
    EXPECT_EQ(next(8192, 3000), read_way::direct) << "the end of a file";
    EXPECT_EQ(operation.bytes, 3072u);
    EXPECT_EQ(env.opens, 1);
    file.reset();
    EXPECT_EQ(env.closes, 2);
}

TEST_F(direct, pages_smaller_than_the_grain_would_be_written_past_their_end) {
    make(direct_mode::on);
    settings.page_bytes = 256;
    EXPECT_NE(next(0, 256), read_way::direct);
}

TEST_F(direct, off_takes_none) {
    make(direct_mode::off);
    EXPECT_TRUE(file->must_go_another_way(read_way::at_once, -EAGAIN));
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_NE(next(far(i)), read_way::direct);
    EXPECT_EQ(env.opens, 0);
}

TEST_F(direct, automatic_takes_reads_at_random_and_each_place_once) {
    make_cold();
    int taken = 0;
    for (std::uint64_t i = 0; i < 100; ++i) taken += next(far(i)) == read_way::direct ? 1 : 0;
    EXPECT_GE(taken, 80) << "all but those it learned from";
    for (std::uint64_t i = 50; i < 100; ++i)
        EXPECT_EQ(next(far(i)), read_way::queued) << "the second time it goes into the page cache";
    EXPECT_EQ(env.opens, 1);
}

TEST_F(direct, automatic_leaves_what_is_in_the_page_cache_there) {
    make_cold();
    for (std::uint64_t i = 0; i < 50; ++i) next(far(i));
    env.cached = 1;
    EXPECT_EQ(next(far(60)), read_way::at_once);
}

TEST_F(direct, automatic_leaves_reads_in_order_to_the_kernel) {
    make_cold();
    for (std::uint64_t i = 0; i < 500; ++i) EXPECT_EQ(next(i * 4096), read_way::queued);
    // Eight readers that stride through the file in turns.
    for (std::uint64_t i = 0; i < 500; ++i)
        EXPECT_EQ(
            next((std::uint64_t{1} << 30) + (i / 8) * 4096 + (i % 8) * (std::uint64_t{1} << 28)),
            read_way::queued);
    EXPECT_EQ(env.opens, 0);
}

TEST_F(direct, automatic_leaves_long_reads_to_the_kernel) {
    make_cold();
    for (std::uint64_t i = 0; i < 100; ++i)
        EXPECT_EQ(next(far(i), read_choice::longest_random + 4096), read_way::queued);
}

TEST_F(direct, a_kernel_that_does_not_tell_what_is_in_memory_has_none) {
    env.cached = -ENOSYS;
    make_cold();
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_NE(next(far(i)), read_way::direct);
}

TEST_F(direct, a_file_system_without_them_is_asked_once_and_it_is_said_once) {
    env.opened = -EINVAL;
    make(direct_mode::on);
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_NE(next(far(i)), read_way::direct);
    EXPECT_EQ(env.opens, 1);
    shared_handle other(env, 1, &settings);
    operation = {-1, place.data(), 4096, 0, 7};
    EXPECT_NE(other.choose(operation, engine), read_way::direct);
    EXPECT_EQ(lines, 1);
}

TEST_F(direct, a_read_that_is_refused_goes_the_other_way_and_so_do_all_after_it) {
    for (const int refusal : {-EINVAL, -EFAULT, -EOPNOTSUPP}) {
        make(direct_mode::on);
        ASSERT_EQ(next(0), read_way::direct);
        EXPECT_FALSE(file->must_go_another_way(read_way::direct, -EIO)) << "the disk's answer";
        EXPECT_FALSE(file->must_go_another_way(read_way::direct, 0)) << "the end of the file";
        EXPECT_TRUE(file->must_go_another_way(read_way::direct, refusal));
        EXPECT_NE(next(4096), read_way::direct);
    }
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
        EXPECT_EQ(rt->read(fd, got.data() + at, static_cast<std::int64_t>(count),
                           static_cast<std::int64_t>(at)),
                  static_cast<std::int64_t>(count));
    }
    EXPECT_EQ(got, bytes);
    EXPECT_EQ(rt->stats().file_reads, 201u);
    EXPECT_EQ(rt->stats().file_read_errors, 0u);
    EXPECT_EQ(rt->stats().file_read_bytes, bytes.size());
}

}  // namespace penstock::host
