// A process that serves a mount and has a region of one of its files, killed while it works.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "mount/mounted_backend.hpp"

namespace penstock::test {

namespace {

// A process that serves the folder, and has a region of a file that it acquires and releases until
// it is killed. Says at `ready` that it has begun.
[[noreturn]] void serve_and_work(const temporary_folder& folder, int ready) {
    options wanted = small_options(folder);
    wanted.writable = true;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<file_mount> mounted;
    std::unique_ptr<file_region> region;
    if (!runtime::make(wanted, rt) ||
        !map_region(*rt, folder / "source/f", 0, 0, protection::read_write,
                    {.outside_writers = false}, region) ||
        !mount_directory(*rt, folder / "source", folder / "point", {}, mounted) ||
        ::write(ready, "", 1) != 1)
        ::_exit(1);
    auto* const bytes = static_cast<unsigned char*>(region->data());
    for (std::uint64_t i = 0;; ++i) {
        region->acquire();
        ++bytes[i % region->size_bytes()];
        region->release();
    }
}

// A program that stores to a mapping of the file, all over it.
[[noreturn]] void store_for_ever(const std::string& path, std::uint64_t bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) ::_exit(1);
    for (std::uint64_t i = 0;; ++i) {
        ++static_cast<unsigned char*>(at)[i * 4099 % bytes];
        if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

bool is_gone(pid_t process) {
    for (int i = 0; i < 1000; ++i) {
        if (::waitpid(process, nullptr, WNOHANG) == process) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

}  // namespace

// While it asks the kernel to write back what the program stored, which only it can answer.
TEST(killed_server, is_gone_whatever_it_does) {
    if (const status s = mount::can_mount(); !s) GTEST_SKIP() << s.message;
    constexpr std::uint64_t bytes = 1 << 20;
    const temporary_folder folder;
    for (const char* name : {"source", "point"}) std::filesystem::create_directory(folder / name);
    write_file(folder / "source/f", pattern(1, bytes));
    const std::string point = folder / "point";
    for (int round = 0; round < 5 && !HasFailure(); ++round) {
        int ready[2];
        ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
        std::fflush(nullptr);
        const pid_t server = ::fork();
        if (server == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve_and_work(folder, ready[1]);
        }
        ::close(ready[1]);
        char begun = 0;
        ASSERT_EQ(::read(ready[0], &begun, 1), 1);
        ::close(ready[0]);
        const pid_t program = ::fork();
        if (program == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            store_for_ever(folder / "point/f", bytes);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(150 + 13 * round));
        ::kill(server, SIGKILL);
        const bool ended = is_gone(server);
        EXPECT_TRUE(ended) << "the process was killed, and waits for itself";
        ::kill(program, SIGKILL);
        ::umount2(point.c_str(), MNT_FORCE);  // ends the connection where the process did not
        EXPECT_TRUE(ended || is_gone(server));
        EXPECT_TRUE(is_gone(program));
        ::umount2(point.c_str(), MNT_DETACH);
    }
}

}  // namespace penstock::test
