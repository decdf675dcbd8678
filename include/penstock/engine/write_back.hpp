// Write-back: the marked bytes of dirty pages go to their file, in copies that the group makes.
//
// One page, in steps (engine/dirty.hpp has the words and their invariants):
//   1. pin the page, lock its frame, look if it is dirty   not valid or not dirty: nothing to do
//   2. a ring slot                                         none: unlock, unpin
//   3. take the marks, copy page and marks to staging      no marks: clean the page, nothing is sent
//   4. post, await                                         error: put the marks back; the page stays dirty, the file's error is noted
//   5. clean the page; look at the marks again, and soil it if there are new ones; unlock, unpin. Of a page that is mapped to be
//      changed the marks are put back first (engine/pristine.hpp)
//
// The service thread writes each run of marked bytes by itself and no others, so bytes of the page that other programs wrote
// meanwhile stay theirs. Pages are written back when their frame is needed and no clean page was found (clean_victim), and when the file
// is to be up to date (flush_pages: fsync, msync, the last close).
//
// A group that has locks or ring slots waits for neither another lock nor another slot: it first ends what it has under way. So groups
// never wait for each other in a circle.
#pragma once

#include <cerrno>
#include <cstdint>

#include "penstock/engine/counters.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/page_word.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

// A page on its way to its file: pinned, its frame locked. Equal in all threads of the group.
struct pending_write {
    std::uint64_t word_index;
    std::uint32_t frame;
    std::uint32_t file_slot;
    ring_ticket at;
    bool keeps_marks;  // the page has a pristine copy
};

// Leader only. Pins and locks the page of `word_index` if it is dirty. 1: done; 0: nothing to write; -EAGAIN: somebody has the lock.
// Whether it is dirty is decided under the lock: before, another's write-back may be between its two looks.
PENSTOCK_HD inline std::int64_t hold_dirty(const cache_view& c, std::uint64_t word_index, pending_write& out) {
    page_word* const word = &c.words[word_index];
    if (!may_have_marks(glance(word))) return 0;
    const page_word seen = pin(word);
    std::int64_t outcome = is_valid(seen) ? 1 : 0;
    out.word_index = word_index;
    out.frame = frame_of(seen);
    if (outcome == 1 && (pins_of(seen) >= pin_limit || !try_lock_frame(c, out.frame))) outcome = -EAGAIN;
    if (outcome == 1 && !is_dirty(glance(word))) {
        unlock_frame(c, out.frame);
        outcome = 0;
    }
    if (outcome != 1) {
        unpin(word);
        return outcome;
    }
    // The frame has a dirty page, so it was named by its file long before.
    out.file_slot = owner_file_slot(look_at_frame(c, out.frame));
    return 1;
}

// Leader only. The page is as it was.
PENSTOCK_HD inline void let_go(const cache_view& c, const pending_write& w) {
    unlock_frame(c, w.frame);
    unpin(&c.words[w.word_index]);
}

// Whole group; the marks that were there were written or are none. Step 5. The file's count goes down last, and only if the page stays
// clean: who finds it 0 does not look at the pages at all.
template <typename Group>
PENSTOCK_HD inline void settle_page(const Group& g, const cache_view& c, const pending_write& w) {
    page_word* const word = &c.words[w.word_index];
    const bool cleaned = g.is_leader() && clean(word);
    g.sync();  // marks made before the bit was cleared are seen below; who marks later soils the page himself
    bool none = true;
    for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size()) none = none && look_at_marks(&marks_of(c, w.frame)[i]) == 0;
    none = g.all(none);
    if (!g.is_leader()) return;
    if (cleaned && (none || !soil(word))) count_dirty(c, w.file_slot, ~std::uint64_t{0});
    let_go(c, w);
}

// Whole group. Step 3: page and marks to the staging area of a claimed slot. True if every byte is marked.
template <typename Group>
PENSTOCK_HD inline bool copy_marked(const Group& g, const cache_view& c, const pending_write& w, std::byte* staging) {
    auto* const marks = reinterpret_cast<std::uint64_t*>(staging + c.page_bytes());
    bool whole = true;
    for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size()) {
        const std::uint64_t taken = take(&marks_of(c, w.frame)[i]);
        marks[i] = taken;
        whole = whole && taken == ~std::uint64_t{0};
    }
    atomic_fence();  // with the fence in mark: the bytes of a mark that was taken are seen by every thread after the sync
    whole = g.all(whole);
    g.sync();
    g.copy_written(staging, c.frame_address(w.frame), c.page_bytes());
    system_fence();  // by every thread: its part is in host memory before the leader posts
    g.sync();
    return whole;
}

// Whole group; `w` was held by the leader and is known to all. 1: sent, finish_write has to follow. 0: there was nothing to send, and it
// is let go. Negative errno: no slot, and it is let go.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t begin_write(const Group& g, const cache_view& c, bool may_wait, pending_write& w) {
    bool none = true;
    for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size()) none = none && look_at_marks(&marks_of(c, w.frame)[i]) == 0;
    if (g.all(none)) {
        settle_page(g, c, w);
        return 0;
    }
    std::int64_t code = 0;
    if (g.is_leader()) {
        code = claim_slot(g, c, may_wait, w.at);
        if (code != 0) let_go(c, w);
    }
    code = static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(code)));
    if (code != 0) return code;
    w.at.ring = static_cast<std::uint32_t>(g.broadcast(w.at.ring));
    w.at.ticket = g.broadcast(w.at.ticket);
    w.keeps_marks = g.broadcast(g.is_leader() && has_copy(c, w.frame) ? 1 : 0) != 0;
    const ring_view& r = c.rings[w.at.ring];
    const bool whole = copy_marked(g, c, w, r.staging + r.staging_stride * slot_of(r, w.at.ticket));
    if (!g.is_leader()) return 1;
    ring_request request{};
    request.operation = op::write;
    request.bytes = static_cast<std::uint32_t>(c.page_bytes());
    request.file_slot = w.file_slot;
    // Of the word, since a group that needs a frame may never have opened this file. The pinned page keeps the slot in its life.
    request.generation = file_generation(glance_file(&c.file_words[w.file_slot]));
    request.offset = page_in_frame(c, w.frame) << c.page_shift;
    request.argument = whole ? 1 : 0;
    raise_stored(c, w.file_slot, request.offset + c.page_bytes());
    post(g, c, w.at, request);
    count(g, c, count_write_backs);
    return 1;
}

// Whole group. 0, or why the page could not be written; then it is dirty as before.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t finish_write(const Group& g, const cache_view& c, const pending_write& w) {
    const ring_view& r = c.rings[w.at.ring];
    const std::uint32_t slot = slot_of(r, w.at.ticket);
    std::int64_t waited = 0, code = 0;
    if (g.is_leader()) {
        waited = await(g, c, w.at);
        code = waited != 0 ? waited : r.replies[slot].result;
    }
    code = static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(code)));
    g.sync();  // the leader's acquire of the answer comes before what follows
    if (code != 0 || w.keeps_marks) {
        const auto* const marks = reinterpret_cast<const std::uint64_t*>(r.staging + r.staging_stride * slot + c.page_bytes());
        for (std::uint64_t i = g.rank(); i < mark_words(c); i += g.size()) put_back(&marks_of(c, w.frame)[i], marks[i]);
        g.sync();  // all are back before the slot or the lock can be another's
    }
    if (code == 0) {
        if (g.is_leader()) recycle_slot(c, w.at);
        settle_page(g, c, w);
        return 0;
    }
    if (!g.is_leader()) return code;
    count(g, c, count_write_back_errors);
    note_write_error(c, w.file_slot, code, page_in_frame(c, w.frame) << c.page_shift);
    if (waited == 0) {
        recycle_slot(c, w.at);
        let_go(c, w);
    } else {
        leave_lock(c, w.frame, w.at.ring, w.at.ticket);
        orphan_slot(c, w.at);
        unpin(&c.words[w.word_index]);
    }
    return code;
}

// Whole group; what the leader's hold_dirty found told to everybody. As hold_dirty.
template <typename Group>
PENSTOCK_HD inline std::int64_t hold_together(const Group& g, const cache_view& c, std::uint64_t word_index, pending_write& w) {
    std::int64_t outcome = 0;
    w = {};
    if (g.is_leader()) outcome = hold_dirty(c, word_index, w);
    outcome = static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(outcome)));
    if (outcome != 1) return outcome;
    w.word_index = word_index;
    const std::uint64_t where = g.broadcast(std::uint64_t{w.file_slot} << 32 | w.frame);
    w.frame = static_cast<std::uint32_t>(where);
    w.file_slot = static_cast<std::uint32_t>(where >> 32);
    g.sync();  // the leader's acquire of pin and lock comes before everybody's reads of the frame
    return 1;
}

// Whole group, which holds nothing; needs a frame, and the clock found dirty pages only, one of them in `frame`. 0: try again; a page may
// have been written back. -ENOBUFS: no page could be, for as long as a group looks for a frame; or what a wait ended with.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t clean_victim(const Group& g, const cache_view& c, std::uint32_t frame, patience& deadline) {
    const std::uint64_t word_index = g.broadcast(g.is_leader() ? owner_word_index(look_at_frame(c, frame)) : 0);
    pending_write w;
    std::int64_t code = hold_together(g, c, word_index, w);
    const bool locked = code == -EAGAIN;
    if (code == 1) {
        if (g.is_leader()) count(g, c, count_dirty_victims);
        code = begin_write(g, c, true, w);
        if (code == 1) code = finish_write(g, c, w);
        if (code >= 0) return 0;
    }
    if (code == 0) return 0;
    if (g.is_leader()) {
        // Passed over for a round, so that others are tried.
        if (!locked) touch(&c.words[word_index], 0);
        else g.pause(6);
        const std::int64_t late = deadline.check(g, c);
        code = late != 0 && late != -ETIME ? late : 0;
        // While others write pages back it is their speed that counts, not that of a group that looks for a frame.
        if (late == -ETIME && (!locked || g.now_ns() - deadline.start_ns() > c.request_wait_ns)) code = -ENOBUFS;
    }
    return static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(code)));
}

// Page words that follow each other in the arena, for pages that do. `index` is no_words where the file has none yet.
struct word_run {
    std::uint64_t index, pages;
};
inline constexpr std::uint64_t no_words = ~std::uint64_t{0};

// Leader only. The words of page `page` of the file and of what follows it.
PENSTOCK_HD PENSTOCK_NOINLINE inline word_run words_from(const cache_view& c, std::uint32_t file_slot, std::uint64_t page) {
    const file_record& record = c.file_records[file_slot];
    const std::uint64_t leaf_pages = std::uint64_t{1} << c.leaf_shift;
    if (page < record.page_count && record.two_level == 0) return {record.table + page, record.page_count - page};
    const bool grown = page >= record.page_count;
    const std::uint64_t number = grown ? page - record.page_count : page, growth = growth_of(c, file_slot);
    const std::uint64_t rest = leaf_pages - (number & (leaf_pages - 1));
    if (grown && (growth < growth_first || number >> c.leaf_shift >= c.growth_entries)) return {no_words, no_words};
    const std::uint64_t directory = grown ? growth - growth_first : record.table;
    const std::uint64_t entry = glance(&c.words[directory + (number >> c.leaf_shift)]);
    const std::uint64_t pages = grown || rest < record.page_count - page ? rest : record.page_count - page;
    return {entry == 0 ? no_words : entry - 1 + (number & (leaf_pages - 1)), pages};
}

// Several writes under way at a time; the whole group has equal copies.
class write_queue {
public:
    static constexpr std::uint32_t depth = 8;

    template <typename Group>
    PENSTOCK_HD void finish_oldest(const Group& g, const cache_view& c) {
        const std::int64_t code = finish_write(g, c, pending_[first_ % depth]);
        ++first_;
        if (code != 0 && error_ == 0) error_ = code;
    }
    template <typename Group>
    PENSTOCK_HD void finish_all(const Group& g, const cache_view& c) {
        while (first_ != end_) finish_oldest(g, c);
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void write(const Group& g, const cache_view& c, std::uint64_t word_index) {
        patience waiting(g, 2 * c.request_wait_ns);  // another group may wait for a slot and for the answer
        for (std::uint32_t round = 0;; ++round) {
            if (end_ - first_ == depth) finish_oldest(g, c);
            pending_write& w = pending_[end_ % depth];
            std::int64_t code = hold_together(g, c, word_index, w);
            if (code == 0) return;
            if (code == 1) code = begin_write(g, c, first_ == end_, w);
            if (code == 0) return;
            if (code == 1) {
                ++end_;
                return;
            }
            if (first_ != end_) {
                finish_all(g, c);
                continue;
            }
            if (code == -EAGAIN) {
                std::int64_t late = 0;
                if (g.is_leader()) late = waiting.check(g, c);
                late = static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(late)));
                code = late == -ETIME ? -ETIMEDOUT : late;
                g.pause(round);
            }
            if (code == 0) continue;
            if (error_ == 0) error_ = code;
            return;
        }
    }
    PENSTOCK_HD std::int64_t error() const { return error_; }

private:
    pending_write pending_[depth];
    std::uint32_t first_ = 0, end_ = 0;
    std::int64_t error_ = 0;
};

// Whole group. Writes back the dirty ones of the pages [first, end) of an open file, and waits for those that others are writing. 0, or
// the first error; all the others were tried all the same.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t flush_pages(const Group g, const cache_view& c, std::uint32_t file_slot, std::uint64_t first, std::uint64_t end) {
    write_queue queue;
    for (std::uint64_t page = first; page < end;) {
        word_run run{};
        if (g.is_leader()) run = words_from(c, file_slot, page);
        run = {g.broadcast(run.index), g.broadcast(run.pages)};
        if (run.pages > end - page) run.pages = end - page;
        for (std::uint64_t i = 0; run.index != no_words && i < run.pages; i += g.size()) {
            const std::uint64_t mine = i + g.rank();
            if (g.all(mine >= run.pages || !may_have_marks(glance(&c.words[run.index + mine])))) continue;
            for (std::uint64_t k = i; k < i + g.size() && k < run.pages; ++k) queue.write(g, c, run.index + k);
        }
        page += run.pages;
    }
    queue.finish_all(g, c);
    atomic_fence();  // pages that were seen clean: what their last write-back did, to the file's count too, comes before what follows
    g.sync();
    return queue.error();
}

}  // namespace penstock::engine
