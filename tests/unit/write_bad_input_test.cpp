// Writing what may not be written, where it may not be written, and files that change their names
// or go away meanwhile. Nothing of this touches another file.
#include <atomic>
#include <climits>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

class bad_writing : public testing::Test {
protected:
    temporary_folder folder, outside;
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";

    void SetUp() override {
        options o = small_options(folder);
        o.writable = true;
        rt = make_runtime(o);
    }
    // As a kernel opens: only below the roots.
    int open_as_kernel(const std::string& name, int flags) {
        return open(lane{}, rt->ref(), name.c_str(), flags);
    }
    std::int64_t write_some(int fd, std::uint64_t seed, std::uint64_t bytes, std::int64_t offset) {
        const auto content = pattern(seed, bytes);
        return rt->write(fd, content.data(), static_cast<std::int64_t>(bytes), offset);
    }
    std::vector<std::uint8_t> read_back(int fd, std::uint64_t bytes) {
        std::vector<std::uint8_t> out(bytes);
        EXPECT_EQ(rt->read(fd, out.data(), static_cast<std::int64_t>(bytes), 0),
                  static_cast<std::int64_t>(bytes));
        return out;
    }
};

}  // namespace

TEST_F(bad_writing, ranges_that_overflow_or_are_too_far) {
    const int fd = rt->open(path, open_read_write | open_create);
    char byte = 1;
    for (const std::int64_t offset :
         {std::int64_t{-1}, std::int64_t{INT64_MIN}, std::int64_t{INT64_MAX}}) {
        EXPECT_EQ(rt->write(fd, &byte, 1, offset), -EINVAL) << offset;
        EXPECT_EQ(rt->msync(fd, offset, 1), -EINVAL) << offset;
    }
    EXPECT_EQ(rt->write(fd, &byte, INT64_MAX, 1), -EINVAL);
    EXPECT_EQ(rt->write(fd, &byte, INT64_MIN, 0), -EINVAL);
    EXPECT_EQ(rt->msync(fd, 0, -1), -EINVAL);
    EXPECT_EQ(rt->append(fd, &byte, -1), -EINVAL);
    EXPECT_EQ(rt->append(fd, nullptr, 1), -EINVAL);
    EXPECT_EQ(rt->truncate(fd, INT64_MIN), -EINVAL);
    for (const std::int64_t offset : {INT64_MAX - 1, std::int64_t{1} << 62, std::int64_t{1} << 45})
        EXPECT_EQ(rt->write(fd, &byte, 1, offset), -EFBIG) << offset;
    EXPECT_LT(rt->truncate(fd, INT64_MAX), 0) << "no file system has such a file";
    file_stat facts;
    EXPECT_EQ(rt->stat(fd, &facts), 0);
    EXPECT_EQ(facts.size_bytes, 0u) << "what failed changed nothing";
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(std::filesystem::file_size(path), 0u);
}

// The system would take such a name for the part before its zero byte.
TEST_F(bad_writing, names_with_a_zero_byte) {
    write_file(path, pattern(1, page));
    const std::string name = path + '\0' + "x";
    for (const int flags : {open_read | 0, open_read_write | open_create})
        for (const std::string& wrong : {name, path + '\0', '\0' + path}) {
            EXPECT_EQ(rt->open(wrong, flags), -EINVAL);
            EXPECT_EQ(rt->open_everywhere(wrong, flags).code(), -EINVAL);
        }
    EXPECT_EQ(rt->open(folder / "new" + '\0', open_write | open_create), -EINVAL);
    EXPECT_FALSE(std::filesystem::exists(folder / "new"));
    EXPECT_EQ(rt->allow(name), -EINVAL);
    EXPECT_EQ(rt->unlink(name), -EINVAL);
    EXPECT_EQ(rt->rename(name, folder / "other"), -EINVAL);
    EXPECT_EQ(rt->rename(path, folder / "other" + '\0'), -EINVAL);
    EXPECT_EQ(rt->open_windows(name), -EINVAL);
    std::unique_ptr<file_region> region;
    status s = map_region(*rt, name, 0, 0, protection::read, {}, region);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("zero byte"), std::string::npos) << s.message;
    std::unique_ptr<file_pieces> pieces;
    s = map_pieces(*rt, name, {}, pieces);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("zero byte"), std::string::npos) << s.message;
    options o = small_options(folder);
    o.roots = {folder.path() + '\0' + "x"};
    EXPECT_EQ(runtime::make(o, rt).code, -EINVAL);
    EXPECT_EQ(bytes_on_disk(path), pattern(1, page)) << "no call met the file of the shorter name";
}

// Old and new contents do not mix: what the file had is not read as zeros.
TEST_F(bad_writing, a_file_that_another_program_cuts) {
    constexpr std::int64_t far = 20 * static_cast<std::int64_t>(page);
    for (const int flags : {open_read_write, open_write_once}) {
        write_file(path, pattern(1, 25 * page));
        const int fd = rt->open(path, flags);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(write_some(fd, 2, page, far + 10 * static_cast<std::int64_t>(page)),
                  static_cast<std::int64_t>(page));
        ASSERT_EQ(rt->fsync(fd), 0);
        std::filesystem::resize_file(path, 10);
        char bytes[100];
        EXPECT_EQ(rt->read(fd, bytes, 100, far), -ESTALE);
        EXPECT_EQ(rt->read(fd, bytes, 5, 0), -ESTALE) << "the page is there in part only";
        EXPECT_EQ(rt->map(fd, far, 10).bytes, -ESTALE);
        EXPECT_EQ(rt->write(fd, bytes, 2, far), -ESTALE) << "the rest of the page is not known";
        EXPECT_EQ(rt->read(fd, bytes, 100, far + 10 * static_cast<std::int64_t>(page)), 100)
            << "is in the cache";
        ASSERT_EQ(rt->close(fd), 0);
    }
    write_file(path, {});
    const int fd = rt->open(path, open_read_write);
    ASSERT_EQ(write_some(fd, 3, 2 * page, far), static_cast<std::int64_t>(2 * page));
    ASSERT_EQ(rt->fsync(fd), 0);
    write_file(folder / "other", pattern(4, 100 * page));
    const int other = rt->open(folder / "other");
    EXPECT_EQ(read_back(other, 100 * page), pattern(4, 100 * page)) << "and the page is evicted";
    char bytes[100];
    EXPECT_EQ(rt->read(fd, bytes, 100, 0), 100) << "was never written";
    EXPECT_EQ(bytes[99], 0);
    std::filesystem::resize_file(path, page);
    EXPECT_EQ(rt->read(fd, bytes, 100, far), -ESTALE);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(other), 0);
    EXPECT_EQ(rt->stats().bad_requests, 0u);
}

// Reads beside cuts and writes of the runtime itself come before or after them.
TEST_F(bad_writing, a_file_that_the_runtime_cuts_is_read_without_an_error) {
    options o = small_options(folder);
    o.writable = true;
    o.cache_bytes = 8 * page;
    rt = make_runtime(o);
    const int fd = rt->open(path, open_read_write | open_create);
    std::atomic<bool> ends{false};
    std::vector<std::thread> readers;
    for (std::uint64_t t = 0; t < 2; ++t)
        readers.emplace_back([&, t] {
            char bytes[100];
            for (std::uint64_t i = 0; !ends; ++i) {
                const auto at = static_cast<std::int64_t>(mix64(i * 2 + t) % 20 * page);
                EXPECT_GE(rt->read(fd, bytes, 100, at), 0);
            }
        });
    for (int round = 0; round < 100; ++round) {
        EXPECT_EQ(write_some(fd, 5, 20 * page - 100, 0),
                  static_cast<std::int64_t>(20 * page - 100));
        EXPECT_EQ(rt->truncate(fd, round % 3 == 0 ? 0 : 3 * static_cast<std::int64_t>(page) + 7),
                  0);
    }
    ends = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(bad_writing, descriptors_that_are_none) {
    char byte = 1;
    const int fd = rt->open(path, open_write | open_create);
    ASSERT_EQ(rt->close(fd), 0);
    for (const int wrong : {fd, -1, INT_MAX, INT_MIN, fd + 1, fd ^ (1 << 20)}) {
        EXPECT_EQ(rt->write(wrong, &byte, 1, 0), -EBADF) << wrong;
        EXPECT_EQ(rt->append(wrong, &byte, 1), -EBADF) << wrong;
        EXPECT_EQ(rt->fsync(wrong), -EBADF) << wrong;
        EXPECT_EQ(rt->msync(wrong, 0, 1), -EBADF) << wrong;
        EXPECT_EQ(rt->truncate(wrong, 0), -EBADF) << wrong;
        EXPECT_EQ(rt->close(wrong), -EBADF) << wrong;
    }
}

TEST_F(bad_writing, what_is_no_file_or_not_ours) {
    ASSERT_EQ(::mkdir((folder / "directory").c_str(), 0755), 0);
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0644), 0);
    write_file(outside / "secret", pattern(1, 100));
    ASSERT_EQ(::symlink((outside / "secret").c_str(), (folder / "link").c_str()), 0);
    ASSERT_EQ(::symlink((outside / "new").c_str(), (folder / "link to nothing").c_str()), 0);
    ASSERT_EQ(::symlink(outside.path().c_str(), (folder / "link to directory").c_str()), 0);
    constexpr int make = open_write | open_create | open_truncate;
    EXPECT_EQ(open_as_kernel("directory", open_write), -EISDIR);
    EXPECT_EQ(open_as_kernel("directory", make), -EISDIR);
    EXPECT_EQ(open_as_kernel("directory/", make), -EISDIR);
    EXPECT_EQ(open_as_kernel(".", make), -EACCES);
    EXPECT_EQ(open_as_kernel("..", make), -EACCES);
    EXPECT_EQ(open_as_kernel("pipe", open_write), -EOPNOTSUPP);
    EXPECT_EQ(open_as_kernel("missing/file", make), -ENOENT);
    EXPECT_EQ(open_as_kernel("", make), -ENOENT);
    EXPECT_EQ(open_as_kernel(std::string(300, 'x'), make), -ENAMETOOLONG);
    EXPECT_EQ(open_as_kernel("link", make), -EACCES);
    EXPECT_LT(open_as_kernel("link to nothing", make), 0);
    EXPECT_EQ(open_as_kernel("link to directory/new", make), -EACCES);
    EXPECT_EQ(open_as_kernel("link to directory/secret", make), -EACCES);
    EXPECT_EQ(open_as_kernel(outside / "secret", make), -EACCES);
    EXPECT_EQ(open_as_kernel(outside / "new", make), -EACCES);
    EXPECT_EQ(open_as_kernel("/dev/null", open_write), -EACCES);
    EXPECT_EQ(bytes_on_disk(outside / "secret"), pattern(1, 100));
    EXPECT_FALSE(std::filesystem::exists(outside / "new"));
}

TEST_F(bad_writing, a_file_that_may_only_be_read) {
    write_file(path, pattern(2, 100));
    write_file(folder / "ours", pattern(2, 100));
    ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
    ASSERT_EQ(::chmod((folder / "ours").c_str(), 0666), 0);
    ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
    // Root may write to every file. So all threads are another user for a while, which may still
    // look into /proc/self.
    const bool is_root = ::geteuid() == 0;
    if (is_root) {
        ASSERT_EQ(::seteuid(65534), 0);
        ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
    EXPECT_EQ(rt->open(path, open_write), -EACCES);
    if (is_root) {
        EXPECT_EQ(rt->open(folder / "new", open_write | open_create), -EACCES)
            << "the folder is another's";
    }
    const int fd = rt->open(path), ours = rt->open(folder / "ours", open_write);
    if (is_root) {
        EXPECT_EQ(::seteuid(0), 0);
    }
    EXPECT_GE(fd, 0);
    EXPECT_GE(ours, 0);
    EXPECT_EQ(rt->write(fd, "x", 1, 0), -EBADF);
    EXPECT_EQ(rt->write(ours, "x", 1, 0), 1);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(ours), 0);
    EXPECT_EQ(bytes_on_disk(path), pattern(2, 100));
}

TEST_F(bad_writing, a_file_system_that_may_only_be_read) {
    const std::string place = folder / "mounted";
    ASSERT_EQ(::mkdir(place.c_str(), 0755), 0);
    if (::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=1m") != 0)
        GTEST_SKIP() << "mounting a tmpfs needs root (CAP_SYS_ADMIN)";
    write_file(place + "/file", pattern(3, 100));
    const bool locked =
        ::mount(nullptr, place.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0;
    EXPECT_TRUE(locked);
    EXPECT_EQ(open_as_kernel("mounted/file", open_write), -EROFS);
    EXPECT_EQ(open_as_kernel("mounted/file", open_read_write | open_truncate), -EROFS);
    EXPECT_EQ(open_as_kernel("mounted/new", open_write | open_create), -EROFS);
    const int fd = rt->open(place + "/file");
    EXPECT_EQ(read_back(fd, 100), pattern(3, 100));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(place + "/file"), pattern(3, 100));
    rt.reset();
    EXPECT_EQ(::umount2(place.c_str(), MNT_DETACH), 0);
}

TEST_F(bad_writing, a_file_deleted_while_it_is_dirty) {
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_EQ(write_some(fd, 4, 3 * page, 0), static_cast<std::int64_t>(3 * page));
    std::filesystem::remove(path);
    EXPECT_EQ(rt->fsync(fd), 0) << "the file is there as long as a descriptor has it open";
    EXPECT_EQ(read_back(fd, 3 * page), pattern(4, 3 * page));
    ASSERT_EQ(write_some(fd, 5, page, page), static_cast<std::int64_t>(page));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(rt->open(path), -ENOENT);
    const int again = rt->open(path, open_read_write | open_create);
    ASSERT_GE(again, 0);
    file_stat facts;
    EXPECT_EQ(rt->stat(again, &facts), 0);
    EXPECT_EQ(facts.size_bytes, 0u) << "another file of that name";
    EXPECT_EQ(rt->close(again), 0);
}

// The bytes go to the file that was opened, and not to the one that has its name by now.
TEST_F(bad_writing, a_file_replaced_by_rename_while_it_is_dirty) {
    write_file(path, pattern(6, 2 * page));
    const int fd = rt->open(path, open_read_write);
    ASSERT_EQ(write_some(fd, 7, 100, 50), 100);
    write_file(folder / "other", pattern(8, page));
    ASSERT_EQ(::rename(path.c_str(), (folder / "kept").c_str()), 0);
    ASSERT_EQ(::rename((folder / "other").c_str(), path.c_str()), 0);
    auto wanted = pattern(6, 2 * page);
    const auto changed = pattern(7, 100);
    std::copy(changed.begin(), changed.end(), wanted.begin() + 50);
    EXPECT_EQ(read_back(fd, 2 * page), wanted);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "kept"), wanted);
    EXPECT_EQ(bytes_on_disk(path), pattern(8, page));
    const int again = rt->open(path);
    EXPECT_EQ(read_back(again, page), pattern(8, page));
    EXPECT_EQ(rt->close(again), 0);
}

// Others cut the file that we have dirty pages of: what we wrote comes where we wrote it, the rest
// is zeros.
TEST_F(bad_writing, a_file_cut_by_others_while_it_is_dirty) {
    write_file(path, pattern(9, 4 * page));
    const int fd = rt->open(path, open_read_write);
    ASSERT_EQ(write_some(fd, 10, 100, 2 * page + 8), 100);
    ASSERT_EQ(::truncate(path.c_str(), 10), 0);
    EXPECT_EQ(rt->close(fd), 0);
    auto wanted = pattern(9, 10);
    wanted.resize(2 * page + 108);
    const auto changed = pattern(10, 100);
    std::copy(changed.begin(), changed.end(), wanted.begin() + 2 * page + 8);
    EXPECT_EQ(bytes_on_disk(path), wanted);
}

}  // namespace penstock::test
