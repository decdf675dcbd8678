// Pins pages: a page that a group has pinned stays in its frame. A page that is absent is loaded
// first.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/load.hpp"

namespace penstock::engine {

// A pinned page.
struct pinned_page {
    std::uint64_t word_index;
    std::uint32_t frame;
    bool stored = false;  // the bytes of the page_cover that was asked for are in it already
};

// Leader only. One attempt to pin a page. Returns true if the page is valid; `seen` is its word in
// either case. pin_valid is for a group that saw the page valid a moment ago; other callers should
// not add a pin that they may have to take back.
PENSTOCK_HD PENSTOCK_INLINE bool pin_valid(page_word* word, page_word& seen) {
    seen = pin(word);
    if (is_valid(seen) && pins_of(seen) < pin_limit) {
        touch(word, seen);
        return true;
    }
    unpin(word);
    return false;
}
PENSTOCK_HD PENSTOCK_INLINE bool try_pin(page_word* word, page_word& seen) {
    seen = load_relaxed(word);
    return is_valid(seen) && pin_valid(word, seen);
}

// Whole group. Pins the page, and loads it first if need be. The caller is going to store the bytes
// of `cover`, unless the page comes with them already (`stored`). Returns 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t pin_page(const Group& g, const cache_view& c,
                                                    const file_handle& f, std::uint64_t page,
                                                    wait_deadline& deadline, pinned_page& out,
                                                    page_cover cover = {}) {
    // The other group may wait for a frame, for a ring slot and for the answer, for the same time
    // each.
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    bool waited = false;
    for (std::uint32_t round = 0;; ++round) {
        // outcome: 0 pinned, 1 absent (or its leaf is), 2 loading by another group, negative errno
        std::int64_t outcome = 0;
        out = {};
        if (g.is_leader()) {
            out.word_index = find_word(c, f, page);
            if (const std::int64_t code = stop_code_in_turn(c); code != 0) {
                outcome = code;
            } else if (out.word_index == no_word) {
                outcome = 1;
            } else {
                page_word seen = 0;
                if (try_pin(&c.words[out.word_index], seen)) {
                    out.frame = frame_of(seen);
                    count(g, c, waited ? count_load_waits : count_hits);
                } else {
                    outcome = is_valid(seen) ? -ENOBUFS : is_absent(seen) ? 1 : 2;
                }
            }
            if (outcome == 2 && round % 16 == 15) {
                const std::int64_t code = waiting.check(g, c);
                if (code != 0) outcome = code == -ETIME ? -ETIMEDOUT : code;
            }
        }
        outcome = share_code(g, outcome);
        if (outcome <= 0) {
            out.word_index = g.broadcast(out.word_index);
            out.frame = g.broadcast(out.frame);
            g.sync();  // the leader's acquire comes before every thread's reads of the frame
            return outcome;
        }
        if (outcome == 2) {
            waited = true;
            g.pause(round);
            continue;
        }
        pending_load load;
        std::int64_t code = begin_load(g, c, f, page, true, deadline, load, cover);
        if (code < 0) return code;
        if (code == 0) continue;
        code = fetch_load(g, c, f, load, cover);
        if (code == load_again) continue;
        if (code != 0) return code;
        publish_load(g, c, f, load, true);
        out = {g.broadcast(load.word_index), load.frame, load.from == pending_load::source::blank};
        return 0;
    }
}

}  // namespace penstock::engine
