// Rows of a table behind the end of a file that the same runtime made shorter: zeros come with a
// note only, by whichever way, and no page behind the end enters the cache.
#include <algorithm>
#include <cerrno>

#include "penstock/launch.hpp"
#include "penstock/table.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class cut_rows : public testing::Test {
protected:
    static constexpr std::uint64_t row = 512, pages = 16, rows_of_file = pages * page / row;
    // Within row 33, which is one of the rows of page 4.
    static constexpr std::int64_t cut_at = 4 * page + row + 100, first_gone = 33;

    cut_rows() : bytes(pattern(7, pages * page)) {
        write_file(folder / "data", bytes);
        let_files_settle();
        options o = small_options(folder, 1);
        o.writable = true;
        rt = make_runtime(o);
        table_layout layout;
        layout.row_bytes = row;
        layout.pieces = {{folder / "data", 0, rows_of_file}};
        const status s = table::make(*rt, layout, {}, rows);
        EXPECT_TRUE(s.ok()) << s.message;
        fd = rt->open("data", open_read_write);
        EXPECT_GE(fd, 0);
    }
    void cut() { ASSERT_EQ(truncate(lane{}, rt->ref(), fd, cut_at), 0); }
    // The row as it was delivered is right, or zeros if it is cut off.
    void expect_row(std::int64_t number, const std::uint8_t* got) const {
        const std::vector<std::uint8_t> zeros(row, 0);
        const auto* const wanted =
            number < first_gone ? &bytes[static_cast<std::uint64_t>(number) * row] : zeros.data();
        EXPECT_TRUE(std::equal(got, got + row, wanted)) << number;
    }
    // By the host, one row at a time.
    void expect_each() {
        for (const std::int64_t number : {0, 31, 32, 33, 34, 39, 40, 100, 127}) {
            std::vector<std::uint8_t> got(row, 0xa5);
            ASSERT_EQ(rows->gather(&number, 1, got.data()), 0);
            EXPECT_EQ(rows->check().code, number < first_gone ? 0 : -ESTALE) << number;
            expect_row(number, got.data());
        }
    }
    // The same of all rows, by the host and by a lane.
    void expect_all() {
        std::vector<std::int64_t> numbers(rows_of_file);
        for (std::uint64_t i = 0; i < rows_of_file; ++i)
            numbers[i] = static_cast<std::int64_t>(mix64(i) % rows_of_file);
        std::vector<std::uint8_t> got(rows_of_file * row, 0xa5);
        const auto compare = [&] {
            for (std::uint64_t i = 0; i < rows_of_file; ++i) expect_row(numbers[i], &got[i * row]);
            EXPECT_EQ(rows->check().code, -ESTALE);
        };
        ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data()), 0);
        compare();
        got.assign(got.size(), 0xa5);
        const auto gone = std::count_if(numbers.begin(), numbers.end(),
                                        [](std::int64_t number) { return number >= first_gone; });
        EXPECT_EQ(
            gather(lane{}, rt->ref(), rows->ref(), numbers.data(), numbers.size(), got.data()),
            static_cast<std::uint64_t>(gone));
        compare();
        for (const std::int64_t number : {32, 33, 127}) {
            EXPECT_EQ(read_row(lane{}, rt->ref(), rows->ref(), static_cast<std::uint64_t>(number),
                               got.data()),
                      number < first_gone ? static_cast<std::int64_t>(row) : -ESTALE);
            expect_row(number, got.data());
        }
        rows->check();
    }
    [[nodiscard]] std::uint64_t pages_behind_the_end() const {
        const engine::cache_view& c = rt->ref().view;
        const engine::file_handle f = engine::handle_of(c, engine::descriptor_slot(c, fd));
        std::uint64_t count = 0;
        for (std::uint64_t i = cut_at / page + 1; i < pages; ++i)
            if (!engine::is_absent(c.words[engine::find_word(c, f, i)])) ++count;
        return count;
    }

    const temporary_folder folder;
    const std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
    int fd = -1;
};

}  // namespace

TEST_F(cut_rows, that_were_never_read_are_noted) {
    cut();
    for (int round = 0; round < 2; ++round) expect_each();
    expect_all();
    EXPECT_EQ(pages_behind_the_end(), 0u);
}

TEST_F(cut_rows, whose_pages_were_in_the_cache_are_noted) {
    std::vector<std::uint8_t> got(bytes.size());
    ASSERT_EQ(rt->read(fd, got.data(), bytes.size(), 0), static_cast<std::int64_t>(bytes.size()));
    ASSERT_EQ(got, bytes);
    cut();
    expect_all();
    expect_each();
    EXPECT_EQ(pages_behind_the_end(), 0u);
}

TEST_F(cut_rows, are_noted_once_the_writer_is_gone) {
    cut();
    EXPECT_EQ(rt->close(fd), 0);
    expect_all();
    expect_each();
}

// By another program, of which the runtime hears by the read alone.
TEST(rows_cut_by_others, of_which_a_part_is_left_are_noted) {
    constexpr std::uint64_t row = 512, count = 128;
    const temporary_folder folder;
    const auto bytes = pattern(8, count * row);
    write_file(folder / "data", bytes);
    let_files_settle();
    const auto rt = make_runtime(small_options(folder, 1));
    table_layout layout{.row_bytes = row};
    layout.pieces.push_back({folder / "data", 0, count});
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    std::filesystem::resize_file(folder / "data", 33 * row + 100);
    for (const std::int64_t number : {0, 31, 33, 34, 127}) {  // 32 has a page that is not whole
        std::vector<std::uint8_t> got(row, 0xa5);
        ASSERT_EQ(rows->gather(&number, 1, got.data()), 0);
        EXPECT_EQ(rows->check().code, number < 33 ? 0 : -ESTALE) << number;
        const std::vector<std::uint8_t> zeros(row, 0);
        const auto* const wanted =
            number < 33 ? &bytes[static_cast<std::uint64_t>(number) * row] : zeros.data();
        EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted)) << number;
    }
}

TEST_F(cut_rows, are_not_brought_in) {
    cut();
    std::int64_t number = 32;
    ASSERT_EQ(rows->prefetch(&number, 1), 0);
    EXPECT_EQ(rows->check().code, 0);
    for (number = first_gone; number < 128; number += 20) {
        ASSERT_EQ(rows->prefetch(&number, 1), 0);
        EXPECT_EQ(rows->check().code, -ESTALE) << number;
        ASSERT_EQ(rows->will_need(&number, 1), 0);
        EXPECT_EQ(rows->check().code, 0) << number;
    }
    EXPECT_EQ(pages_behind_the_end(), 0u);
}

// They are zeros of the file then.
TEST_F(cut_rows, are_rows_again_when_the_file_grows) {
    cut();
    ASSERT_EQ(truncate(lane{}, rt->ref(), fd, static_cast<std::int64_t>(bytes.size())), 0);
    std::vector<std::uint8_t> got(row, 0xa5);
    for (const std::int64_t number : {34, 127}) {
        ASSERT_EQ(rows->gather(&number, 1, got.data()), 0);
        EXPECT_EQ(rows->check().code, 0);
        expect_row(number, got.data());
    }
}

}  // namespace penstock::test
