// What is wished for, or read ahead, and lies in a linked cache: no byte of it is read from the
// file again. Counted in bytes of the file, over all caches.
#include <atomic>
#include <cstring>
#include <random>

#include "fault/faulty_environment.hpp"
#include "penstock/engine/element.hpp"
#include "penstock/engine/invariants.hpp"
#include "penstock/table.hpp"
#include "unit/share_support.hpp"

namespace penstock::test {

namespace {

// Two runtimes with a name, each with a host tier.
class next_door : public share {
protected:
    static constexpr std::uint64_t pages = 40, file_bytes = pages * page - 100;

    void make(options o) {
        path = make_file("data", bytes);
        o.tier_bytes = 64 * page;
        first = make_runtime(o);
        second = make_runtime(o);
        ASSERT_TRUE(are_linked(*first, *second)) << log();
        in_first = first->open(path);
        in_second = second->open(path);
        ASSERT_GE(in_first, 0);
        ASSERT_GE(in_second, 0);
        ASSERT_EQ(first->advise(in_first, advice::random), 0);
        // From both sides: an entry is made when each has seen that the other has the file.
        ASSERT_TRUE(soon([&] {
            return first->state().share->shared_lives() == 1 &&
                   second->state().share->shared_lives() == 1;
        }));
    }
    void expect_pages(runtime& rt, int fd, std::uint64_t begin, std::uint64_t end) const {
        std::vector<std::uint8_t> got(page);
        for (std::uint64_t p = begin; p < end; ++p) {
            const std::uint64_t wanted = std::min(page, file_bytes - p * page);
            ASSERT_EQ(rt.read(fd, got.data(), page, static_cast<std::int64_t>(p * page)),
                      static_cast<std::int64_t>(wanted));
            ASSERT_TRUE(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(wanted),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(p * page)))
                << p;
        }
    }
    // Bytes of files that both have read.
    [[nodiscard]] std::uint64_t bytes_read() const {
        return first->stats().file_read_bytes + second->stats().file_read_bytes;
    }

    const std::vector<std::uint8_t> bytes = pattern(31, file_bytes);
    std::string path;
    std::unique_ptr<runtime> first, second;
    int in_first = -1, in_second = -1;
};

}  // namespace

TEST_F(next_door, advice_asks_for_nothing_that_a_neighbour_holds) {
    make(shared());
    expect_pages(*first, in_first, 0, pages);
    ASSERT_EQ(bytes_read(), file_bytes);
    EXPECT_EQ(second->advise(in_second, advice::will_need), static_cast<std::int64_t>(file_bytes));
    EXPECT_EQ(second->stats().read_ahead_pages, 0u);
    EXPECT_EQ(readers_inside(*second), 0u);
    expect_pages(*second, in_second, 0, pages);
    EXPECT_EQ(bytes_read(), file_bytes);
    EXPECT_EQ(from_neighbours(*second), pages);
}

// The neighbour has some runs of pages, so each fill ends before one of them.
TEST_F(next_door, advice_fills_what_lies_between) {
    make(shared());
    for (const std::uint64_t begin : {3u, 12u, 30u})
        expect_pages(*first, in_first, begin, begin + 5);
    EXPECT_EQ(second->advise(in_second, advice::will_need), static_cast<std::int64_t>(file_bytes));
    EXPECT_EQ(second->stats().read_ahead_pages, pages - 15);
    expect_pages(*second, in_second, 0, pages);
    EXPECT_EQ(bytes_read(), file_bytes);
    EXPECT_EQ(from_neighbours(*second), 15u);
    EXPECT_EQ(second->stats().tier_loads, pages - 15);
}

TEST_F(next_door, a_reader_in_order_is_not_read_ahead_of_into_these_pages) {
    make(shared());
    for (const std::uint64_t begin : {3u, 12u, 30u})
        expect_pages(*first, in_first, begin, begin + 5);
    ASSERT_EQ(second->advise(in_second, advice::sequential), 0);
    expect_pages(*second, in_second, 0, pages);
    EXPECT_EQ(bytes_read(), file_bytes);
    EXPECT_EQ(from_neighbours(*second), 15u);
    EXPECT_GT(second->stats().read_ahead_pages, 0u);
}

TEST_F(next_door, prefetched_pages_are_copied_and_not_read) {
    make(shared());
    expect_pages(*first, in_first, 5, 25);
    EXPECT_EQ(second->prefetch(in_second, 0, file_bytes), static_cast<std::int64_t>(file_bytes));
    EXPECT_EQ(bytes_read(), file_bytes);
    EXPECT_EQ(second->stats().neighbour_loads, 20u);
    EXPECT_EQ(first->prefetch(in_first, 0, file_bytes), static_cast<std::int64_t>(file_bytes));
    EXPECT_EQ(bytes_read(), file_bytes);
    EXPECT_EQ(second->stats().misses + first->stats().misses, 2 * pages);
}

// The neighbour's pages leave while others wish for them and read: what was not read ahead comes by
// request, and no byte is wrong.
TEST_F(next_door, pages_that_leave_meanwhile_are_read_again) {
    options o = shared();
    o.cache_bytes = 16 * page;
    o.admit_one_in = 4;
    make(o);
    constexpr std::uint64_t rounds = 400;
    std::atomic<std::uint64_t> wrong{0};
    const auto act = [&](runtime& rt, int fd, std::uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<std::uint8_t> got(3 * page);
        for (std::uint64_t round = 0; round < rounds; ++round) {
            const auto at = static_cast<std::int64_t>(random() % file_bytes),
                       length = static_cast<std::int64_t>(1 + random() % (3 * page));
            if (rt.advise(fd, advice::will_need, at, length) < 0) ++wrong;
            const std::int64_t done = rt.read(fd, got.data(), length, at);
            if (done <= 0) ++wrong;
            for (std::int64_t i = 0; i < done; ++i)
                wrong +=
                    got[static_cast<std::size_t>(i)] != bytes[static_cast<std::size_t>(at + i)];
            if (round % 16 == 0) rt.advise(fd, advice::done_with);
        }
    };
    std::vector<std::thread> all;
    for (std::uint64_t seed = 0; seed < 4; ++seed)
        all.emplace_back([&, seed] {
            if (seed % 2 == 0) act(*first, in_first, seed);
            else act(*second, in_second, seed);
        });
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(from_neighbours(*first) + from_neighbours(*second), 0u);
    EXPECT_EQ(readers_inside(*first) + readers_inside(*second), 0u);
    for (runtime* const rt : {first.get(), second.get()}) {
        // Fills that no reader waited for have ended, and the file is open once.
        std::string broken;
        EXPECT_TRUE(soon([&] {
            const auto found = engine::check_invariants(rt->ref().view, {0, 1});
            broken = found.rule == nullptr ? "" : found.rule;
            return broken.empty();
        })) << broken;
    }
}

// Rows of a table, of two caches of one runtime; the operating system is said to have none.
class rows_next_door : public testing::Test {
protected:
    static constexpr std::uint64_t row = 1000, rows_of_file = 200;

    void make(std::uint64_t tier_bytes) {
        write_file(path, bytes);
        let_files_settle();
        options o = small_options(folder, 2);
        o.cache_bytes = 256 * page;
        o.tier_bytes = tier_bytes;
        o.window_bytes = 2 * tier_bytes;  // of both caches
        host::runtime_hooks hooks;
        hooks.env = &env;
        env.say_cached(0);
        rt = make_runtime(o, hooks);
        table_layout layout{.row_bytes = row, .stride_bytes = page};
        layout.pieces.push_back({path, 0, rows_of_file});
        const status s = table::make(*rt, layout, {}, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows_of_file); ++i) {
            all.push_back(i);
            if (i % 2 == 1) odd.push_back(i);
        }
    }
    void expect_rows() {
        std::vector<std::uint8_t> got(all.size() * row);
        ASSERT_EQ(rows->gather(all.data(), all.size(), got.data(), {.device = 0}), 0);
        for (std::size_t i = 0; i < all.size(); ++i)
            ASSERT_EQ(std::memcmp(&got[i * row], &bytes[i * page], row), 0) << i;
    }

    // Draws let some of their pages enter: with the read that delivers the row, or after it.
    void expect_odd_rows_from_neighbour() const {
        const statistics s = rt->stats(0);
        EXPECT_LE(s.neighbour_reads, odd.size());
        EXPECT_LE(s.neighbour_loads, odd.size());
        EXPECT_GE(s.neighbour_reads + s.neighbour_loads, odd.size());
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    const std::vector<std::uint8_t> bytes = pattern(32, rows_of_file* page);
    fault::faulty_environment env;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
    std::vector<std::int32_t> all, odd;
};

TEST_F(rows_next_door, are_not_wished_for) {
    make(0);
    ASSERT_EQ(rows->prefetch(odd.data(), odd.size(), {.device = 1}), 0);
    ASSERT_EQ(rows->will_need(odd.data(), odd.size(), {.device = 0}), 0);
    EXPECT_EQ(rt->stats(0).requests - rt->stats(0).open_requests, 0u);
    ASSERT_EQ(rows->will_need(all.data(), all.size(), {.device = 0}), 0);
    EXPECT_TRUE(soon([&] { return rt->stats(0).wishes == all.size() - odd.size(); }))
        << rt->stats(0).wishes;
    expect_rows();
    expect_odd_rows_from_neighbour();
    // By system calls, of which some let the page enter by a request.
    const statistics s = rt->stats(0);
    EXPECT_EQ(s.through_reads + s.misses - s.neighbour_loads, all.size() - odd.size());
}

TEST_F(rows_next_door, are_not_filled_into_the_tier) {
    make(256 * page);
    ASSERT_EQ(rows->prefetch(odd.data(), odd.size(), {.device = 1}), 0);
    // Each wish takes what its share of the tier has room for.
    ASSERT_EQ(rows->will_need(all.data(), all.size(), {.device = 0}), 0);
    EXPECT_GT(rt->stats(0).read_ahead_pages, 0u);
    EXPECT_LE(rt->stats(0).read_ahead_pages, all.size() - odd.size());
    const std::uint64_t filled = rt->stats(0).read_ahead_pages;
    ASSERT_EQ(rows->will_need(odd.data(), odd.size(), {.device = 0}), 0);
    EXPECT_EQ(rt->stats(0).read_ahead_pages, filled);
    expect_rows();
    expect_odd_rows_from_neighbour();
}

// A visit that does not end keeps the neighbour's memory for ever.
TEST_F(next_door, an_element_that_a_neighbour_has_ends_its_visit) {
    make(shared());
    expect_pages(*first, in_first, 0, 4);
    const engine::cache_view& c = second->ref().view;
    const engine::file_handle f = engine::handle_of(c, engine::descriptor_slot(c, in_second));
    const auto load = [](const std::byte* from) {
        std::uint64_t value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    };
    std::uint64_t got = 0, wanted = 0;
    std::memcpy(&wanted, bytes.data() + 2 * page + 64, sizeof wanted);
    ASSERT_TRUE(engine::try_element_through_by<std::uint64_t>(load, c, f, 2 * page + 64, got));
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(second->stats().neighbour_reads, 1u);
    EXPECT_EQ(readers_inside(*second), 0u);
    // One that lies in two pages is not there as a whole; nor is one of a page that no cache has.
    EXPECT_FALSE(engine::try_element_through_by<std::uint64_t>(load, c, f, 3 * page - 4, got));
    EXPECT_FALSE(engine::try_element_through_by<std::uint64_t>(load, c, f, 9 * page, got));
    EXPECT_EQ(readers_inside(*second), 0u);
}

}  // namespace penstock::test
