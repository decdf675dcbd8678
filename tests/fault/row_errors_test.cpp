// Rows that lie in several pages, of which a later one cannot be read or written: the code and the
// note tell why, as for the first.
#include <algorithm>
#include <numeric>

#include "fault/faulty_environment.hpp"
#include "penstock/launch.hpp"
#include "penstock/table.hpp"
#include "unit/support.hpp"

namespace penstock::fault {

namespace {

class long_rows : public testing::Test {
protected:
    static constexpr std::uint64_t row = 700, small_page = 512, count = 300;

    void make(bool writable) {
        test::write_file(folder / "rows", bytes);
        options o = test::small_options(folder, 1);
        o.page_bytes = small_page;
        o.cache_bytes = 64 * small_page;  // most rows do not fit
        o.frame_wait_ms = 100;
        o.window_bytes = 0;
        o.io = io_method::pread;
        o.writable = writable;
        host::runtime_hooks hooks;
        hooks.env = &disk;
        rt = test::make_runtime(o, hooks);
        table_layout layout{.row_bytes = row};
        layout.pieces.push_back({folder / "rows", 0, count});
        const status s = table::make(*rt, layout, {.writable = writable}, rows);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    // The row is zeros, and the note has this code.
    void expect_missing(const std::vector<std::uint8_t>& got, std::int64_t code) {
        EXPECT_EQ(got, std::vector<std::uint8_t>(row, 0));
        const status noted = rows->check();
        EXPECT_EQ(noted.code, code) << noted.message;
    }

    const test::temporary_folder folder;
    const std::vector<std::uint8_t> bytes = test::pattern(31, count* row);
    faulty_environment disk;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
};

}  // namespace

TEST_F(long_rows, tell_of_a_bad_sector_in_a_later_page) {
    make(false);
    // Row 2 begins at byte 1400: the first bytes of its second page and of its third.
    for (const std::uint64_t bad : {std::uint64_t{3 * small_page}, std::uint64_t{4 * small_page}}) {
        disk.set({.calls = 0, .bad_begin = bad, .bad_end = bad + 1});
        const std::int64_t number = 2;
        std::vector<std::uint8_t> got(row, 0xa5);
        ASSERT_EQ(rows->gather(&number, 1, got.data()), 0);
        expect_missing(got, -EIO);
        std::fill(got.begin(), got.end(), std::uint8_t{0xa5});
        EXPECT_EQ(read_row(lane{}, rt->ref(), rows->ref(), 2, got.data()), -EIO);
        expect_missing(got, -EIO);
        disk.clear();
        ASSERT_EQ(rows->gather(&number, 1, got.data()), 0);
        EXPECT_TRUE(rows->check().ok());
        EXPECT_TRUE(std::equal(got.begin(), got.end(), &bytes[2 * row]));
        rows.reset();
        rt.reset();
        make(false);  // no page of it is in the cache
    }
}

TEST_F(long_rows, tell_of_a_full_disk_at_a_later_page) {
    make(true);
    const auto content = test::pattern(32, count * row);
    std::vector<std::int64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    disk.set({.calls = call_write, .nth = 1, .for_ever = true, .error = -ENOSPC});
    ASSERT_EQ(rows->scatter(numbers.data(), count, content.data()), 0);
    const status noted = rows->check();
    EXPECT_EQ(noted.code, -ENOSPC) << noted.message;
    EXPECT_LE(rt->stats().errors, 64u) << "the rows behind the one without room are not tried";
    disk.clear();
    ASSERT_EQ(rows->scatter(numbers.data(), count, content.data()), 0);
    EXPECT_TRUE(rows->check().ok());
    rows->sync();
    EXPECT_EQ(rows->sync(), 0);
    std::vector<std::uint8_t> got(count * row);
    ASSERT_EQ(rows->gather(numbers.data(), count, got.data()), 0);
    EXPECT_TRUE(rows->check().ok());
    EXPECT_EQ(got, content);
}

}  // namespace penstock::fault
