// Pages without sharing, one block each: native and GRAM.
#include "buffer/world.hpp"

namespace penstock::buffer::test {

namespace {

template <typename Order = lru_order>
world<core<Order>> filled(const limits& most, std::uint64_t pages) {
    world<core<Order>> w(most);
    for (std::uint64_t page = 0; page < 20; ++page) w.put_on_disk({page}, {first_alone + page});
    for (std::uint64_t page = 0; page < pages; ++page) w.read({page});
    return w;
}

}  // namespace

// Three pages on both sides. Host, newest first: D E F; device: A B C. A read of A exchanges it
// with F: A D E, F B C. One of G demotes E and evicts C: G A D, E F B.
TEST(gram, does_what_the_papers_second_figure_shows) {
    constexpr std::uint64_t a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6;
    world<core<lru_order>> w(sizes(3, 3));
    for (const std::uint64_t page : {a, b, c, d, e, f, g})
        w.put_on_disk({page}, {first_alone + page});
    for (const std::uint64_t page : {c, b, a, f, e, d})
        EXPECT_EQ(w.read({page}).substr(0, 7), "nowhere");
    EXPECT_EQ(w.core.inside().block_of({a}, 0)->where, side::device);
    const std::string a_frame = std::to_string(w.core.inside().block_of({a}, 0)->frame),
                      f_frame = std::to_string(w.core.inside().block_of({f}, 0)->frame);
    EXPECT_EQ(w.read({a}), "device: exchange h" + f_frame + " d" + a_frame);
    const std::string e_frame = std::to_string(w.core.inside().block_of({e}, 0)->frame),
                      c_frame = std::to_string(w.core.inside().block_of({c}, 0)->frame);
    EXPECT_EQ(w.read({g}),
              "nowhere: drop 2, demote h" + e_frame + " d" + c_frame + ", fill h" + e_frame);
    EXPECT_EQ(w.core.inside().block_of({c}, 0), nullptr);
    for (const std::uint64_t page : {g, a, d})
        EXPECT_EQ(w.core.inside().block_of({page}, 0)->where, side::host);
    for (const std::uint64_t page : {e, f, b})
        EXPECT_EQ(w.core.inside().block_of({page}, 0)->where, side::device);
    EXPECT_EQ(w.wrong(), "");
    // The device's order is E F B: the next two that go are B and F.
    EXPECT_EQ(w.read({c}).substr(0, 15), "nowhere: drop 1");
    EXPECT_EQ(w.read({b}).substr(0, 15), "nowhere: drop 5");
}

TEST(gram, fills_the_host_before_it_demotes) {
    auto w = filled(sizes(2, 2), 0);
    EXPECT_EQ(w.read({0}), "nowhere: fill h0");
    EXPECT_EQ(w.read({1}), "nowhere: fill h1");
    EXPECT_EQ(w.read({0}), "host");
    EXPECT_EQ(w.read({2}), "nowhere: demote h1 d0, fill h1");
}

TEST(gram, native_evicts_what_the_host_has_no_room_for) {
    auto w = filled(sizes(2, 0), 2);
    EXPECT_EQ(w.read({2}), "nowhere: drop 0, fill h0");
    w.write({3}, {first_alone + 30});
    EXPECT_EQ(w.read({4}), "nowhere: drop 2, fill h0");
    EXPECT_EQ(w.read({5}), "nowhere: write 3 h1, drop 3, fill h1");
    EXPECT_EQ(w.moved.to_device() + w.moved.from_device(), 0u);
    EXPECT_EQ(w.wrong(), "");
}

TEST(gram, a_dirty_page_moves_dirty_and_is_written_back_from_the_device) {
    auto w = filled(sizes(1, 2), 0);
    EXPECT_EQ(w.write({0}, {first_alone + 50}), "nowhere: fill h0");
    EXPECT_EQ(w.read({1}), "nowhere: demote h0 d0, fill h0");
    EXPECT_EQ(w.read({2}), "nowhere: demote h0 d1, fill h0");
    EXPECT_EQ(w.read({3}), "nowhere: write 0 d0, drop 0, demote h0 d0, fill h0");
    EXPECT_EQ(w.moved.written_from_device, 1u);
    EXPECT_EQ(w.wrong(), "");
}

TEST(gram, a_dirty_page_that_came_back_to_the_host_is_still_dirty) {
    auto w = filled(sizes(1, 2), 0);
    w.write({0}, {first_alone + 50});
    w.read({1});
    EXPECT_EQ(w.read({0}), "device: exchange h0 d0");
    EXPECT_EQ(w.flush(0), "nowhere: write 0 h0");
    EXPECT_EQ(w.flush(0), "nowhere");
}

TEST(gram, flush_writes_one_files_pages_in_the_order_in_which_they_became_dirty) {
    auto w = filled(sizes(2, 2), 0);
    w.put_on_disk({7, 1}, {first_alone + 70});
    w.write({2}, {first_alone + 20});
    w.write({7, 1}, {first_alone + 71});
    w.write({1}, {first_alone + 10});
    EXPECT_EQ(w.flush(0), "nowhere: write 2 d0, write 1 h0");
    EXPECT_EQ(w.flush(0), "nowhere");
    EXPECT_EQ(w.flush(1), "nowhere: write 7 h1");
    EXPECT_EQ(w.core.flush(2, w.moved), -EINVAL);
}

TEST(gram, a_pinned_page_is_no_victim_and_the_next_in_order_goes) {
    auto w = filled(sizes(2, 1), 2);
    EXPECT_EQ(w.core.pin({0}), 0);
    EXPECT_EQ(w.read({2}), "nowhere: demote h1 d0, fill h1");
    EXPECT_EQ(w.read({1}), "device: exchange h1 d0");
    EXPECT_EQ(w.core.unpin({0}), 0);
    // It was in use until now, so the other one goes.
    EXPECT_EQ(w.read({3}), "nowhere: drop 2, demote h1 d0, fill h1");
    EXPECT_EQ(w.wrong(), "");
}

TEST(gram, pins_count_and_want_their_page_in_the_host) {
    auto w = filled(sizes(2, 1), 3);
    EXPECT_EQ(w.core.pin({0}), -EAGAIN);
    EXPECT_EQ(w.core.pin({9}), -ENOENT);
    EXPECT_EQ(w.core.unpin({1}), -ENOENT);
    EXPECT_EQ(w.core.pin({1}), 0);
    EXPECT_EQ(w.core.pin({1}), 0);
    EXPECT_EQ(w.core.unpin({1}), 0);
    EXPECT_EQ(w.core.pin({2}), 0);
    EXPECT_EQ(w.read({0}), "busy");
    EXPECT_EQ(w.core.unpin({1}), 0);
    EXPECT_EQ(w.core.unpin({1}), -ENOENT);
    EXPECT_EQ(w.read({0}), "device: exchange h1 d0");
}

template <typename Order>
void expect_busy_changes_nothing() {
    auto w = filled<Order>(sizes(2, 1), 3);
    ASSERT_EQ(w.core.pin({1}), 0);
    ASSERT_EQ(w.core.pin({2}), 0);
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(w.read({0}), "busy");
        EXPECT_EQ(w.read({5}), "busy");
        EXPECT_EQ(w.write({5}, {first_alone + 55}), "busy");
        EXPECT_EQ(w.write({0}, {first_alone + 56}), "busy");
    }
    EXPECT_EQ(w.core.forget({1}, w.moved), -EBUSY);
    EXPECT_EQ(w.wrong(), "");
    EXPECT_EQ(w.read({1}), "host");
    // In place of its own block there is room.
    EXPECT_EQ(w.write({1}, {first_alone + 57}).substr(0, 4), "host");
    EXPECT_EQ(w.core.unpin({2}), 0);
    EXPECT_EQ(w.read({0}).substr(0, 16), "device: exchange");
    EXPECT_EQ(w.wrong(), "");
}

TEST(gram, busy_where_all_of_the_host_is_pinned_and_nothing_has_changed) {
    expect_busy_changes_nothing<lru_order>();
    expect_busy_changes_nothing<clock_order>();
}

// A round of the hand: 0 and 1 come with clear bits, 1 is used; 2 takes 0's frame; 3 passes 1 and
// takes 2's.
TEST(gram, clock_spares_what_was_used_since_it_came) {
    auto w = filled<clock_order>(sizes(2, 2), 2);
    EXPECT_EQ(w.read({1}), "host");
    EXPECT_EQ(w.read({2}), "nowhere: demote h0 d0, fill h0");
    EXPECT_EQ(w.read({3}), "nowhere: demote h0 d1, fill h0");
    EXPECT_EQ(w.read({1}), "host");
    EXPECT_EQ(w.wrong(), "");
}

TEST(gram, a_page_that_is_forgotten_leaves_its_frame_and_is_not_written) {
    auto w = filled(sizes(2, 1), 1);
    w.write({1}, {first_alone + 99});
    EXPECT_EQ(w.forget({1}), "nowhere: drop 1");
    EXPECT_EQ(w.wrong(), "");
    EXPECT_EQ(w.read({2}), "nowhere: fill h1");
    EXPECT_EQ(w.core.forget({1}, w.moved), -ENOENT);
}

// What makes the two lists one: with the device's frames the host part hits where a host of both
// sizes would have hit.
TEST(gram, under_lru_both_parts_together_hit_where_one_part_of_their_size_does) {
    auto both = filled(sizes(3, 4), 0), single = filled(sizes(7, 0), 0);
    std::uint64_t state = 5, hits = 0;
    for (int i = 0; i < 4000; ++i) {
        state = mix64(state + 1);
        const page_id id{state % (state % 3 == 0 ? 20 : 9)};
        const std::string at = both.read(id).substr(0, 4);
        ASSERT_EQ(at != "nowh", single.read(id) == "host") << "access " << i;
        hits += at != "nowh";
    }
    EXPECT_GT(hits, 1000u);
    EXPECT_LT(hits, 3500u);
}

TEST(gram, limits_that_make_no_sense_are_refused) {
    core<lru_order> c;
    EXPECT_EQ(c.make(sizes(0, 2)), -EINVAL);
    EXPECT_EQ(c.make(sizes(2, 2, 3)), -EINVAL);
    EXPECT_EQ(c.make(sizes(2, 2, 128)), -EINVAL);
    EXPECT_EQ(c.make(sizes(1u << 31, 1u << 31)), -EINVAL);
    EXPECT_EQ(c.make({2, 2, 1, 0, 1}), -EINVAL);
    EXPECT_EQ(c.make({2, 2, 1, 4, 0}), -EINVAL);
    EXPECT_EQ(c.make(sizes(2, 0)), 0);
    counts moved;
    EXPECT_EQ(c.load({1, 2}, nullptr, moved), -EINVAL);
    EXPECT_EQ(c.load({1}, nullptr, moved), 0);
    EXPECT_EQ(c.load({1}, nullptr, moved), -EEXIST);
}

}  // namespace penstock::buffer::test
