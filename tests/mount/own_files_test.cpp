// Files of a mount that its own process opens, which have to be those that it means.
#include "mount/own_files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>

#include "unit/support.hpp"

namespace penstock::test {

// A user of the mount may put a link in the place of a folder at any time.
TEST(own_files, opens_nothing_by_a_link) {
    const temporary_folder folder;
    std::filesystem::create_directory(folder / "real");
    std::ofstream(folder / "real/f") << "abc";
    std::filesystem::create_symlink("real", folder / "link");
    std::filesystem::create_symlink("f", folder / "real/g");
    struct stat facts {};
    ASSERT_EQ(::stat((folder / "real/f").c_str(), &facts), 0);
    std::atomic<pid_t> opener{0};
    mount::own_files files(opener, facts.st_dev);
    files.begin();
    EXPECT_EQ(files.write_back(folder / "real/f", facts.st_ino), 0);
    EXPECT_EQ(files.write_back(folder / "real/g", facts.st_ino), std::nullopt);
    EXPECT_EQ(files.write_back(folder / "link/f", facts.st_ino), std::nullopt);
}

}  // namespace penstock::test
