// A mount and the children of fork() of the process that serves it: they may end or drop it, and it
// goes on.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

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

INSTANTIATE_TEST_SUITE_P(on, forked_mount,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test
