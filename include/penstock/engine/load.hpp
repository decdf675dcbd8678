// Loads pages: claim, frame, request, copy, publish. This is the miss path; everything here is out
// of line.
//
// A load goes through these steps, and each has its way back:
//   1. try_claim the page word (absent -> loading, our pin)   lost: another group loads it
//   2. a frame from the clock                                 none: abandon. Only dirty pages left:
//                                                             abandon, write one back, again from 1
//   3. a ring slot                                            none: free the frame, abandon
//   4. post, await                                            error: orphan or recycle the slot,
//                                                             free the frame, abandon
//   5. copy staging, window, tier or a neighbour's frame -> own frame, clear the tail
//                                                             a window that was closed, or a page
//                                                             that left the neighbour: load_again
//   6. consume; name the page in the frame word; publish, and unpin unless the caller wants the
//      page pinned; recycle the slot
//
// Steps 3 and 4 fall away for a page that a linked cache holds (engine/neighbour.hpp) or that lies
// in a window, and for a page in the host tier. The group pins the latter there, and waits for its
// bytes if they are on their way. If the page could not be read ahead, the group gives everything
// back (load_again), and its next attempt posts a request of its own. Nor is a request posted for a
// page whose bytes the file does not have, or of which the caller stores all bytes (blank): it is
// filled with those bytes and zeros.
//
// Where nothing speaks against it, step 3 and the post come before step 2, so that the host reads
// while the group looks for a frame (post_first). That group waits neither for the slot nor for the
// frame: if it cannot have one of them at once, it goes on with step 2, without a slot.
//
// Several loads of one group may be in flight (begin_load ... publish_load), so that a read of many
// pages pays one round trip and not one per page. The frame's former page may be worth keeping: the
// group that took the frame copies that page to the tier first (engine/tier.hpp). Only the first
// load may wait for a frame or a slot. So a group that holds a frame or a slot never waits for
// another, and groups cannot wait for each other in a circle.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/neighbour.hpp"
#include "penstock/engine/victim.hpp"
#include "penstock/engine/page_table.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/engine/tier.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::engine {

// A load in flight. Equal in all threads of the group; what is marked L the leader alone knows.
struct pending_load {
    std::uint64_t word_index;  // L
    std::uint64_t page;
    std::uint32_t frame;
    std::uint32_t wanted_bytes;  // of the page, up to the end of the file
    enum class source : std::uint32_t {
        request,
        window,
        tier,
        tier_pending,
        blank,
        neighbour
    } from;
    const std::byte* bytes;    // where the bytes are or will be; if they come by request: the
                               // staging area of ring slot `at`
    ring_ticket at;            // L
    window_word window;        // L: the word that led to a window
    neighbour_page neighbour;  // L: where it was seen there
    tier_save save;            // the frame's last page; L but for `wanted` and `frame`
};

// Is there a copy of the page in a window or at a neighbour?
PENSTOCK_HD PENSTOCK_INLINE bool is_at_hand(const pending_load& load) {
    return load.from == pending_load::source::window ||
           load.from == pending_load::source::neighbour;
}

inline constexpr std::uint32_t max_pending_loads = 8;

// The bytes [begin, end) of a page that the caller is going to store, and where these bytes are.
// Equal in all threads of the group.
struct page_cover {
    std::uint32_t begin = 0, end = 0;
    const std::byte* bytes = nullptr;
};

// Leader only.
PENSTOCK_HD PENSTOCK_NOINLINE inline void give_back(const cache_view& c, const pending_load& load) {
    set_frame_word(c, load.frame, frame_free);
    abandon(&c.words[load.word_index]);
}

// Leader only, before the page is claimed. Looks for the page in the near neighbours. Where one of
// a lower rank is loading it, the look waits for that, once and not for long: so a file that many
// read in the same order crosses the bus once. A lower rank never waits for a higher one, so there
// is no circle; and a neighbour that stands still costs one such wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE neighbour_page look_before_load(const Group& g, const cache_view& c,
                                                              const file_handle& f,
                                                              std::uint64_t page, bool may_wait) {
    constexpr std::uint64_t longest_wait_ns = 100'000;
    neighbour_page found = look_at_neighbours(c, f, page);
    if (!may_wait || !found.is_loading) return found;
    const std::uint64_t begin_ns = g.now_ns();
    for (std::uint32_t round = 0;
         found.is_loading && g.now_ns() - begin_ns < longest_wait_ns && stop_code(c) == 0;
         ++round) {
        g.pause(round < 6 ? round : 6);
        found = look_at_neighbours(c, f, page);
    }
    count(g, c, count_neighbour_waits);
    return found;
}

// Leader only, with a claimed page and its frame. Is there a copy of the page that needs no
// request? Neighbours, windows and tier show a file as it was when it was opened.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool find_copy(const Group& g, const cache_view& c,
                                           const file_handle& f, std::uint64_t page,
                                           pending_load& load) {
    load.from = pending_load::source::neighbour;
    load.bytes = load.neighbour.frame;  // found before the claim, or null
    if (load.bytes != nullptr) return true;
    load.from = pending_load::source::window;
    load.bytes = find_in_window(c, f.slot, f.generation, page << c.page_shift, load.window);
    if (load.bytes != nullptr) return true;
    bool pending = false;
    load.bytes = pin_in_tier(g, c, load.word_index, pending);
    load.from = pending ? pending_load::source::tier_pending : pending_load::source::tier;
    if (load.bytes != nullptr) return true;
    if (!is_linked(c)) return false;
    load.neighbour = look_at_neighbours(c, f, page, by_bus, by_bus);
    load.from = pending_load::source::neighbour;
    load.bytes = load.neighbour.frame;
    return load.bytes != nullptr;
}

// Leader only, with a claimed page. Which bytes of the page does the file have? Bytes that were
// written and evicted since the caller looked count. The request asks for no more than the file
// has: bytes by which the file grew and which it never got are zeros. Returns true if no byte has
// to be read, since the file has none, or the caller stores all that it has.
PENSTOCK_HD PENSTOCK_INLINE bool find_wanted(const cache_view& c, const file_handle& f,
                                             const page_cover& cover, pending_load& load) {
    const std::uint64_t begin = load.page << c.page_shift;
    std::uint64_t size = f.size_bytes;
    if (c.writes != nullptr) {
        const std::uint64_t known = size_of(c, f.slot), stored = stored_bytes_of(c, f.slot);
        size = known < stored ? known : stored;
    }
    const std::uint64_t left = begin < size ? size - begin : 0;
    load.wanted_bytes = static_cast<std::uint32_t>(left < c.page_bytes() ? left : c.page_bytes());
    return c.writes != nullptr &&
           (load.wanted_bytes == 0 || (cover.begin == 0 && cover.end >= load.wanted_bytes));
}

// Leader only, with a claimed page. Asks the host for its bytes. Returns 0, or the code with which
// the group got no ring slot.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t post_load(const Group& g, const cache_view& c,
                                                   const file_handle& f, bool may_wait,
                                                   bool written, pending_load& load) {
    load.from = pending_load::source::request;
    if (const std::int64_t code = claim_slot(g, c, may_wait, load.at); code != 0) return code;
    const ring_view& r = c.rings[load.at.ring];
    load.bytes = r.staging + r.staging_stride * slot_of(r, load.at.ticket);
    const read_request request{f.slot, f.generation, load.wanted_bytes, load.page << c.page_shift,
                               written};
    post(g, c, load.at, request.packed());
    return 0;
}

// Leader only. Will the page come by request, and is there a clean frame for it? A hint:
// whatever it says, the page is right.
PENSTOCK_HD PENSTOCK_INLINE bool may_post_first(const cache_view& c, const file_handle& f,
                                                std::uint64_t word_index) {
    if (is_linked(c)) return false;
    const bool in_window = has_window(c, f.slot, f.generation);
    const bool in_tier =
        c.tier.words != nullptr && !is_absent(load_relaxed(&c.tier.words[word_index]));
    const bool dirty = c.writes != nullptr && (victim_writers(c) != 0 || writes_fail(c));
    return !in_window && !in_tier && !dirty;
}

// Leader only, with a claimed page. Posts the request before the group has a frame, so that the
// host reads while the group looks for one. It waits neither for a slot nor, with the slot, for a
// frame: groups with slots and groups with frames would wait for each other in a circle. Without a
// frame it gives the slot up, whose answer no group needs. Returns false if so, or if there was no
// slot; the group then holds the page alone.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool post_first(const Group& g, const cache_view& c,
                                            const file_handle& f, bool written,
                                            wait_deadline& deadline, pending_load& load,
                                            keep_in_tier& keep) {
    if (post_load(g, c, f, false, written, load) != 0) return false;
    if (take_offered(c, deadline, load.frame) ||
        take_frame(g, c, load.word_index, false, deadline, load.frame, keep) == 0) {
        if (load.save.wanted) find_frame(g, c, load.save);
        return true;
    }
    orphan_slot(c, load.at);
    return false;
}

// Leader only. Returns 1: started, `load` is filled in. 0: the page is not absent, another group
// has it. must_write_back: load.frame is the frame to write back. Otherwise a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t start_load(const Group& g, const cache_view& c,
                                                      const file_handle& f, std::uint64_t page,
                                                      bool may_wait, wait_deadline& deadline,
                                                      pending_load& load, page_cover cover) {
    const std::int64_t stop = stop_code(c);  // on its way while the page word is looked at
    load.page = page;
    load.word_index = find_word(c, f, page);
    if (load.word_index == no_word) {
        if (stop != 0) return stop;
        if (!may_wait) return -EAGAIN;
        if (const std::int64_t code = ask_for_leaf(g, c, f, page); code != 0) return code;
        load.word_index = find_word(c, f, page);
    }
    page_word* const word = &c.words[load.word_index];
    const page_word seen = load_relaxed(word);
    const bool posts_first = may_wait && may_post_first(c, f, load.word_index);
    if (stop != 0) return stop;
    if (!is_absent(seen)) return 0;
    if (is_linked(c)) load.neighbour = look_before_load(g, c, f, page, may_wait);
    if (!try_claim(word, seen)) {
        leave_neighbours(c, load.neighbour);
        return 0;
    }
    // From here on no other group can load the page.
    keep_in_tier keep{c, load.save};
    if (posts_first && !find_wanted(c, f, cover, load) &&
        post_first(g, c, f, is_granted(c, f.slot), deadline, load, keep))
        return 1;
    if (const std::int64_t code =
            take_frame(g, c, load.word_index, may_wait, deadline, load.frame, keep);
        code != 0) {
        abandon(word);
        leave_neighbours(c, load.neighbour);
        return code;
    }
    if (load.save.wanted) find_frame(g, c, load.save);
    if (find_wanted(c, f, cover, load)) {
        load.from = pending_load::source::blank;
        load.bytes = nullptr;
        leave_neighbours(c, load.neighbour);
        return 1;
    }
    const bool written = is_granted(c, f.slot);
    if (written) leave_neighbours(c, load.neighbour);
    else if (find_copy(g, c, f, page, load)) return 1;
    if (const std::int64_t code = post_load(g, c, f, may_wait, written, load); code != 0) {
        cancel_save(c, load.save);
        give_back(c, load);
        return code;
    }
    return 1;
}

// Leader only. Waits for the bytes of a started load. Returns 0, or a negative errno; then it has
// given up the ring slot or the tier's pin.
template <typename Group>
PENSTOCK_HD inline std::int64_t await_load(const Group& g, const cache_view& c,
                                           const pending_load& load) {
    if (load.from == pending_load::source::tier_pending)
        return await_fill(g, c, load.word_index, load.bytes);
    if (load.from != pending_load::source::request) return 0;
    const std::int64_t waited = await_whole(g, c, load.at);
    if (waited > 0) return 0;  // all that the request asked for, which is wanted_bytes
    if (waited < 0) {
        orphan_slot(c, load.at);
        return waited;
    }
    const ring_view& r = c.rings[load.at.ring];
    const std::int64_t result = r.replies[slot_of(r, load.at.ticket)].result;
    if (result == static_cast<std::int64_t>(load.wanted_bytes)) return 0;
    recycle_slot(c, load.at);
    // Fewer bytes than the file had when it was opened: it shrank. Old and new contents must not
    // mix silently.
    return result < 0 ? result : -ESTALE;
}

// Leader only, after the page is published. Gives back the slot or pin that the load held, and
// counts the load.
template <typename Group>
PENSTOCK_HD inline void settle_load(const Group& g, const cache_view& c, const pending_load& load) {
    switch (load.from) {
        case pending_load::source::request: recycle_published(c, load.at); break;
        case pending_load::source::window: count(g, c, count_window_loads); break;
        case pending_load::source::neighbour: count(g, c, count_neighbour_loads); break;
        case pending_load::source::blank: return;
        default: unpin(&c.tier.words[load.word_index]); count(g, c, count_tier_loads);
    }
    count(g, c, count_misses);
    count(g, c, count_bytes_loaded, load.wanted_bytes);
}

// Whole group. Fills a page that is not read from the file: clears it, except for the bytes that
// the caller stores in it. It does so before the page is published: if the file has bytes of the
// page, no reader may see the page without them.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void fill_blank(const Group& g, const cache_view& c,
                                              const pending_load& load, const page_cover& cover) {
    std::byte* const to = c.frame_address(load.frame);
    begin_overwrite_in(c);
    g.zero(to, cover.begin);
    if (cover.end > cover.begin)
        g.copy_store(to + cover.begin, cover.bytes, cover.end - cover.begin);
    g.zero(to + cover.end, c.page_bytes() - cover.end);
    g.sync();
}

// Whole group, after a copy from a neighbour. Do the bytes count?
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool is_neighbour_still(const Group& g, const cache_view& c,
                                                      const file_handle& f,
                                                      const neighbour_page& page) {
    bool good = false;
    if (g.is_leader()) {
        good = is_as_seen(c, f, page);
        leave_neighbours(c, page);
    }
    return g.broadcast(good);
}

// Whole group, after a copy from a window of the file. The group is loading a page of that file, so
// the slot still belongs to it. Is the window the one of `word`, which the leader used? If so, it
// was open while the bytes were read.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool is_window_still(const Group& g, const cache_view& c,
                                                   const file_handle& f, window_word word) {
    return g.broadcast(g.is_leader() && is_same_window(load_relaxed(&c.windows[f.slot]), word));
}

// Whole group, with a load that the leader's start_load filled in: brings the bytes into its frame.
// Returns 0 or a negative errno; on error the page is absent again and the group holds nothing.
// load_again: the page could not be read ahead; try again.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t fetch_load_here(const Group& g, const cache_view& c,
                                                         const file_handle& f,
                                                         const pending_load& load,
                                                         const page_cover& cover = {}) {
    std::byte* const to = c.frame_address(load.frame);
    if (load.save.wanted) finish_save(g, c, load.save, to);  // while the bytes are on their way
    std::int64_t code = 0;
    if (g.is_leader()) {
        code = await_load(g, c, load);
        if (code != 0) give_back(c, load);
    }
    code = share_code(g, code);
    g.sync();  // the leader's eviction of the frame and its acquire of the reply come before
               // every thread's copying
    if (code != 0) return code;
    if (load.from == pending_load::source::blank) {
        fill_blank(g, c, load, cover);
        return 0;
    }
    begin_overwrite_in(c);  // by every thread: a fence orders only the stores of the thread that
                            // makes it
    const std::uint64_t whole = (std::uint64_t{load.wanted_bytes} + 15) & ~std::uint64_t{15};
    g.copy_in(to, load.bytes, whole);
    const bool is_copy =
        load.from == pending_load::source::window || load.from == pending_load::source::neighbour;
    if (is_copy) begin_recheck();  // the bytes were read before their source is looked at again
    g.sync();  // every thread's part of the page is written before it is read or published
    if (is_copy && !(load.from == pending_load::source::window
                         ? is_window_still(g, c, f, load.window)
                         : is_neighbour_still(g, c, f, load.neighbour))) {
        if (g.is_leader()) give_back(c, load);
        return load_again;
    }
    if (load.wanted_bytes == c.page_bytes()) return 0;
    // The last 16 bytes may carry bytes from past the end of the file.
    g.zero(to + load.wanted_bytes, c.page_bytes() - load.wanted_bytes);
    g.sync();
    return 0;
}

// The same as a function: a load of one page has it in place.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t fetch_load(const Group& g, const cache_view& c,
                                                      const file_handle& f,
                                                      const pending_load& load,
                                                      const page_cover& cover = {}) {
    return fetch_load_here(g, c, f, load, cover);
}

// Whole group, after fetch_load. The frame word names the page before the page is valid: publishing
// may drop the load's pin, and from then on the frame may change hands. So a later store could
// overwrite the word of the next owner. `for_all`: readers on other devices see the bytes already.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void publish_load(const Group& g, const cache_view& c,
                                              const file_handle& f, const pending_load& load,
                                              bool keep_pin, bool for_all = false) {
    if (!g.is_leader()) return;
    const frame_word kind = load.from == pending_load::source::neighbour ? replica_bit : 0;
    set_frame_word(c, load.frame, make_owned(f.slot, load.word_index) | kind);
    if (is_linked(c) && !for_all) begin_publish_for_all();
    if (keep_pin) publish(&c.words[load.word_index], load.frame);
    else publish_and_unpin(&c.words[load.word_index], load.frame);
    settle_load(g, c, load);
}

// Whole group. The leader calls start_load; every thread then gets its result and, if that is 1,
// `load`.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t begin_load_here(const Group& g, const cache_view& c,
                                                         const file_handle& f, std::uint64_t page,
                                                         bool may_wait, wait_deadline& deadline,
                                                         pending_load& load,
                                                         page_cover cover = {}) {
    // What every thread has to know, in as few broadcasts as it goes: is_started with the source,
    // or the code with which nothing was started.
    constexpr std::int32_t is_started = 256, is_saving = 128, source_mask = 127;
    std::int32_t told = 0;
    std::uint64_t place = 0, bytes = 0;
    std::uint32_t saved_frame = 0;
    load.word_index = 0;
    if (g.is_leader()) {
        pending_load started{};
        const std::int64_t code = start_load(g, c, f, page, may_wait, deadline, started, cover);
        told = code != 1 ? static_cast<std::int32_t>(code)
                         : is_started | (started.save.wanted ? is_saving : 0) |
                               static_cast<std::int32_t>(started.from);
        place = std::uint64_t{started.frame} << 32 | started.wanted_bytes;
        bytes = reinterpret_cast<std::uintptr_t>(started.bytes);
        saved_frame = started.save.frame;
        load.word_index = started.word_index;
        load.at = started.at;
        load.window = started.window;
        load.neighbour = started.neighbour;
        load.save = started.save;
    }
    told = g.broadcast(told);
    if (told == must_write_back)
        return clean_victim(g, c, static_cast<std::uint32_t>(g.broadcast(place) >> 32), deadline);
    if (told < is_started) return told;
    place = g.broadcast(place);
    load.page = page;
    load.frame = static_cast<std::uint32_t>(place >> 32);
    load.wanted_bytes = static_cast<std::uint32_t>(place);
    load.from = static_cast<pending_load::source>(told & source_mask);
    load.bytes = reinterpret_cast<const std::byte*>(g.broadcast(bytes));
    load.save.wanted = (told & is_saving) != 0;
    if (load.save.wanted) load.save.frame = g.broadcast(saved_frame);
    return 1;
}

// The same as a function.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t begin_load(const Group& g, const cache_view& c,
                                                      const file_handle& f, std::uint64_t page,
                                                      bool may_wait, wait_deadline& deadline,
                                                      pending_load& load, page_cover cover = {}) {
    return begin_load_here(g, c, f, page, may_wait, deadline, load, cover);
}

// Whole group. Loads one page if it is absent; `consume(frame_address)` is called by the whole
// group before another group can have the page. Returns 1: loaded and consumed; 0: the page is not
// absent, or cannot be loaded now; or a negative errno. There is no array, and not all threads keep
// state in memory: a miss of one page is the common case, and state on the stacks of 32 threads
// costs more than the page.
template <typename Group, typename Consume>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t load_one(const Group& g, const cache_view& c,
                                                  const file_handle& f, std::uint64_t page,
                                                  wait_deadline& deadline, const Consume& consume) {
    pending_load load;
    std::int64_t code = begin_load_here(g, c, f, page, true, deadline, load);
    if (code != 1) return code;
    code = fetch_load_here(g, c, f, load);
    if (code != 0) return code == load_again ? 0 : code;
    consume(static_cast<const std::byte*>(c.frame_address(load.frame)));
    g.sync();  // every thread has consumed before the leader lets the frame go
    publish_load(g, c, f, load, false);
    return 1;
}

// Whole group, with `count` loads of one file that start_load filled in. Copies the pages that are
// at hand into their frames, one after the other, without a fence between them. Returns a bit for
// each whose bytes count, because its source is as it was.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t copy_at_hand(const Group& g, const cache_view& c,
                                                       const file_handle& f, pending_load* loads,
                                                       std::uint32_t count) {
    bool any = false;
    PENSTOCK_ROLLED
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!is_at_hand(loads[i])) continue;
        any = true;
        if (loads[i].save.wanted) finish_save(g, c, loads[i].save, c.frame_address(loads[i].frame));
    }
    if (!any) return 0;
    g.sync();  // the leader's eviction of the frames comes before every thread's copying
    begin_overwrites_in(c);  // by every thread: a fence orders only the stores of the thread that
                             // makes it
    PENSTOCK_ROLLED
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!is_at_hand(loads[i])) continue;
        std::byte* const to = c.frame_address(loads[i].frame);
        const std::uint64_t bytes = loads[i].wanted_bytes;
        g.copy_in(to, loads[i].bytes, (bytes + 15) & ~std::uint64_t{15});
        if (bytes == c.page_bytes()) continue;
        g.sync();
        g.zero(to + bytes, c.page_bytes() - bytes);
    }
    begin_recheck();  // the bytes were read before their sources are looked at again
    g.sync();  // every thread's part of the pages is written before they are read or published
    std::uint32_t good = 0;
    if (g.is_leader()) {
        const window_word now = c.windows != nullptr ? load_relaxed(&c.windows[f.slot]) : 0;
        PENSTOCK_ROLLED
        for (std::uint32_t i = 0; i < count; ++i) {
            if (!is_at_hand(loads[i])) continue;
            if (loads[i].from == pending_load::source::window
                    ? is_same_window(now, loads[i].window)
                    : is_as_seen(c, f, loads[i].neighbour))
                good |= 1u << i;
            leave_neighbours(c, loads[i].neighbour);
        }
        if (is_linked(c)) begin_publish_for_all();
    }
    return g.broadcast(good);
}

// Whole group. Loads the absent pages among `pages` different pages, at most max_pending_loads, all
// in flight together. page_of(i), called by the whole group, names the i-th. The whole group calls
// `consume(page, frame_address)` for each loaded page before another group can have it. Returns how
// many pages it loaded, or the negative errno of page_of(0). Returns 0 if page_of(0) is not absent
// or cannot be loaded now; the caller then pins it. Without `must`, no page is waited for, and the
// first is as good as the others: those that need no wait for a frame are loaded.
template <typename Group, typename PageOf, typename Consume>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t load_listed(const Group& g, const cache_view& c,
                                                       const file_handle& f, std::uint64_t pages,
                                                       const PageOf& page_of,
                                                       wait_deadline& deadline,
                                                       const Consume& consume, bool must = true) {
    pending_load loads[max_pending_loads];
    std::uint32_t started = 0;
    std::int64_t first_code = 0;
    for (std::uint64_t i = 0; i < pages && started < max_pending_loads; ++i) {
        const std::uint64_t page = page_of(i);
        const std::int64_t code =
            begin_load(g, c, f, page, must && i == 0, deadline, loads[started]);
        if (code == 1) {
            ++started;
        } else if (must && i == 0) {
            first_code = code;
            break;  // without its first page the list is of no use to the caller
        } else if (code < 0) {
            break;  // no spare frame or slot just now
        }
    }
    const std::uint32_t copied = copy_at_hand(g, c, f, loads, started);
    std::int64_t loaded = 0;
    bool first_lost = false;
    for (std::uint32_t i = 0; i < started; ++i) {
        std::int64_t code = 0;
        if (!is_at_hand(loads[i])) {
            code = fetch_load(g, c, f, loads[i]);
        } else if ((copied >> i & 1) == 0) {
            code = load_again;
            if (g.is_leader()) give_back(c, loads[i]);
        }
        if (code == 0) {
            consume(loads[i].page, static_cast<const std::byte*>(c.frame_address(loads[i].frame)));
            g.sync();  // every thread has consumed before the leader lets the frame go
            publish_load(g, c, f, loads[i], false, is_at_hand(loads[i]));
            ++loaded;
        } else if (i == 0 && code != load_again) {
            first_code = code;
        } else if (i == 0) {
            first_lost = true;
        }
    }
    if (first_lost) return 0;
    return first_code != 0 ? first_code : loaded;
}

// The same for the pages [first, first + pages).
template <typename Group, typename Consume>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t load_pages(const Group& g, const cache_view& c,
                                                    const file_handle& f, std::uint64_t first,
                                                    std::uint64_t pages, wait_deadline& deadline,
                                                    const Consume& consume) {
    return load_listed(
        g, c, f, pages, [first](std::uint64_t i) { return first + i; }, deadline, consume);
}

}  // namespace penstock::engine
