// A write(2) that is under way: the file has its new times already, and its old bytes still. Who opens and reads it then
// must not be answered with those bytes once the write is over and the file was closed.
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include "fault/scenario.hpp"

namespace penstock::fault {

namespace {

// The real files, but for their times.
class dated_files final : public host::environment {
public:
    std::int64_t changed_ns = 0;
    bool coarse = false;  // as on a file system whose times move by clock ticks

    int find(int start, const std::string& path) override { return real_.find(start, path); }
    int real_path(int handle, std::string& out) override { return real_.real_path(handle, out); }
    int facts(int handle, host::file_facts& out) override {
        const int code = real_.facts(handle, out);
        out.identity.modified_ns = out.identity.changed_ns = changed_ns;
        out.exact_times = !coarse;
        return code;
    }
    int open_found(int handle) override { return real_.open_found(handle); }
    int open_plain(int start, const std::string& path) override { return real_.open_plain(start, path); }
    void close(int handle) override { real_.close(handle); }
    std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) override {
        return real_.read(fd, to, bytes, offset);
    }
    std::unique_ptr<host::io_engine> make_io_engine(bool want_uring, std::uint32_t depth, std::string& why) override {
        return real_.make_io_engine(want_uring, depth, why);
    }

    static std::int64_t now_ns() {
        timespec now{};
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    }

private:
    host::environment& real_ = host::linux_environment();
};

std::vector<std::uint8_t> read_whole(runtime& rt, const char* name, std::size_t bytes) {
    const int fd = open(lane{}, rt.ref(), name);
    std::vector<std::uint8_t> out(bytes);
    EXPECT_EQ(read(lane{}, rt.ref(), fd, out.data(), static_cast<std::int64_t>(bytes), 0), static_cast<std::int64_t>(bytes));
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
    ASSERT_EQ(::pwrite(writer, test::pattern(2, 9000).data(), 9000, 0), 9000);  // it ends, with the time it began with
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

}  // namespace penstock::fault
