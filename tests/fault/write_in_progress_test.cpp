// A write(2) that is under way: the file has its new times already, and its old bytes still. A
// reader that opens and reads it then must not get those bytes once the write is over and the file
// was closed.
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "fault/plain_environment.hpp"
#include "fault/scenario.hpp"
#include "penstock/write.hpp"

namespace penstock::fault {

namespace {

// The real files, but for their times.
class dated_files final : public plain_files {
public:
    std::int64_t changed_ns = 0;
    bool coarse = false;  // as on a file system whose times move by clock ticks

    int facts(int handle, host::file_facts& out) override {
        const int code = real_.facts(handle, out);
        out.identity.modified_ns = out.identity.changed_ns = changed_ns;
        out.exact_times = !coarse;
        return code;
    }
    int open_plain(int start, const std::string& path) override {
        return real_.open_plain(start, path);
    }

    static std::int64_t now_ns() {
        timespec now{};
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    }
};

std::vector<std::uint8_t> read_whole(runtime& rt, const char* name, std::size_t bytes) {
    const int fd = open(lane{}, rt.ref(), name);
    std::vector<std::uint8_t> out(bytes);
    EXPECT_EQ(read(lane{}, rt.ref(), fd, out.data(), static_cast<std::int64_t>(bytes), 0),
              static_cast<std::int64_t>(bytes));
    EXPECT_EQ(close(lane{}, rt.ref(), fd), 0);
    return out;
}

}  // namespace

TEST(write_in_progress, its_old_bytes_are_forgotten_at_close) {
    const temporary_folder folder;
    test::write_file(folder / "data", test::pattern(1, 9000));
    dated_files files;
    host::runtime_hooks hooks;
    hooks.env = &files;
    const auto rt = test::make_runtime(test::small_options(folder), hooks);
    // A long write: it set the time an hour ago and still holds the file open.
    files.changed_ns = dated_files::now_ns() - 3'600'000'000'000;
    const int writer = ::open((folder / "data").c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(writer, 0);
    EXPECT_EQ(read_whole(*rt, "data", 9000), test::pattern(1, 9000));
    ASSERT_EQ(::pwrite(writer, test::pattern(2, 9000).data(), 9000, 0),
              9000);  // it ends, with the time it began with
    ::close(writer);
    EXPECT_EQ(read_whole(*rt, "data", 9000), test::pattern(2, 9000));
}

TEST(write_in_progress, coarse_times_of_a_moment_ago_are_not_believed) {
    const temporary_folder folder;
    test::write_file(folder / "data", test::pattern(1, 9000));
    dated_files files;
    files.coarse = true;
    host::runtime_hooks hooks;
    hooks.env = &files;
    const auto rt = test::make_runtime(test::small_options(folder), hooks);
    files.changed_ns = dated_files::now_ns();
    EXPECT_EQ(read_whole(*rt, "data", 9000), test::pattern(1, 9000));
    test::write_file(folder / "data", test::pattern(2, 9000));  // within the same tick
    EXPECT_EQ(read_whole(*rt, "data", 9000), test::pattern(2, 9000));
}

TEST(write_in_progress, a_file_just_written_and_closed_keeps_its_pages_where_times_are_exact) {
    const temporary_folder folder;
    test::write_file(folder / "data", test::pattern(1, 9000));
    dated_files files;
    host::runtime_hooks hooks;
    hooks.env = &files;
    const auto rt = test::make_runtime(test::small_options(folder), hooks);
    files.changed_ns = dated_files::now_ns();
    for (int i = 0; i < 3; ++i) read_whole(*rt, "data", 9000);
    EXPECT_EQ(rt->stats().misses, 3u);
}

TEST(write_in_progress, a_file_that_rested_keeps_its_pages) {
    const temporary_folder folder;
    test::write_file(folder / "data", test::pattern(1, 9000));
    dated_files files;
    host::runtime_hooks hooks;
    hooks.env = &files;
    const auto rt = test::make_runtime(test::small_options(folder), hooks);
    files.changed_ns = dated_files::now_ns() - 1'000'000'000;
    for (int i = 0; i < 3; ++i) read_whole(*rt, "data", 9000);
    EXPECT_EQ(rt->stats().misses, 3u);
}

namespace {

// While the first writes to the file are under way, another caller opens it, writes another
// page, and closes it again.
class visited_files final : public plain_files {
public:
    std::function<void(std::uint64_t)> visit;  // which write it is, from 0
    std::uint64_t visits = 0;

    int open_writing(int handle) override { return real_.open_writing(handle); }
    int sync(int fd) override { return real_.sync(fd); }
    std::int64_t write(int fd, const host::memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        const std::uint64_t number = writes_++;
        if (number < visits) std::thread([&] { visit(number); }).join();
        return real_.write(fd, pieces, count, offset);
    }

private:
    std::atomic<std::uint64_t> writes_{0};
};

}  // namespace

// A caller that writes and closes while the last close writes back leaves its bytes to that close.
// That close must not end before these bytes are in the file.
TEST(write_in_progress, the_last_close_leaves_nothing_of_callers_that_came_and_went) {
    for (const std::uint64_t visits : {1u, 2u, 3u, 7u}) {
        const temporary_folder folder;
        test::write_file(folder / "data", std::vector<std::uint8_t>(10 * 4096, 0));
        visited_files files;
        host::runtime_hooks hooks;
        hooks.env = &files;
        options o = test::small_options(folder);
        o.writable = true;
        const auto rt = test::make_runtime(o, hooks);
        std::vector<std::uint8_t> expected(10 * 4096, 0);
        const auto write_page = [&](std::uint64_t page) {
            const std::vector<std::uint8_t> bytes(4096, static_cast<std::uint8_t>(page + 1));
            const int fd = open(lane{}, rt->ref(), "data", open_write);
            ASSERT_GE(fd, 0);
            EXPECT_EQ(write(lane{}, rt->ref(), fd, bytes.data(), 4096,
                            static_cast<std::int64_t>(page * 4096)),
                      4096);
            std::copy(bytes.begin(), bytes.end(),
                      expected.begin() + static_cast<std::ptrdiff_t>(page * 4096));
            EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
        };
        files.visit = [&](std::uint64_t number) { write_page(number + 1); };
        files.visits = visits;
        write_page(0);
        std::vector<std::uint8_t> now(expected.size());
        std::ifstream(folder / "data", std::ios::binary)
            .read(reinterpret_cast<char*>(now.data()), static_cast<std::streamsize>(now.size()));
        EXPECT_TRUE(now == expected) << visits << " others";
        if (testing::Test::HasFailure()) break;
    }
}

}  // namespace penstock::fault
