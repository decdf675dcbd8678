// The owner of a descriptor on the host: what it forwards, and what it owns after moves, closes
// and failures.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "fault/faulty_environment.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class host_file : public testing::Test {
protected:
    void SetUp() override {
        write_file(folder_ / "data", content_);
        options o = small_options(folder_);
        o.writable = true;
        host::runtime_hooks hooks;
        hooks.env = &env_;
        rt_ = make_runtime(o, hooks);
        ASSERT_NE(rt_, nullptr);
    }
    file must_open(int flags = open_read) {
        file out;
        const status s = file::open(*rt_, folder_ / "data", flags, out);
        EXPECT_TRUE(s.ok()) << s.message;
        EXPECT_TRUE(out.is_open());
        return out;
    }
    [[nodiscard]] bool is_open(int fd) const {
        file_stat facts{};
        return rt_->stat(fd, &facts) == 0;
    }

    const temporary_folder folder_;
    const std::vector<std::uint8_t> content_ = pattern(3, 10000);
    fault::faulty_environment env_;
    std::unique_ptr<runtime> rt_;
};

static_assert(!std::is_copy_constructible_v<file> && !std::is_copy_assignable_v<file> &&
              std::is_nothrow_move_constructible_v<file> &&
              std::is_nothrow_move_assignable_v<file>);

// Every call that needs a descriptor.
void expect_closed(file& f) {
    std::uint8_t byte = 0;
    file_stat facts{};
    EXPECT_FALSE(f.is_open());
    EXPECT_EQ(f.fd(), -1);
    EXPECT_EQ(f.read(&byte, 1, 0), -EBADF);
    EXPECT_EQ(f.write(&byte, 1, 0), -EBADF);
    EXPECT_EQ(f.append(&byte, 1), -EBADF);
    EXPECT_EQ(f.stat(&facts), -EBADF);
    EXPECT_EQ(f.prefetch(0, 1), -EBADF);
    EXPECT_EQ(f.advise(advice::random), -EBADF);
    EXPECT_EQ(f.fsync(), -EBADF);
    EXPECT_EQ(f.truncate(0), -EBADF);
    EXPECT_EQ(f.close(), -EBADF);
}

}  // namespace

TEST_F(host_file, reads_and_changes_the_file) {
    file f = must_open(open_read_write);
    std::vector<std::uint8_t> got(content_.size());
    EXPECT_EQ(f.advise(advice::sequential), 0);
    EXPECT_GE(f.prefetch(0, 4096), 0);
    EXPECT_EQ(f.read(got.data(), 10000, 0), 10000);
    EXPECT_EQ(got, content_);
    EXPECT_EQ(f.write("abc", 3, 10), 3);
    EXPECT_EQ(f.append("de", 2), 10000) << "where it was put";
    EXPECT_EQ(f.truncate(10001), 0);
    EXPECT_EQ(f.fsync(), 0);
    file_stat facts{};
    EXPECT_EQ(f.stat(&facts), 0);
    EXPECT_EQ(facts.size_bytes, 10001u);
    EXPECT_EQ(f.close(), 0);
    std::vector<std::uint8_t> expected = content_;
    std::memcpy(&expected[10], "abc", 3);
    expected.push_back('d');
    std::ifstream in(folder_ / "data", std::ios::binary);
    const std::vector<std::uint8_t> now{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(now, expected);
}

TEST_F(host_file, closes_its_descriptor_at_its_end) {
    int fd = -1;
    {
        const file f = must_open();
        fd = f.fd();
        EXPECT_TRUE(is_open(fd));
    }
    EXPECT_FALSE(is_open(fd));
}

TEST_F(host_file, owns_nothing_after_a_close) {
    file f = must_open();
    const int fd = f.fd();
    EXPECT_EQ(f.close(), 0);
    EXPECT_FALSE(is_open(fd));
    expect_closed(f);
}

TEST_F(host_file, owns_nothing_before_it_is_opened) {
    file f;
    expect_closed(f);
}

TEST_F(host_file, moves_its_descriptor) {
    file first = must_open();
    const int fd = first.fd();
    file second = std::move(first);
    expect_closed(first);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(second.fd(), fd);
    EXPECT_TRUE(is_open(fd));
    file third = must_open();
    const int other = third.fd();
    third = std::move(second);
    EXPECT_FALSE(other != fd && is_open(other)) << "assigning closes what was owned";
    EXPECT_EQ(third.fd(), fd);
    EXPECT_TRUE(is_open(fd));
    file& itself = third;
    third = std::move(itself);
    EXPECT_TRUE(is_open(third.fd())) << "assigning to itself keeps it";
}

TEST_F(host_file, says_why_it_was_not_opened) {
    file out = must_open();
    const int before = out.fd();
    status s = file::open(*rt_, folder_ / "absent", open_read, out);
    EXPECT_EQ(s.code, -ENOENT);
    EXPECT_NE(s.message.find("absent"), std::string::npos) << s.message;
    EXPECT_FALSE(is_open(before)) << "what it owned is closed";
    expect_closed(out);
    EXPECT_EQ(file::open(*rt_, folder_ / "data", -1, out).code, -EINVAL);
    const auto reader = make_runtime(small_options(folder_));
    s = file::open(*reader, folder_ / "data", open_read_write, out);
    EXPECT_EQ(s.code, -EROFS);
    EXPECT_NE(s.message.find("options::writable"), std::string::npos) << s.message;
}

TEST_F(host_file, closing_tells_of_bytes_that_did_not_come_to_the_file) {
    file f = must_open(open_read_write);
    EXPECT_EQ(f.write("abc", 3, 10), 3);
    fault::fault_plan plan;
    plan.calls = fault::call_write;
    plan.nth = 1;
    plan.for_ever = true;
    plan.error = -ENOSPC;
    env_.set(plan);
    EXPECT_EQ(f.close(), -ENOSPC);
    expect_closed(f);
    env_.clear();
}

TEST_F(host_file, in_a_child_of_fork_its_end_does_nothing) {
    file f = must_open();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::uint8_t byte = 0;
        ::_exit(f.read(&byte, 1, 0) == -ECHILD && f.close() == -ECHILD ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_EQ(WIFEXITED(state) ? WEXITSTATUS(state) : -1, 0);
    std::uint8_t byte = 0;
    EXPECT_EQ(f.read(&byte, 1, 0), 1);
    EXPECT_EQ(byte, content_[0]);
}

}  // namespace penstock::test
