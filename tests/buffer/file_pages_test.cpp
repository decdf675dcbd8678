// The words of a file's pages, and pages that are read from the disk several at once.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "buffer/pool/file_pages.hpp"
#include "buffered_file.hpp"

namespace penstock::test::file_pages {

namespace {

using buffer::manager_settings;
using buffer::order_kind;

constexpr std::uint64_t page_bytes = 512;

struct counted_entry {
    std::uint64_t value = 7;
    static inline std::atomic<int> rooms_left{1000};  // then there is no memory
    static void* operator new[](std::size_t size, const std::nothrow_t& none) noexcept {
        return rooms_left-- > 0 ? ::operator new[](size, none) : nullptr;
    }
    static void operator delete[](void* at) { ::operator delete[](at); }
};

// 1024 pages, then as many, then twice as many.
using pages_of = buffer::file_pages<counted_entry, 10>;

using read_windows = on_backends;

}  // namespace

TEST(file_pages, stay_where_they_are_while_the_file_grows) {
    pages_of pages;
    EXPECT_EQ(pages.grow(0), 0);
    std::vector<counted_entry*> seen;
    const std::vector<std::uint64_t> borders = {0,    1,    1023, 1024, 1025, 2047,
                                                2048, 4095, 4096, 8191, 8192, 100'000};
    for (const std::uint64_t page : borders) {
        ASSERT_EQ(pages.grow(page + 1), 0);
        EXPECT_EQ(pages[page].value, 7u);
        pages[page].value = 1000 + page;
        seen.push_back(&pages[page]);
    }
    EXPECT_EQ(pages.grow(5), 0);  // takes nothing away
    for (std::size_t i = 0; i < borders.size(); ++i) {
        EXPECT_EQ(&pages[borders[i]], seen[i]);
        EXPECT_EQ(pages[borders[i]].value, 1000 + borders[i]);
    }
    EXPECT_EQ(pages[2046].value, 7u);
    EXPECT_EQ(pages.grow(pages_of::most_pages + 1), -EINVAL);
}

TEST(file_pages, are_as_they_were_where_memory_is_out) {
    pages_of pages;
    ASSERT_EQ(pages.grow(1000), 0);
    pages[999].value = 5;
    const int rooms = counted_entry::rooms_left.exchange(1);
    EXPECT_EQ(pages.grow(10'000), -ENOMEM);
    counted_entry::rooms_left = rooms;
    EXPECT_EQ(pages[999].value, 5u);
    ASSERT_EQ(pages.grow(10'000), 0);
    EXPECT_EQ(pages[9'999].value, 7u);
    EXPECT_EQ(pages[999].value, 5u);
}

TEST(file_pages, are_found_by_others_while_the_file_grows) {
    constexpr std::uint64_t most = 60'000;
    pages_of pages;
    std::atomic<std::uint64_t> told{0};
    std::jthread finder([&] {
        for (std::uint64_t known = 0; known < most;) {
            known = told;
            for (std::uint64_t page = known < 100 ? 0 : known - 100; page < known; ++page)
                ASSERT_EQ(pages[page].value, 7u);
        }
    });
    for (std::uint64_t count = 1; count <= most; ++count) {
        ASSERT_EQ(pages.grow(count), 0);
        told = count;
    }
}

TEST_P(read_windows, are_read_many_pages_at_a_time) {
    buffered_file f(small(40, 0, order_kind::lru, 4096), pattern(4, 100 * 4096 + 9), GetParam());
    auto session = f.all->open_session();
    f.env.set({.calls = fault::call_read});
    bytes some(96 * 4096);
    ASSERT_EQ(session->read(0, 4 * 4096, begin_of(some), some.size()),
              static_cast<std::int64_t>(some.size()));
    EXPECT_EQ(f.env.calls(), 3u);
    EXPECT_EQ(f.all->counts().misses, 96u);
    ASSERT_EQ(session->read(0, 99 * 4096, begin_of(some), 5000),
              4096 + 9);  // one is there, and the end
    EXPECT_EQ(f.env.calls(), 4u);
    session->prefetch(0, 0, 4);
    EXPECT_EQ(f.env.calls(), 5u);
    f.expect_right();
}

// What one session has read ahead is not given where another has changed the file since.
TEST_P(read_windows, are_not_given_as_they_were_read_ahead) {
    constexpr std::uint64_t pages = 40;
    buffered_file f(small(6, 3, order_kind::lru), bytes(pages * page_bytes, 1), GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    bytes some(8 * page_bytes);
    std::uint8_t value = 1;
    const auto drive_out = [&] {
        for (std::uint64_t page = 20; page < pages; ++page)
            ASSERT_EQ(other->read(0, page * page_bytes, begin_of(some), 1), 1);
    };
    const auto read_ahead_and_drive_out = [&] {
        drive_out();
        ASSERT_EQ(session->read(0, 0, begin_of(some), some.size()),
                  static_cast<std::int64_t>(some.size()));
        drive_out();
    };
    const auto expect_new = [&](const char* label) {
        ASSERT_EQ(session->read(0, 3 * page_bytes, begin_of(some), 1), 1);
        EXPECT_EQ(some[0], value) << label;
    };
    const auto write = [&] {
        const std::byte next{++value};
        ASSERT_EQ(other->write(0, 3 * page_bytes, &next, 1), 1);
    };
    read_ahead_and_drive_out();
    write();
    drive_out();
    expect_new("written back when it had to go");
    read_ahead_and_drive_out();
    write();
    ASSERT_EQ(other->flush(0), 0);
    drive_out();
    expect_new("flushed");
    read_ahead_and_drive_out();
    ++value;
    ASSERT_EQ(::pwrite(f.fd, &value, 1, 3 * page_bytes), 1);
    ASSERT_EQ(other->forget(0, 0, 10), 0);
    expect_new("forgotten");
    read_ahead_and_drive_out();
    value = 0;
    ASSERT_EQ(other->resize(0, 2 * page_bytes), 0);
    ASSERT_EQ(::ftruncate(f.fd, 2 * page_bytes), 0);
    ASSERT_EQ(::ftruncate(f.fd, pages * page_bytes), 0);
    ASSERT_EQ(other->resize(0, pages * page_bytes), 0);
    expect_new("cut off");
    f.expect_right();
}

// It would be read as it was before that write, and be nowhere after it.
TEST_P(read_windows, do_not_hold_a_page_that_is_being_written) {
    manager_settings settings = small(7, 0, order_kind::lru);
    settings.sessions = 3;
    buffered_file f(settings, bytes(20 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(session->write(0, page_bytes, &nine, 1), 1);
    f.env.stall(fault::call_write);
    std::jthread driver([&] {
        auto other = f.all->open_session();
        std::byte byte{};
        for (std::uint64_t page = 10; page < 18; ++page)
            EXPECT_EQ(other->read(0, page * page_bytes, &byte, 1), 1);
    });
    while (f.env.stalled() == 0) std::this_thread::yield();
    bytes some(3 * page_bytes);
    std::jthread reader([&] {
        EXPECT_EQ(session->read(0, 0, begin_of(some), some.size()),
                  static_cast<std::int64_t>(some.size()));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    f.env.release();
    reader.join();
    driver.join();
    EXPECT_EQ(some[page_bytes], 9);
    f.expect_right();
}

INSTANTIATE_TEST_SUITE_P(on, read_windows, testing::Values(backend::cpu, backend::gpu), name_of);

}  // namespace penstock::test::file_pages
