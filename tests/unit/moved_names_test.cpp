// Names that other programs gave to other files after a file was closed by all. The file is open
// again, by another name; its old names lead to what they lead to on disk.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "unit/support.hpp"

namespace penstock::test {

class moved_names : public testing::Test {
protected:
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name) << text;
    }
    void move(const std::string& from, const std::string& to) const {
        std::filesystem::rename(folder_ / from, folder_ / to);
    }
    [[nodiscard]] std::string on_disk(const std::string& name) const {
        std::ifstream in(folder_ / name);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    // As a kernel does.
    int open_here(const char* name, int flags = open_read) {
        return penstock::open(lane{}, rt_->ref(), name, flags);
    }
    std::string content(int fd) {
        std::string out(64, '\0');
        const std::int64_t got =
            rt_->read(fd, out.data(), static_cast<std::int64_t>(out.size()), 0);
        out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
        return out;
    }
    void open_and_close(const char* name, int flags = open_read) {
        const int fd = open_here(name, flags);
        ASSERT_GE(fd, 0);
        EXPECT_FALSE(content(fd).empty());
        EXPECT_EQ(rt_->close(fd), 0);
    }
    // Logs are rotated while a program has the log closed, and it looks at the old one.
    void rotate(int flags) {
        write("log", "old");
        const int written = open_here("log", open_read_write);
        ASSERT_GE(written, 0);
        EXPECT_EQ(rt_->write(written, "OLD", 3, 0), 3);
        move("log", "log.1");
        EXPECT_EQ(rt_->close(written), 0);
        old_ = open_here("log.1", flags);
        ASSERT_GE(old_, 0);
        write("log", "new");
    }

    const temporary_folder folder_;
    std::unique_ptr<runtime> rt_ = make_runtime(writing_options(folder_), {});
    int old_ = -1;

private:
    static options writing_options(const temporary_folder& folder) {
        options o = small_options(folder);
        o.writable = true;
        return o;
    }
};

TEST_F(moved_names, a_log_that_was_rotated_is_read_anew) {
    rotate(open_read);
    const int fd = open_here("log");
    EXPECT_EQ(content(fd), "new");
    EXPECT_EQ(content(old_), "OLD");
    EXPECT_EQ(rt_->close(fd), 0);
    EXPECT_EQ(rt_->close(old_), 0);
}

TEST_F(moved_names, what_is_written_to_a_log_does_not_go_to_the_rotated_one) {
    rotate(open_read_write);
    const int fd = open_here("log", open_read_write);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(rt_->write(fd, "more", 4, 3), 4);
    EXPECT_EQ(rt_->close(fd), 0);
    EXPECT_EQ(rt_->close(old_), 0);
    EXPECT_EQ(on_disk("log"), "newmore");
    EXPECT_EQ(on_disk("log.1"), "OLD");
}

TEST_F(moved_names, a_folder_was_renamed) {
    std::filesystem::create_directory(folder_ / "now");
    write("now/f", "old");
    open_and_close("now/f");
    move("now", "before");
    std::filesystem::create_directory(folder_ / "now");
    write("now/f", "new");
    old_ = open_here("before/f");
    const int fd = open_here("now/f");
    EXPECT_EQ(content(old_), "old");
    EXPECT_EQ(content(fd), "new");
    EXPECT_EQ(rt_->close(fd), 0);
    EXPECT_EQ(rt_->close(old_), 0);
}

TEST_F(moved_names, a_link_was_turned) {
    for (const std::string version : {"1", "2"}) {
        std::filesystem::create_directory(folder_ / version);
        write(version + "/f", version);
    }
    std::filesystem::create_directory_symlink("1", folder_ / "current");
    open_and_close("current/f");
    std::filesystem::remove(folder_ / "current");
    std::filesystem::create_directory_symlink("2", folder_ / "current");
    old_ = open_here("1/f");
    const int fd = open_here("current/f");
    EXPECT_EQ(content(old_), "1");
    EXPECT_EQ(content(fd), "2");
    EXPECT_EQ(rt_->close(fd), 0);
    EXPECT_EQ(rt_->close(old_), 0);
}

// It is open by its other name, so only the host can tell.
TEST_F(moved_names, a_name_that_is_gone_is_not_there) {
    write("a", "text");
    std::filesystem::create_hard_link(folder_ / "a", folder_ / "b");
    open_and_close("a", open_read_write);
    std::filesystem::remove(folder_ / "a");
    old_ = open_here("b", open_read_write);
    EXPECT_EQ(open_here("a"), -ENOENT);
    EXPECT_EQ(open_here("a", open_read_write), -ENOENT);
    EXPECT_EQ(rt_->close(old_), 0);
}

}  // namespace penstock::test
