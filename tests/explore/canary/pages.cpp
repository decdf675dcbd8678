// Canaries of pages: how a group claims, loads, publishes, checks, pins and evicts one.
// Each section breaks one step of the engine and is compiled by itself (canary.hpp).
#include "explore/canary/canary.hpp"

// A missing page is claimed by a store, so two lanes may load it.
#ifdef CANARY_claim_by_store

#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline bool broken_claim(page_word* word, page_word seen) {
    atomic_store<order::relaxed>(word, (seen + pin_one) | state_loading | use_bit);
    return true;
}

}  // namespace penstock::engine

#define try_claim broken_claim

#include "explore/scenario.hpp"

TEST(canary, claim_by_store) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    const auto out = s.run();
    EXPECT_NE(out.violation, "");
}

#endif

// A failed load makes the page absent by a store, so a pin that came in meanwhile is lost.
#ifdef CANARY_abandon_by_store

#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline void broken_abandon(page_word* word) {
    const page_word seen = load_relaxed(word);
    atomic_store<order::release>(word, ((seen & pin_mask) - pin_one) | next_generation(seen));
}

}  // namespace penstock::engine

#define abandon broken_abandon

#include "explore/scenario.hpp"

TEST(canary, abandon_by_store) {
    one_file s({.frames = 1});
    s.server.decide = [&](const auto&) { return plan{.error = -EIO}; };
    s.lane([&](auto g) {
        std::byte got[page_bytes];
        read(g, s.w.fs(), s.fd, got, page_bytes, 0);
    });
    s.lane([&](auto) {
        engine::pin(&s.w.view.words[0]);
        engine::unpin(&s.w.view.words[0]);
    });
    const auto out = s.run();
    EXPECT_TRUE(out.violation == "only mappings hold pins" ||
                out.violation == "assertion failed: pins_of(before) > 0")
        << out.violation;
}

#endif

// The page turns valid before its bytes are in the frame.
#ifdef CANARY_publish_before_copy

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline void publish_early(page_word* word, std::uint32_t frame) { publish(word, frame); }

}  // namespace penstock::engine

#define begin_overwrite_in(c) publish_early(&c.words[load.word_index], load.frame)
#define publish(word, frame) static_cast<void>(word)
#define publish_and_unpin(word, frame) unpin(word)

#include "explore/scenario.hpp"

TEST(canary, publish_before_copy) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// The ring slot is given back before its staging area is read.
#ifdef CANARY_recycle_before_copy

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline void recycle_early(const cache_view& c, const ring_ticket& at) { recycle_slot(c, at); }
inline void recycled_already(const cache_view&, const ring_ticket&) {}

}  // namespace penstock::engine

#define begin_overwrite_in(c) recycle_early(c, load.at)
#define recycle_slot recycled_already
#define recycle_published recycled_already

#include "explore/scenario.hpp"

TEST(canary, recycle_before_copy) {
    one_file s({.frames = 2, .ring_slots = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// A page that comes through a window turns valid before its bytes are in the frame.
#ifdef CANARY_window_published_early

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline void publish_early(page_word* word, std::uint32_t frame) { publish(word, frame); }

}  // namespace penstock::engine

#define begin_overwrite_in(c) publish_early(&c.words[load.word_index], load.frame)
#define publish(word, frame) static_cast<void>(word)
#define publish_and_unpin(word, frame) unpin(word)

#include "explore/scenario.hpp"

TEST(canary, window_published_early) {
    one_file s({.frames = 2});
    s.in_window();
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// Pages of one call that come through a window turn valid before their bytes are there.
#ifdef CANARY_window_list_published_early

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

template <typename View, typename Loads>
inline void publish_early(const View& c, const Loads* loads, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
        publish(&c.words[loads[i].word_index], loads[i].frame);
}

}  // namespace penstock::engine

#define begin_overwrites_in(c) publish_early(c, loads, count)
#define publish_and_unpin(word, frame) unpin(word)

#include "explore/scenario.hpp"

TEST(canary, window_list_published_early) {
    one_file s({.frames = 2});
    s.in_window();
    const auto both = [&](auto g) {
        std::uint64_t got[2 * words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, sizeof got, 0) == sizeof got,
                         "a read failed");
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            explore::require(got[i] == content(1, i / words_per_page, i % words_per_page),
                             "a read delivered wrong bytes");
    };
    s.lane(both);
    s.lane(both);
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// A copy without a pin is believed without a second look at the word.
#ifdef CANARY_no_recheck

#include "penstock/engine/page_word.hpp"

#define validate(word, seen) true

#include "explore/scenario.hpp"

TEST(canary, no_recheck) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// An element is believed without a second look at the word.
#ifdef CANARY_element_no_recheck

#include "penstock/engine/read.hpp"

#define unchanged_since_load(word, seen, loaded, nothing) true

#include "explore/scenario.hpp"

TEST(canary, element_no_recheck) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane([&](auto) { look_and_compare(s.w.fs(), s.fd, 1, 0); });
    s.lane(s.reader(1));
    expect_caught(s.run(), "an element has wrong bytes");
}

TEST(canary, stretch_no_recheck) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane([&](auto g) { visit_and_compare_by_looks(g, s.w.fs(), s.fd, 1, 0); });
    s.lane(s.reader(1));
    expect_caught(s.run(), "a stretch has wrong bytes");
}

#endif

// A pin is taken back by a load and a store, so a pin that came in between is lost.
#ifdef CANARY_unpin_by_store

#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline void broken_unpin(page_word* word) {
    atomic_store<order::release>(word, load_relaxed(word) - pin_one);
}
inline bool broken_unpin_if_held(page_word* word, std::uint32_t) {
    broken_unpin(word);
    return true;
}

}  // namespace penstock::engine

#define unpin broken_unpin
#define unpin_if_held broken_unpin_if_held

#include "explore/scenario.hpp"

TEST(canary, unpin_by_store) {
    one_file s({.frames = 2});
    s.warm(0, 0, true);
    s.lane(s.mapper(0));
    s.lane(s.mapper(0));
    expect_caught(s.run(), "only mappings hold pins");
}

#endif

// A page is evicted by a store, so a pin that came in after the look is lost.
#ifdef CANARY_evict_by_store

#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline bool broken_evict(page_word* word, page_word seen) {
    atomic_store<order::relaxed>(word, next_generation(seen));
    return true;
}

}  // namespace penstock::engine

#define try_evict broken_evict

#include "explore/scenario.hpp"

TEST(canary, evict_by_store) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.mapper(0));
    s.lane(s.reader(1));
    const auto out = s.run();
    EXPECT_TRUE(out.violation == "a mapped page changed" ||
                out.violation == "assertion failed: pins_of(before) > 0" ||
                out.violation == "an unmap failed")
        << out.violation;
}

#endif

// Eviction does not count, so a copy cannot tell that its frame went away and came back.
#ifdef CANARY_evict_same_generation

#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline bool broken_evict(page_word* word, page_word seen) {
    return atomic_compare_swap<order::acq_rel>(word, seen, seen & generation_mask);
}

}  // namespace penstock::engine

#define try_evict broken_evict

#include "explore/scenario.hpp"

TEST(canary, evict_same_generation) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(0));
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// The page is claimed in the tier only after it has left the cache.
#ifdef CANARY_keep_after_eviction

#include "penstock/engine/tier.hpp"

namespace penstock::engine {

struct keep_afterwards {
    const cache_view& c;
    tier_save& save;

    void begin(frame_word owner) {
        save.word_index = owner_word_index(owner);
        save.file_slot = owner_file_slot(owner);
        save.wanted = c.tier.words != nullptr && !is_closed(look(&c.file_words[save.file_slot]));
    }
    void undo() { save.wanted = false; }
};

template <typename Group>
void claim_and_find_frame(const Group& g, const cache_view& c, tier_save& save) {
    const page_word seen = load_relaxed(&c.tier.words[save.word_index]);
    save.wanted = is_absent(seen) && try_claim(&c.tier.words[save.word_index], seen);
    find_frame(g, c, save);
}

}  // namespace penstock::engine

#define keep_in_tier keep_afterwards
#define find_frame claim_and_find_frame

#include "explore/tier_scenario.hpp"

TEST(canary, keep_after_eviction) {
    dropped_while_taken_down s;
    expect_caught(s.run_bounded(), "a valid page of the tier belongs to a live file");
}

#endif
