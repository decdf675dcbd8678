// The gate of a file that is written, and the part of a cut for which it is closed.
//
// A group that changes a file goes in by its gate, and out when the changed bytes, their marks and
// the size are all there. A cut closes the gate, waits until no group is in, has the host cut the
// file, sets the size, drops the pages behind it, and opens the gate. So each change comes wholly
// before the cut or wholly after it, and one cut after the other.
//
//   gate              by                        next
//   open, n in        a group that changes      open, n + 1 in, and back
//   open, n in        a cut, with the lock      closed, n in; groups that come now wait outside
//   closed, n in      that cut                  open again for a while, if the groups do not end:
//                                               one that waits outside may hold what they wait for
//   closed, 0 in      that cut                  open, when it is done or the host refused it
//   closed, 0 in      that cut                  left, if the host did not answer in time, or a page
//                                               behind the cut could not be dropped in time
//   left              a group that waits, with  open, once the host has answered: it takes the cut
//                     the lock                  up. Or left again, if that fails too
//
// A request that its group gave up may be carried out at any time until the host answers it. Bytes
// that were written meanwhile would go with it; so no group changes the file before that. Whether
// it was carried out is not known, so a cut that is taken up is made once more.
//
// A page behind the cut stays if a group holds a pointer to it. What was stored there before goes
// with the cut: the bytes, their marks, and the pristine copy are cleared, so that only what is
// stored later counts as changed.
//
// A write-back goes in by no gate. While a page has a pristine copy, a write-back leaves the marks,
// so after the flush of a cut the page is dirty as before. A write-back that took these marks
// before the host cuts the file, and was written after, would bring old bytes behind the new end.
// So:
//
//   (1) From the flush to the end of the cut no group marks a byte: those that do are in the gate.
//       (A group that gave up waiting outside may; it was told that the cut may take its bytes.) So
//       a page that has marks then is dirty, or has the lock of a write-back that is to look at
//       them.
//   (2) Before the host is asked, the cut takes the frame lock of each page behind the cut that is
//       dirty. A group that has such a lock ends its write-back first. So all bytes that were sent
//       come before the cut, and only the holder of a lock takes marks and sends more.
//   (3) The cut gives a lock back when the page's marks are gone, or when the host refused the cut.
//       If the host did not answer in time, it gives them back too: the cut that is taken up waits
//       for each lock, takes the marks, and then asks the host once more.
//
// The cut holds these locks while it waits for other locks, for a ring slot and for the host. No
// circle comes of that. A group that has the lock of a frame waits for no other lock, nor for the
// gate, but only for a slot or an answer of the host; a group that has a slot waits for no lock
// (engine/flush.hpp). The locks are in no list, so there may be any number; the cut finds its own
// by their words (lock_of_cut).
//
// Progress: every wait is bounded. A group that waits outside holds no lock and no ring slot, but
// maybe pins.
//
// Tests: tests/unit/cut_test.cpp, tests/fault/late_cut_test.cpp, tests/explore/cut_test.cpp.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/ask_file.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/flush.hpp"
#include "penstock/engine/pristine.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::engine {

// Leader only, with a pin on the page and the lock of its frame, which it gives back. Clears the
// bytes from `keep` on, in the page and in its pristine copy, and takes their marks.
PENSTOCK_HD PENSTOCK_NOINLINE inline void clear_rest(const cache_view& c, const pending_write& w,
                                                     std::uint32_t keep) {
    const std::uint64_t rest = c.page_bytes() - keep;
    for (std::uint64_t i = keep / 64; i < mark_words(c); ++i)
        put_back(&marks_of(c, w.frame)[i],
                 take(&marks_of(c, w.frame)[i]) & marks_within(i, 0, keep));
    // The size went down before: a copy that has one of the zeros finds the size (is_cut_off).
    begin_overwrite(is_linked(c));
    lane{}.zero(c.frame_address(w.frame) + keep, rest);
    // With a hold of its own on the copy, whose last holder may leave meanwhile. No group compares
    // with it now: those that do are in the gate.
    pristine_word* const pristine = &c.pristine[w.frame];
    for (pristine_word seen = load_pristine_relaxed(pristine); is_copy(seen);
         seen = load_pristine_relaxed(pristine)) {
        if (!join_pristine(pristine, seen)) continue;
        lane{}.zero(c.frame_address(copy_frame_of(seen)) + keep, rest);
        leave_pristine(c, pristine);
        break;
    }
    settle_page(lane{}, c, w);
}

// Leader only. Cuts a page whose bytes from `keep` on no longer belong to the file: evicts it if it
// may, else clears those bytes. Returns 0, or the code that ended a wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t cut_page(const Group& g, const cache_view& c,
                                                    std::uint32_t slot, std::uint64_t word_index,
                                                    std::uint32_t keep) {
    page_word* const word = &c.words[word_index];
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        page_word seen = load_relaxed(word);
        if (is_absent(seen)) return 0;
        if (keep == 0 && is_valid(seen) && pins_of(seen) == 0 && !is_dirty(seen)) {
            if (!try_evict(word, seen)) continue;
            set_frame_word(c, frame_of(seen), frame_free);
            return 0;
        }
        if (is_valid(seen)) {
            seen = pin(word);
            const std::uint32_t frame = frame_of(seen);
            if (is_valid(seen) && pins_of(seen) < pin_limit && try_lock_frame(c, frame)) {
                clear_rest(c, {word_index, frame, slot}, keep);
                return 0;
            }
            unpin(word);
        }
        if (const std::int64_t code = waiting.check(g, c); code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

// Leader only. Calls visit(index of its word, is it the first) for each page of [first, end) that
// has a word, until a call returns something else than 0; returns that.
template <typename Visit>
PENSTOCK_HD inline std::int64_t visit_words(const cache_view& c, std::uint32_t slot,
                                            std::uint64_t first, std::uint64_t end,
                                            const Visit& visit) {
    for (std::uint64_t page = first; page < end;) {
        const word_run run = words_from(c, slot, page);
        const std::uint64_t pages = run.pages < end - page ? run.pages : end - page;
        for (std::uint64_t i = 0; run.index != no_words && i < pages; ++i)
            if (const std::int64_t code = visit(run.index + i, page + i == first); code != 0)
                return code;
        page += pages;
    }
    return 0;
}

// The bytes of a file that a cut takes.
struct cut_range {
    std::uint64_t size_bytes, end_bytes;
};
PENSTOCK_HD inline std::uint32_t kept_bytes(const cache_view& c, const cut_range& range) {
    return static_cast<std::uint32_t>(range.size_bytes & (c.page_bytes() - 1));
}

// Leader only. Drops what the cache has of these bytes.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t cut_pages(const Group& g, const cache_view& c,
                                                     std::uint32_t slot, const cut_range& range) {
    if (range.end_bytes <= range.size_bytes) return 0;
    return visit_words(c, slot, range.size_bytes >> c.page_shift, pages_of(c, range.end_bytes),
                       [&](std::uint64_t word_index, bool first) {
                           return cut_page(g, c, slot, word_index,
                                           first ? kept_bytes(c, range) : 0);
                       });
}

// Leader only, with the gate closed and no group in. Waits for the write-backs of pages that have
// these bytes, and keeps the locks of those that are dirty: `kept` pages. Returns 0, or the code
// that ended the wait; then `kept` counts those before it.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t keep_writes_back(const Group& g, const cache_view& c,
                                                            std::uint32_t slot,
                                                            const cut_range& range,
                                                            std::uint64_t& kept) {
    kept = 0;
    if (range.end_bytes <= range.size_bytes || dirty_pages_of(c, slot) == 0) return 0;
    wait_deadline waiting(g, 3 * c.request_wait_ns);  // for all of them
    return visit_words(c, slot, range.size_bytes >> c.page_shift, pages_of(c, range.end_bytes),
                       [&](std::uint64_t word_index, bool) {
                           pending_write w{};
                           for (std::uint32_t round = 0;; ++round) {
                               const std::int64_t outcome = hold_dirty(c, word_index, w);
                               if (outcome == 1) {
                                   keep_for_cut(c, w.frame);
                                   ++kept;
                               }
                               if (outcome != -EAGAIN) return std::int64_t{0};
                               if (const std::int64_t late = waiting.check(g, c); late != 0)
                                   return late == -ETIME ? std::int64_t{-ETIMEDOUT} : late;
                               g.pause(round);
                           }
                       });
}

// Leader only, of a cut. Gives the locks back that keep_writes_back took. With `clears` what each
// page has of these bytes goes before. Waits for nothing.
PENSTOCK_HD PENSTOCK_NOINLINE inline void release_kept(const cache_view& c, std::uint32_t slot,
                                                       const cut_range& range, std::uint64_t kept,
                                                       bool clears) {
    if (kept == 0) return;
    visit_words(c, slot, range.size_bytes >> c.page_shift, pages_of(c, range.end_bytes),
                [&](std::uint64_t word_index, bool first) {
                    page_word* const word = &c.words[word_index];
                    if (!is_dirty(load_relaxed(word))) return std::int64_t{0};
                    // With a pin, for the frame may be another page's by now.
                    const page_word seen = pin(word);
                    const pending_write w{word_index, frame_of(seen), slot};
                    const bool own = is_valid(seen) && is_kept_for_cut(c, w.frame);
                    unpin(word);
                    if (!own) return std::int64_t{0};
                    if (clears) clear_rest(c, w, first ? kept_bytes(c, range) : 0);
                    else let_go(c, w);
                    return std::int64_t{--kept == 0};
                });
}

// Leader only. Returns the host's result, or the code that ended a wait; then `left` is what is
// left to do.
template <typename Group>
PENSTOCK_HD inline std::int64_t ask_to_cut(const Group& g, const cache_view& c, std::uint32_t slot,
                                           std::uint64_t size_bytes, std::uint64_t& left) {
    // While the opener that has to cut the file does so, no other group has it open to write.
    return ask_or_leave(g, c,
                        {op::truncate, slot, c.file_records[slot].generation, size_bytes,
                         is_being_cut(c, slot) ? cut_alone : 0},
                        left);
}

// Leader only, with the lock and the gate closed. Ends a cut, or leaves it.
PENSTOCK_HD inline void end_or_leave_cut(const cache_view& c, std::uint32_t slot,
                                         const cut_order& cut, bool is_left) {
    note_cut(c, slot, cut);
    set_gate(c, slot, is_left ? gate_closed | gate_left : 0);
    drop_cut_lock(c, slot);
}

// Leader only, with the lock, the gate closed and no group in. Returns 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t make_cut(const Group& g, const cache_view& c,
                                                    std::uint32_t slot, std::uint64_t size_bytes) {
    cut_order cut{cut_is_made, size_bytes, size_of(c, slot)};
    const cut_range range{size_bytes, cut.end_bytes};
    std::uint64_t kept = 0;
    std::int64_t code = keep_writes_back(g, c, slot, range, kept);
    if (code == 0) code = ask_to_cut(g, c, slot, size_bytes, cut.left);
    const bool is_refused = code != 0 && cut.left == cut_is_made;
    if (code == 0) {
        cut_to(c, slot, size_bytes);
        cut_room(c, slot, size_bytes);
        cut_stored(c, slot, size_bytes);
    }
    // These first, for the wait for another page may fail.
    release_kept(c, slot, range, kept, code == 0);
    if (code == 0) code = cut_pages(g, c, slot, range);
    end_or_leave_cut(c, slot, cut, code != 0 && !is_refused);
    return code;
}

// Leader only, of a gate that is left. Takes the cut up if the host has answered and no other group
// does so. Returns 0, also if it did nothing; or why the cut is left again. The device's part comes
// first, for this cut will be made: a write-back of a group that did not wait ends before the host
// is asked.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t take_up_cut(const Group& g, const cache_view& c,
                                                       std::uint32_t slot) {
    if (may_be_cut_yet(c, slot) || !try_cut_lock(c, slot)) return 0;
    // Once more, for only the lock makes sure that this is what the last cut noted.
    if ((look_at_gate(c, slot) & gate_left) == 0 || may_be_cut_yet(c, slot)) {
        drop_cut_lock(c, slot);
        return 0;
    }
    cut_order cut = noted_cut(c, slot);
    const std::uint64_t size = size_of(c, slot);
    if (cut.end_bytes < size) cut.end_bytes = size;
    cut_to(c, slot, cut.size_bytes);
    std::int64_t code = cut_pages(g, c, slot, {cut.size_bytes, cut.end_bytes});
    if (code == 0 && cut.left != cut_is_made) {
        cut.left = cut_is_to_ask;
        code = ask_to_cut(g, c, slot, cut.size_bytes, cut.left);
        // Again: a reader may have claimed a page just when the size went down, and have taken the
        // old size and the file's old bytes.
        if (code == 0) code = cut_pages(g, c, slot, {cut.size_bytes, cut.end_bytes});
    }
    cut_room(c, slot, cut.size_bytes);
    cut_stored(c, slot, cut.size_bytes);
    end_or_leave_cut(c, slot, cut, code != 0);
    return code;
}

// Leader only. Waits until the gate is open, and takes up a cut that was left. Returns 0, or the
// code that ended the wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t await_gate(const Group& g, const cache_view& c,
                                                      std::uint32_t slot, wait_deadline& waiting) {
    for (std::uint32_t round = 0;; ++round) {
        const std::uint64_t seen = look_at_gate(c, slot);
        if ((seen & gate_closed) == 0) return 0;
        std::int64_t code = 0;
        // Not each time: the host's answer lies in its memory.
        if ((seen & gate_left) != 0 && round % 16 == 0) code = take_up_cut(g, c, slot);
        if (code == 0) code = waiting.check(g, c);
        if (code != 0) return code == -ETIME ? -ETIMEDOUT : code;
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

// Leader only, with the lock and the gate closed. Waits for at most `longest_ns` until no group is
// in. Returns 0, -ETIME, or the code that ended the wait.
template <typename Group>
PENSTOCK_HD inline std::int64_t await_groups(const Group& g, const cache_view& c,
                                             std::uint32_t slot, std::uint64_t longest_ns) {
    wait_deadline waiting(g, longest_ns);
    for (std::uint32_t round = 0; are_groups_in(c, slot); ++round) {
        if (const std::int64_t code = waiting.check(g, c); code != 0) return code;
        g.pause(round);
    }
    return 0;
}

// Leader only. Lets other groups go on for that time.
template <typename Group>
PENSTOCK_HD inline void rest(const Group& g, const cache_view& c, std::uint64_t time_ns) {
    wait_deadline waiting(g, time_ns);
    for (std::uint32_t round = 0; waiting.check(g, c) == 0; ++round) g.pause(round);
}

// Leader only. Takes the lock and closes the gate, and waits until no group is in. Returns 0, or
// the code that ended a wait, and then gate and lock are as before.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t begin_cutting(const Group& g, const cache_view& c,
                                                         std::uint32_t slot) {
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    // A group in the gate may wait for a frame that one outside holds. So the gate opens again for
    // as long as it was closed, and each time stays closed for longer. The first time is a quarter
    // of the wait for a frame.
    std::uint64_t closed_ns = c.frame_wait_ns / 4;
    for (std::uint32_t round = 0;; ++round) {
        std::int64_t code = await_gate(g, c, slot, waiting);
        if (code != 0) return code;
        if (try_cut_lock(c, slot)) {
            // Closed under the lock: another cut ended, or was left, before.
            if ((look_at_gate(c, slot) & gate_closed) == 0) {
                close_gate(c, slot);
                code = await_groups(g, c, slot, closed_ns);
                if (code == 0) return 0;
                set_gate(c, slot, 0);
            }
            drop_cut_lock(c, slot);
        }
        if (code == -ETIME) {
            rest(g, c, closed_ns);
            closed_ns *= 2;
        }
        if (code == 0 || code == -ETIME) code = waiting.check(g, c);
        if (code != 0) return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

}  // namespace penstock::engine
