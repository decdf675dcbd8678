// Linked caches of penstock bench neighbours, against sequences worked out by hand, the clock's
// model and the engine's rates; and static placements.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/policy/linked_caches.hpp"
#include "bench/policy/shared_reads.hpp"

namespace penstock::bench::policy::test {

// One letter an access: o for the own cache, n for a neighbour, h for the host.

namespace {

struct turn {
    std::uint32_t cache, page;
};

std::string sources(linked_caches& caches, const std::vector<turn>& turns) {
    std::string out;
    for (const turn& t : turns) out += "onh"[static_cast<int>(caches.access(t.cache, t.page))];
    return out;
}

}  // namespace

TEST(linked_caches, private_caches_miss_when_the_clock_does) {
    for (const trace& made : make_traces(2048, 20000, 3))
        for (const std::uint32_t frames : {64u, 1024u}) {
            linked_caches caches({.name = "", .is_linked = false}, 2, frames, 2048, 1);
            clock each[] = {clock(frames, 2048, engine_shards(frames)),
                            clock(frames, 2048, engine_shards(frames))};
            for (std::size_t i = 0; i < made.pages.size(); ++i)
                ASSERT_EQ(caches.access(i % 2, made.pages[i]) == source::own,
                          each[i % 2].access(made.pages[i]))
                    << made.name << ", " << frames << " frames, access " << i;
        }
}

TEST(linked_caches, a_page_read_from_a_neighbour_enters_as_the_rule_says) {
    const std::vector<turn> turns = {{0, 5}, {1, 5}, {1, 5}, {0, 5}, {1, 6}, {0, 6}, {0, 6}};
    linked_caches copied({.name = "", .kind = copy_in::always}, 2, 4, 8, 1);
    EXPECT_EQ(sources(copied, turns), "hnoohno");
    linked_caches through({.name = "", .kind = copy_in::never}, 2, 4, 8, 1);
    EXPECT_EQ(sources(through, turns), "hnnohnn");
    linked_caches alone({.name = "", .is_linked = false}, 2, 4, 8, 1);
    EXPECT_EQ(sources(alone, turns), "hhoohho");
}

// Two frames: cache 1 loads page 1, copies page 0 from cache 0, and uses both. For page 2 the hand
// passes page 1 and takes the replica's place. Without the bit it passes both and takes page 1's.
TEST(linked_caches, a_use_of_a_replica_buys_no_second_round) {
    const std::vector<turn> turns = {{0, 0}, {1, 1}, {1, 1}, {1, 0}, {1, 0}, {1, 2}, {1, 1}};
    linked_caches first({.name = "", .kind = copy_in::always}, 2, 2, 4, 1);
    EXPECT_EQ(sources(first, turns), "hhonoho");
    linked_caches last({.name = "", .kind = copy_in::always, .marks_replicas = false}, 2, 2, 4, 1);
    EXPECT_EQ(sources(last, turns), "hhonohh");
}

TEST(linked_caches, frames_name_their_pages_and_tell_replicas) {
    constexpr std::uint32_t frames = 512, pages = 2048;
    const shared_reads reads({2, pages, 0.99}, 1);
    dice from(1);
    linked_caches caches({.name = "", .kind = copy_in::one_in, .n = 4}, 2, frames, pages, 1);
    std::vector<bool> is_replica[] = {std::vector<bool>(pages), std::vector<bool>(pages)};
    for (std::uint32_t i = 0; i < 40000; ++i) {
        const std::uint32_t number = i % 2, page = reads.draw(number, from);
        const source found = caches.access(number, page);
        if (found != source::own) is_replica[number][page] = found == source::neighbour;
    }
    for (const std::uint32_t number : {0u, 1u}) {
        const engine::cache_view& c = caches.view(number);
        std::uint32_t held = 0, replicas = 0;
        for (std::uint32_t page = 0; page < pages; ++page) {
            const engine::page_word word = c.words[page];
            ASSERT_EQ(engine::pins_of(word), 0u);
            if (!engine::is_valid(word)) continue;
            const bool replica = is_replica[number][page];
            ASSERT_EQ(c.frame_words[engine::frame_of(word)],
                      engine::make_owned(0, page) | (replica ? engine::replica_bit : 0));
            ++held;
            replicas += replica ? 1 : 0;
        }
        EXPECT_EQ(held, frames);
        EXPECT_GT(replicas, 0u);
        EXPECT_LT(replicas, frames);
    }
}

// While the caches fill, one read in four copies its page in; then as few as the engine says.
TEST(linked_caches, linked_caches_draw_at_the_rates_of_the_engine) {
    constexpr std::uint32_t frames = 4096;
    const auto copied_of = [](linked_caches& caches, std::uint32_t first) {
        std::uint32_t copied = 0;
        for (std::uint32_t page = first; page < first + frames / 2; ++page) {
            caches.access(0, page);
            EXPECT_EQ(caches.access(1, page), source::neighbour);
            copied += caches.access(1, page) == source::own ? 1 : 0;
        }
        return copied;
    };
    linked_caches caches({.name = ""}, 2, frames, 3 * frames, 1);
    EXPECT_NEAR(copied_of(caches, 0), frames / 2 / 4.0, 60);
    for (std::uint32_t page = frames; page < 3 * frames; ++page) caches.access(1, page);
    const std::uint32_t rate = engine::neighbour_rate_of(caches.view(1), 4096);
    EXPECT_GE(rate, 64u);
    EXPECT_NEAR(copied_of(caches, frames / 2), frames / 2.0 / rate, 10);
}

TEST(linked_caches, a_static_placement_holds_as_many_pages_as_there_are_frames) {
    const shared_reads uniform({4, 400, 0}, 1);
    // No replica: each cache has its part.
    const source_shares apart = place_statically(uniform, 100, 0);
    EXPECT_NEAR(apart.own, 0.25, 1e-9);
    EXPECT_NEAR(apart.neighbour, 0.75, 1e-9);
    EXPECT_NEAR(apart.host, 0, 1e-9);
    // 40 replicas each displace 40 pages of the own part, which no cache then has but as a replica.
    const source_shares mixed = place_statically(uniform, 100, 40);
    EXPECT_NEAR(mixed.own, 0.25, 1e-9);
    EXPECT_NEAR(mixed.own + mixed.neighbour + mixed.host, 1, 1e-9);
    EXPECT_GT(mixed.host, 0.25);
    // Reads of the own part are at home.
    const shared_reads own({4, 400, 0.99, 1}, 1);
    EXPECT_NEAR(place_statically(own, 100, 0).own, 1, 1e-9);
}

}  // namespace penstock::bench::policy::test
