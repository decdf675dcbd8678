// Copying and comparing by groups: where a file differs from its copy, where a copy stopped, and
// what a file with holes has to copy.
#include <gtest/gtest.h>

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "cli/copy_job.hpp"
#include "unit/support.hpp"

namespace penstock::cp {

namespace {

constexpr std::uint64_t page = 4096, long_file = 23 * page + 5;

struct two_files {
    test::temporary_folder folder;
    std::vector<std::uint8_t> bytes = test::pattern(1, long_file);
    std::unique_ptr<runtime> rt;

    two_files() {
        options o = test::small_options(folder);
        o.page_bytes = page;
        o.cache_bytes = 64 * page;
        o.writable = true;
        rt = test::make_runtime(o);
        test::write_file(folder / "source", bytes);
    }
    open_copy opened(int flags) {
        open_copy out{rt->open(folder / "source"),
                      rt->open(folder / "copy", flags),
                      long_file,
                      {{0, long_file}},
                      0,
                      0,
                      false};
        EXPECT_GE(out.from, 0);
        EXPECT_GE(out.to, 0);
        return out;
    }
    void close(const open_copy& copy) {
        EXPECT_EQ(rt->close(copy.from), 0);
        EXPECT_EQ(rt->close(copy.to), 0);
    }
};

std::vector<open_copy> list_of(const open_copy& copy) { return {copy}; }

}  // namespace

TEST(copy_failure, the_nearest_to_the_beginning_remains) {
    copy_file file{0, 0, 0};
    note_failure(file, 5 * page, failed_at::writing, -ENOSPC);
    note_failure(file, 3 * page, failed_at::reading, -ESTALE);
    note_failure(file, 9 * page, failed_at::writing, -EIO);
    EXPECT_EQ(offset_of(file.failure), 3 * page);
    EXPECT_EQ(step_of(file.failure), failed_at::reading);
    EXPECT_EQ(code_of(file.failure), -ESTALE);
    note_failure(file, 0, failed_at::writing, -EFBIG);
    EXPECT_EQ(offset_of(file.failure), 0u);
    EXPECT_EQ(step_of(file.failure), failed_at::writing);
    EXPECT_EQ(code_of(file.failure), -EFBIG);
    EXPECT_EQ(offset_of(failure_word(most_bytes - 1, failed_at::reading, -EIO)), most_bytes - 1);
}

TEST(copy_files, a_copy_equals_its_source_and_one_changed_byte_is_found) {
    two_files t;
    auto files = list_of(t.opened(open_write | open_create));
    ASSERT_TRUE(copy_open_files(*t.rt, files).ok());
    EXPECT_EQ(files[0].code, 0);
    EXPECT_EQ(files[0].reached_bytes, long_file);
    t.close(files[0]);
    auto same = list_of(t.opened(open_read));
    ASSERT_TRUE(compare_open_files(*t.rt, same).ok());
    EXPECT_EQ(same[0].code, 0);
    t.close(same[0]);
    for (const std::uint64_t at :
         {std::uint64_t{0}, std::uint64_t{7}, page - 1, 11 * page + 9, 23 * page, long_file - 1}) {
        auto changed = t.bytes;
        changed[at] ^= 1;
        changed[long_file - 1] ^= 2;  // a second one, further back or the same
        test::write_file(t.folder / "copy", changed);
        auto wrong = list_of(t.opened(open_read));
        ASSERT_TRUE(compare_open_files(*t.rt, wrong).ok());
        EXPECT_EQ(wrong[0].code, -EILSEQ);
        EXPECT_EQ(wrong[0].reached_bytes, at);
        t.close(wrong[0]);
    }
}

TEST(copy_files, a_copy_that_is_shorter_is_no_equal) {
    two_files t;
    test::write_file(t.folder / "copy", {t.bytes.begin(), t.bytes.begin() + 9 * page + 3});
    auto files = list_of(t.opened(open_read));
    ASSERT_TRUE(compare_open_files(*t.rt, files).ok());
    EXPECT_EQ(files[0].code, -ESTALE);
    EXPECT_EQ(files[0].reached_bytes, 9 * page + 3);
    EXPECT_FALSE(files[0].reading);
    t.close(files[0]);
}

TEST(copy_files, a_source_that_is_shorter_is_the_one_that_failed) {
    two_files t;
    test::write_file(t.folder / "copy", t.bytes);
    test::write_file(t.folder / "source", {t.bytes.begin(), t.bytes.begin() + 9 * page + 3});
    auto files = list_of(t.opened(open_read));
    ASSERT_TRUE(compare_open_files(*t.rt, files).ok());
    EXPECT_EQ(files[0].code, -ESTALE);
    EXPECT_EQ(files[0].reached_bytes, 9 * page + 3);
    EXPECT_TRUE(files[0].reading);
    t.close(files[0]);
}

TEST(copy_files, an_interrupt_leaves_all_of_it_to_do) {
    two_files t;
    auto files = list_of(t.opened(open_write | open_create));
    t.rt->interrupt();
    ASSERT_TRUE(copy_open_files(*t.rt, files).ok());
    EXPECT_EQ(files[0].code, -ECANCELED);
    EXPECT_EQ(files[0].reached_bytes, 0u);
    t.rt->resume();
    t.close(files[0]);
}

TEST(data_of, begins_and_ends_at_pieces) {
    const test::temporary_folder folder;
    const std::string path = folder / "sparse";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    constexpr std::uint64_t piece = 1 << 20, size = 10 * piece + 100;
    EXPECT_TRUE(data_of(fd, 0, piece).empty());
    ASSERT_EQ(::ftruncate(fd, size), 0);
    const bool has_holes = ::lseek(fd, 0, SEEK_DATA) < 0;
    if (!has_holes) GTEST_SKIP() << "this file system has no holes";
    EXPECT_TRUE(data_of(fd, size, piece).empty());
    ASSERT_EQ(::pwrite(fd, "x", 1, 3 * piece + 5), 1);
    ASSERT_EQ(::pwrite(fd, "x", 1, 4 * piece + 5), 1);
    ASSERT_EQ(::pwrite(fd, "x", 1, 10 * piece + 7), 1);
    const auto parts = data_of(fd, size, piece);
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].offset_bytes, 3 * piece);
    EXPECT_EQ(parts[0].bytes, 2 * piece);
    EXPECT_EQ(parts[1].offset_bytes, 10 * piece);
    EXPECT_EQ(parts[1].bytes, 100u);
    ::close(fd);
}

}  // namespace penstock::cp
