// Lanes that want the same page: it is loaded once, all get its bytes, and an error leaves nothing
// behind.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(page, two_readers_miss_together) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    s.check = [&] { explore::require(s.server.asked.reads == 1, "a page was loaded twice"); };
    expect_sound(s.run());
}

TEST(page, three_readers_miss_together) {
    one_file s({.frames = 2});
    for (int i = 0; i < 3; ++i) s.lane(s.reader(0));
    s.check = [&] { explore::require(s.server.asked.reads == 1, "a page was loaded twice"); };
    expect_sound(s.run());
}

TEST(page, reader_and_mapper_miss_together) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.mapper(0));
    s.check = [&] { explore::require(s.server.asked.reads == 1, "a page was loaded twice"); };
    expect_sound(s.run());
}

TEST(page, pinning_readers_miss_together) {
    one_file s({.frames = 2});
    for (int i = 0; i < 2; ++i) s.lane<pinning_lane>(s.reader(0));
    s.check = [&] { explore::require(s.server.asked.reads == 1, "a page was loaded twice"); };
    expect_sound(s.run());
}

TEST(page, readers_of_two_pages_share_two_frames) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    s.check = [&] { explore::require(s.server.asked.reads == 2, "a page was loaded twice"); };
    expect_sound(s.run());
}

// One lane reads both pages in one call, so both are in flight together.
TEST(page, window_of_two_pages_against_a_reader) {
    one_file s({.frames = 2});
    s.lane([&](auto g) {
        std::uint64_t got[2 * words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, sizeof got, 0) == sizeof got,
                         "a read failed");
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            explore::require(got[i] == content(1, i / words_per_page, i % words_per_page),
                             "wrong bytes");
    });
    s.lane(s.reader(1));
    s.check = [&] { explore::require(s.server.asked.reads == 2, "a page was loaded twice"); };
    expect_sound(s.run());
}

TEST(page, bytes_behind_the_end_of_the_file_are_zero) {
    one_file s({.frames = 1}, 12);
    const auto body = [&](auto g) {
        std::uint64_t got[words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, page_bytes, 0) == 12,
                         "a read passed the end");
        explore::require(got[0] == content(1, 0, 0), "wrong bytes");
    };
    s.lane(body);
    s.lane(body);
    s.check = [&] {
        const std::byte* frame = s.w.view.frame_address(0);
        for (int i = 12; i < 16; ++i)
            explore::require(frame[i] == std::byte{0}, "leftovers behind the end of the file");
    };
    expect_sound(s.run());
}

// A short answer means that the file shrank: an error, and the page is absent again.
TEST(page, short_answer_leaves_nothing_behind) {
    one_file s({.frames = 1});
    s.server.decide = [&](const auto&) { return plan{.twist = s.asked++ == 0}; };
    const auto body = [&](auto g) {
        std::uint64_t got[words_per_page] = {};
        const auto done = read(g, s.w.fs(), s.fd, got, page_bytes, 0);
        explore::require(done == -ESTALE || (done == page_bytes && got[0] == content(1, 0, 0)),
                         "wrong result");
    };
    s.lane(body);
    s.lane(body);
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
