// Closes that write back their share of a file which others have open: when they do, how much they
// leave, and that nothing is lost by it.
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "penstock/engine/invariants.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/write.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t share_frames = 1024;
// What a close leaves to each later close in a cache of so many frames.
constexpr std::uint64_t left_pages = share_frames / 32;

class close_share : public testing::Test {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt;

    void SetUp() override {
        options o = small_options(folder);
        o.writable = true;
        o.page_bytes = page;
        o.cache_bytes = share_frames * page;
        o.write_behind_bytes = o.cache_bytes;  // so that closes alone write before the last one
        rt = make_runtime(o);
        ASSERT_EQ(rt->ref().view.close_leaves_pages, left_pages);
    }
    std::vector<int> open_often(int times, int flags = open_read_write | open_create) {
        std::vector<int> out;
        for (int i = 0; i < times; ++i) {
            out.push_back(rt->open(folder / "file", flags));
            EXPECT_GE(out.back(), 0) << error_text(out.back());
        }
        return out;
    }
    void write_whole(int fd, const std::vector<std::uint8_t>& bytes) {
        ASSERT_EQ(rt->write(fd, bytes.data(), static_cast<std::int64_t>(bytes.size()), 0),
                  static_cast<std::int64_t>(bytes.size()));
    }
    [[nodiscard]] std::uint64_t dirty_pages(int fd) const {
        const engine::cache_view& c = rt->ref().view;
        return engine::dirty_pages_of(c, engine::descriptor_slot(c, fd));
    }
};

}  // namespace

TEST_F(close_share, the_last_close_finds_little) {
    const std::vector<int> fds = open_often(8);
    const auto bytes = pattern(1, 20 * left_pages * page);
    write_whole(fds[0], bytes);
    EXPECT_EQ(rt->stats().write_backs, 0u);
    std::uint64_t before = dirty_pages(fds[0]);
    for (std::size_t i = 0; i + 1 < fds.size(); ++i) {
        const std::uint64_t closes = fds.size() - i;
        EXPECT_EQ(rt->close(fds[i]), 0);
        const std::uint64_t now = dirty_pages(fds[0]);
        if (before > (closes - 1) * left_pages) {
            EXPECT_LT(now, before) << closes << " closes were to come";
            EXPECT_LE(before - now, 2 * before / closes + 32)
                << "a close wrote more than its share";
        }
        before = now;
    }
    EXPECT_LE(before, left_pages);
    EXPECT_EQ(rt->stats().written_behind, rt->stats().write_backs);
    EXPECT_EQ(rt->close(fds.back()), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

// A page that is changed again and again while others open and close the file is written once.
TEST_F(close_share, few_pages_are_left_to_the_last_close) {
    const std::vector<int> fds = open_often(2);
    const auto bytes = pattern(2, left_pages * page);
    for (int round = 0; round < 20; ++round) {
        write_whole(fds[0], bytes);
        EXPECT_EQ(rt->close(open_often(1)[0]), 0);
    }
    EXPECT_EQ(rt->close(fds[0]), 0);
    EXPECT_EQ(rt->stats().write_backs, 0u);
    EXPECT_EQ(rt->close(fds[1]), 0);
    EXPECT_EQ(rt->stats().write_backs, left_pages);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

// A close that finds its share not due asks again when the pages or the other closes have changed.
TEST_F(close_share, a_share_that_is_not_due_may_become_due) {
    const std::vector<int> fds = open_often(3);
    const engine::cache_view& c = rt->ref().view;
    const std::uint32_t slot = engine::descriptor_slot(c, fds[0]);
    auto bytes = pattern(6, 2 * left_pages * page);
    write_whole(fds[0], bytes);
    EXPECT_FALSE(engine::is_share_due(c, slot)) << "two later closes can do the rest";
    EXPECT_GE(engine::references_without_share(c, slot), fds.size());
    EXPECT_FALSE(engine::write_share(lane{}, c, slot));
    EXPECT_EQ(rt->stats().write_backs, 0u);
    bytes = pattern(7, 9 * left_pages * page);
    write_whole(fds[0], bytes);
    EXPECT_TRUE(engine::is_share_due(c, slot));
    EXPECT_TRUE(engine::write_share(lane{}, c, slot));
    EXPECT_GE(rt->stats().write_backs, 2 * 9 * left_pages / fds.size());
    EXPECT_EQ(engine::write_behind_writers(c), 0u) << "the seat was not given back";
    for (const int fd : fds) EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

// What the end of a runtime does of which calls of other threads keep the last use.
TEST_F(close_share, open_files_are_written_back_beside_their_users) {
    const int closed = open_often(1)[0], reader = open_often(1, open_read)[0];
    const auto bytes = pattern(8, left_pages * page);
    write_whole(closed, bytes);
    const int other = rt->open(folder / "other", open_read_write | open_create);
    ASSERT_EQ(rt->write(other, bytes.data(), static_cast<std::int64_t>(page), 0),
              static_cast<std::int64_t>(page));
    const writable_mapping held = map_write(lane{}, rt->ref(), other, 0, page);
    ASSERT_EQ(held.bytes, static_cast<std::int64_t>(page));
    EXPECT_EQ(rt->write(other, bytes.data() + page, static_cast<std::int64_t>(page), page),
              static_cast<std::int64_t>(page));
    ASSERT_EQ(rt->close(closed), 0);
    ASSERT_NE(dirty_pages(reader), 0u) << "the reader's close would bring the rest to the file";
    std::vector<std::string> left;
    const status s = rt->state().write_back_open_files(left);
    EXPECT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(left, std::vector<std::string>{folder / "other"}) << "a page of it is mapped";
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
    EXPECT_EQ(bytes_on_disk(folder / "other").size(), 2 * page);
    EXPECT_EQ(rt->close(reader), 0);
    EXPECT_EQ(rt->close(reader), -EBADF) << "a reference was left";
    EXPECT_EQ(unmap(lane{}, rt->ref(), held), 0);
    EXPECT_EQ(rt->close(other), 0);
    EXPECT_EQ(engine::check_invariants(rt->ref().view, {}).rule, nullptr) << "a reference is left";
}

TEST_F(close_share, a_reader_has_no_share) {
    const int fd = open_often(1)[0], reader = open_often(1, open_read)[0];
    const auto bytes = pattern(3, 10 * left_pages * page);
    write_whole(fd, bytes);
    EXPECT_EQ(rt->close(reader), 0);
    EXPECT_EQ(rt->stats().write_backs, 0u);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

// Pages that are mapped to be changed would have to be written once more, so shares leave them.
TEST_F(close_share, mapped_pages_are_left_to_their_unmap) {
    const std::vector<int> fds = open_often(2);
    auto bytes = pattern(4, 4 * left_pages * page);
    write_whole(fds[0], bytes);
    const writable_mapping m = map_write(lane{}, rt->ref(), fds[0], 0, page);
    ASSERT_EQ(m.bytes, static_cast<std::int64_t>(page));
    EXPECT_EQ(rt->close(fds[1]), 0);
    EXPECT_GT(rt->stats().write_backs, 0u);
    EXPECT_TRUE(engine::is_dirty(rt->ref().view.words[m.word_index]));
    m.data[7] = std::byte{77};
    bytes[7] = 77;
    EXPECT_EQ(unmap(lane{}, rt->ref(), m), 0);
    EXPECT_EQ(rt->close(fds[0]), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

// As a kernel does it: many groups open the file, write a part of it and close it, and the host
// never has it open.
TEST_F(close_share, many_groups_open_write_and_close) {
    constexpr std::uint64_t parts = 400, part_pages = 2;
    const auto bytes = pattern(5, parts * part_pages * page);
    write_file(folder / "file", std::vector<std::uint8_t>(bytes.size(), 0));
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> team;
    for (int t = 0; t < 8; ++t)
        team.emplace_back([&] {
            for (std::uint64_t part = next++; part < parts; part = next++) {
                const int fd = open(lane{}, rt->ref(), "file", open_write);
                const std::uint64_t at = part * part_pages * page;
                for (std::uint64_t i = 0; i < part_pages * page; i += page / 2)
                    if (write(lane{}, rt->ref(), fd, bytes.data() + at + i, page / 2,
                              static_cast<std::int64_t>(at + i)) !=
                        static_cast<std::int64_t>(page / 2))
                        ++wrong;
                if (close(lane{}, rt->ref(), fd) != 0) ++wrong;
            }
        });
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
    const engine::invariant_report found = engine::check_invariants(rt->ref().view, {0, 0});
    EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
    EXPECT_EQ(engine::write_behind_writers(rt->ref().view), 0u) << "a seat was not given back";
}

}  // namespace penstock::test
