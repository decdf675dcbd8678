// Writable mappings: groups map a page, change it through a pointer, mark the changed bytes, and
// unmap.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/pristine.hpp"
#include "penstock/engine/write.hpp"

namespace penstock::engine {

// Whole group. Pins the page if it is in the cache.
template <typename Group>
PENSTOCK_HD inline bool pin_if_there(const Group& g, const cache_view& c, const file_handle& f,
                                     std::uint64_t page_number, pinned_page& page) {
    page_word seen = 0;
    std::uint64_t word_index = no_word;
    if (g.is_leader()) {
        word_index = find_word(c, f, page_number);
        if (word_index != no_word && !try_pin(&c.words[word_index], seen)) word_index = no_word;
    }
    page = {g.broadcast(word_index), frame_of(g.broadcast(seen)), false};
    return page.word_index != no_word;
}

// Whole group. Pins a page so that its bytes can be changed. Returns 0 or a negative errno. A group
// that holds the page may write other pages back to get a frame for the copy. But while it waits
// for the pins of other groups to go, it holds nothing: groups that each held a page would wait for
// each other.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t map_to_change(const Group g, const cache_view& c,
                                                         std::uint32_t slot,
                                                         std::uint64_t page_number, bool once,
                                                         pinned_page& page) {
    const file_handle f = handle_of(c, slot);
    wait_deadline for_page(g, c.frame_wait_ns), for_copy(g, c.frame_wait_ns);
    for_page.dirties(slot);
    for_copy.dirties(slot);
    std::uint32_t spare = no_frame;
    std::int64_t code = 0;
    if (once && g.is_leader()) note_guess(c, slot);
    for (bool pinned = false;;) {
        if (!pinned && spare == no_frame) {
            code = pin_page(g, c, f, page_number, for_page, page);
            if (code != 0) return code;
        } else if (!pinned && !pin_if_there(g, c, f, page_number, page)) {
            if (g.is_leader()) give_back_copy(c, spare);
            spare = no_frame;
            code = 0;
            if (g.is_leader()) code = for_copy.check(g, c);
            code = share_code(g, code);
            if (code == 0) continue;
            return code == -ETIME ? -ENOBUFS : code;
        }
        pinned = true;
        code = hold_pristine(g, c, page, once, spare);
        if (code == 0) break;
        if (code == needs_copy_frame)
            code = take_copy_frame(g, c, page.word_index + 1, false, for_copy, spare);
        if (code == 0) continue;
        pinned = false;
        if (g.is_leader()) unpin(&c.words[page.word_index]);
        if (code == -ENOBUFS)
            code = take_copy_frame(g, c, page.word_index + 1, true, for_copy, spare);
        if (code != 0) break;
    }
    if (!g.is_leader()) return code;
    give_back_copy(c, spare);
    if (code != 0) return code;
    name_page(c, page.frame, page_number);  // before anything in it can be marked by comparison
    count_mappings(c, slot, 1);
    return 0;
}

// The part of a mapped page that its holder gives back or writes back: bytes [begin, end). Either
// the file grows to the end of the part, so that the last byte counts as written if the file ended
// before it; or it grows only as far as bytes changed.
struct changed_part {
    std::uint32_t begin, end;
    bool grows_to_end;
};

// Whole group, with a mapped page. From now on the changed bytes of the part count as written.
// Returns 0, or the code that ended the wait for a cut: then the cut may take them.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t write_changes(const Group& g, const cache_view& c,
                                                         const pinned_page& page,
                                                         const changed_part& part) {
    g.sync();  // every thread's changes are made
    const std::uint32_t slot = owner_file_slot(look_at_frame(c, page.frame));
    const std::uint64_t page_begin = page_in_frame(c, page.frame) << c.page_shift;
    std::uint32_t last = 0;
    // After a wait that failed the changes count beside the cut, and the caller is told.
    std::int64_t code = 0;
    if (g.is_leader()) code = begin_change(g, c, slot);
    code = share_code(g, code);
    g.sync();  // the leader is in before any thread marks
    const bool grows = part.grows_to_end && size_of(c, slot) < page_begin + part.end;
    const bool any = mark_changes(g, c, page.frame, part.begin, part.end, grows, last);
    if (last != 0) grow_to(c, slot, page_begin + last);
    g.sync();  // each thread's part of the size comes before the leader goes out
    if (!g.is_leader()) return code;
    if (any) mark_page_dirty(c, slot, &c.words[page.word_index]);
    if (code == 0) go_out(c, slot);
    return code;
}

// Leader only, with a pin on a page of the file. Gives a mapping back. If the last close came
// before, returns a descriptor with a reference, which the caller has to close so that the rest is
// written back. Otherwise returns -1.
PENSTOCK_HD inline int end_mapping(const cache_view& c, std::uint32_t slot) {
    drop_mapping(c, slot);
    const file_word seen = look(&c.file_words[slot]);
    if (!is_closed(seen) ||
        !try_reopen(&c.file_words[slot], file_generation(seen), &c.openings[slot]))
        return -1;
    return make_descriptor(slot, file_generation(seen), may_read);
}

// Whole group. Ends map_to_change. Returns 0; the code that ended the wait for a cut; or after the
// last close of the file the error of its write-back.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t unmap_changed(const Group g, const cache_view& c,
                                                         const pinned_page page,
                                                         const changed_part part) {
    const std::int64_t code = write_changes(g, c, page, part);
    g.sync();  // every thread is done with the page before the leader lets it go
    int fd = -1;
    if (g.is_leader()) {
        leave_pristine(c, &c.pristine[page.frame]);
        fd = end_mapping(c, owner_file_slot(look_at_frame(c, page.frame)));
        unpin(&c.words[page.word_index]);
    }
    fd = static_cast<int>(static_cast<std::int64_t>(
        g.broadcast(static_cast<std::uint64_t>(static_cast<std::int64_t>(fd)))));
    const std::int64_t closed = fd < 0 ? 0 : by_address(&close_written<Group>)(g, c, fd);
    return code != 0 ? code : closed;
}

// Whole group. Writes the bytes changed so far to the file; the page stays mapped. Returns 0 or the
// error.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t flush_changed(const Group g, const cache_view& c,
                                                         const pinned_page page,
                                                         const changed_part part) {
    const std::int64_t code = write_changes(g, c, page, part);
    g.sync();  // the leader has marked the page dirty before any thread looks whether it is dirty
    const std::uint32_t slot =
        static_cast<std::uint32_t>(g.broadcast(owner_file_slot(look_at_frame(c, page.frame))));
    const std::uint64_t number = g.broadcast(page_in_frame(c, page.frame));
    const std::int64_t flushed = flush_pages(g, c, slot, number, number + 1);
    return code != 0 ? code : flushed;
}

}  // namespace penstock::engine
