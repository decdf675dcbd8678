// The folder where processes of a share name meet, and what they have it for: it goes under those
// that run, and descriptors are short.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "os/link_socket.hpp"
#include "os/statistics_page.hpp"
#include "unit/share_support.hpp"

namespace penstock::test {

namespace {

// Leaves room for so many descriptors more, or fewer, until it ends.
class few_descriptors {
public:
    explicit few_descriptors(int room) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const int next = ::dup(STDERR_FILENO);
        ::close(next);
        rlimit less = before_;
        less.rlim_cur = static_cast<rlim_t>(next + room);
        ::setrlimit(RLIMIT_NOFILE, &less);
    }
    ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    few_descriptors(const few_descriptors&) = delete;
    few_descriptors& operator=(const few_descriptors&) = delete;

private:
    rlimit before_{};
};

std::size_t times(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

constexpr const char* back_again = "has one there again";
constexpr const char* not_found = "processes that start now do not find this cache";

}  // namespace

// As the end of a login session, or a cleaner of /tmp, takes the folder.
TEST_F(share, folder_that_went_is_made_again) {
    const auto bytes = pattern(21, 10 * page);
    const std::string path = make_file("data", bytes);
    const auto first = make_runtime(shared()), second = make_runtime(shared());
    ASSERT_TRUE(are_linked(*first, *second)) << log();
    EXPECT_EQ(read_all(*first, path, bytes.size()), bytes);
    std::filesystem::remove_all(meeting() + "/penstock");
    ASSERT_TRUE(comes_true([&] { return socket_count() == 2; })) << log();
    const auto third = make_runtime(shared());
    ASSERT_TRUE(comes_true([&] { return linked(*third) == 2; })) << log();
    EXPECT_EQ(read_all(*third, path, bytes.size()), bytes);
    EXPECT_EQ(third->stats().file_reads, 0u);
    // The link that the two had is the one that they have.
    EXPECT_TRUE(comes_true([&] { return linked(*first) == 2 && linked(*second) == 2; })) << log();
    EXPECT_EQ(times(log(), "not linked"), 0u) << log();
    EXPECT_TRUE(comes_true([&] { return times(log(), back_again) == 2; })) << log();
}

TEST_F(share, folder_without_a_place_is_said_once_and_made_when_there_is_one) {
    auto rt = make_runtime(shared());
    const std::string aside = folder_ / "aside";
    std::filesystem::rename(meeting(), aside);
    ASSERT_TRUE(says(not_found));
    // Looks come once a second. One more of them has nothing to say.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::filesystem::create_directories(meeting());
    EXPECT_TRUE(says(back_again));
    EXPECT_EQ(times(log(), not_found), 1u);
    EXPECT_EQ(socket_count(), 1u);
    const auto second = make_runtime(shared());
    EXPECT_TRUE(are_linked(*rt, *second)) << log();
    rt.reset();
    EXPECT_EQ(socket_count(), 1u);
}

// As sudo -E leaves it to root: what root made there would be in the user's way.
TEST(link_socket, a_runtime_directory_of_another_user_is_left_alone) {
    const temporary_folder folder;
    std::string theirs = "/";
    if (::geteuid() == 0) {
        theirs = folder / "theirs";
        std::filesystem::create_directory(theirs);
        if (::chown(theirs.c_str(), 1, 1) != 0) GTEST_SKIP() << "there is no other user";
    }
    const std::string own = "/tmp/penstock-" + std::to_string(::geteuid());
    const bool was_there = std::filesystem::exists(own);
    ::setenv("XDG_RUNTIME_DIR", theirs.c_str(), 1);
    {
        const std::string name = "test-" + std::to_string(::getpid());
        host::rendezvous place;
        const status s = place.open(name);
        EXPECT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(place.path(), own + "/" + name);
        EXPECT_FALSE(std::filesystem::exists(theirs + "/penstock"));
    }
    ::setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
    {
        host::rendezvous place;
        const status s = place.open("test");
        EXPECT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(place.path(), folder / "penstock/test");
    }
    ::unsetenv("XDG_RUNTIME_DIR");
    if (!was_there) ::rmdir(own.c_str());
}

// Such a message is whole, and this process is the cause.
TEST(link_socket, descriptors_that_this_process_may_not_have_are_an_error_of_its_own) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const host::owned_fd near(ends[0]), far(ends[1]);
    const std::array<int, 5> sent{0, 0, 0, 0, 0};
    std::uint64_t word = 7;
    ASSERT_EQ(host::send_message(near.get(), &word, sizeof word, sent.data(), sent.size()), 0);
    ASSERT_EQ(host::send_message(near.get(), &word, sizeof word, sent.data(), sent.size()), 0);
    {
        host::received_fds came;
        const few_descriptors two(2);
        EXPECT_EQ(host::receive_message(far.get(), &word, sizeof word, came), -EMFILE);
    }
    host::received_fds came;
    EXPECT_EQ(host::receive_message(far.get(), &word, sizeof word, came),
              static_cast<std::int64_t>(sizeof word));
    EXPECT_EQ(came.count, sent.size());
}

// No process would be found, as if none published.
TEST(statistics_page, look_without_descriptors_is_an_error) {
    std::vector<host::found_statistics> found;
    {
        const few_descriptors two(2);
        EXPECT_EQ(host::find_statistics(found), -EMFILE);
    }
    EXPECT_EQ(host::find_statistics(found), 0);
}

}  // namespace penstock::test
