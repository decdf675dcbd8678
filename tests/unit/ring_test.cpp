// The device half of the ring, with the host played by hand.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "unit/hand_cache.hpp"

namespace penstock::engine::test {

using penstock::test::hand_cache;

namespace {

ring_ticket claim(hand_cache& c) {
    ring_ticket at{};
    EXPECT_EQ(claim_slot(lane{}, c.view, false, at), 0);
    return at;
}

ring_request request_of(op operation) {
    ring_request request{};
    request.operation = operation;
    return request;
}

}  // namespace

TEST(ring, tickets_come_in_order_until_the_ring_is_full) {
    hand_cache c;
    ring_ticket at[4];
    for (std::uint64_t i = 0; i < 4; ++i) {
        at[i] = claim(c);
        EXPECT_EQ(at[i].ticket, i);
    }
    ring_ticket extra{};
    EXPECT_EQ(claim_slot(lane{}, c.view, false, extra), -EAGAIN);
    EXPECT_EQ(c.tail, 4u) << "a claim that fails changes nothing";
    recycle_slot(c.view, at[1]);
    EXPECT_EQ(claim_slot(lane{}, c.view, false, extra), -EAGAIN)
        << "the next ticket needs the first slot";
    recycle_slot(c.view, at[0]);
    EXPECT_EQ(claim(c).ticket, 4u);
    EXPECT_EQ(claim(c).ticket, 5u);
    EXPECT_EQ(claim_slot(lane{}, c.view, false, extra), -EAGAIN);
}

TEST(ring, a_group_whose_ring_is_full_claims_from_the_next) {
    hand_cache c;
    hand_cache other;
    ring_view both[2] = {c.ring, other.ring};
    c.view.rings = both;
    c.view.ring_count = 2;
    const std::uint32_t own = claim(c).ring;
    for (int i = 1; i < 4; ++i) EXPECT_EQ(claim(c).ring, own);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(claim(c).ring, 1 - own);
    ring_ticket extra{};
    EXPECT_EQ(claim_slot(lane{}, c.view, false, extra), -EAGAIN) << "both are full";
    EXPECT_EQ(c.tail + other.tail, 8u);
}

TEST(ring, each_operation_has_its_words_in_the_wire) {
    const ring_request open = open_request{7, 3, 9, 40, 2, 6}.packed();
    EXPECT_EQ(open.operation, op::open);
    EXPECT_EQ(open.bytes, 7u);
    EXPECT_EQ(open.file_slot, 3u);
    EXPECT_EQ(open.generation, 9u);
    EXPECT_EQ(open.offset, 40u);
    EXPECT_EQ(open.argument, 2u);
    EXPECT_EQ(open.open_slot, 6u);
    const open_request opened = open_request::of(open);
    EXPECT_EQ(opened.name_bytes, 7u);
    EXPECT_EQ(opened.flags, 3u);
    EXPECT_EQ(opened.known_generation, 9u);
    EXPECT_EQ(opened.old_extent, 40u);
    EXPECT_EQ(opened.old_units, 2u);
    EXPECT_EQ(opened.known_slot, 6u);
    const ring_request read = read_request{1, 2, 3, 4, true}.packed(),
                       fill = fill_request{1, 2, 3, 4, 5}.packed(),
                       write = write_request{1, 2, 3, 4, 1}.packed(),
                       leaf = leaf_request{1, 2, growth_directory, 4}.packed(),
                       settle = file_request{op::settle, 1, 2, 0, 5}.packed();
    for (const ring_request& any : {read, fill, write, leaf, settle}) {
        EXPECT_EQ(any.file_slot, 1u);
        EXPECT_EQ(any.generation, 2u);
        EXPECT_EQ(any.offset, any.operation == op::settle ? 0u : 4u);
        EXPECT_EQ(any.lost_extent, 0u);
        EXPECT_EQ(any.open_slot, 0u);
    }
    EXPECT_TRUE(read_request::of(read).pads);
    EXPECT_EQ(read.argument, 1u);
    EXPECT_EQ(fill_request::of(fill).stamp, 5u);
    EXPECT_EQ(write_request::of(write).is_whole, 1u);
    EXPECT_EQ(leaf_request::of(leaf).kind, growth_directory);
    EXPECT_EQ(leaf_request::of(leaf).number, 4u);
    EXPECT_EQ(file_request::of(settle).answers, 5u);
    EXPECT_EQ(file_request::of(file_request{op::truncate, 1, 2, 77}.packed()).size_bytes, 77u);
}

TEST(ring, a_request_arrives_whole_and_its_answer_comes_back) {
    hand_cache c;
    const ring_ticket at = claim(c);
    ring_request request = request_of(op::read);
    request.bytes = 11;
    request.file_slot = 12;
    request.generation = 13;
    request.offset = 14;
    request.argument = 15;
    post(lane{}, c.view, at, request);
    const ring_request& seen = c.requests[0];
    EXPECT_EQ(seen.published, 1u);
    EXPECT_EQ(seen.operation, op::read);
    EXPECT_EQ(seen.bytes, 11u);
    EXPECT_EQ(seen.file_slot, 12u);
    EXPECT_EQ(seen.generation, 13u);
    EXPECT_EQ(seen.offset, 14u);
    EXPECT_EQ(seen.argument, 15u);
    std::thread host([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        c.answer(0, 11);
    });
    EXPECT_EQ(await(lane{}, c.view, at), 0);
    EXPECT_EQ(c.replies[0].result, 11);
    host.join();
    EXPECT_EQ(c.counted(count_requests), 1u);
}

TEST(ring, a_wait_ends_with_its_time_the_abort_word_or_the_heartbeat) {
    hand_cache c;
    const ring_ticket at = claim(c);
    EXPECT_EQ(await(lane{}, c.view, at), -ETIMEDOUT) << "request_wait_ns";
    c.control.abort_code = -ECANCELED;
    EXPECT_EQ(await(lane{}, c.view, at), -ECANCELED);
    c.control.abort_code = 0;
    c.view.request_wait_ns = 60'000'000'000;
    c.view.host_wait_ns = 20'000'000;
    EXPECT_EQ(await(lane{}, c.view, at), -ETIMEDOUT) << "host_wait_ns";
    // With a host that beats, the wait goes on past host_wait_ns.
    c.view.request_wait_ns = 200'000'000;
    std::atomic<bool> stop{false};
    std::thread host([&] {
        while (!stop) {
            atomic_store<order::relaxed, scope::system>(&c.control.heartbeat,
                                                        c.control.heartbeat + 1);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    c.view.host_wait_ns = 150'000'000;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(await(lane{}, c.view, at), -ETIMEDOUT);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(190));
    stop = true;
    host.join();
}

namespace {

// A lane whose clock the test sets.
struct clocked_lane : lane {
    std::uint64_t now = 5'000'000'000;
    std::uint64_t now_ns() const { return now; }
};

}  // namespace

// Of a stop of the process at most a quarter of a limit counts, and looks that come often count in
// full.
TEST(ring, time_in_which_a_process_was_stopped_does_not_end_its_waits) {
    constexpr std::uint64_t second = 1'000'000'000, step = second / 100;
    hand_cache c;
    c.view.look_ns = 1'000'000;
    c.view.host_wait_ns = second;
    c.control.heartbeat = 7;
    for (const std::uint64_t stopped_ns : {2 * second, 3600 * second}) {
        clocked_lane g;
        wait_deadline waiting(g, 40 * second);
        g.now += step;
        EXPECT_EQ(waiting.check(g, c.view), 0);
        g.now += stopped_ns;
        EXPECT_EQ(waiting.check(g, c.view), 0) << "the host had no time to beat";
        for (std::uint64_t ns = 0; ns + step < second * 3 / 4; ns += step) {
            g.now += step;
            EXPECT_EQ(waiting.check(g, c.view), 0) << ns;
        }
        g.now += 3 * step;
        EXPECT_EQ(waiting.check(g, c.view), -ETIMEDOUT) << "then it has stood still";
    }
    c.view.host_wait_ns = 7200 * second;
    clocked_lane g;
    wait_deadline waiting(g, second);
    for (int i = 0; i < 3; ++i) {
        g.now += 20 * second;
        EXPECT_EQ(waiting.check(g, c.view), 0);
    }
    g.now += 20 * second;
    EXPECT_EQ(waiting.check(g, c.view), 0);
    g.now += 2 * step;
    EXPECT_EQ(waiting.check(g, c.view), -ETIME) << "every wait ends";
    wait_deadline other(g, second);
    g.now += second + step;  // it waited for something else
    other.come_back(g, c.view);
    EXPECT_EQ(other.check(g, c.view), -ETIME) << "and that counts";
}

TEST(ring, no_look_at_all_still_counts_in_short_waits) {
    hand_cache c;
    clocked_lane g;
    wait_deadline waiting(g, 1'000'000);
    g.now += 1'100'000;
    EXPECT_EQ(waiting.check(g, c.view), -ETIME);
    EXPECT_EQ(time_away(9'000'000, 0), 0u);
    EXPECT_EQ(time_away(12'000'000, 0), 2'000'000u);
    EXPECT_EQ(time_away(1'000'000'000, 2'000'000'000), 500'000'000u);
}

TEST(ring, a_full_ring_is_waited_for_only_so_long) {
    hand_cache c;
    for (int i = 0; i < 4; ++i) claim(c);
    ring_ticket extra{};
    EXPECT_EQ(claim_slot(lane{}, c.view, true, extra), -EAGAIN);
    EXPECT_EQ(c.counted(count_ring_waits), 1u);
}

TEST(ring, a_slot_that_was_given_up_is_free_once_it_is_answered) {
    hand_cache c;
    ring_ticket at[4];
    for (auto& ticket : at) ticket = claim(c);
    post(lane{}, c.view, at[0], request_of(op::ping));
    orphan_slot(c.view, at[0]);
    ring_ticket extra{};
    EXPECT_EQ(claim_slot(lane{}, c.view, false, extra), -EAGAIN)
        << "the service thread may still write there";
    c.answer(0, 0);
    EXPECT_EQ(claim(c).ticket, 4u);
    recycle_slot(c.view, {0, 4});
    for (int i = 1; i < 4; ++i) recycle_slot(c.view, at[i]);
    EXPECT_EQ(detail::check_ring(c.ring, 0).rule, nullptr);
}

namespace {

// The group opened file slot 2 and gave up; the host answered. The next owner of the ring slot
// finds that.
void lose_an_open(hand_cache& c, std::uint32_t generation, std::int64_t result) {
    const ring_ticket at = claim(c);
    post(lane{}, c.view, at, request_of(op::open));
    orphan_slot(c.view, at);
    ring_reply& reply = c.replies[at.ticket % hand_cache::ring_slots];
    reply.words[reply_slot_and_generation] = std::uint64_t{generation} << 32 | 2;
    reply.words[reply_size_bytes] = 1000;
    reply.words[reply_table] = 7;
    reply.words[reply_path_and_flags] = 5;  // path extent 4
    c.answer(at.ticket, result);
    for (int i = 0; i < 4; ++i) recycle_slot(c.view, claim(c));
}

}  // namespace

// Also when the open failed: names that cannot be opened are remembered too. If it did not, the
// host hears that no group has the file by that answer.
TEST(ring, room_for_a_name_that_was_given_up_goes_back_once) {
    struct lost {
        std::int64_t result;
        std::uint32_t flags;
        std::uint64_t told;
    };
    for (const lost& open :
         {lost{0, may_read, lost_open_bit}, lost{-ENOENT, may_read, 0},
          lost{0, may_write, lost_open_bit | lost_write_bit}, lost{-ENOENT, may_write, 0}}) {
        hand_cache c;
        const ring_ticket at = claim(c);
        open_request request{};
        request.name_bytes = 20;
        request.flags = open.flags;
        post(lane{}, c.view, at, request.packed());
        orphan_slot(c.view, at);
        c.replies[0].words[reply_path_and_flags] = 5;  // extent 4
        c.answer(at.ticket, open.result);
        for (int round = 0; round < 2; ++round)
            for (std::uint32_t i = 1; i <= 4; ++i) {
                const ring_ticket next = claim(c);
                post(lane{}, c.view, next, request_of(op::ping));
                const std::uint32_t slot = slot_of(c.ring, next.ticket);
                EXPECT_EQ(c.requests[slot].lost_extent,
                          round == 0 && slot == 0 ? std::uint64_t{3} << 32 | 5 | open.told : 0);
                recycle_slot(c.view, next);
            }
    }
}

TEST(ring, an_open_that_was_given_up_leaves_a_closed_file) {
    hand_cache c;
    lose_an_open(c, 1, 0);
    EXPECT_TRUE(is_closed(c.file_words[2]));
    EXPECT_EQ(c.file_records[2].size_bytes, 1000u);
    EXPECT_EQ(c.file_records[2].page_count, 2u);
    EXPECT_EQ(c.file_records[2].table, 7u);
    EXPECT_EQ(c.file_records[2].generation, 1u);
    EXPECT_EQ(check_invariants(c.view).rule, nullptr);
}

TEST(ring, an_open_that_was_given_up_brings_nothing_back) {
    hand_cache failed;
    lose_an_open(failed, 1, -ENOENT);
    EXPECT_EQ(failed.file_words[2], 0u);
    hand_cache open_meanwhile;
    open_meanwhile.file_words[2] = make_file_word(file_live, 1, 3);
    lose_an_open(open_meanwhile, 1, 0);
    EXPECT_EQ(open_meanwhile.file_words[2], make_file_word(file_live, 1, 3));
    for (const std::uint32_t since : {1u, 2u, 3u}) {
        hand_cache retired;
        retired.file_words[2] = make_file_word(file_vacant, since, 0);
        lose_an_open(retired, 1, 0);
        EXPECT_EQ(retired.file_words[2], make_file_word(file_vacant, since, 0)) << since;
    }
}

}  // namespace penstock::engine::test
