// Files that are closed, cut and given up while sessions have pages of them, with one contract for
// all policies: what fails leaves all as it was, and what returns 0 has lost nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "buffer/pool/manager.hpp"
#include "penstock/buffer.hpp"
#include "region/support.hpp"

namespace penstock::test::pool_closing {

namespace {

using buffer::file_access;
using buffer::fixed_page;
using buffer::page_id;
using buffer::policy_kind;
using buffer::use_kind;
using bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t page_bytes = 4096;
constexpr std::uint64_t pages = 16;

struct closing : testing::TestWithParam<policy_kind> {
    void SetUp() override { make(100); }

    void make(std::uint32_t wait_ms) {
        TearDown();
        pool.reset();
        write_file(name, bytes(pages * page_bytes, 1));
        const buffer_options options{.policy = GetParam(),
                                     .where = backend::cpu,
                                     .host_bytes = 24 * page_bytes,
                                     .device_bytes = 8 * page_bytes,
                                     .page_bytes = page_bytes,
                                     .sessions = 4,
                                     .fixed_pages = 2,
                                     .max_files = 2,
                                     .wait_ms = wait_ms,
                                     .direct_io = false};
        const status made = buffer_pool::make(options, pool);
        ASSERT_TRUE(made.ok()) << made.message;
        const status opened = pool->open_file(name, file_access::read_write, number);
        ASSERT_TRUE(opened.ok()) << opened.message;
        session = pool->open_session();
        other = pool->open_session();
    }
    void TearDown() override {
        session.reset();
        other.reset();
    }

    void set_byte(std::uint64_t page, std::uint8_t value) const {
        const std::byte byte{value};
        ASSERT_EQ(other->write(number, page * page_bytes, &byte, 1), 1) << page;
    }
    [[nodiscard]] int byte_of(std::uint64_t page, std::uint64_t at = 0) const {
        std::byte byte{};
        const std::int64_t got = other->read(number, page * page_bytes + at, &byte, 1);
        return got == 1 ? static_cast<int>(byte) : static_cast<int>(got) - 1000;
    }
    // Page 2 was changed to 9 and is not in the file; all else is as at first. Page 3 is fixed for
    // `kind`.
    void expect_as_before(use_kind kind) const {
        EXPECT_EQ(pool->file_bytes(number), static_cast<std::int64_t>(pages * page_bytes));
        for (std::uint64_t page = 0; page < pages; ++page) {
            if (page == 3 && kind == use_kind::write) continue;
            EXPECT_EQ(byte_of(page), page == 2 ? 9 : 1) << page;
        }
        fixed_page again;
        ASSERT_EQ(other->fix({5, number}, use_kind::write, again), 0);
        other->unfix(again, false);
        EXPECT_EQ(read_file(name).size(), pages * page_bytes);
    }

    const temporary_folder folder;
    const std::string name = folder / "f";
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<buffer::session> session, other;
    std::uint32_t number = 99;
};

}  // namespace

TEST_P(closing, that_times_out_leaves_the_file_open_with_all_that_was_changed) {
    for (const use_kind kind : {use_kind::read, use_kind::write})
        for (const bool discards : {false, true}) {
            make(100);
            set_byte(2, 9);
            fixed_page held;
            ASSERT_EQ(session->fix({3, number}, kind, held), 0);
            EXPECT_EQ(discards ? pool->discard_file(number) : pool->close_file(number), -ETIMEDOUT);
            expect_as_before(kind);
            session->unfix(held, false);
            EXPECT_EQ(session->flush(number), 0);
            EXPECT_EQ(read_file(name)[2 * page_bytes], 9);
            EXPECT_EQ(pool->close_file(number), 0);
            EXPECT_EQ(pool->close_file(number), -EBADF);
            EXPECT_EQ(session->fix({3, number}, kind, held), -EINVAL);
            TearDown();
        }
}

TEST_P(closing, waits_for_a_page_that_is_being_changed_and_writes_it) {
    make(20'000);
    for (int round = 1; round < 10; ++round) {
        fixed_page held;
        ASSERT_EQ(session->fix({3, number}, use_kind::write, held), 0);
        std::atomic<int> closed{1};
        std::jthread closer([&] { closed = pool->close_file(number); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_EQ(closed, 1);  // it waits
        held.data[7] = static_cast<std::byte>(round);
        session->unfix(held, true);
        closer.join();
        ASSERT_EQ(closed, 0);
        EXPECT_EQ(read_file(name)[3 * page_bytes + 7], round);
        ASSERT_TRUE(pool->open_file(name, file_access::read_write, number).ok());
    }
}

// Until it has timed out no page can be fixed, and nothing waits for that.
TEST_P(closing, refuses_pages_meanwhile) {
    make(2000);
    fixed_page held, more;
    ASSERT_EQ(session->fix({3, number}, use_kind::read, held), 0);
    std::atomic<int> closed{1};
    std::jthread closer([&] { closed = pool->close_file(number); });
    int code = 0;
    while (code == 0 && closed == 1) {
        code = other->fix({4, number}, use_kind::read, more);
        if (code == 0) other->unfix(more, false);
    }
    EXPECT_EQ(code, -EBADF);
    EXPECT_EQ(other->flush(number), -EBADF);
    session->unfix(held, false);
    closer.join();
    EXPECT_EQ(closed, 0);
}

// A file is cut as a whole or not at all.
TEST_P(closing, of_a_part_that_times_out_leaves_the_file_as_it_was) {
    for (const std::uint64_t end : {2ull * page_bytes, 3ull * page_bytes + 77})
        for (const use_kind kind : {use_kind::read, use_kind::write}) {
            make(100);
            set_byte(2, 9);
            set_byte(12, 9);
            fixed_page held;
            ASSERT_EQ(session->fix({3, number}, kind, held), 0);
            EXPECT_EQ(pool->resize_file(number, end), -ETIMEDOUT);
            EXPECT_EQ(byte_of(12), 9);
            set_byte(12, 1);
            expect_as_before(kind);
            session->unfix(held, false);
            EXPECT_EQ(byte_of(3, 200), 1);
            EXPECT_EQ(pool->resize_file(number, end), 0);
            EXPECT_EQ(pool->file_bytes(number), static_cast<std::int64_t>(end));
            EXPECT_EQ(session->fix({12, number}, kind, held), -EINVAL);
            EXPECT_EQ(pool->close_file(number), 0);
            EXPECT_EQ(read_file(name).size(), end);
            TearDown();
        }
}

// Behind the old end zeros have to come, in a page that another session has.
TEST_P(closing, that_cannot_be_made_longer_leaves_the_file_as_long_as_it_was) {
    constexpr std::uint64_t end = 3 * page_bytes + 77;
    make(100);
    ASSERT_EQ(pool->resize_file(number, end), 0);
    fixed_page held;
    ASSERT_EQ(session->fix({3, number}, use_kind::write, held), 0);
    EXPECT_EQ(pool->resize_file(number, 8 * page_bytes), -ETIMEDOUT);
    EXPECT_EQ(pool->file_bytes(number), static_cast<std::int64_t>(end));
    EXPECT_EQ(read_file(name).size(), end);
    session->unfix(held, false);
    EXPECT_EQ(pool->resize_file(number, 8 * page_bytes), 0);
    EXPECT_EQ(read_file(name).size(), 8 * page_bytes);
}

// A session may wait for a page that the thread has which cuts the file elsewhere.
TEST_P(closing, of_a_part_does_not_wait_for_those_that_wait) {
    make(20'000);
    fixed_page held;
    ASSERT_EQ(session->fix({0, number}, use_kind::write, held), 0);
    std::jthread waits([&] {
        fixed_page same;
        EXPECT_EQ(other->fix({0, number}, use_kind::write, same), 0);
        other->unfix(same, false);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(session->resize(number, 5 * page_bytes), 0);
    session->unfix(held, false);
}

TEST_P(closing, forgets_a_page_that_is_fixed_when_it_is_not) {
    make(100);
    fixed_page held;
    ASSERT_EQ(session->fix({3, number}, use_kind::read, held), 0);
    EXPECT_EQ(other->forget(number, 2, 5), -ETIMEDOUT);
    EXPECT_EQ(other->forget(number, 4, 5), 0);
    session->unfix(held, false);
    EXPECT_EQ(other->forget(number, 2, 5), 0);
}

// What fix_fresh gave and unfix gave back as unchanged is as it was before, whatever was stored
// there.
TEST_P(closing, a_fresh_page_without_a_change_leaves_it_as_it_was) {
    const auto give_up = [&](std::uint64_t page) {
        fixed_page held;
        ASSERT_EQ(session->fix_fresh({page, number}, held), 0);
        std::memset(held.data, 77, page_bytes / 2);
        session->unfix(held, false);
    };
    give_up(3);  // nowhere
    EXPECT_EQ(byte_of(3), 1);
    EXPECT_EQ(byte_of(3, 4000), 1);
    give_up(3);  // in the host
    EXPECT_EQ(byte_of(3), 1);
    set_byte(4, 9);
    give_up(4);  // changed
    EXPECT_EQ(byte_of(4), 9);
    for (std::uint64_t page = 0; page < pages; ++page) {
        give_up(page);
        EXPECT_EQ(byte_of(page, 100), 1) << page;
    }
    ASSERT_EQ(session->flush(number), 0);
    bytes expected(pages * page_bytes, 1);
    expected[4 * page_bytes] = 9;
    EXPECT_EQ(read_file(name), expected);
}

// What one file keeps back is told, and is not the end of the others.
TEST_P(closing, of_all_writes_the_files_behind_one_that_a_session_holds) {
    const std::string second = folder / "g";
    write_file(second, bytes(pages * page_bytes, 1));
    std::uint32_t other_number = 99;
    ASSERT_TRUE(pool->open_file(second, file_access::read_write, other_number).ok());
    ASSERT_GT(other_number, number) << "the file that is held is closed first";
    const std::byte nine{9};
    ASSERT_EQ(other->write(other_number, 2 * page_bytes, &nine, 1), 1);
    fixed_page held;
    ASSERT_EQ(session->fix({3, number}, use_kind::write, held), 0);
    {
        const buffer::shared_manager kept = buffer::pool_access::of(*pool);
        pool.reset();
        EXPECT_EQ(read_file(second)[2 * page_bytes], 9);
        session->unfix(held, false);
        TearDown();
    }
}

INSTANTIATE_TEST_SUITE_P(of, closing,
                         testing::Values(policy_kind::native, policy_kind::gram, policy_kind::dedu),
                         [](const auto& info) {
                             const bool is_native = info.param == policy_kind::native;
                             const bool is_gram = info.param == policy_kind::gram;
                             return std::string(is_native ? "native" : is_gram ? "gram" : "dedu");
                         });

}  // namespace penstock::test::pool_closing
