// The folder where processes of a share name meet, and what they have it for: it goes under those
// that run, and descriptors are short.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

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

// A folder with sockets that no runtime of this process made.
class share_sockets : public share {
protected:
    void make_folder() const {
        std::filesystem::create_directories(sockets());
        EXPECT_EQ(::chmod((meeting() + "/penstock").c_str(), 0700), 0);
        EXPECT_EQ(::chmod(sockets().c_str(), 0700), 0);
    }
    // What names of sockets have of the boot of this kernel.
    static std::string boot() {
        std::string id;
        std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
        return id.substr(0, 8);
    }
    static std::string other_boot() { return boot() == "89abcdef" ? "01234567" : "89abcdef"; }
    // And of the file system of the folder.
    [[nodiscard]] std::string device() const {
        struct stat facts {};
        EXPECT_EQ(::stat(sockets().c_str(), &facts), 0);
        std::ostringstream out;
        out << std::hex << facts.st_dev;
        return out.str();
    }
    // As long as the result is there and listens, the socket of this name answers.
    [[nodiscard]] host::owned_fd bound(const std::string& name) const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, (sockets() + name).c_str());
        host::owned_fd out(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::bind(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
                  0);
        return out;
    }
};

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
    ASSERT_TRUE(soon([&] { return socket_count() == 2; })) << log();
    const auto third = make_runtime(shared());
    ASSERT_TRUE(soon([&] { return linked(*third) == 2; })) << log();
    EXPECT_EQ(read_all(*third, path, bytes.size()), bytes);
    EXPECT_EQ(third->stats().file_reads, 0u);
    // The link that the two had is the one that they have.
    EXPECT_TRUE(soon([&] { return linked(*first) == 2 && linked(*second) == 2; })) << log();
    EXPECT_EQ(times(log(), "not linked"), 0u) << log();
    EXPECT_TRUE(soon([&] { return times(log(), back_again) == 2; })) << log();
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

TEST_F(share_sockets, stale_one_is_removed) {
    make_folder();
    const std::string stale = "/runtime-" + boot() + "-" + device() + "-0123";
    static_cast<void>(bound(stale));
    write_file(sockets() + "/notes", {1, 2, 3});
    const auto rt = make_runtime(shared());
    EXPECT_FALSE(std::filesystem::exists(sockets() + stale));
    EXPECT_TRUE(std::filesystem::exists(sockets() + "/notes"));
    EXPECT_EQ(socket_count(), 2u);  // the runtime's, and the notes
    EXPECT_EQ(log(), "");
}

// In a folder that two machines see, or one by two mounts, a runtime of the other side refuses
// as a dead one does.
TEST_F(share_sockets, that_of_another_machine_or_mount_stays) {
    make_folder();
    const std::string machine = "/runtime-" + other_boot() + "-" + device() + "-0123",
                      mount = "/runtime-" + boot() + "-f" + device() + "-0123";
    static_cast<void>(bound(machine));
    static_cast<void>(bound(mount));
    const auto are_there = [&] {
        return std::filesystem::exists(sockets() + machine) &&
               std::filesystem::exists(sockets() + mount);
    };
    const auto rt = make_runtime(shared());
    EXPECT_TRUE(are_there());
    EXPECT_EQ(socket_count(), 3u);
    // Also with one that makes its own socket again.
    for (const auto& entry : std::filesystem::directory_iterator(sockets()))
        if (!entry.path().string().ends_with("-0123")) std::filesystem::remove(entry);
    EXPECT_TRUE(says(back_again));
    EXPECT_TRUE(are_there());
}

// Some containers are told a boot of their own, on the same kernel.
TEST_F(share_sockets, one_with_another_boot_is_connected_to_if_it_answers) {
    make_folder();
    const host::owned_fd listener = bound("/runtime-" + other_boot() + "-" + device() + "-0123");
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    const auto rt = make_runtime(shared());
    const host::owned_fd came(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    EXPECT_TRUE(static_cast<bool>(came));
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
