// Reading ahead: after a miss, the pages that will be wanted next are asked of the host into the
// tier, and no group waits for them.
//
// A group that reads in order is told from the cache itself: the pages before the miss are there.
// No state is kept for a reader, so any number of warps that stride through one file, each in a
// part of its own, are each seen as what they are (the context of a page in the page cache, as
// Linux judges readers of mapped files; here it is the only evidence). The longer the run before
// the miss, the further ahead: as far as the run is long, doubled, up to read_ahead_pages (16 MiB).
//
// Advice of the program comes first: `sequential` reads ahead from the first miss on, `random`
// never.
//
// Cost, per miss that was not served by a window: two words looked at if the reader is not in
// order; else about ten, and a request for up to max_fill_pages pages once half of what was read
// ahead is used up.
#pragma once

#include <cstdint>

#include "penstock/engine/page_table.hpp"
#include "penstock/engine/tier.hpp"

namespace penstock::engine {

// An advice word: generation of the file slot in bits 63..8, so that a later file does not inherit
// it; advice in bits 7..0.
enum class advice_kind : std::uint32_t { normal = 0, sequential = 1, random = 2 };

// Leader only.
PENSTOCK_HD inline void set_advice(const cache_view& c, const file_handle& f, advice_kind kind) {
    if (c.advice != nullptr)
        store_hint(&c.advice[f.slot],
                   std::uint64_t{f.generation} << 8 | static_cast<std::uint64_t>(kind));
}
PENSTOCK_HD inline advice_kind advice_of(const cache_view& c, const file_handle& f) {
    if (c.advice == nullptr) return advice_kind::normal;
    const std::uint64_t word = load_relaxed(&c.advice[f.slot]);
    return word >> 8 == f.generation ? static_cast<advice_kind>(word & 255) : advice_kind::normal;
}

// Is the page in the cache or in the tier, or on its way to one of them, or in a window? Leaves
// that do not exist yet hold none.
PENSTOCK_HD inline bool is_at_hand(const cache_view& c, const file_handle& f, std::uint64_t page) {
    const std::uint64_t index = find_word(c, f, page);
    if (index == no_word) return false;
    return !is_absent(load_relaxed(&c.words[index])) ||
           !is_absent(load_relaxed(&c.tier.words[index])) ||
           find_in_window(c, f.slot, f.generation, page << c.page_shift) != nullptr;
}

PENSTOCK_HD inline bool is_in_cache(const cache_view& c, const file_handle& f, std::uint64_t page) {
    const std::uint64_t index = find_word(c, f, page);
    return index != no_word && !is_absent(load_relaxed(&c.words[index]));
}

// How many pages right before `page` the reader seems to have come through: 0 if it does not read
// in order. Eight in a row in the cache are evidence (all of them, near the start of the file):
// fewer would take a random reader of a file that is half in the cache for an orderly one too
// often, and so would the tier, which may hold all of a file. Beyond those only every power of two
// is looked at.
PENSTOCK_HD PENSTOCK_NOINLINE inline std::uint64_t run_before(const cache_view& c,
                                                              const file_handle& f,
                                                              std::uint64_t page, bool told) {
    constexpr std::uint64_t evidence = 8;
    const std::uint64_t near = page < evidence ? page : evidence;
    std::uint64_t run = 0;
    while (run < near && is_in_cache(c, f, page - run - 1)) ++run;
    if (run < near || page == 0) return told ? evidence : 0;
    std::uint64_t length = evidence;
    while (length < c.read_ahead_pages && 2 * length <= page && is_at_hand(c, f, page - 2 * length))
        length *= 2;
    return length;
}

// The first page of [begin, end) that is not at hand, if the ones that are come first; end if all
// are.
PENSTOCK_HD PENSTOCK_NOINLINE inline std::uint64_t first_not_at_hand(const cache_view& c,
                                                                     const file_handle& f,
                                                                     std::uint64_t begin,
                                                                     std::uint64_t end) {
    while (begin < end) {
        const std::uint64_t middle = begin + (end - begin) / 2;
        if (is_at_hand(c, f, middle)) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

// A fill that is being put together. It lives in memory and its steps are calls, so that none of it
// is in registers while a frame is looked for.
struct fill_plan {
    std::uint64_t index;  // of the first page's word
    std::uint64_t first;
    std::uint64_t most, claimed;
    std::uint32_t frames[max_fill_pages];
};

// Leader only. Claims the next page, and a frame for it, in the tier; false if another group has
// the page, or no frame is at hand.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool claim_next(const Group& g, const cache_view& c,
                                              fill_plan& plan) {
    if (plan.claimed == plan.most) return false;
    page_word* const word = &c.tier.words[plan.index + plan.claimed];
    const page_word seen = load_relaxed(word);
    if (!is_absent(seen) || !is_absent(load_relaxed(&c.words[plan.index + plan.claimed])) ||
        !try_claim(word, seen))
        return false;
    keep_nothing nothing;
    if (!try_take(g, c, c.tier, plan.index, plan.frames[plan.claimed], nothing)) {
        abandon(&c.tier.words[plan.index + plan.claimed]);
        return false;
    }
    ++plan.claimed;
    return true;
}

// Leader only. The pages are published, each with the fill's pin, and the request for their bytes
// is posted.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void post_fill(const Group& g, const cache_view& c,
                                             std::uint32_t file_slot, const fill_plan& plan,
                                             const ring_ticket& at) {
    const ring_view& r = c.rings[at.ring];
    auto* const list =
        reinterpret_cast<std::uint32_t*>(r.staging + r.staging_stride * slot_of(r, at.ticket));
    const std::uint64_t stamp = make_stamp(at.ring, at.ticket);
    for (std::uint64_t i = 0; i < plan.claimed; ++i) {
        list[i] = plan.frames[i];
        mark_frame(c.tier, plan.frames[i], stamp);
        publish(&c.tier.words[plan.index + i], plan.frames[i]);
        set_frame_word(c.tier, plan.frames[i], make_owned(file_slot, plan.index + i));
    }
    ring_request request{};
    request.operation = op::fill;
    request.offset = plan.first << c.page_shift;
    const file_handle f = handle_of(c, file_slot);
    const std::uint64_t left = f.size_bytes - request.offset, wanted = plan.claimed << c.page_shift;
    request.bytes = static_cast<std::uint32_t>(left < wanted ? left : wanted);
    request.file_slot = file_slot;
    request.generation = f.generation;
    request.argument = stamp;
    post(g, c, at, request);
    orphan_slot(c,
                at);  // the answer is the done marks; the slot is free once the host has given it
    count(g, c, count_fill_pages, plan.claimed);
}

// Leader only. Asks for up to `pages` pages from `first` on, as far as they are absent, and waits
// for nothing. How many were asked for. The request's frames stand in its staging area.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t ask_for_fill(const Group& g, const cache_view& c,
                                                         std::uint32_t file_slot,
                                                         std::uint64_t first, std::uint64_t pages) {
    fill_plan plan;
    {
        const file_handle f = handle_of(c, file_slot);
        if (is_granted(c, file_slot))
            return 0;  // what the tier has of a file that is written is not looked at
        plan.index = find_word(c, f, first);
        if (plan.index == no_word) return 0;
        // The words of one request follow each other: of one leaf, in a huge file.
        const std::uint64_t leaf_pages = std::uint64_t{1} << c.leaf_shift,
                            leaf_left = leaf_pages - (first & (leaf_pages - 1));
        plan.most = f.two_level && leaf_left < pages ? leaf_left : pages;
        if (plan.most > max_fill_pages) plan.most = max_fill_pages;
        plan.first = first;
        plan.claimed = 0;
    }
    while (claim_next(g, c, plan)) {
    }
    if (plan.claimed == 0) return 0;
    ring_ticket at{};
    if (claim_slot(g, c, false, at) == 0) {
        post_fill(g, c, file_slot, plan, at);
        return plan.claimed;
    }
    for (std::uint64_t i = 0; i < plan.claimed; ++i) {
        set_frame_word(c.tier, plan.frames[i], frame_free);
        abandon(&c.tier.words[plan.index + i]);
    }
    return 0;
}

// Whole group, which has missed at byte `begin` of the file and got `bytes`, or an error. What
// windows show is not read ahead.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void read_ahead(const Group g, const cache_view& c,
                                              std::uint32_t slot, std::uint64_t begin,
                                              std::int64_t bytes) {
    if (!g.is_leader() || bytes <= 0) return;
    const file_handle f = handle_of(c, slot);
    const advice_kind advice = advice_of(c, f);
    const std::uint64_t first = begin >> c.page_shift,
                        last = (begin + static_cast<std::uint64_t>(bytes) - 1) >> c.page_shift;
    if (advice == advice_kind::random || is_granted(c, slot) ||
        find_in_window(c, f.slot, f.generation, first << c.page_shift) != nullptr)
        return;
    const std::uint64_t run = run_before(c, f, first, advice == advice_kind::sequential);
    if (run == 0) return;
    const std::uint64_t end = pages_of(c, f.size_bytes), next = last + 1;
    std::uint64_t ahead = 2 * run < c.read_ahead_pages ? 2 * run : c.read_ahead_pages;
    if (ahead > end - next) ahead = end - next;
    if (ahead == 0) return;
    const std::uint64_t half = next + ahead / 2;
    std::uint64_t from = first_not_at_hand(c, f, next, half);
    if (from == half && half > next) return;  // more than half of it is still to come
    for (int requests = 0; requests < 2 && from < next + ahead; ++requests) {
        const std::uint64_t asked = ask_for_fill(g, c, slot, from, next + ahead - from);
        if (asked == 0) return;
        from += asked;
    }
}

}  // namespace penstock::engine
