// Elements of a view: an element that passed the second look is the page's, even if another page
// takes the frame meanwhile. A stretch keeps the pages that it reads.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

// An element of two loads must not be half of another page.
TEST(element, look_against_eviction) {
    for (const bool windowed : {false, true}) {
        one_file s({.frames = 1});
        if (windowed) s.in_window();
        s.warm(0, 0, false);
        s.lane([&](auto) { look_and_compare(s.w.fs(), s.fd, 1, 0); });
        s.lane(s.reader(1));
        expect_sound(s.run());
    }
}

// The frame comes back to the first page between the two looks: the generation tells.
TEST(element, look_against_eviction_and_return) {
    one_file s({.frames = 1});
    s.in_window();
    s.warm(0, 0, false);
    s.lane([&](auto) { look_and_compare(s.w.fs(), s.fd, 1, 0); });
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    expect_sound(s.run());
}

// A page is not there, is loaded by another, and goes again.
TEST(element, looks_against_a_load_and_an_eviction) {
    one_file s({.frames = 1});
    s.in_window();
    s.lane([&](auto) {
        look_and_compare(s.w.fs(), s.fd, 1, 0);
        look_and_compare(s.w.fs(), s.fd, 1, 0);
    });
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
    });
    expect_sound(s.run());
}

template <typename Lane>
void visit_and_compare(const Lane& g, const runtime_ref& fs, int fd) {
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t visited = 0;
    const std::int64_t n = v.for_each(g, 0, v.size(), [&](std::uint64_t i, std::uint64_t element) {
        explore::require(element == content(1, i / words_per_page, i % words_per_page),
                         "a stretch has wrong bytes");
        ++visited;
    });
    explore::require(n == static_cast<std::int64_t>(v.size()) && visited == v.size(),
                     "a stretch was not visited");
}

// A stretch without pins, as on a GPU: the visited elements were the page's, even if another page
// takes the frame meanwhile.
TEST(element, stretch_by_looks_against_eviction) {
    for (const bool windowed : {false, true}) {
        one_file s({.frames = 1});
        if (windowed) s.in_window();
        s.warm(0, 0, false);
        s.lane([&](auto g) { visit_and_compare_by_looks(g, s.w.fs(), s.fd, 1, 0); });
        s.lane(s.reader(1));
        expect_sound(s.run());
    }
}

// The word of the second page was looked at before the first was visited: it may have gone and come
// back since.
TEST(element, stretch_by_a_look_ahead_against_eviction_and_return) {
    one_file s({.frames = 1});
    s.in_window();
    s.warm(0, 0, false);
    s.lane([&](auto g) {
        const engine::page_word early = engine::load_relaxed(&s.w.fs().view.words[0]);
        visit_and_compare_by_looks(g, s.w.fs(), s.fd, 1, 1);
        visit_and_compare_by_looks(g, s.w.fs(), s.fd, 1, 0, early);
    });
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    expect_sound(s.run());
}

TEST(element, stretch_against_a_reader) {
    for (const std::uint32_t frames : {1u, 2u}) {
        one_file s({.frames = frames});
        s.in_window();
        s.warm(0, 0, false);
        s.lane([&](auto g) { visit_and_compare(g, s.w.fs(), s.fd); });
        s.lane(s.reader(1));
        expect_sound(s.run());
    }
}

// A lane that holds a page never waits for another, so two stretches and one frame come to an end.
TEST(element, two_stretches_share_one_frame) {
    one_file s({.frames = 1});
    s.in_window();
    for (int i = 0; i < 2; ++i) s.lane([&](auto g) { visit_and_compare(g, s.w.fs(), s.fd); });
    expect_sound(s.run({.preemptions = 2}));
}

}  // namespace
}  // namespace penstock::explore_kit
