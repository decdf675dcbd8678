// The policies of penstock bench policy, against sequences worked out by hand, each other, and the
// engine.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "bench/policy/admission.hpp"
#include "bench/policy/policies.hpp"
#include "bench/policy/traces.hpp"
#include "unit/support.hpp"

namespace penstock::bench::policy::test {

namespace {

using pages = std::vector<std::uint32_t>;

// One letter an access: h or m.
template <typename Policy>
std::string played(Policy cache, const pages& trace) {
    std::string out;
    for (const std::uint32_t page : trace) out += cache.access(page) ? 'h' : 'm';
    return out;
}

template <typename Policy>
std::uint64_t misses(Policy cache, const pages& trace) {
    const std::string all = played(std::move(cache), trace);
    return static_cast<std::uint64_t>(std::count(all.begin(), all.end(), 'm'));
}

// The example of the textbooks, on which FIFO does worse with more frames.
const pages anomaly = {1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5};

}  // namespace

TEST(policy, fifo_misses_more_with_more_frames_on_the_anomaly) {
    EXPECT_EQ(played(fifo(3, 6), anomaly), "mmmmmmmhhmmh");
    EXPECT_EQ(played(fifo(4, 6), anomaly), "mmmmhhmmmmmm");
}

TEST(policy, lru_drops_what_was_not_used_for_longest) {
    EXPECT_EQ(played(lru(3, 6), anomaly), "mmmmmmmhhmmm");
    EXPECT_EQ(played(lru(4, 6), anomaly), "mmmmhhmhhmmm");
}

TEST(policy, belady_drops_what_is_needed_last) {
    EXPECT_EQ(misses(belady(3, 6, anomaly), anomaly), 7u);
    EXPECT_EQ(misses(belady(4, 6, anomaly), anomaly), 6u);
}

// Frames after each access, * for the use bit: 3 clears all three and takes the place of 0; 1 is
// hit; 4 passes 1 and takes the place of 2; 2 passes 3 and takes that of 1; 3 is hit; 1 clears
// everything and takes the place of 4; 2 is still there.
TEST(policy, clock_that_counts_a_load_as_use_spares_new_pages) {
    EXPECT_EQ(played(clock(3, 5, 1, at_load::used), {0, 1, 2, 3, 1, 4, 2, 3, 1, 2}), "mmmmhmmhmh");
}

// Without the bit at load: 3 takes 0's place; 1 is hit; 4 passes 1 and takes 2's; 2 takes 3's, 3
// takes 1's, 1 takes 4's.
TEST(policy, clock_spares_what_was_used_and_drops_new_pages_sooner) {
    EXPECT_EQ(played(clock(3, 5), {0, 1, 2, 3, 1, 4, 2, 3, 1, 2}), "mmmmhmmmmh");
}

// From the oldest, hand before the page in brackets: 3 passes 0 and drops 1: 0 [2] 3. 4 drops 2: 0*
// [3] 4. 5 drops 3: 0* [4] 5. 4 is hit. 6 passes 4, drops 5, and the hand goes back: [0*] 4 6. 7
// passes 0, drops 4: 0 [6] 7. 0 is hit.
TEST(policy, sieve_leaves_what_it_spares_in_its_place) {
    const pages trace = {0, 1, 2, 0, 3, 0, 4, 5, 4, 6, 7, 0};
    EXPECT_EQ(played(sieve(3, 8), trace), "mmmhmhmmhmmh");
    EXPECT_EQ(played(queued_sieve(3, 8), trace), "mmmhmhmmhmmh");
}

// Ten frames, one of them for the small queue. 10 drops 0 but keeps its name; 0 comes back to the
// main queue in place of 1; 2 is hit three times, so 11 moves it to the main queue and drops 3; 3
// comes back to the main queue; 0 is still there, 1 is a name.
TEST(policy, s3_fifo_keeps_what_was_used_twice_or_came_back) {
    pages trace(10);
    std::iota(trace.begin(), trace.end(), 0u);
    for (const std::uint32_t page : {10, 0, 2, 2, 2, 11, 2, 3, 0, 1}) trace.push_back(page);
    EXPECT_EQ(played(s3_fifo(10, 12), trace),
              "mmmmmmmmmm"
              "mmhhhmhmhm");
}

TEST(policy, two_rings_do_what_the_list_of_sieve_does) {
    for (const trace& made : make_traces(512, 20000, 7))
        for (const std::uint32_t frames : {1u, 2u, 16u, 100u, 511u})
            EXPECT_EQ(played(queued_sieve(frames, 512), made.pages),
                      played(sieve(frames, 512), made.pages))
                << made.name << ", " << frames << " frames";
}

TEST(policy, no_policy_beats_the_optimum_and_all_miss_every_page_once) {
    for (const trace& made : make_traces(1024, 20000, 3)) {
        const pages distinct = [&] {
            pages all = made.pages;
            std::sort(all.begin(), all.end());
            all.erase(std::unique(all.begin(), all.end()), all.end());
            return all;
        }();
        for (const std::uint32_t frames : {16u, 128u, 1024u}) {
            const std::uint64_t least = misses(belady(frames, 1024, made.pages), made.pages);
            for (const std::uint64_t got :
                 {misses(fifo(frames, 1024), made.pages), misses(clock(frames, 1024), made.pages),
                  misses(sieve(frames, 1024), made.pages),
                  misses(s3_fifo(frames, 1024), made.pages), misses(lru(frames, 1024), made.pages),
                  misses(queued_sieve(frames, 1024, frames / 8), made.pages),
                  misses(clock(frames, 1024, frames / 8, at_load::used), made.pages)}) {
                EXPECT_GE(got, least) << made.name;
                if (frames == 1024) {
                    EXPECT_EQ(got, distinct.size()) << made.name;
                }
            }
        }
    }
}

TEST(policy, traces_depend_on_the_seed_alone) {
    const auto first = make_traces(256, 5000, 1), again = make_traces(256, 5000, 1),
               other = make_traces(256, 5000, 2);
    ASSERT_GE(first.size(), 5u);
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(first[i].pages, again[i].pages);
        EXPECT_EQ(first[i].pages == other[i].pages, first[i].name == "loop") << first[i].name;
        for (const std::uint32_t page : first[i].pages) ASSERT_LT(page, 256u);
    }
}

TEST(policy, shards_are_chosen_as_the_engine_chooses_them) {
    EXPECT_EQ(engine_shards(255), 1u);
    EXPECT_EQ(engine_shards(1024), 4u);
    EXPECT_EQ(engine_shards(1 << 20), 1024u);
}

// One thread that reads whole pages: the engine must miss exactly when the simulation does, with
// one shard and with several.
TEST(policy, the_simulated_clock_is_the_engines) {
    constexpr std::uint32_t file_pages = 2048, page_bytes = 512;
    const penstock::test::temporary_folder folder;
    const std::string path = folder / "file";
    penstock::test::write_file(path, penstock::test::pattern(1, file_pages * page_bytes));
    for (const std::uint32_t frames : {64u, 1024u}) {
        options o = penstock::test::small_options(folder);
        o.page_bytes = page_bytes;
        o.cache_bytes = std::uint64_t{frames} * page_bytes;
        for (const trace& made : make_traces(file_pages, 8000, 5)) {
            const auto rt = penstock::test::make_runtime(o);
            ASSERT_NE(rt, nullptr);
            const int fd = rt->open(path);
            ASSERT_GE(fd, 0);
            std::byte buffer[page_bytes];
            for (const std::uint32_t page : made.pages)
                ASSERT_EQ(rt->read(fd, buffer, page_bytes, std::int64_t{page} * page_bytes),
                          page_bytes);
            EXPECT_EQ(rt->stats().misses,
                      misses(clock(frames, file_pages, engine_shards(frames)), made.pages))
                << made.name << ", " << frames << " frames";
        }
    }
}

// Rules of admission. One letter an access: h, t for read through, a for admitted.

namespace {

std::string gated(const admission_rule& rule, std::uint32_t frames, const pages& trace) {
    gated_clock cache(rule, frames, 1024, 1);
    std::string out;
    for (const std::uint32_t page : trace) out += "hta"[static_cast<int>(cache.access(page))];
    return out;
}

}  // namespace

TEST(policy, a_second_touch_admits_and_so_again_after_the_page_went) {
    EXPECT_EQ(gated({"", admit::second_touch}, 1, {0, 1, 0, 0, 1, 1, 0, 0, 0}), "ttahahtah");
}

// Two frames, so two misses an epoch: 0 is stamped with the first epoch and comes back in the
// third; then it comes back in the one after.
TEST(policy, a_page_that_comes_again_soon_is_admitted_and_a_late_one_is_not) {
    EXPECT_EQ(gated({"", admit::soon_again}, 2, {0, 1, 2, 3, 0, 0, 0}),
              "ttttta"
              "h");
}

TEST(policy, frames_that_were_never_used_are_filled_by_their_own_rule) {
    EXPECT_EQ(gated({"", admit::never, 1, 1}, 2, {0, 1, 2, 0, 1, 2}), "aathht");
    EXPECT_EQ(gated({"", admit::never}, 2, {0, 1, 0}), "ttt");
}

TEST(policy, always_is_the_clock_and_one_in_four_is_a_quarter_of_the_misses) {
    for (const trace& made : make_traces(1024, 20000, 3)) {
        const std::string all = gated({"", admit::always}, 64, made.pages);
        EXPECT_EQ(static_cast<std::uint64_t>(std::count(all.begin(), all.end(), 'a')),
                  misses(clock(64, 1024), made.pages))
            << made.name;
        const std::string some = gated({"", admit::sampled, 4}, 64, made.pages);
        const auto in = static_cast<double>(std::count(some.begin(), some.end(), 'a')),
                   missed = in + static_cast<double>(std::count(some.begin(), some.end(), 't'));
        EXPECT_NEAR(in / missed, 0.25, 0.03) << made.name;
    }
}

TEST(policy, experts_come_back_as_often_as_they_are_said_to) {
    dice from(1);
    const row_trace made = experts(200000, from);
    const auto length = static_cast<double>(made.accesses.size());
    EXPECT_NEAR(1 - misses(lru(64, 512), made.accesses) / length, 0.67, 0.01);
    EXPECT_NEAR(1 - misses(lru(128, 512), made.accesses) / length, 0.81, 0.01);
}

}  // namespace penstock::bench::policy::test
