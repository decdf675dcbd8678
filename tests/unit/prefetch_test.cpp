// Prefetch where the disk cannot read a page in the middle of what is wanted.
#include <cerrno>

#include "fault/faulty_environment.hpp"
#include "penstock/table.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class prefetches : public testing::Test {
protected:
    static constexpr std::int64_t pages = 16, page_bytes = page, file_bytes = pages * page_bytes;

    void make(int caches = 1) {
        write_file(path, pattern(5, file_bytes));
        let_files_settle();
        hooks.env = &disk;
        rt = make_runtime(small_options(folder, caches), hooks);
    }
    void spoil(std::uint64_t number) {
        disk.set({.calls = 0, .bad_begin = number * page, .bad_end = (number + 1) * page});
    }
    [[nodiscard]] std::string pages_there(int fd) const {
        const engine::cache_view& c = rt->ref().view;
        const engine::file_handle f = engine::handle_of(c, engine::descriptor_slot(c, fd));
        std::string out;
        for (std::int64_t i = 0; i < pages; ++i)
            out += engine::is_valid(c.words[engine::find_word(c, f, static_cast<std::uint64_t>(i))])
                       ? '+'
                       : '-';
        return out;
    }
    // The code that a table of such rows notes for the one row that is wanted.
    int code_of_row(std::uint64_t row_bytes) {
        table_layout layout;
        layout.row_bytes = row_bytes;
        layout.pieces = {{path, 0, 1}};
        std::unique_ptr<table> rows;
        const status made = table::make(*rt, layout, {}, rows);
        EXPECT_TRUE(made.ok()) << made.message;
        const std::int64_t number = 0;
        EXPECT_EQ(rows->prefetch(&number, 1), 0);
        return rows->check().code;
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    fault::faulty_environment disk;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
};

}  // namespace

TEST_F(prefetches, count_the_bytes_before_the_page_that_fails) {
    make();
    const int fd = rt->open("data");
    spoil(2);
    EXPECT_EQ(prefetch(lane{}, rt->ref(), fd, 100, file_bytes), 2 * page_bytes - 100);
    EXPECT_EQ(pages_there(fd).substr(0, 3), "++-");
    EXPECT_EQ(prefetch(lane{}, rt->ref(), fd, 2 * page_bytes, file_bytes), -EIO);
    disk.clear();
    EXPECT_EQ(prefetch(lane{}, rt->ref(), fd, 0, file_bytes), file_bytes);
    EXPECT_EQ(pages_there(fd), std::string(pages, '+'));
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(prefetches, try_a_page_again_that_failed_behind_others) {
    make();
    const int fd = rt->open("data");
    disk.set({.calls = fault::call_read, .nth = 3});
    EXPECT_EQ(prefetch(lane{}, rt->ref(), fd, 0, file_bytes), file_bytes);
    EXPECT_EQ(pages_there(fd), std::string(pages, '+'));
    EXPECT_EQ(rt->close(fd), 0);
}

// Of four pages, and of more than are loaded together.
TEST_F(prefetches, of_rows_note_a_page_that_fails_behind_others) {
    make();
    EXPECT_EQ(code_of_row(4 * page), 0);
    for (const std::uint64_t row_pages : {4, 12}) {
        disk.clear();
        rt = make_runtime(small_options(folder, 1), hooks);
        spoil(2);
        EXPECT_EQ(code_of_row(row_pages * page), -EIO) << row_pages;
    }
}

TEST_F(prefetches, into_all_caches_tell_the_error_of_any_page) {
    make(2);
    const shared_file file = rt->open_everywhere(path);
    spoil(2);
    EXPECT_EQ(rt->prefetch(file), -EIO);
    disk.clear();
    EXPECT_EQ(rt->prefetch(file), file_bytes);
    rt->close(file);
}

}  // namespace penstock::test
