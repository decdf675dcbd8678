// Read-ahead: after a miss, a group asks the host to read the pages that will probably be wanted
// next into the tier, and no group waits for them.
//
// The cache itself shows that a group reads in order: the pages before the miss are there. There is
// no state for a reader. So any number of warps that stride through one file, each in its own part,
// are each recognised (by the context of a page in the page cache, as Linux judges readers of
// mapped files; here it is the only evidence). The longer the run before the miss, the further
// ahead it reads: twice the length of the run, up to read_ahead_pages (16 MiB).
//
// Advice of the program comes first: `sequential` reads ahead from the first miss on, `random`
// never.
//
// A fill ends before a page that a neighbour holds (engine/neighbour.hpp): a reader that comes
// there reads it next door.
//
// Cost for each miss that no window served: loads of two words if the reader is not in order.
// Otherwise loads of about ten words, and a request for up to max_fill_pages pages once half of the
// pages read ahead are used up. In a linked cache each page of that request takes a look at the
// neighbours too.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/neighbour.hpp"
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
// that do not exist yet hold no page.
PENSTOCK_HD inline bool is_at_hand(const cache_view& c, const file_handle& f, std::uint64_t page) {
    const std::uint64_t index = find_word(c, f, page);
    if (index == no_word) return false;
    return !is_absent(load_relaxed(&c.words[index])) ||
           !is_absent(load_relaxed(&c.tier.words[index])) ||
           is_in_window(c, f.slot, f.generation, page << c.page_shift);
}

PENSTOCK_HD inline bool is_in_cache(const cache_view& c, const file_handle& f, std::uint64_t page) {
    const std::uint64_t index = find_word(c, f, page);
    return index != no_word && !is_absent(load_relaxed(&c.words[index]));
}

// How many pages right before `page` the reader seems to have read: 0 if it does not read in order.
// Eight pages in a row in the cache are evidence (near the start of the file: all pages before
// `page`). With fewer, a random reader of a file that is half in the cache would too often look
// like a sequential reader. So it would with pages of the tier, which may hold all of a file.
// Beyond the eight, only pages at powers of two are checked.
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

// The first page of [begin, end) that is not at hand, if the pages at hand come first; `end` if all
// are at hand.
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

// A fill that is being put together. It lives in memory and its steps are calls, so that it takes
// no registers while a group looks for a frame.
struct fill_plan {
    std::uint64_t index;  // of the first page's word
    std::uint64_t first;
    std::uint64_t most, claimed;
    std::uint32_t file_slot;
    std::uint32_t frames[max_fill_pages];
};

// Leader only. Claims the next page in the tier, and a frame for it. Returns false if another group
// or a neighbour has the page, or no frame is at hand.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool claim_next(const Group& g, const cache_view& c,
                                              fill_plan& plan) {
    if (plan.claimed == plan.most) return false;
    page_word* const word = &c.tier.words[plan.index + plan.claimed];
    const page_word seen = load_relaxed(word);
    if (!is_absent(seen) || !is_absent(load_relaxed(&c.words[plan.index + plan.claimed])) ||
        is_next_door(c, handle_of(c, plan.file_slot), plan.first + plan.claimed) ||
        !try_claim(word, seen))
        return false;
    if (!take_tier_frame(g, c, plan.index, plan.frames[plan.claimed])) {
        abandon(&c.tier.words[plan.index + plan.claimed]);
        return false;
    }
    ++plan.claimed;
    return true;
}

// Leader only. Publishes the pages, each with the fill's pin, and posts the request for their
// bytes.
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
    fill_request request{};
    request.offset = plan.first << c.page_shift;
    const file_handle f = handle_of(c, file_slot);
    const std::uint64_t left = f.size_bytes - request.offset, wanted = plan.claimed << c.page_shift;
    request.bytes = static_cast<std::uint32_t>(left < wanted ? left : wanted);
    request.file_slot = file_slot;
    request.generation = f.generation;
    request.stamp = stamp;
    post(g, c, at, request.packed());
    orphan_slot(c,
                at);  // the answer is the done marks; the slot is free once the host has given it
    count(g, c, count_fill_pages, plan.claimed);
}

// Leader only. Asks for up to `pages` pages from `first` on, as far as they are absent, and waits
// for nothing. Returns for how many it asked. The request lists its frames in its staging area.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t ask_for_fill(const Group& g, const cache_view& c,
                                                         std::uint32_t file_slot,
                                                         std::uint64_t first, std::uint64_t pages) {
    fill_plan plan;
    {
        const file_handle f = handle_of(c, file_slot);
        if (is_granted(c, file_slot))
            return 0;  // no group uses the tier's pages of a file that is written
        plan.index = find_word(c, f, first);
        if (plan.index == no_word) return 0;
        // The words of one request follow each other: in a huge file they are words of one leaf.
        const std::uint64_t leaf_pages = std::uint64_t{1} << c.leaf_shift,
                            leaf_left = leaf_pages - (first & (leaf_pages - 1));
        plan.most = f.two_level && leaf_left < pages ? leaf_left : pages;
        if (plan.most > max_fill_pages) plan.most = max_fill_pages;
        plan.first = first;
        plan.claimed = 0;
        plan.file_slot = file_slot;
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

// Whole group, which missed at byte `begin` of the file and got `bytes` bytes, or an error. Pages
// that a window shows are not read ahead.
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
        is_in_window(c, f.slot, f.generation, first << c.page_shift))
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
