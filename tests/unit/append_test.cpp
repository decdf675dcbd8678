// Appending: records that fail leave no hole in the file, and rooms of records that are under way
// belong to no other record.
#include <cerrno>
#include <string>
#include <vector>

#include "penstock/engine/write.hpp"
#include "unit/support.hpp"

namespace penstock::test {

class appending : public testing::Test {
protected:
    temporary_folder folder;
    options settings = small_options(folder);
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "log";

    void SetUp() override {
        settings.writable = true;
        settings.frame_wait_ms = 20;
        rt = make_runtime(settings);
    }
    int open_log() {
        const int fd = rt->open(path, open_read_write | open_create);
        EXPECT_GE(fd, 0);
        return fd;
    }
    std::int64_t add(int fd, const std::string& record) {
        return rt->append(fd, record.data(), static_cast<std::int64_t>(record.size()));
    }
    std::uint64_t size(int fd) {
        file_stat facts;
        EXPECT_EQ(rt->stat(fd, &facts), 0);
        return facts.size_bytes;
    }
    std::string on_disk() {
        const auto bytes = bytes_on_disk(path);
        return {bytes.begin(), bytes.end()};
    }
};

TEST_F(appending, records_that_are_interrupted_leave_no_hole) {
    const int fd = open_log();
    EXPECT_EQ(add(fd, "one\n"), 0);
    rt->interrupt();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(add(fd, "two\n"), -ECANCELED);
    rt->resume();
    EXPECT_EQ(size(fd), 4u);
    EXPECT_EQ(add(fd, "two\n"), 4);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), "one\ntwo\n");
}

TEST_F(appending, a_record_behind_the_limit_of_growth_leaves_the_size_alone) {
    const int fd = open_log();
    const engine::cache_view& c = rt->ref().view;
    const std::uint64_t known =
        rt->ref().view.file_records[engine::descriptor_slot(c, fd)].page_count;
    const auto limit = static_cast<std::int64_t>(
        ((std::uint64_t{c.growth_entries} << c.leaf_shift) + known) << c.page_shift);
    ASSERT_EQ(rt->write(fd, "x", 1, limit - 3), 1);
    EXPECT_EQ(add(fd, "abc"), -EFBIG) << "and no part of it is written";
    EXPECT_EQ(size(fd), static_cast<std::uint64_t>(limit) - 2);
    EXPECT_EQ(add(fd, "ab"), limit - 2);
    EXPECT_EQ(add(fd, "c"), -EFBIG);
    EXPECT_EQ(add(fd, ""), limit) << "where a record would begin";
    EXPECT_EQ(size(fd), static_cast<std::uint64_t>(limit));
    EXPECT_EQ(rt->truncate(fd, 1), 0);
    EXPECT_EQ(add(fd, "c"), 1);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(appending, records_without_a_frame_leave_no_hole) {
    settings.cache_bytes = 8 * page;
    rt = make_runtime(settings);
    write_file(path, pattern(1, 8 * page));
    const int fd = open_log();
    std::vector<mapping> held;
    for (std::int64_t i = 0; i < 8; ++i)
        held.push_back(rt->map(fd, i * static_cast<std::int64_t>(page), 1));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(add(fd, "zz"), -ENOBUFS);
    EXPECT_EQ(size(fd), 8 * page);
    for (const mapping& one : held) rt->unmap(one);
    EXPECT_EQ(add(fd, "zz"), static_cast<std::int64_t>(8 * page));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), 8 * page + 2);
}

TEST_F(appending, begins_behind_other_writes_and_at_a_cut) {
    const int fd = open_log();
    EXPECT_EQ(rt->write(fd, "abc", 3, 100), 3);
    EXPECT_EQ(add(fd, "d"), 103);
    EXPECT_EQ(rt->truncate(fd, 10), 0);
    EXPECT_EQ(add(fd, "e"), 10);
    EXPECT_EQ(rt->truncate(fd, 200), 0);
    EXPECT_EQ(add(fd, "f"), 200);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), 201u);
}

// Another record began behind one that fails then.
TEST_F(appending, room_that_a_record_follows_is_not_given_back) {
    const int fd = open_log();
    const engine::cache_view& c = rt->ref().view;
    const std::uint32_t slot = engine::descriptor_slot(c, fd);
    std::uint64_t at = 0;
    ASSERT_EQ(engine::begin_append(c, slot, 4, at), 0);
    EXPECT_EQ(size(fd), 0u) << "room is no part of the file";
    EXPECT_EQ(add(fd, "one"), 4);
    engine::give_room_back(c, slot, at, 4);
    EXPECT_EQ(add(fd, "two"), 7);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), std::string(4, '\0') + "onetwo");
}

// Bytes that a group put by write into the room of a record that fails are the file's.
TEST_F(appending, room_that_is_given_back_takes_no_written_byte_along) {
    const int fd = open_log();
    const engine::cache_view& c = rt->ref().view;
    const std::uint32_t slot = engine::descriptor_slot(c, fd);
    std::uint64_t at = 0;
    ASSERT_EQ(engine::begin_append(c, slot, 8, at), 0);
    EXPECT_EQ(rt->write(fd, "mine", 4, 2), 4);
    engine::give_room_back(c, slot, at, 8);
    EXPECT_EQ(size(fd), 6u);
    EXPECT_EQ(add(fd, "next"), 6);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), std::string(2, '\0') + "minenext");
}

}  // namespace penstock::test
