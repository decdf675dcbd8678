// A mount and the children of fork() of the process that serves it: they may end or drop it, and it
// goes on.
#include <csignal>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "mount/mounted_backend.hpp"

namespace penstock::test {

namespace {

class forked_mount : public mounted_backend {
protected:
    // The exit status of a child that runs `body`, or -1: it hung, or a signal ended it.
    template <typename Body>
    static int in_child(const Body& body) {
        std::fflush(nullptr);
        const pid_t child = ::fork();
        if (child == 0) body();
        for (int i = 0; child > 0 && i < 6000; ++i) {
            int state = 0;
            if (::waitpid(child, &state, WNOHANG) == child)
                return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        return -1;
    }
};

}  // namespace

TEST_P(forked_mount, is_the_parents) {
    write_file(source(), pattern(3, 100'000));
    EXPECT_EQ(in_child([] { std::exit(3); }), 3);
    EXPECT_EQ(
        in_child([this] {
            std::unique_ptr<file_mount> other;
            const bool all =
                mount_->unmount() == -ECHILD && !mount_->is_mounted() &&
                mount_->report().requests == 0 &&
                mount_directory(*runtime_, folder_ / "source", folder_ / "point", {}, other).code ==
                    -ECHILD;
            mount_.reset();
            runtime_.reset();
            std::exit(all ? 7 : 1);
        }),
        7);
    EXPECT_TRUE(mount_->is_mounted());
    EXPECT_EQ(read_file(seen_as()), pattern(3, 100'000));
}

namespace {

// Exit status within 20 s, or -1.
int end_of(pid_t process) {
    for (int i = 0; i < 2000; ++i) {
        int state = 0;
        if (::waitpid(process, &state, WNOHANG) == process)
            return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
}

// Serves the folder, lets itself be read through the mount by another process, forks, and is
// killed. Its child lives until something is written to the other end of `lives`.
[[noreturn]] void serve_and_die(const temporary_folder& folder, int lives) {
    options wanted = small_options(folder);
    std::unique_ptr<runtime> rt;
    std::unique_ptr<file_mount> mounted;
    if (!runtime::make(wanted, rt) ||
        !mount_directory(*rt, folder / "source", folder / "point", {}, mounted))
        ::_exit(1);
    const std::string seen = folder / "point/f";
    const pid_t reader = ::fork();
    struct stat facts {};
    if (reader == 0) ::_exit(::stat(seen.c_str(), &facts) == 0 ? 0 : 1);
    if (end_of(reader) != 0) ::_exit(2);
    if (::fork() == 0) {
        char ended = 0;
        static_cast<void>(!::read(lives, &ended, 1));
        ::_exit(0);
    }
    ::raise(SIGKILL);
    ::_exit(3);
}

}  // namespace

// The child has no thread that serves, and must not keep the kernel waiting for one. The server may
// be gone before its child has run at all: a program that asks until then gets ECONNABORTED.
TEST(forked_server, leaves_nothing_open_in_its_child) {
    if (const status s = mount::can_mount(); !s) GTEST_SKIP() << s.message;
    const temporary_folder folder;
    for (const char* name : {"source", "point"}) std::filesystem::create_directory(folder / name);
    write_file(folder / "source/f", pattern(1, 100));
    int lives[2];
    ASSERT_EQ(::pipe(lives), 0);
    const std::string unseen = folder / "point/g", point = folder / "point";
    std::fflush(nullptr);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // the server's child becomes one of this process
    const pid_t server = ::fork();
    if (server == 0) {
        ::close(lives[1]);
        serve_and_die(folder, lives[0]);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(server, &state, 0), server);
    EXPECT_TRUE(WIFSIGNALED(state)) << "it ended with " << WEXITSTATUS(state);
    const pid_t reader = ::fork();
    struct stat facts {};
    if (reader == 0) ::_exit(::stat(unseen.c_str(), &facts) == 0 ? 0 : errno);
    const int said = end_of(reader);
    EXPECT_TRUE(said == ENOTCONN || said == ECONNABORTED)
        << said << (said == -1 ? ": a program hangs in the mount" : ": no error of a dead mount");
    EXPECT_EQ(::write(lives[1], "", 1), 1);  // the child ends, and with it whatever it has open
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    ::close(lives[1]);
    ::close(lives[0]);
    ::umount2(point.c_str(), MNT_DETACH);
}

INSTANTIATE_TEST_SUITE_P(on, forked_mount,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test
