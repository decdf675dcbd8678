// Pristine copies: they show which bytes of a page the holders of writable mappings changed, since
// the engine cannot see their stores.
//
// The first writable mapping of a page takes a frame for a copy of the page as it is then, its
// pristine copy. Further mappings share the copy, and the last mapping gives the frame back. A
// group that unmaps marks every byte that differs from the copy. So a byte that one holder changed
// may be marked by another holder first, or twice, but no byte is marked that no group changed
// since the copy was made. Mappings that write once need no copy: they compare with zeros.
//
// A byte may be changed, written back, and changed back to its old value: then it equals the copy,
// and the file has another value. So while a page has a copy, a write-back leaves its marks where
// they were (finish_write): every byte that was marked since the copy was made is written once more
// after the copy is gone. This requires that no write-back is under way when the copy is made, so a
// group makes it under the frame's lock.
//
// Pristine word, one per frame:
//   step              from              to                   order     by
//   make_pristine     none              copy or zeros, 1     release   the first holder, with a pin
//                                                                      on the page and the lock of
//                                                                      its frame
//   join_pristine     copy, n holders   copy, n + 1          acquire   a further holder, which
//                                                                      finds the copy there
//   leave_pristine    copy, n holders   copy, n - 1; or none acq_rel   a holder, after its
//                                                                      comparison; the last holder
//                                                                      then frees the frame of the
//                                                                      copy
//   bits 63..32 frame of the copy + 1, or 0: zeros; 31..0 holders. none: 0.
//
// Invariants: (1) a page with holders is pinned by each. (2) A copy does not change while it has
//                 holders.
//
// (Twins and diffs: Keleher et al., "TreadMarks", USENIX 1994; GPUfs designed them for its pages
// and left them out.)
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/pin.hpp"
#include "penstock/group/changed_bytes.hpp"

namespace penstock::engine {

constexpr PENSTOCK_HD pristine_word pristine_of(std::uint32_t copy_frame) {
    return (pristine_word{copy_frame} + 1) << 32 | 1;
}
inline constexpr pristine_word pristine_zeros = 1;
constexpr PENSTOCK_HD std::uint32_t copy_frame_of(pristine_word w) {
    return static_cast<std::uint32_t>(w >> 32) - 1;
}
constexpr PENSTOCK_HD std::uint32_t holders_of(pristine_word w) {
    return static_cast<std::uint32_t>(w);
}

// Leader only, with a pin on the page. Shares the copy or the zeros that are there. Returns 0:
// shared; 1: there is nothing yet; -EAGAIN: the word has just changed; -EBUSY: other holders
// compare with zeros (write once) and this one needs a copy, or the other way round.
PENSTOCK_HD inline std::int64_t share_pristine(pristine_word* word, bool once) {
    const pristine_word seen = load_pristine_relaxed(word);
    if (seen == pristine_none) return 1;
    if (is_copy(seen) == once) return -EBUSY;
    return join_pristine(word, seen) ? 0 : -EAGAIN;
}

// Leader only, a holder. The last holder gives the frame of the copy back.
PENSTOCK_HD inline void leave_pristine(const cache_view& c, pristine_word* word) {
    for (;;) {
        const pristine_word seen = load_pristine_relaxed(word);
        PENSTOCK_ASSERT(holders_of(seen) > 0);
        const bool last = holders_of(seen) == 1;
        if (!leave_pristine_from(word, seen, last ? pristine_none : seen - 1)) continue;
        if (last && is_copy(seen)) set_frame_word(c, copy_frame_of(seen), frame_free);
        return;
    }
}

// Leader only.
PENSTOCK_HD inline void give_back_copy(const cache_view& c, std::uint32_t frame) {
    if (frame != no_frame) set_frame_word(c, frame, frame_free);
}

// Whole group, with no more than a pin on one page. Takes a frame for a copy from a clean page, or
// from a dirty page that it writes back first. Returns 0 or the error; without `may_wait` it is
// -ENOBUFS if every page is pinned now.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t take_copy_frame(const Group& g, const cache_view& c,
                                                           std::uint64_t spread, bool may_wait,
                                                           wait_deadline& deadline,
                                                           std::uint32_t& frame) {
    for (std::uint64_t round = 0;; ++round) {
        std::int64_t code = 0;
        keep_nothing nothing;
        if (g.is_leader()) {
            sweep_notes notes;
            if (may_wait) code = take_frame(g, c, spread, true, deadline, frame, nothing);
            else if (!take_fresh(c, mix64(spread), frame) &&
                     !sweep_clock(
                         g, c, c, mix64(spread) + round,
                         2 * std::uint64_t{c.frame_count} < 1024 ? 2 * c.frame_count : 1024, frame,
                         notes, nothing)) {
                code = notes.dirty_pages != 0 ? must_write_back : -ENOBUFS;
                frame = notes.dirty_frame;
            }
            if (code == 0) set_frame_word(c, frame, frame_copy);
        }
        code = share_code(g, code);
        frame = g.broadcast(frame);
        if (code == 0) return 0;
        if (code == must_write_back) code = clean_victim(g, c, frame, deadline);
        if (code == 0) continue;
        frame = no_frame;
        return code;
    }
}

// Whole group, with the lock of the page's frame. Makes the copy.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void copy_page(const Group& g, const cache_view& c, std::uint32_t to,
                                             std::uint32_t from) {
    g.sync();  // the leader's eviction of the frame comes before every thread's stores to it
    // By every thread: readers of its last page, without a pin, see that it is gone before they see
    // these bytes.
    begin_overwrite(is_linked(c));
    g.copy_frame(c.frame_address(to), c.frame_address(from), c.page_bytes());
    g.sync();  // every thread's part is there before any group compares with it
}

// A result of hold_pristine: there is no copy yet, and no frame for it.
inline constexpr std::int64_t needs_copy_frame = 2;

// Leader only, with a pin on the page. One attempt to share the copy, or to get the frame's lock so
// as to make the copy in the frame `spare`. Returns 0: shared; 1: locked; or -EAGAIN,
// needs_copy_frame, -EBUSY.
PENSTOCK_HD inline std::int64_t begin_pristine(const cache_view& c, const pinned_page& page,
                                               bool once, std::uint32_t spare) {
    pristine_word* const word = &c.pristine[page.frame];
    const std::int64_t code = share_pristine(word, once);
    if (code != 1) return code;
    if (!once && spare == no_frame) return needs_copy_frame;
    if (!try_lock_frame(c, page.frame)) return -EAGAIN;
    if (load_pristine_relaxed(word) == pristine_none) return 1;
    unlock_frame(c, page.frame);  // another group made it before this group had the lock
    return -EAGAIN;
}

// Whole group, with a pin on the page and maybe a spare frame. From here until leave_pristine,
// changes in the page can be found. Returns 0: the spare is in use, or the caller gives it back;
// needs_copy_frame: a spare is needed; or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t hold_pristine(const Group& g, const cache_view& c,
                                                         const pinned_page& page, bool once,
                                                         std::uint32_t& spare) {
    wait_deadline waiting(g, 2 * c.request_wait_ns);  // another group may wait for a ring slot and
                                                      // for the answer to a write-back
    for (std::uint32_t round = 0;; ++round) {
        std::int64_t code = 0;
        if (g.is_leader()) {
            code = begin_pristine(c, page, once, spare);
            const std::int64_t late = code == -EAGAIN && round % 16 == 15 ? waiting.check(g, c) : 0;
            if (late != 0) code = late == -ETIME ? -ETIMEDOUT : late;
        }
        code = share_code(g, code);
        if (code == -EAGAIN) {
            g.pause(round);
            continue;
        }
        if (code != 1) return code;
        if (!once) copy_page(g, c, spare, page.frame);
        if (g.is_leader()) {
            make_pristine(&c.pristine[page.frame], once ? pristine_zeros : pristine_of(spare));
            unlock_frame(c, page.frame);
        }
        spare = no_frame;
        return 0;
    }
}

// Whole group, a holder. Marks the bytes of [begin, end) that differ from the copy, and with
// `marks_end` the last byte in any case. Returns true if it marked any; then the page has to be
// marked dirty. `last`: the end of the last such byte that this thread found, or 0.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool mark_changes(const Group& g, const cache_view& c,
                                                std::uint32_t frame, std::uint32_t begin,
                                                std::uint32_t end, bool marks_end,
                                                std::uint32_t& last) {
    last = 0;
    // The copy stays as long as it has a holder.
    const pristine_word held = g.broadcast(load_pristine_relaxed(&c.pristine[frame]));
    const std::byte* const before = is_copy(held) ? c.frame_address(copy_frame_of(held)) : nullptr;
    const std::byte* const now = c.frame_address(frame);
    const std::uint32_t unit =
        c.page_bytes() < 64 ? static_cast<std::uint32_t>(c.page_bytes()) : 64;
    atomic_fence();
    g.sync();  // every thread's bytes come before any thread's marks
    bool same = true;
    for (std::uint32_t i = begin / 64 + g.rank(); i <= (end - 1) / 64; i += g.size()) {
        std::uint64_t changed =
            changed_bytes(now + i * 64, before == nullptr ? nullptr : before + i * 64, unit) &
            marks_within(i, begin, end);
        if (marks_end) changed |= marks_within(i, end - 1, end);
        put_back(&marks_of(c, frame)[i], changed);
        for (std::uint32_t k = 64; changed != 0 && k > 0; --k) {
            if ((changed >> (k - 1) & 1) == 0) continue;
            last = i * 64 + k;
            break;
        }
        same = same && changed == 0;
    }
    same = g.all(same);
    g.sync();  // every thread's marks come before the leader marks the page dirty
    return !same;
}

}  // namespace penstock::engine
