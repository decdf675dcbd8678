// Pages in blocks, and equal blocks once: DEDU.
#include "buffer/world.hpp"

namespace penstock::buffer::test {

namespace {

using dedu = world<core<lru_order>>;

std::uint32_t references(const dedu& w, page_id id, std::uint32_t i) {
    return w.core.inside().block_of(id, i)->references.size;
}

}  // namespace

TEST(dedu, equal_blocks_are_kept_once) {
    dedu w(sizes(2, 2, 2, 20));
    w.put_on_disk({0}, {1, 2});
    w.put_on_disk({1}, {1, 3});
    w.put_on_disk({2}, {2, 1});
    EXPECT_EQ(w.read({0}), "nowhere: fill h0, fill h1");
    EXPECT_EQ(w.read({1}), "nowhere: fill h2");
    EXPECT_EQ(w.read({2}), "nowhere");
    EXPECT_EQ(w.core.inside().blocks.in_use(), 3u);
    EXPECT_EQ(references(w, {0}, 0), 3u);
    EXPECT_EQ(references(w, {0}, 1), 2u);
    EXPECT_EQ(pages_with_sharing(w.core.inside()), 3u);
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, a_page_may_have_one_block_twice) {
    dedu w(sizes(1, 1, 4, 8));
    w.put_on_disk({0}, {5, 5, 6, 5});
    EXPECT_EQ(w.read({0}), "nowhere: fill h0, fill h1");
    EXPECT_EQ(references(w, {0}, 3), 3u);
    EXPECT_EQ(w.core.pin({0}), 0);
    EXPECT_EQ(w.wrong(), "");
    EXPECT_EQ(w.write({0}, {6, 6, 7, 7}).substr(0, 4), "host");
    EXPECT_EQ(w.wrong(), "");
    EXPECT_EQ(w.core.unpin({0}), 0);
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, blocks_that_are_alone_are_never_equal) {
    dedu w(sizes(2, 2, 2, 8));
    w.put_on_disk({0}, {first_alone, first_alone + 1});
    w.put_on_disk({1}, {first_alone, first_alone + 1});
    w.read({0});
    w.read({1});
    EXPECT_EQ(w.core.inside().blocks.in_use(), 4u);
}

// One page of host frames: what is not promoted yet is not driven out by what is.
TEST(dedu, the_blocks_of_the_page_that_is_handled_are_no_victims) {
    dedu w(sizes(1, 1, 2, 8));
    w.put_on_disk({0}, {1, 2});
    w.put_on_disk({1}, {3, 1});
    w.read({0});
    // 1 is the oldest in the host, but the page's own; so 2 goes.
    EXPECT_EQ(w.read({1}), "nowhere: demote h1 d0, fill h1");
    EXPECT_EQ(w.read({0}), "device: exchange h1 d0");
    EXPECT_EQ(w.wrong(), "");
    // Device full, and its tail the page's own: the other one goes, with its page.
    dedu v(sizes(1, 1, 2, 8));
    for (std::uint64_t page = 0; page < 2; ++page)
        v.put_on_disk({page}, {2 * page + 1, 2 * page + 2});
    v.put_on_disk({2}, {1, 9});
    v.read({0});
    v.read({1});
    EXPECT_EQ(v.core.inside().block_of({0}, 0)->where, side::device);
    EXPECT_EQ(v.read({2}).substr(0, 15), "nowhere: exchan");
    EXPECT_EQ(v.wrong(), "");
}

TEST(dedu, a_shared_block_that_goes_takes_all_its_pages_and_their_writes_are_kept) {
    dedu w(sizes(2, 0, 2, 20));
    for (std::uint64_t page = 0; page < 5; ++page)
        w.put_on_disk({page}, {first_alone + page, first_alone + 100 + page});
    w.write({0}, {1, 2});
    w.write({1}, {1, 3});
    w.put_on_disk({9}, {2, 3});
    w.read({9});  // now 1, which both of the dirty ones have, was not used for longest
    EXPECT_EQ(w.read({2}),
              "nowhere: fill h3, write 1 h0, write 1 h2, drop 1, write 0 h0, write 0 h1, drop 0, "
              "fill h0");
    EXPECT_EQ(w.moved.written_pages, 2u);
    EXPECT_EQ(w.wrong(), "");
}

namespace {

// Pages 0, 1 and 9, any two of which have a block in common, then others that have nothing. Four
// frames.
struct absent_blocks : testing::Test {
    static constexpr std::uint64_t a = first_alone, b = a + 1, c = a + 2, d = a + 3;

    void begin(std::uint32_t absent) {
        w = std::make_unique<dedu>(sizes(2, 0, 2, 20, absent));
        const std::pair<std::uint64_t, values> pages[] = {{0, {1, 2}}, {1, {1, 3}}, {9, {2, 3}},
                                                          {2, {a, b}}, {3, {c, d}}, {4, {5, 1}}};
        for (const auto& [page, contents] : pages) w->put_on_disk({page}, contents);
        for (const std::uint64_t page : {0, 1, 9}) w->read({page});
    }
    [[nodiscard]] std::uint32_t absent() const { return w->core.inside().absent.size; }

    std::unique_ptr<dedu> w;
};

}  // namespace

TEST_F(absent_blocks, leave_their_pages_and_come_back_for_all_of_them) {
    begin(4);
    EXPECT_EQ(w->read({2}), "nowhere: fill h3, vanish h0, fill h0");
    EXPECT_EQ(absent(), 1u);
    EXPECT_EQ(w->core.inside().pages.in_use(), 4u);
    EXPECT_FALSE(w->core.inside().is_complete({0}));
    EXPECT_EQ(w->core.pin({1}), -EAGAIN);
    EXPECT_EQ(w->read({9}), "host");
    EXPECT_EQ(w->read({0}),
              "nowhere: drop 2, fill h0");  // a page of blocks that are alone goes as ever
    EXPECT_EQ(absent(), 0u);
    EXPECT_EQ(w->read({1}), "host");
    EXPECT_EQ(w->wrong(), "");
}

TEST_F(absent_blocks, have_clean_pages) {
    begin(4);
    w->write({0}, {1, 2});
    w->write({1}, {1, 3});
    w->read({9});
    EXPECT_EQ(
        w->read({2}),
        "nowhere: fill h3, write 1 h0, write 1 h2, write 0 h0, write 0 h1, vanish h0, fill h0");
    EXPECT_EQ(w->flush(0), "nowhere");
    EXPECT_EQ(w->wrong(), "");
}

TEST_F(absent_blocks, are_not_more_than_may_be) {
    begin(1);
    w->read({2});
    w->read({2});
    EXPECT_EQ(w->read({3}),
              "nowhere: drop 1, drop 0, drop 9, fill h2, fill h1");  // 2 was of 9 alone when 1 had
                                                                     // gone with its pages
    EXPECT_EQ(absent(), 0u);
    EXPECT_EQ(w->wrong(), "");
}

TEST_F(absent_blocks, of_the_page_that_is_handled_stay) {
    begin(1);
    w->read({2});
    EXPECT_EQ(w->read({4}), "nowhere: drop 9, drop 0, fill h1, drop 1, fill h2");
    EXPECT_EQ(w->wrong(), "");
}

TEST_F(absent_blocks, are_nothing_when_their_pages_have_others) {
    begin(4);
    w->read({2});
    EXPECT_EQ(w->write({0}, {7, 8}), "nowhere: drop 9, fill h1, drop 1, fill h2");
    EXPECT_EQ(absent(), 0u);
    EXPECT_EQ(w->forget({0}), "nowhere: drop 0");
    EXPECT_EQ(w->wrong(), "");
}

TEST_F(absent_blocks, are_counted_again_by_the_check) {
    begin(4);
    w->write({9}, {2, 3});
    w->read({2});
    const auto good = w->core.inside();
    ASSERT_EQ(check(good), nullptr);
    const std::uint32_t absent = good.absent.oldest, here = w->core.inside().number_of({9}, 0);
    const auto tampered = [&](const auto& change) {
        auto bad = good;
        change(bad);
        const char* const wrong = check(bad);
        return std::string(wrong == nullptr ? "" : wrong);
    };
    EXPECT_NE(tampered([&](auto& s) { ++s.absent.size; }).find("absent"), std::string::npos);
    EXPECT_NE(tampered([&](auto& s) {
                  s.most.absent_blocks = 0,
                  s.blocks[here].dirty = s.blocks[w->core.inside().number_of({9}, 1)].dirty = 0;
              }).find("absent"),
              std::string::npos);
    EXPECT_NE(tampered([&](auto& s) { ++s.blocks[here].dirty; }).find("dirty"), std::string::npos);
    EXPECT_NE(tampered([&](auto& s) { s.pages.set_dirty(s.pages.find({0}), true); }).find("dirty"),
              std::string::npos);
    EXPECT_NE(tampered([&](auto& s) { s.blocks[absent].where = side::host; }), "");
    EXPECT_NE(tampered([&](auto& s) { s.blocks[absent].content = content_id::alone(); }), "");
}

TEST(dedu, dirty_pages_are_written_from_both_sides) {
    dedu w(sizes(1, 1, 2, 20));
    for (std::uint64_t page = 0; page < 5; ++page)
        w.put_on_disk({page}, {first_alone + page, first_alone + 100 + page});
    w.write({0}, {1, 2});
    w.put_on_disk({5}, {2, 7});
    w.read({5});  // demotes 1 and keeps 2
    EXPECT_EQ(w.flush(0), "nowhere: write 0 d0, write 0 h1");
    EXPECT_EQ(w.moved.written_from_device, 1u);
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, a_write_to_a_shared_page_leaves_the_others_as_they_were) {
    dedu w(sizes(2, 2, 2, 20));
    for (std::uint64_t page = 0; page < 3; ++page) w.put_on_disk({page}, {1, 2});
    for (std::uint64_t page = 0; page < 3; ++page) w.read({page});
    EXPECT_EQ(w.write({1}, {1, 9}), "host: fill h2");
    EXPECT_EQ(references(w, {0}, 0), 3u);
    EXPECT_EQ(references(w, {0}, 1), 2u);
    EXPECT_EQ(references(w, {1}, 1), 1u);
    EXPECT_EQ(w.write({1}, {1, 2}), "host");
    EXPECT_EQ(w.core.inside().blocks.in_use(), 2u);
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, a_write_frees_blocks_of_no_other_page_wherever_they_lie) {
    dedu w(sizes(1, 1, 2, 20));
    for (std::uint64_t page = 0; page < 2; ++page)
        w.put_on_disk({page}, {2 * page + 1, 2 * page + 2});
    w.read({0});
    w.read({1});
    EXPECT_EQ(w.write({0}, {3, 4}), "device");
    EXPECT_EQ(w.core.inside().device.in_use(), 0u);
    EXPECT_EQ(w.core.inside().blocks.in_use(), 2u);
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, a_full_table_drops_the_page_that_was_loaded_first_and_is_not_pinned) {
    dedu w(sizes(2, 2, 1, 3));
    for (std::uint64_t page = 0; page < 6; ++page) w.put_on_disk({page}, {7});
    for (std::uint64_t page = 0; page < 3; ++page) w.read({page});
    EXPECT_EQ(w.core.pin({0}), 0);
    w.read({1});  // used since, and still the one that was loaded first
    EXPECT_EQ(w.read({3}), "nowhere: drop 1");
    EXPECT_EQ(w.core.unpin({0}), 0);
    EXPECT_EQ(w.read({4}), "nowhere: drop 2");
    for (const std::uint64_t page : {0, 3, 4}) EXPECT_EQ(w.core.pin({page}), 0);
    EXPECT_EQ(w.read({5}), "busy");
    EXPECT_EQ(w.write({5}, {7}), "busy");
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, a_page_of_a_full_table_may_be_the_last_that_had_a_block) {
    dedu w(sizes(1, 0, 2, 1));
    w.put_on_disk({0}, {1, 2});
    w.put_on_disk({1}, {2, 1});
    w.read({0});
    EXPECT_EQ(w.read({1}), "nowhere: drop 0, fill h1, fill h0");
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, a_pin_keeps_the_blocks_that_other_pages_share) {
    dedu w(sizes(2, 1, 2, 20));
    for (std::uint64_t page = 0; page < 4; ++page) w.put_on_disk({page}, {1, 10 + page});
    w.read({0});
    EXPECT_EQ(w.core.pin({0}), 0);
    for (const std::uint64_t page : {1, 2, 3, 1, 2, 3}) {
        EXPECT_NE(w.read({page}), "busy");
        EXPECT_EQ(w.core.inside().block_of({0}, 0)->where, side::host);
        EXPECT_EQ(w.core.inside().block_of({0}, 1)->where, side::host);
        EXPECT_EQ(w.wrong(), "");
    }
    // Another page that is pinned shares one of its blocks, so there is room for one block only,
    // and a page needs two.
    EXPECT_EQ(w.core.pin({3}), 0);
    EXPECT_EQ(w.read({1}), "busy");
    EXPECT_EQ(w.write({3}, {1, 99}).substr(0, 4), "host");
    EXPECT_EQ(w.wrong(), "");
}

// What other pages have pinned too does not become free by a write to this one: one frame is left,
// and it needs two.
TEST(dedu, a_write_to_a_pinned_page_is_busy_if_others_have_pinned_its_blocks) {
    dedu w(sizes(2, 1, 2, 20));
    w.put_on_disk({0}, {1, 2});
    w.put_on_disk({1}, {1, 3});
    w.put_on_disk({2}, {1, 2});
    for (const std::uint64_t page : {0, 1, 2}) w.read({page});
    for (const std::uint64_t page : {0, 1, 2}) EXPECT_EQ(w.core.pin({page}), 0);
    EXPECT_EQ(w.write({2}, {8, 9}), "busy");
    EXPECT_EQ(w.core.unpin({1}), 0);
    EXPECT_EQ(w.write({2}, {8, 9}), "host: fill h3, demote h2 d0, fill h2");
    EXPECT_EQ(w.wrong(), "");
}

TEST(dedu, says_which_pages_a_block_belongs_to) {
    dedu w(sizes(2, 2, 2, 20));
    w.put_on_disk({3}, {4, 4});
    w.put_on_disk({5}, {6, 4});
    w.read({3});
    w.read({5});
    std::string all;
    w.core.inside().each_page_of(
        w.core.inside().number_of({3}, 0), [&](page_id id, std::uint32_t place) {
            all += std::to_string(id.page) + "." + std::to_string(place) + " ";
        });
    EXPECT_EQ(all, "5.1 3.1 3.0 ");
}

// What no correct run can show: every part of the check must find its own mistake.
TEST(dedu, the_check_finds_what_does_not_agree) {
    dedu w(sizes(1, 3, 2, 20));
    for (std::uint64_t page = 0; page < 4; ++page) w.put_on_disk({page}, {1 + page % 2, 10 + page});
    for (std::uint64_t page = 0; page < 4; ++page) w.read({page});
    w.core.pin({3});
    const auto good = w.core.inside();
    ASSERT_EQ(check(good), nullptr);
    const auto tampered = [&](const auto& change) {
        auto bad = good;
        change(bad);
        return check(bad) != nullptr;
    };
    const std::uint32_t slot = good.pages.find({3}), place = good.pages.place(slot, 0),
                        number = good.pages.block_at(place);
    EXPECT_TRUE(tampered([&](auto& s) { ++s.pinned_blocks; }));
    EXPECT_TRUE(tampered([&](auto& s) { ++s.blocks[number].pins; }));
    EXPECT_TRUE(tampered([&](auto& s) { s.blocks[number].own = true; }));
    EXPECT_TRUE(tampered([&](auto& s) { s.blocks[number].frame ^= 1; }));
    EXPECT_TRUE(tampered([&](auto& s) { s.blocks[number].where = side::device; }));
    EXPECT_TRUE(tampered([&](auto& s) { ++s.blocks[number].references.size; }));
    EXPECT_TRUE(tampered([&](auto& s) { s.blocks[number].content = {12345, 0}; }));
    EXPECT_TRUE(tampered([&](auto& s) { s.pages.point_at_nothing(place, s.blocks); }));
    EXPECT_TRUE(
        tampered([&](auto& s) { s.pages.point(place, s.blocks, s.pages.block_at(place + 1)); }));
    EXPECT_TRUE(tampered([&](auto& s) { s.blocks[number].frame = 1 - s.blocks[number].frame; }));
    EXPECT_TRUE(tampered([&](auto& s) { s.pages.unpin(slot); }));
    EXPECT_TRUE(tampered([&](auto& s) { s.host.give(0); }));
    EXPECT_TRUE(tampered([&](auto& s) { s.device.take(); }));
    EXPECT_TRUE(tampered([&](auto& s) {
        s.cache.leave(s.blocks, s.pages.block_at(s.pages.place(s.pages.find({0}), 1)));
    }));
}

}  // namespace penstock::buffer::test
