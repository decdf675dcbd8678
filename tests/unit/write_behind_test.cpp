// Writing behind: when it begins, what it leaves alone, and that nothing is lost by it.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>
#include <vector>

#include "penstock/engine/invariants.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/write.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t frames = 64;

options behind_options(const temporary_folder& folder,
                       std::optional<std::uint64_t> write_behind_pages) {
    options o = small_options(folder);
    o.writable = true;
    o.page_bytes = page;
    o.cache_bytes = frames * page;
    if (write_behind_pages) o.write_behind_bytes = *write_behind_pages * page;
    return o;
}

// Writes the pages of `bytes` in order, one call each.
void write_in_order(runtime& rt, int fd, const std::vector<std::uint8_t>& bytes) {
    for (std::uint64_t at = 0; at < bytes.size(); at += page)
        ASSERT_EQ(rt.write(fd, bytes.data() + at, page, static_cast<std::int64_t>(at)),
                  static_cast<std::int64_t>(page));
}

}  // namespace

TEST(write_behind, begins_when_a_quarter_of_the_cache_is_dirty) {
    const temporary_folder folder;
    const auto rt = make_runtime(behind_options(folder, std::nullopt));
    EXPECT_EQ(rt->settings().write_behind_bytes, frames / 4 * page);
    const int fd = rt->open(folder / "file", open_read_write | open_create);
    ASSERT_GE(fd, 0) << error_text(fd);
    const auto bytes = pattern(1, frames / 2 * page);
    write_in_order(*rt, fd, {bytes.begin(), bytes.begin() + frames / 4 * page});
    EXPECT_EQ(rt->stats().write_backs, 0u) << "a quarter of the cache may be dirty";
    write_in_order(*rt, fd, bytes);
    const statistics s = rt->stats();
    EXPECT_GE(s.written_behind, frames / 8);
    EXPECT_EQ(s.written_behind, s.write_backs);
    EXPECT_EQ(s.dirty_victims, 0u);
    EXPECT_EQ(s.evictions, 0u) << "what was written behind stays in the cache";
    // An ordinary program finds what lies behind before anybody has closed the file.
    const auto found = bytes_on_disk(folder / "file");
    ASSERT_GE(found.size(), frames / 8 * page);
    EXPECT_TRUE(std::equal(found.begin(), found.begin() + frames / 8 * page, bytes.begin()));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

TEST(write_behind, as_much_as_the_cache_is_not_before_a_frame_is_needed) {
    const temporary_folder folder;
    const auto rt = make_runtime(behind_options(folder, frames));
    const int fd = rt->open(folder / "file", open_read_write | open_create);
    const auto bytes = pattern(2, frames * page);
    write_in_order(*rt, fd, bytes);
    EXPECT_EQ(rt->stats().write_backs, 0u);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

TEST(write_behind, of_zero_begins_with_the_first_pages) {
    const temporary_folder folder;
    const auto rt = make_runtime(behind_options(folder, 0));
    const int fd = rt->open(folder / "file", open_read_write | open_create);
    const auto bytes = pattern(6, frames / 4 * page);
    write_in_order(*rt, fd, bytes);
    EXPECT_GT(rt->stats().written_behind, 0u);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

// A page that is written again is not new in what is dirty: only the first time counts.
TEST(write_behind, the_same_few_pages_again_and_again_are_left_alone) {
    const temporary_folder folder;
    const auto rt = make_runtime(behind_options(folder, 16));
    const int fd = rt->open(folder / "file", open_read_write | open_create);
    const auto bytes = pattern(3, 12 * page);
    for (int round = 0; round < 20; ++round) write_in_order(*rt, fd, bytes);
    EXPECT_EQ(rt->stats().write_backs, 0u);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
}

TEST(write_behind, many_writers_of_a_file_that_is_larger_than_the_cache) {
    const temporary_folder folder;
    const auto rt = make_runtime(behind_options(folder, 8));
    const int fd = rt->open(folder / "file", open_read_write | open_create);
    const auto bytes = pattern(4, 20 * frames * page);
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> team;
    for (int t = 0; t < 6; ++t)
        team.emplace_back([&] {
            // Both halves of a page by themselves, so that a page is written while it goes.
            for (std::uint64_t at = next.fetch_add(page); at < bytes.size();
                 at = next.fetch_add(page))
                for (std::uint64_t half : {std::uint64_t{0}, page / 2})
                    if (write(lane{}, rt->ref(), fd, bytes.data() + at + half, page / 2,
                              static_cast<std::int64_t>(at + half)) !=
                        static_cast<std::int64_t>(page / 2))
                        ++wrong;
        });
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_GT(rt->stats().written_behind, 0u);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), bytes);
    const engine::invariant_report found = engine::check_invariants(rt->ref().view, {0, 0});
    EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
}

}  // namespace penstock::test
