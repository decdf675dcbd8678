// The gate of a file that is written, and the part of a cut for which it is closed.
//
// A group that changes a file goes in by its gate, and out when the changed bytes, their marks and
// the size are all there. A cut closes the gate, waits until no group is in, has the host cut the
// file, sets the size, drops the pages behind it, and opens the gate. So each change comes wholly
// before the cut or wholly after it, and one cut after the other.
//
//   gate              by                        next
//   open, n in        a group that changes      open, n + 1 in, and back
//   open, n in        a cut                     closed, n in; groups that come now wait outside
//   closed, 0 in      that cut                  open, when it is done or the host refused it
//   closed, 0 in      that cut                  left, if the host did not answer in time, or a page
//                                               behind the cut could not be dropped in time
//   left              a group that waits        closed, once the host has answered: it makes the
//                                               cut again and opens the gate
//
// A request that its group gave up may be carried out at any time until the host answers it. Bytes
// that were written meanwhile would go with it; so no group changes the file before that.
//
// Progress: every wait is bounded. A group that waits for the gate holds no lock and no ring slot.
// A cut that waits for groups that are in holds the gate alone, which none of them needs.
//
// Tests: tests/unit/cut_test.cpp, tests/fault/late_cut_test.cpp, tests/explore/cut_test.cpp.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/ask_file.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/flush.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::engine {

// Leader only. Cuts a page whose bytes from `keep` on no longer belong to the file: evicts it if no
// byte is left, else clears those bytes. A page stays that a group changes through a pointer or has
// changed so since. Returns 0, or the code that ended a wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t cut_page(const Group& g, const cache_view& c,
                                                    std::uint64_t word_index, std::uint32_t keep) {
    page_word* const word = &c.words[word_index];
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        page_word seen = load_relaxed(word);
        if (is_absent(seen)) return 0;
        if (is_loading(seen)) {
            if (const std::int64_t code = waiting.check(g, c); code != 0)
                return code == -ETIME ? -ETIMEDOUT : code;
            g.pause(round);
            continue;
        }
        if (keep == 0 && pins_of(seen) == 0 && !is_dirty(seen)) {
            if (!try_evict(word, seen)) continue;
            set_frame_word(c, frame_of(seen), frame_free);
            return 0;
        }
        seen = pin(word);
        const bool there = is_valid(seen) && pins_of(seen) < pin_limit;
        if (there && (keep != 0 || !is_dirty(seen))) {
            // The size went down before: a copy that has one of the zeros finds the size
            // (is_cut_off).
            begin_overwrite_in(c);
            lane{}.zero(c.frame_address(frame_of(seen)) + keep, c.page_bytes() - keep);
        }
        unpin(word);
        if (there) return 0;
    }
}

// Leader only. Drops what the cache has of the bytes from `size_bytes` to `end_bytes`.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t cut_pages(const Group& g, const cache_view& c,
                                                     std::uint32_t slot, std::uint64_t size_bytes,
                                                     std::uint64_t end_bytes) {
    const auto keep = static_cast<std::uint32_t>(size_bytes & (c.page_bytes() - 1));
    const std::uint64_t first = size_bytes >> c.page_shift, end = pages_of(c, end_bytes);
    for (std::uint64_t page = first; page < end;) {
        const word_run run = words_from(c, slot, page);
        const std::uint64_t pages = run.pages < end - page ? run.pages : end - page;
        for (std::uint64_t i = 0; run.index != no_words && i < pages; ++i)
            if (const std::int64_t code =
                    cut_page(g, c, run.index + i, page + i == first ? keep : 0);
                code != 0)
                return code;
        page += pages;
    }
    return 0;
}

// Leader only, with the gate closed and no group in. Has the host cut the file unless it did so
// already, cuts what the device has of it, and opens the gate; or leaves the cut. Returns 0 or a
// negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t make_cut(const Group& g, const cache_view& c,
                                                    std::uint32_t slot, cut_order cut,
                                                    bool asks_host) {
    std::int64_t code = 0;
    if (asks_host) {
        std::uint64_t left = 0;
        // While the opener that has to cut the file does so, no other group has it open to write.
        code = ask_or_leave(g, c,
                            {op::truncate, slot, c.file_records[slot].generation, cut.size_bytes,
                             is_being_cut(c, slot) ? cut_alone : 0},
                            left);
        if (left != 0) {
            leave_cut(c, slot, {left, cut.size_bytes, cut.end_bytes});
            return code;
        }
        if (code != 0) {
            open_gate(c, slot);
            return code;
        }
    }
    cut_to(c, slot, cut.size_bytes);
    cut_room(c, slot, cut.size_bytes);
    cut_stored(c, slot, cut.size_bytes);
    if (cut.size_bytes < cut.end_bytes) code = cut_pages(g, c, slot, cut.size_bytes, cut.end_bytes);
    if (code == 0) open_gate(c, slot);
    else leave_cut(c, slot, {cut_is_made, cut.size_bytes, cut.end_bytes});
    return code;
}

// Leader only, of a gate that was `seen` left. Makes the cut again if the host has answered:
// whether it was made is not known, and it comes before all that groups wait to write.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void take_up_cut(const Group& g, const cache_view& c,
                                               std::uint32_t slot, std::uint64_t seen) {
    const cut_order cut = left_cut_of(c, slot);
    if (cut.request != cut_is_made && !is_left_request_done(c, cut.request)) return;
    if (try_close_gate(c, slot, seen)) make_cut(g, c, slot, cut, cut.request != cut_is_made);
}

// Leader only. Waits until the gate is open. Returns 0, or the code that ended the wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t await_gate(const Group& g, const cache_view& c,
                                                      std::uint32_t slot, wait_deadline& waiting) {
    for (std::uint32_t round = 0;; ++round) {
        const std::uint64_t seen = look_at_gate(c, slot);
        if ((seen & gate_closed) == 0) return 0;
        if ((seen & gate_left) != 0) take_up_cut(g, c, slot, seen);
        if (const std::int64_t code = waiting.check(g, c); code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

// Leader only. The wait of begin_change.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t go_in_late(const Group& g, const cache_view& c,
                                                      std::uint32_t slot) {
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    do {
        go_out(c, slot);
        if (const std::int64_t code = await_gate(g, c, slot, waiting); code != 0) return code;
    } while ((go_in(c, slot) & gate_closed) != 0);
    return 0;
}

// Leader only. Goes in by the gate of the file, before the group changes a byte. Returns 0, and
// then the group goes out by go_out; or the code that ended the wait for a cut.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t begin_change(const Group& g, const cache_view& c,
                                                      std::uint32_t slot) {
    if ((go_in(c, slot) & gate_closed) == 0) return 0;
    return go_in_late(g, c, slot);
}

// Leader only. Closes the gate and waits until no group is in. Returns 0, or the code that ended a
// wait, and then the gate is as before.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t close_gate(const Group& g, const cache_view& c,
                                                      std::uint32_t slot) {
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    for (;;) {
        if (const std::int64_t code = await_gate(g, c, slot, waiting); code != 0) return code;
        const std::uint64_t seen = look_at_gate(c, slot);
        if ((seen & gate_closed) == 0 && try_close_gate(c, slot, seen)) break;
    }
    for (std::uint32_t round = 0; (look_at_gate(c, slot) & gate_groups) != 0; ++round) {
        if (const std::int64_t code = waiting.check(g, c); code != 0) {
            open_gate(c, slot);
            return code == -ETIME ? -ETIMEDOUT : code;
        }
        g.pause(round);
    }
    return 0;
}

}  // namespace penstock::engine
