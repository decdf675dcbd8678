// Which files may be read by their size, and what makes two looks at a file the same version.
#include "os/file_kind.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/time.h>
#include <unistd.h>

namespace {

using namespace penstock::host;

class file_kinds : public ::testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/penstock-kind-XXXXXX";
        folder = ::mkdtemp(name);
    }
    void TearDown() override { std::filesystem::remove_all(folder); }
    std::string made(const std::string& name, const std::string& bytes) {
        std::ofstream(folder + "/" + name) << bytes;
        return folder + "/" + name;
    }
    static file_kind kind(const std::string& path) {
        struct stat facts {};
        file_kind kind{};
        EXPECT_EQ(look_at_file(path, facts, kind), 0) << path;
        return kind;
    }
    std::string folder;
};

TEST_F(file_kinds, ordinary_empty_and_sparse_files_are_regular) {
    EXPECT_EQ(kind(made("text", "hello")), file_kind::regular);
    EXPECT_EQ(kind(made("empty", "")), file_kind::regular);
    const std::string sparse = made("sparse", "");
    ASSERT_EQ(::truncate(sparse.c_str(), 1 << 20), 0);
    EXPECT_EQ(kind(sparse), file_kind::regular);
}

TEST_F(file_kinds, files_that_lie_about_their_size) {
    EXPECT_EQ(kind("/proc/self/status"), file_kind::false_size);                // says 0
    const std::string shorter = "/sys/kernel/mm/transparent_hugepage/enabled";  // says 4096
    if (std::filesystem::exists(shorter)) {
        EXPECT_EQ(kind(shorter), file_kind::false_size);
    }
    EXPECT_FALSE(why_not_by_size(file_kind::false_size).empty());
}

TEST_F(file_kinds, nothing_special_is_opened) {
    const std::string pipe = folder + "/pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(kind(pipe), file_kind::special);
    EXPECT_EQ(kind("/dev/null"), file_kind::special);
    EXPECT_EQ(kind(folder), file_kind::directory);
    struct stat facts {};
    file_kind kind{};
    EXPECT_EQ(look_at_file(folder + "/none", facts, kind), -ENOENT);
}

// rsync --inplace -t and cp -p leave size and modification time as they were.
TEST_F(file_kinds, a_time_set_back_is_another_version) {
    const std::string path = made("file", "one");
    struct stat before {
    }, after{};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    ::usleep(20'000);
    std::ofstream(path) << "two";
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    ASSERT_EQ(::stat(path.c_str(), &after), 0);
    EXPECT_EQ(after.st_size, before.st_size);
    EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    EXPECT_NE(identity_of(before), identity_of(after));
}

}  // namespace
