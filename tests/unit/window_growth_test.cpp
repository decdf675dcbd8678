// Windows that grow over what was asked for: exactly the chunks of which pages came by request or
// were wished for, if they are in memory by then.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "fault/faulty_environment.hpp"
#include "penstock/table.hpp"
#include "soon.hpp"
#include "table/table_windows.hpp"
#include "soon.hpp"
#include "unit/parts_in_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t piece = engine::window_chunk_bytes;

class window_growth : public testing::Test {
protected:
    static constexpr std::uint64_t size = 6 * piece + 5000;

    window_growth() : bytes(pattern(7, size)) {
        write_file(path, bytes);
        o = small_options(folder, 1);
        o.window_bytes = 64 << 20;
        o.direct_io = direct_mode::off;  // a read past the page cache would leave nothing in it
        hooks.windows_on_cpu = true;
        env.allow_leases();
        hooks.env = &env;
    }
    // With windows onto what is in memory: nothing but the file's end.
    void open() {
        rt = make_runtime(o, hooks);
        fd = rt->open("data");
        ASSERT_GE(fd, 0);
        drop_from_memory();
        if (IsSkipped()) return;
        bring_in(6, 5000);
        ASSERT_EQ(rt->open_windows(fd), 5000);
        ASSERT_EQ(rt->grow_windows(), 0) << "nothing was asked for";
    }
    void drop_from_memory() {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const bool dropped = ::fsync(file) == 0 &&
                             ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
                             host::linux_environment().in_page_cache(file, 0, piece) == 0;
        ::close(file);
        if (!dropped) GTEST_SKIP() << "this file system keeps its pages, or does not tell";
    }
    void bring_in(std::uint64_t number, std::uint64_t length = piece) {
        in_memory.bring_in(path, number * piece, length);
    }
    // A page of the chunk, by request.
    void ask(std::uint64_t number, std::uint64_t offset = 0) const {
        std::vector<std::uint8_t> got(page);
        const std::uint64_t at = number * piece + offset;
        ASSERT_EQ(rt->read(fd, got.data(), page, static_cast<std::int64_t>(at)),
                  static_cast<std::int64_t>(page));
        ASSERT_EQ(std::memcmp(got.data(), &bytes[at], page), 0);
    }
    [[nodiscard]] std::uint64_t window_bytes() const { return rt->stats().window_bytes; }

    const temporary_folder folder;
    const std::string path = folder / "data";
    const std::vector<std::uint8_t> bytes;
    parts_in_memory in_memory;
    fault::faulty_environment env;
    options o;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
    int fd = -1;
};

}  // namespace

TEST_F(window_growth, takes_what_was_asked_for_and_is_in_memory) {
    open();
    if (IsSkipped()) return;
    bring_in(1), bring_in(2), bring_in(4), bring_in(5, page);
    ask(1), ask(4, piece / 2), ask(5);
    EXPECT_EQ(window_bytes(), 5000u) << "windows do not grow beside kernels";
    EXPECT_EQ(rt->grow_windows(), static_cast<std::int64_t>(2 * piece))
        << "2 was not asked for, of 5 a page is in memory";
    EXPECT_EQ(window_bytes(), 2 * piece + 5000);
    EXPECT_EQ(rt->grow_windows(), 0);
    // From now on these two need no request.
    const std::uint64_t requests = rt->stats().requests;
    for (std::uint64_t offset = page; offset < 20 * page; offset += page)
        ask(1, offset), ask(4, offset);
    EXPECT_EQ(rt->stats().requests, requests);
    ask(2);
    EXPECT_GT(rt->stats().requests, requests);
    EXPECT_EQ(rt->grow_windows(), static_cast<std::int64_t>(piece));
}

TEST_F(window_growth, a_chunk_that_is_not_whole_is_looked_at_when_it_is_asked_for_again) {
    open();
    if (IsSkipped()) return;
    bring_in(3, piece / 4);
    ask(3);
    EXPECT_EQ(rt->grow_windows(), 0);
    bring_in(3);
    EXPECT_EQ(rt->grow_windows(), 0) << "each note is looked at once";
    ask(3, 10 * page);
    EXPECT_EQ(rt->grow_windows(), static_cast<std::int64_t>(piece));
}

// Its other half costs the disk no more than the first.
TEST_F(window_growth, a_chunk_of_which_half_is_in_memory_is_read_and_taken_in_later) {
    open();
    if (IsSkipped()) return;
    bring_in(2, piece / 2), bring_in(3, piece / 2 - page), bring_in(4, piece / 2);
    ask(2), ask(3);
    env.stall(fault::call_will_need);
    std::jthread late([&] {  // a call that is held back holds up its caller alone
        EXPECT_TRUE(soon([&] { return env.stalled() != 0; }));
        env.release();
    });
    EXPECT_EQ(rt->grow_windows(), 0);
    late.join();
    std::int64_t taken = 0;
    soon([&] { return (taken = rt->grow_windows()) != 0; });
    EXPECT_EQ(taken, static_cast<std::int64_t>(piece)) << "it was noted for that";
    EXPECT_EQ(window_bytes(), piece + 5000) << "of 3 it was less, 4 was not asked for";
    EXPECT_EQ(rt->grow_windows(), 0);
}

TEST_F(window_growth, a_chunk_that_was_looked_at_is_mapped_no_longer) {
    open();
    if (IsSkipped()) return;
    bring_in(2, piece / 4), bring_in(3, piece / 4);
    const auto mappings = [&] {
        std::ifstream maps("/proc/self/maps");
        std::size_t count = 0;
        for (std::string line; std::getline(maps, line);) count += line.ends_with(path) ? 1 : 0;
        return count;
    };
    const std::size_t before = mappings();
    EXPECT_GT(before, 0u);
    ask(2), ask(3);
    EXPECT_EQ(rt->grow_windows(), 0);
    EXPECT_EQ(mappings(), before);
}

TEST_F(window_growth, nothing_is_read_for_which_the_budget_has_no_room) {
    o.window_bytes = 2 * piece;
    open();
    if (IsSkipped()) return;
    env.set({.calls = fault::call_will_need});
    for (const std::uint64_t number : {0, 1, 2}) bring_in(number, piece / 2), ask(number);
    EXPECT_EQ(rt->grow_windows(), 0);
    EXPECT_EQ(env.calls(), piece >> 17) << "one chunk, by 128 KiB";
}

TEST_F(window_growth, stays_within_the_budget) {
    o.window_bytes = piece + piece / 2;
    open();
    if (IsSkipped()) return;
    bring_in(0), bring_in(1);
    ask(0), ask(1);
    EXPECT_EQ(rt->grow_windows(), static_cast<std::int64_t>(piece));
    EXPECT_LE(window_bytes(), o.window_bytes.value());
    bring_in(2);
    ask(2);
    EXPECT_EQ(rt->grow_windows(), -ENOSPC);
    EXPECT_EQ(window_bytes(), piece + 5000);
}

TEST_F(window_growth, does_not_happen_after_a_cut) {
    open();
    if (IsSkipped()) return;
    bring_in(0), bring_in(1);
    ask(0), ask(1);
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(piece + 100)), 0);
    EXPECT_LE(rt->grow_windows(), 0);
    EXPECT_LE(window_bytes(), 5000u) << "memory of the window of before";
    EXPECT_EQ(rt->state().windows->open_files(), 0u);
    ask(0, page);
    std::uint8_t byte = 0;
    EXPECT_EQ(rt->read(fd, &byte, 1, static_cast<std::int64_t>(2 * piece)), -ESTALE);
}

TEST_F(window_growth, passes_over_files_that_are_closed_or_never_had_windows) {
    open();
    if (IsSkipped()) return;
    write_file(folder / "other", pattern(8, piece));
    const int other = rt->open("other");
    std::uint8_t byte = 0;
    ASSERT_EQ(rt->read(other, &byte, 1, 0), 1);
    EXPECT_EQ(rt->grow_windows(), 0) << "no windows were asked for";
    bring_in(0);
    ask(0);
    ASSERT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->grow_windows(), 0);
    EXPECT_EQ(window_bytes(), 5000u);
    ASSERT_EQ(rt->open_windows(other), static_cast<std::int64_t>(piece));
    EXPECT_EQ(rt->grow_windows(), 0);
}

// Also of a file of which nothing lay in memory when its windows were asked for.
TEST_F(window_growth, follows_a_wish_of_a_table) {
    open();
    if (IsSkipped()) return;
    std::unique_ptr<table> rows;
    table_layout layout{.row_bytes = page};
    layout.pieces.push_back({path, 0, 6 * piece / page});
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    std::vector<std::int32_t> numbers;
    for (std::uint64_t i = 0; i < piece / page; ++i)
        numbers.push_back(static_cast<std::int32_t>(2 * piece / page + i));
    ASSERT_EQ(rows->will_need(numbers.data(), numbers.size()), 0);
    const auto is_there = [&] {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const int answer = host::linux_environment().in_page_cache(file, 2 * piece, piece);
        ::close(file);
        return answer == 1;
    };
    ASSERT_TRUE(soon(is_there));
    // Its pages are being read; they are not resident before that has ended.
    std::int64_t taken = 0;
    for (int i = 0; i < 60000 && taken == 0; ++i) {
        rt->state().asked->note(engine::descriptor_slot(rt->ref().view, fd),
                                engine::descriptor_generation(fd), 2 * piece, 1);
        taken = rt->grow_windows();
    }
    EXPECT_EQ(taken, static_cast<std::int64_t>(piece));
}

// By whichever way the wish goes: a list, or loads of the host tier.
TEST_F(window_growth, follows_wishes_alone) {
    open();
    if (IsSkipped()) return;
    bring_in(2), bring_in(3);
    for (const std::uint64_t tier_bytes : {std::uint64_t{0}, 64 * page}) {
        o.tier_bytes = tier_bytes;
        rt.reset();
        rt = make_runtime(o, hooks);
        fd = rt->open("data");
        ASSERT_EQ(rt->open_windows(fd, 6 * piece), 5000);
        std::unique_ptr<table> rows;
        table_layout layout{.row_bytes = page};
        layout.pieces.push_back({path, 0, 6 * piece / page});
        ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
        const auto number = static_cast<std::int32_t>(3 * piece / page + 1);
        ASSERT_EQ(rows->will_need(&number, 1), 0);
        std::int64_t taken = 0;
        EXPECT_TRUE(soon([&] { return (taken = rt->grow_windows()) != 0; })) << tier_bytes;
        EXPECT_EQ(taken, static_cast<std::int64_t>(piece)) << "2 was not wished for";
    }
}

// One maps and pays, and the other takes over what it was asked for too.
TEST_F(window_growth, of_several_devices_is_by_what_was_asked_for_on_each) {
    o = small_options(folder, 2);
    o.window_bytes = 3 * piece;  // of which the end of the file has some bytes
    o.direct_io = direct_mode::off;
    rt = make_runtime(o, hooks);
    const shared_file file = rt->open_everywhere("data");
    ASSERT_EQ(file.code(), 0);
    drop_from_memory();
    if (IsSkipped()) return;
    bring_in(6, 5000);
    ASSERT_EQ(rt->open_windows(file), 5000);
    if (rt->stats().window_bytes != 5000) GTEST_SKIP() << "no leases on this file system";
    const auto ask_of = [&](std::uint32_t device, std::uint64_t number, std::uint64_t offset) {
        std::uint8_t byte = 0;
        const std::uint64_t at = number * piece + offset;
        ASSERT_EQ(
            read(lane{}, rt->ref(device), file.of(device), &byte, 1, static_cast<std::int64_t>(at)),
            1);
        ASSERT_EQ(byte, bytes[at]);
    };
    bring_in(1), bring_in(2), bring_in(3);
    // Other pages than those of the first: the second would read these in its cache.
    ask_of(0, 1, 0), ask_of(0, 2, 0), ask_of(1, 1, 20 * page);
    EXPECT_EQ(rt->grow_windows(), static_cast<std::int64_t>(piece)) << "the least of both";
    EXPECT_EQ(rt->stats(0).window_bytes, 2 * piece + 5000);
    EXPECT_EQ(rt->stats(1).window_bytes, piece + 5000);
    EXPECT_EQ(rt->stats().window_bytes, 2 * piece + 5000) << "mapped once";
    const std::uint64_t requests = rt->stats(1).requests;
    ask_of(1, 1, 40 * page);
    EXPECT_EQ(rt->stats(1).requests, requests);
    // The budget is of all together, and a chunk that another has open costs nothing.
    ask_of(1, 2, 20 * page), ask_of(0, 3, 0);
    EXPECT_EQ(rt->grow_windows(), -ENOSPC) << "the first error";
    EXPECT_EQ(rt->stats(1).window_bytes, 2 * piece + 5000) << "the others grow all the same";
    EXPECT_EQ(rt->stats().window_bytes, 2 * piece + 5000);
}

TEST_F(window_growth, needs_windows) {
    hooks.windows_on_cpu = false;
    rt = make_runtime(o, hooks);
    EXPECT_EQ(rt->grow_windows(), -EOPNOTSUPP);
}

namespace {

// Windows of rows, of a table on CPU threads: a file of a gigabyte, nearly all holes.
class rows_growth : public testing::Test {
protected:
    static constexpr std::uint64_t chunks = 512, row = 4096;

    void make(int caches = 1) {
        const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_EQ(::ftruncate(file, static_cast<off_t>(chunks * piece)), 0);
        ::close(file);
        options o = small_options(folder, caches);
        o.window_bytes = 64 << 20;
        env.allow_leases();
        hooks.env = &env;
        rt = make_runtime(o, hooks);
        table_layout layout{.row_bytes = row};
        layout.pieces.push_back({path, 0, chunks * piece / row});
        ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
        const int probe = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const bool can = host::linux_environment().in_page_cache(probe, 0, piece) == 0 &&
                         host::linux_environment().take_lease(probe) == 0;
        ::close(probe);
        if (!can) GTEST_SKIP() << "no leases here, or this file system keeps its pages";
        let_files_settle();
    }
    void bring_in(std::uint64_t number) { in_memory.bring_in(path, number * piece, piece); }
    [[nodiscard]] engine::file_handle file() const { return rows->ref().view.only.file; }
    void note(std::uint64_t number) const {
        rt->state().asked->note(file().slot, file().generation, number * piece, row);
    }
    int gather(std::uint64_t number, std::uint32_t device = 0) {
        std::uint8_t got[row];
        const std::uint64_t rows_of_chunk = piece / row, first = number * rows_of_chunk;
        return rows->gather(&first, 1, got, {.device = device});
    }
    [[nodiscard]] std::uint64_t window_bytes() const { return rt->stats().window_bytes; }

    const temporary_folder folder;
    const std::string path = folder / "data";
    parts_in_memory in_memory;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
};

}  // namespace

TEST_F(rows_growth, a_table_takes_what_its_rows_asked_for) {
    make();
    if (IsSkipped()) return;
    ASSERT_EQ(rows->open_windows(), 0) << "nothing is in memory";
    bring_in(7), bring_in(9);
    ASSERT_EQ(gather(7), 0);
    EXPECT_EQ(window_bytes(), 0u);
    EXPECT_EQ(rows->grow_windows(), static_cast<std::int64_t>(piece));
    EXPECT_EQ(window_bytes(), piece) << "no row of chunk 9 was wanted";
    EXPECT_EQ(rows->grow_windows(), 0);
    rows.reset();
    EXPECT_EQ(window_bytes(), 0u) << "they close with the table";
}

TEST_F(rows_growth, of_several_devices_each_grows_and_they_share_the_memory) {
    make(2);
    if (IsSkipped()) return;
    ASSERT_EQ(rows->open_windows(), 0) << "nothing is in memory";
    bring_in(7), bring_in(9);
    ASSERT_EQ(gather(7, 0), 0);
    ASSERT_EQ(gather(9, 0), 0);
    ASSERT_EQ(gather(7, 1), 0);
    EXPECT_EQ(rows->grow_windows(), static_cast<std::int64_t>(piece)) << "the least of both";
    EXPECT_EQ(rt->stats(0).window_bytes, 2 * piece);
    EXPECT_EQ(rt->stats(1).window_bytes, piece);
    EXPECT_EQ(window_bytes(), 2 * piece);
    rows.reset();
    EXPECT_EQ(window_bytes(), 0u);
}

// By the rows that system calls have read, without a call of the program.
TEST_F(rows_growth, a_table_grows_its_windows_by_itself) {
    make();
    if (IsSkipped()) return;
    const int fd = rows->ref().view.only.fd;
    host::table_windows windows(rt->state(), {{fd, 0, chunks * piece}});
    windows.spend(1100);
    EXPECT_FALSE(windows.have_looked());
    ASSERT_EQ(windows.open(), 0);
    bring_in(7), bring_in(9), bring_in(100);
    note(7), note(8), note(100);
    windows.spend(1);
    EXPECT_EQ(window_bytes(), 2 * piece) << "rows enough had been read before";
    bring_in(8);
    note(8);
    windows.spend(1023);
    EXPECT_EQ(window_bytes(), 2 * piece) << "a look has its price";
    windows.spend(1);
    EXPECT_EQ(window_bytes(), 3 * piece);
    // A look that gains nothing makes the next one dearer.
    note(200);
    windows.spend(1024);
    bring_in(200);
    note(200);
    windows.spend(1024);
    EXPECT_EQ(window_bytes(), 3 * piece);
    windows.spend(1024);
    EXPECT_EQ(window_bytes(), 4 * piece);
}

namespace {

using host::asked_chunks;

std::vector<asked_chunks::chunk> take_all(asked_chunks& from) {
    return from.take([](const asked_chunks::chunk&) { return true; });
}

}  // namespace

TEST(asked_chunks, are_given_once_and_in_order) {
    asked_chunks asked(16);
    asked.note(3, 1, 0, 1);
    EXPECT_TRUE(asked.empty()) << "not watched";
    asked.watch(3, 1), asked.watch(4, 2), asked.watch(999, 1);
    for (int i = 0; i < 5; ++i) asked.note(3, 1, 9 * piece, 100);
    asked.note(3, 1, 5 * piece - 1, 2);
    asked.note(4, 2, 0, 0);
    asked.note(4, 2, 77 * piece, 1);
    asked.note(4, 1, 78 * piece, 1);
    asked.note(999, 1, 0, 1);
    const auto of_three = asked.take([](const asked_chunks::chunk& c) { return c.slot == 3; });
    const std::vector<asked_chunks::chunk> expected = {{3, 1, 4}, {3, 1, 5}, {3, 1, 9}};
    EXPECT_EQ(of_three, expected);
    EXPECT_FALSE(asked.empty());
    EXPECT_EQ(take_all(asked), (std::vector<asked_chunks::chunk>{{4, 2, 77}}));
    EXPECT_TRUE(asked.empty());
    EXPECT_TRUE(take_all(asked).empty());
}

TEST(asked_chunks, of_an_earlier_life_of_the_slot_are_forgotten) {
    asked_chunks asked(16);
    asked.watch(3, 1);
    asked.note(3, 1, 0, 1);
    asked.watch(3, 2);
    asked.note(3, 2, piece, 1);
    EXPECT_EQ(take_all(asked), (std::vector<asked_chunks::chunk>{{3, 2, 1}}));
    EXPECT_TRUE(asked.empty());
}

TEST(asked_chunks, are_bounded_and_the_newest_is_among_them) {
    asked_chunks asked(16, 64);
    asked.watch(15, 1023);
    for (std::uint64_t i = 0; i < 1000; ++i) asked.note(15, 1023, i * piece, 1);
    const auto some = asked.take([](const asked_chunks::chunk&) { return true; }, 10);
    EXPECT_EQ(some.size(), 10u);
    asked.note(15, 1023, 12345 * piece, 1);
    const auto rest = take_all(asked);
    EXPECT_LE(rest.size(), 55u);
    EXPECT_GE(rest.size(), 40u);
    EXPECT_EQ(rest.back(), (asked_chunks::chunk{15, 1023, 12345}));
    asked.note(15, 1023, INT64_MAX, 1);  // further than a note can say
    EXPECT_TRUE(take_all(asked).empty());
}

TEST(asked_chunks, are_noted_and_taken_by_many_threads) {
    asked_chunks asked(4);
    asked.watch(1, 1);
    constexpr std::uint64_t threads = 4, each = 300;
    std::vector<std::jthread> noters;
    for (std::uint64_t t = 0; t < threads; ++t)
        noters.emplace_back([&asked, t] {
            for (std::uint64_t i = 0; i < each; ++i) asked.note(1, 1, (t * each + i) * piece, 1);
        });
    std::uint64_t taken = 0;
    while (taken < threads * each / 2) taken += take_all(asked).size();
    noters.clear();
    taken += take_all(asked).size();
    EXPECT_EQ(taken, threads * each) << "there was room for all";
    EXPECT_TRUE(asked.empty());
}

}  // namespace penstock::test
