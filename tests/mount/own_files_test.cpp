// Files of a mount that its own process opens, which have to be those that it means.
#include "mount/own_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

struct stat facts_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0);
    return facts;
}

std::uint64_t inode_of(const std::string& path) { return facts_of(path).st_ino; }
std::uint64_t device_of(const std::string& path) { return facts_of(path).st_dev; }

// The system asks this one before it opens the file for any program.
class keeper_of_file {
public:
    explicit keeper_of_file(const std::string& path)
        : fd_(::fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY)) {
        is_asked_ = fd_ >= 0 &&
                    ::fanotify_mark(fd_, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path.c_str()) == 0;
    }
    // The system allows what is not answered by then.
    ~keeper_of_file() {
        if (asked_ >= 0) ::close(asked_);
        if (fd_ >= 0) ::close(fd_);
    }
    bool is_asked() const { return is_asked_; }

    void wait_for_question() {
        fanotify_event_metadata question{};
        ASSERT_GT(::read(fd_, &question, sizeof question), 0);
        asked_ = question.fd;
    }

private:
    int fd_ = -1, asked_ = -1;
    bool is_asked_ = false;
};

}  // namespace

// A user of the mount may put a link in the place of a folder at any time.
TEST(own_files, opens_nothing_by_a_link) {
    const temporary_folder folder;
    std::filesystem::create_directory(folder / "real");
    std::ofstream(folder / "real/f") << "abc";
    std::filesystem::create_symlink("real", folder / "link");
    std::filesystem::create_symlink("f", folder / "real/g");
    const std::uint64_t inode = inode_of(folder / "real/f");
    mount::own_openers openers;
    mount::own_files files(openers, device_of(folder / "real/f"));
    files.begin();
    EXPECT_EQ(files.write_back(folder / "real/f", inode), 0);
    EXPECT_EQ(files.write_back(folder / "real/g", inode), std::nullopt);
    EXPECT_EQ(files.write_back(folder / "link/f", inode), std::nullopt);
}

// A server of files may stop at any time.
TEST(own_files, an_open_that_waits_holds_up_no_other) {
    const temporary_folder folder;
    const std::string kept = folder / "kept", free = folder / "free";
    std::ofstream(kept) << "abc";
    std::ofstream(free) << "abc";
    mount::own_openers openers;
    mount::own_files files(openers, device_of(kept));
    files.begin();
    const auto write_back = [&](const std::string& path) {
        return std::async(std::launch::async, [&files, path, inode = inode_of(path)] {
            return files.write_back(path, inode);
        });
    };
    std::future<std::optional<int>> first, second;
    {
        keeper_of_file keeper(kept);
        if (!keeper.is_asked()) GTEST_SKIP() << "opens cannot be kept waiting here";
        first = write_back(kept);
        keeper.wait_for_question();
        second = write_back(free);
        EXPECT_EQ(second.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    EXPECT_EQ(first.get(), 0);
    EXPECT_EQ(second.get(), 0);
}

// The kernel names the thread that opens in its request.
TEST(own_openers, are_known_while_they_open) {
    mount::own_openers openers;
    EXPECT_FALSE(openers.has(::gettid()));
    {
        const mount::own_openers::entry ours(openers);
        EXPECT_TRUE(openers.has(::gettid()));
        std::async(std::launch::async, [&] {
            EXPECT_FALSE(openers.has(::gettid()));
            const mount::own_openers::entry other(openers);
            EXPECT_TRUE(openers.has(::gettid()));
        }).get();
        EXPECT_TRUE(openers.has(::gettid()));
        EXPECT_FALSE(openers.has(0)) << "a caller of another process namespace";
    }
    EXPECT_FALSE(openers.has(::gettid()));
}

}  // namespace penstock::test
