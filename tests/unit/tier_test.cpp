// The host tier from host threads: victims, reading ahead, advice, files that come and go. And what
// leaves both pools for readers outside (engine/lend.hpp).
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "penstock/engine/invariants.hpp"
#include "penstock/engine/lend.hpp"
#include "penstock/penstock.hpp"
#include "unit/hand_cache.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class tier : public testing::Test {
protected:
    static constexpr std::uint64_t pages = 200, size = pages * page - 1000;

    tier() : bytes(pattern(11, size)) {
        write_file(folder / "data", bytes);
        o = small_options(folder);
        o.page_bytes = page;
        o.cache_bytes = 16 * page;
        o.tier_bytes = 256 * page;
        o.window_bytes = 2u << 20;
    }
    void create() { rt = make_runtime(o); }

    // True if page number `p` reads as it should.
    [[nodiscard]] bool page_is_right(int fd, std::uint64_t p) const {
        std::vector<std::uint8_t> got(page);
        const std::uint64_t wanted = std::min(page, size - p * page);
        if (rt->read(fd, got.data(), page, static_cast<std::int64_t>(p * page)) !=
            static_cast<std::int64_t>(wanted))
            return false;
        return std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(wanted),
                          bytes.begin() + static_cast<std::ptrdiff_t>(p * page));
    }
    // Waits until the service threads have nothing to do, and checks every rule.
    void expect_rules(std::uint64_t references) const {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const engine::invariant_report found =
            engine::check_invariants(rt->ref().view, {0, references});
        EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
    }

    const temporary_folder folder;
    std::vector<std::uint8_t> bytes;
    options o;
    std::unique_ptr<runtime> rt;
};

}  // namespace

TEST_F(tier, what_the_cache_drops_comes_back_without_a_request) {
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->advise(fd, advice::random), 0);
    for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(page_is_right(fd, i * 37 % pages));
    const statistics first = rt->stats();
    EXPECT_EQ(first.tier_loads, 0u);
    EXPECT_EQ(first.read_ahead_pages, 0u) << "random advice";
    EXPECT_EQ(first.tier_saves, pages - 16);
    for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(page_is_right(fd, i * 37 % pages));
    const statistics second = rt->stats();
    EXPECT_EQ(second.requests, first.requests);
    EXPECT_EQ(second.file_reads, first.file_reads);
    EXPECT_GE(second.tier_loads, pages - 16);
    expect_rules(1);
}

TEST_F(tier, none_where_none_is_wanted) {
    o.tier_bytes = 0;
    create();
    const int fd = rt->open("data");
    for (int round = 0; round < 2; ++round)
        for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(page_is_right(fd, i));
    const statistics s = rt->stats();
    EXPECT_EQ(s.tier_loads + s.tier_saves + s.read_ahead_pages, 0u);
    EXPECT_EQ(s.file_reads, 2 * pages);
    EXPECT_EQ(rt->advise(fd, advice::will_need), 0);
    EXPECT_EQ(rt->advise(fd, advice::sequential), 0);
}

TEST_F(tier, of_too_few_pages_is_refused_with_the_cure) {
    for (const std::uint64_t bytes : {std::uint64_t{1}, page, 8 * page - 1}) {
        o.tier_bytes = bytes;
        const status s = runtime::make(o, rt);
        EXPECT_EQ(s.code, -EINVAL) << bytes;
        EXPECT_NE(s.message.find("tier_bytes: "), std::string::npos) << s.message;
        EXPECT_NE(s.message.find("; give at least 32 KiB"), std::string::npos) << s.message;
    }
    o.tier_bytes = 8 * page;
    create();
    EXPECT_EQ(rt->settings().tier_bytes, 8 * page);
}

TEST_F(tier, a_reader_in_order_is_read_ahead_of) {
    o.cache_bytes = 64 * page;
    create();
    const int fd = rt->open("data");
    for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(page_is_right(fd, i)) << i;
    const statistics s = rt->stats();
    EXPECT_GT(s.read_ahead_pages, pages / 2);
    EXPECT_GT(s.tier_loads, pages / 2);
    EXPECT_LT(s.requests, pages / 2);
    EXPECT_EQ(s.read_ahead_failures, 0u);
    expect_rules(1);
}

// Eight readers take turns, each in order through its own part: each is seen for what it is.
TEST_F(tier, readers_in_turn_do_not_confuse_each_other) {
    o.cache_bytes = 128 * page;
    create();
    const int fd = rt->open("data");
    constexpr std::uint64_t readers = 4, part = pages / readers;
    for (std::uint64_t i = 0; i < part; ++i)
        for (std::uint64_t r = 0; r < readers; ++r) ASSERT_TRUE(page_is_right(fd, r * part + i));
    const statistics s = rt->stats();
    EXPECT_GT(s.read_ahead_pages, pages / 3);
    EXPECT_GT(s.tier_loads, pages / 3);
    expect_rules(1);
}

TEST_F(tier, a_reader_at_random_is_not) {
    create();
    const int fd = rt->open("data");
    for (std::uint64_t i = 0; i < 3 * pages; ++i) ASSERT_TRUE(page_is_right(fd, mix64(i) % pages));
    EXPECT_LT(rt->stats().read_ahead_pages, pages / 10);
}

TEST_F(tier, sequential_advice_reads_ahead_at_once) {
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->advise(fd, advice::sequential), 0);
    ASSERT_TRUE(page_is_right(fd, 100));
    EXPECT_GE(rt->stats().read_ahead_pages, 8u);
    ASSERT_TRUE(page_is_right(fd, 101));
    EXPECT_EQ(rt->stats().tier_loads, 1u);
}

TEST_F(tier, advice_brings_a_range_and_drops_it) {
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->advise(fd, advice::random), 0);  // will_need does as it is told all the same
    EXPECT_EQ(rt->advise(fd, advice::will_need, 10 * page + 5, 20 * page),
              static_cast<std::int64_t>(20 * page));
    for (std::uint64_t i = 10; i < 31; ++i) ASSERT_TRUE(page_is_right(fd, i));
    statistics s = rt->stats();
    EXPECT_EQ(s.tier_loads, 21u);
    EXPECT_EQ(s.requests - s.open_requests, 1u) << "all pages with one request";
    const std::uint64_t reads = s.file_reads;
    // Pages 11 to 29 lie whole in the range; 10 and 30 do not.
    EXPECT_EQ(rt->advise(fd, advice::done_with, 10 * page + 5, 20 * page), 0);
    for (std::uint64_t i = 10; i < 31; ++i) ASSERT_TRUE(page_is_right(fd, i));
    EXPECT_EQ(rt->stats().file_reads - reads, 19u);
    EXPECT_EQ(rt->advise(fd, advice::will_need, static_cast<std::int64_t>(size) - 10, 100), 10)
        << "the last page";
    EXPECT_EQ(rt->advise(fd, advice::will_need, static_cast<std::int64_t>(size), 100), 0);
    EXPECT_EQ(rt->advise(fd, advice::will_need, -1, 100), -EINVAL);
    EXPECT_EQ(rt->advise(fd, static_cast<advice>(9)), -EINVAL);
    EXPECT_EQ(rt->advise(fd + 1, advice::random), -EBADF);
    expect_rules(1);
}

TEST_F(tier, a_file_that_changed_is_read_anew) {
    create();
    int fd = rt->open("data");
    for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(page_is_right(fd, i));
    rt->close(fd);
    bytes = pattern(12, size);
    write_file(folder / "data", bytes);
    fd = rt->open("data");
    for (int round = 0; round < 2; ++round)
        for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(page_is_right(fd, i));
    expect_rules(1);
}

TEST_F(tier, a_file_that_shrank_says_so) {
    create();
    const int fd = rt->open("data");
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(page_is_right(fd, i));
    std::filesystem::resize_file(folder / "data", 25 * page);
    std::vector<std::uint8_t> got(page);
    for (std::uint64_t i = 160; i < 180; ++i)
        EXPECT_EQ(rt->read(fd, got.data(), page, static_cast<std::int64_t>(i * page)), -ESTALE);
    rt->advise(fd, advice::will_need, 150 * page, 40 * page);
    for (std::uint64_t i = 160; i < 180; ++i)
        EXPECT_EQ(rt->read(fd, got.data(), page, static_cast<std::int64_t>(i * page)), -ESTALE);
    EXPECT_GT(rt->stats().read_ahead_failures, 0u);
    expect_rules(1);
}

// More files than slots: each is taken down with its pages in the tier, and its table serves
// another.
TEST_F(tier, tables_of_files_that_are_taken_down_come_back_clean) {
    o.max_files = 16;
    o.table_bytes = 64 << 10;
    create();
    for (int i = 0; i < 40; ++i)
        write_file(folder / ("file" + std::to_string(i)),
                   pattern(static_cast<std::uint64_t>(100 + i), 30 * page));
    for (int round = 0; round < 3; ++round)
        for (int i = 0; i < 40; ++i) {
            const int fd = rt->open("file" + std::to_string(i));
            ASSERT_GE(fd, 0);
            if (i % 3 == 0) rt->advise(fd, advice::will_need);
            std::vector<std::uint8_t> got(30 * page);
            ASSERT_EQ(rt->read(fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
                      static_cast<std::int64_t>(got.size()));
            ASSERT_TRUE(got == pattern(static_cast<std::uint64_t>(100 + i), 30 * page)) << i;
            rt->close(fd);
        }
    expect_rules(0);
}

TEST_F(tier, threads_at_once) {
    o.tier_bytes = 64 * page;
    create();
    const int fd = rt->open("data");
    std::vector<std::thread> all;
    std::atomic<int> wrong{0};
    for (unsigned t = 0; t < 4; ++t)
        all.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < 4000; ++i) {
                const std::uint64_t p = t % 2 == 0 ? i % pages : mix64(t * 10000 + i) % pages;
                if (!page_is_right(fd, p)) ++wrong;
                if (i % 997 == 0)
                    rt->advise(fd, i % 2 == 0 ? advice::done_with : advice::will_need,
                               static_cast<std::int64_t>(p * page), 30 * page);
            }
        });
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(rt->stats().tier_loads, 0u);
    expect_rules(1);
}

TEST_F(tier, sizes_that_do_not_fit_are_refused) {
    o.tier_bytes = 4u << 20;
    std::unique_ptr<runtime> none;
    const status s = runtime::make(o, none);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("tier_bytes"), std::string::npos);
    EXPECT_NE(s.message.find("window_bytes"), std::string::npos);
}

namespace {

// A group that gives others the time, while it copies, to take the frame for another page: they get
// it if no group holds the page.
struct slow_lane : lane {
    hand_cache* cache = nullptr;
    engine::page_word* word = nullptr;
    void copy_out(std::byte* to, const std::byte* from, std::size_t count) const {
        const engine::page_word seen = engine::load_relaxed(word);
        if (engine::pins_of(seen) == 0 && engine::try_evict(word, seen))
            std::memset(cache->frame_bytes, 0xee, sizeof cache->frame_bytes);
        lane::copy_out(to, from, count);
    }
};

}  // namespace

TEST(lend_part, copies_clean_pages_under_a_pin_and_no_others) {
    hand_cache cache;
    cache.add_file(0, 0, 6);
    for (std::uint64_t i = 0; i < 4; ++i) {
        cache.place(0, i, static_cast<std::uint32_t>(i));
        std::memset(cache.view.frame_address(static_cast<std::uint32_t>(i)),
                    10 + static_cast<int>(i), 512);
    }
    cache.page_words[1] |= engine::dirty_bit;
    cache.page_words[2] |= engine::pin_one * engine::pin_limit;
    cache.page_words[4] = engine::state_loading | engine::pin_one;
    // Of the tier: page 1, older than what the cache has; page 4, on its way; page 5.
    engine::page_word in_tier[hand_cache::words] = {};
    alignas(16) std::byte tier_frames[3 * 512];
    std::memset(tier_frames, 15, sizeof tier_frames);
    std::uint64_t fill_marks[3] = {0, engine::make_stamp(0, 7), 0}, done_marks[3] = {};
    for (const auto& [at, frame] : {std::pair{1, 0u}, {4, 1u}, {5, 2u}})
        in_tier[at] = engine::state_valid | engine::use_bit | frame;
    in_tier[4] |= engine::pin_one;  // the fill's
    cache.view.tier.words = in_tier;
    cache.view.tier.frames = tier_frames;
    cache.view.tier.fill_marks = fill_marks;
    cache.view.tier.done_marks = done_marks;
    cache.view.tier.frame_count = 3;
    const std::vector<engine::page_word> before(cache.page_words,
                                                cache.page_words + hand_cache::words);
    alignas(16) std::byte to[6 * 512] = {};
    std::uint32_t states[6] = {};
    engine::lend_order order{0, 1, 0, 6 * 512, 512, to, states};
    slow_lane group;
    group.cache = &cache;
    for (std::uint32_t part = 0; part < order.parts(); ++part) {
        group.word = &cache.page_words[part];
        engine::lend_part(group, cache.view, order, part);
    }
    const std::array<std::uint32_t, 6> expected{engine::part_there,   engine::part_missing,
                                                engine::part_missing, engine::part_there,
                                                engine::part_missing, engine::part_there};
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), states));
    for (const std::size_t i : {0u, 3u, 5u})
        EXPECT_TRUE(std::all_of(to + i * 512, to + (i + 1) * 512, [&](std::byte b) {
            return b == std::byte(10 + i);
        })) << i;
    EXPECT_EQ(before, std::vector<engine::page_word>(cache.page_words,
                                                     cache.page_words + hand_cache::words))
        << "every pin is gone, and the use bit as it was";
    for (std::size_t i = 0; i < hand_cache::words; ++i)
        EXPECT_EQ(engine::pins_of(in_tier[i]), i == 4 ? 1u : 0u);
    // Once the file was written what the tier has may be older.
    engine::write_record writes[1] = {};
    writes[0].granted = engine::granted_plainly;
    cache.view.writes = writes;
    for (const auto& [part, state] :
         {std::pair{5u, engine::part_missing}, {0u, engine::part_there}}) {
        group.word = &cache.page_words[part];
        engine::lend_part(group, cache.view, order, part);
        EXPECT_EQ(states[part], state);
    }
    cache.view.writes = nullptr;
    for (const auto& [state, generation] :
         {std::pair{engine::file_busy, 1u}, {engine::file_vacant, 1u}, {engine::file_live, 2u}}) {
        cache.file_words[0] = engine::make_file_word(state, generation, 0);
        engine::lend_part(group, cache.view, order, 0);
        EXPECT_EQ(states[0], engine::part_missing);
    }
}

}  // namespace penstock::test
