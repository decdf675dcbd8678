// Write-back: sends the marked bytes of dirty pages to their file, in copies that the group makes.
//
// One page, in steps (engine/dirty.hpp has the words and their invariants):
//   1. pin the page, lock its frame, look if it is dirty   not valid or not dirty: nothing to do
//   2. a ring slot                                         none: unlock, unpin
//   3. take the marks, copy page and marks to staging      no marks: clear_dirty, nothing is sent
//   4. post, with other copied pages; await                error: put the marks back; the page
//                                                          stays dirty, the file's error is noted
//   5. clear_dirty; look at the marks again, and mark_dirty if there are new marks; unlock, unpin.
//      If the page has a writable mapping, its marks are put back first (engine/pristine.hpp)
//
// The service thread writes each run of marked bytes separately and no other bytes, so bytes of the
// page that other programs wrote meanwhile are not overwritten. engine/flush.hpp and
// engine/victim.hpp say which pages are written back, and when.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/page_word.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

// A page on its way to its file: pinned, its frame locked. Equal in all threads of the group. Once
// its copy is posted, the frame alone is enough to find the rest (posted_write): a group that has
// many pages under way keeps only the frame of each.
struct pending_write {
    std::uint64_t word_index;
    std::uint32_t frame;
    std::uint32_t file_slot;
};

// Any one thread. Pins and locks the page of `word_index` if it is dirty. Returns 1: done; 0:
// nothing to write; -EAGAIN: a group has the lock. Whether the page is dirty is decided under the
// lock: before that, the write-back of another group may be between its two looks.
PENSTOCK_HD PENSTOCK_NOINLINE inline std::int64_t hold_dirty(const cache_view& c,
                                                             std::uint64_t word_index,
                                                             pending_write& out) {
    page_word* const word = &c.words[word_index];
    page_word seen = load_relaxed(word);
    for (;; seen = load_relaxed(word)) {
        if (!may_have_marks(seen)) return 0;
        if (pins_of(seen) >= pin_limit) return -EAGAIN;
        if (pin_as_seen(word, seen)) break;  // else another group changed the word
    }
    out.word_index = word_index;
    out.frame = frame_of(seen);
    std::int64_t outcome = try_lock_frame(c, out.frame) ? 1 : -EAGAIN;
    if (outcome == 1 && !is_dirty(load_relaxed(word))) {
        unlock_frame(c, out.frame);
        outcome = 0;
    }
    if (outcome != 1) {
        unpin(word);
        return outcome;
    }
    // The frame has a dirty page, so its frame word named the file long before.
    out.file_slot = owner_file_slot(look_at_frame(c, out.frame));
    return 1;
}

// Any one thread. Undoes hold_dirty; the page stays as it was.
PENSTOCK_HD inline void let_go(const cache_view& c, const pending_write& w) {
    unlock_frame(c, w.frame);
    unpin(&c.words[w.word_index]);
}

// Whole group; the marks that were taken were written, or there were none. Step 5. The file's count
// goes down last, and only if the page stays clean: a group that finds the count 0 does not look at
// the pages at all.
template <typename Group>
PENSTOCK_HD inline void settle_page(const Group& g, const cache_view& c, const pending_write& w) {
    page_word* const word = &c.words[w.word_index];
    const bool cleaned = g.is_leader() && clear_dirty(word);
    g.sync();  // marks made before the bit was cleared are seen below; a group that marks later
               // marks the page dirty itself
    bool none = true;
    for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size())
        none = none && look_at_marks(&marks_of(c, w.frame)[i]) == 0;
    none = g.all(none);
    if (!g.is_leader()) return;
    if (cleaned && (none || !mark_dirty(word))) count_dirty(c, w.file_slot, ~std::uint64_t{0});
    let_go(c, w);
}

// Whole group. Step 3: copies page and marks to the staging area of a claimed slot. True if every
// byte is marked.
template <typename Group>
PENSTOCK_HD inline bool copy_marked(const Group& g, const cache_view& c, const pending_write& w,
                                    std::byte* staging) {
    auto* const marks = reinterpret_cast<std::uint64_t*>(staging + c.page_bytes());
    bool whole = true;
    for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size()) {
        const std::uint64_t taken = take(&marks_of(c, w.frame)[i]);
        marks[i] = taken;
        whole = whole && taken == ~std::uint64_t{0};
    }
    atomic_fence();  // with the fence in mark: the bytes of a mark that was taken are seen by every
                     // thread after the sync
    whole = g.all(whole);
    g.sync();
    g.copy_written(staging, c.frame_address(w.frame), c.page_bytes());
    system_fence();  // by every thread: its part is in host memory before the leader posts
    g.sync();
    return whole;
}

// Leader only, `w` is held. Claims a slot for it in a ring of the service thread to which all pages
// of this part of the file go: that thread finds them at one look and writes them in one call. The
// group chooses among the rings of that thread, for many groups at one tail get in each other's
// way.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t claim_write_slot(const Group& g, const cache_view& c,
                                                            bool may_wait, const pending_write& w,
                                                            ring_ticket& out) {
    const std::uint64_t part = page_in_frame(c, w.frame) >> c.write_behind_shift;
    const std::uint64_t thread = mix64(part ^ std::uint64_t{w.file_slot} << 40) % c.ring_threads,
                        own = mix64(g.home()) % (c.ring_count / c.ring_threads);
    return claim_slot_of(g, c, may_wait, static_cast<std::uint32_t>(own * c.ring_threads + thread),
                         c.ring_threads, out);
}

// Whole group; the leader holds `w`, and all threads know it. Returns 1: copied; post_write and
// finish_write have to follow. 0: there was nothing to send, and the page is let go. Negative
// errno: no slot, and the page is let go.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t begin_write(const Group& g, const cache_view& c,
                                                       bool may_wait, const pending_write& w) {
    bool none = true;
    for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size())
        none = none && look_at_marks(&marks_of(c, w.frame)[i]) == 0;
    if (g.all(none)) {
        settle_page(g, c, w);
        return 0;
    }
    std::int64_t code = 0;
    ring_ticket at{};
    bool keeps_marks = false;
    if (g.is_leader()) {
        code = claim_write_slot(g, c, may_wait, w, at);
        if (code != 0) let_go(c, w);
        else keeps_marks = has_copy(c, w.frame);
    }
    code = share_code(g, code);
    if (code != 0) return code;
    at = {g.broadcast(at.ring), g.broadcast(at.ticket)};
    const ring_view& r = c.rings[at.ring];
    const bool whole = copy_marked(g, c, w, r.staging + r.staging_stride * slot_of(r, at.ticket));
    if (g.is_leader()) note_request(c, w.frame, at.ring, at.ticket, keeps_marks, whole);
    return 1;
}

// Any one thread, after the group has synchronised. Sends the copy of the page in the frame. The
// group waits for nothing between begin_write and this: groups whose requests stand behind it in
// the ring wait for it.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void post_write(const Group& g, const cache_view& c,
                                              std::uint32_t frame) {
    const std::uint64_t noted = noted_request(c, frame);
    write_request request{};
    request.bytes = static_cast<std::uint32_t>(c.page_bytes());
    request.file_slot = owner_file_slot(look_at_frame(c, frame));
    // The generation comes from the file word, since a group that needs a frame may never have
    // opened this file. The pinned page keeps the slot in its life.
    request.generation = file_generation(load_file_relaxed(&c.file_words[request.file_slot]));
    request.offset = page_in_frame(c, frame) << c.page_shift;
    request.is_whole = (noted & lock_sends_all) != 0 ? 1 : 0;
    raise_stored(c, request.file_slot, request.offset + c.page_bytes());
    post(g, c, {lock_ring(noted), lock_ticket(noted)}, request.packed());
    count(g, c, count_write_backs);
}

// Whole group, which has posted the page in the frame. Returns the page, and in `noted` its
// request.
template <typename Group>
PENSTOCK_HD inline pending_write posted_write(const Group& g, const cache_view& c,
                                              std::uint32_t frame, std::uint64_t& noted) {
    frame_word owner = 0;
    if (g.is_leader()) {
        owner = look_at_frame(c, frame);  // the page is pinned, so it keeps the frame
        noted = noted_request(c, frame);
    }
    owner = g.broadcast(owner);
    noted = g.broadcast(noted);
    return {owner_word_index(owner), frame, owner_file_slot(owner)};
}

// Whole group. Waits for the answer. Returns 0, or the error of the write; then the page is dirty
// as before.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t finish_write(const Group& g, const cache_view& c,
                                                        std::uint32_t frame) {
    std::uint64_t noted = 0;
    const pending_write w = posted_write(g, c, frame, noted);
    const ring_ticket at{lock_ring(noted), lock_ticket(noted)};
    const ring_view& r = c.rings[at.ring];
    const std::uint32_t slot = slot_of(r, at.ticket);
    std::int64_t waited = 0, code = 0;
    if (g.is_leader()) {
        waited = await(g, c, at);
        code = waited != 0 ? waited : r.replies[slot].result;
    }
    code = share_code(g, code);
    g.sync();  // the leader's acquire of the answer comes before the next steps
    if (code != 0 || (noted & lock_keeps_marks) != 0) {
        const auto* const marks = reinterpret_cast<const std::uint64_t*>(
            r.staging + r.staging_stride * slot + c.page_bytes());
        for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size())
            put_back(&marks_of(c, w.frame)[i], marks[i]);
        g.sync();  // all marks are back before another group can have the slot or the lock
    }
    if (code == 0) {
        if (g.is_leader()) recycle_slot(c, at);
        settle_page(g, c, w);
        return 0;
    }
    if (!g.is_leader()) return code;
    count(g, c, count_write_back_errors);
    if (waited == 0) note_writes(c, true);
    note_write_error(c, w.file_slot, code, page_in_frame(c, w.frame) << c.page_shift);
    if (waited == 0) {
        recycle_slot(c, at);
        let_go(c, w);
    } else {
        leave_lock(c, w.frame, at.ring, at.ticket);
        orphan_slot(c, at);
        unpin(&c.words[w.word_index]);
    }
    return code;
}

// Whole group. Tells every thread which page the leader holds.
template <typename Group>
PENSTOCK_HD inline void share_write(const Group& g, pending_write& w) {
    w.word_index = g.broadcast(w.word_index);
    const std::uint64_t where = g.broadcast(std::uint64_t{w.file_slot} << 32 | w.frame);
    w.frame = static_cast<std::uint32_t>(where);
    w.file_slot = static_cast<std::uint32_t>(where >> 32);
    g.sync();  // the leader's acquire of pin and lock comes before every thread's reads of the
               // frame
}

// Whole group. The leader calls hold_dirty, and every thread gets its result.
template <typename Group>
PENSTOCK_HD inline std::int64_t hold_together(const Group& g, const cache_view& c,
                                              std::uint64_t word_index, pending_write& w) {
    std::int64_t outcome = 0;
    w = {};
    if (g.is_leader()) outcome = hold_dirty(c, word_index, w);
    outcome = share_code(g, outcome);
    if (outcome == 1) share_write(g, w);
    return outcome;
}

}  // namespace penstock::engine
