// Writes: store bytes in cached pages and mark them, so that they go to the file later.
//
// A write pins each page it touches, stores its bytes, marks them and marks the page dirty
// (engine/dirty.hpp), raises the file's size and unpins. It waits for a cut of the file
// (engine/cut.hpp), and for a page that has to be read first: a page of which it stores only a part
// and the file has bytes. Whole pages, and
// pages past the end of the file, are never read: their bytes are stored before another group can
// see the page.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/close_share.hpp"
#include "penstock/engine/cut.hpp"
#include "penstock/engine/flush.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/write_behind.hpp"

namespace penstock::engine {

// Whole group. Writes the part that lies in one page. Returns 0 or a negative errno; on error no
// byte was stored. `turned_dirty`, set in the leader only: the page was clean before.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t write_part(const Group& g, const cache_view& c,
                                                      const file_handle& f, const page_part& part,
                                                      const std::byte* from, bool& turned_dirty) {
    wait_deadline deadline(g, c.frame_wait_ns);
    deadline.dirties(f.slot);
    const std::uint32_t begin = part.in_page, end = part.in_page + part.bytes;
    pinned_page page{};
    if (const std::int64_t code = pin_page(g, c, f, part.page, deadline, page, {begin, end, from});
        code != 0)
        return code;
    if (!page.stored) g.copy_store(c.frame_address(page.frame) + begin, from, part.bytes);
    mark(g, c, page.frame, begin, end);
    if (!g.is_leader()) return 0;
    page_word* const word = &c.words[page.word_index];
    name_page(c, page.frame, part.page);
    turned_dirty = mark_page_dirty(c, f.slot, word);
    grow_to(c, f.slot, (part.page << c.page_shift) + end);
    unpin(word);
    return 0;
}

// Whole group, in by the file's gate. Writes `bytes` bytes, more than 0, to `offset`. Returns the
// count, or a negative errno if no byte was stored.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t write_within(const Group& g, const cache_view& c,
                                                        std::uint32_t slot, const std::byte* from,
                                                        std::uint64_t bytes, std::uint64_t offset) {
    const file_handle f = handle_of(c, slot);
    std::uint64_t done = 0;
    while (done < bytes) {
        const page_part part = part_at(c, offset + done, bytes - done);
        bool turned_dirty = false;
        const std::int64_t code = write_part(g, c, f, part, from + done, turned_dirty);
        if (code != 0) return done > 0 ? static_cast<std::int64_t>(done) : code;
        done += part.bytes;
        if (c.write_behind_pages != 0 &&
            g.broadcast(g.is_leader() && turned_dirty &&
                                dirty_pages_of(c, f.slot) > c.write_behind_pages
                            ? 1
                            : 0) != 0)
            write_behind(g, c, f.slot, part.page);
    }
    g.sync();  // every thread has copied its part: the caller may use the buffer again
    return static_cast<std::int64_t>(done);
}

// The same for a group that is not in yet.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t write_file(const Group g, const cache_view& c,
                                                      std::uint32_t slot, const std::byte* from,
                                                      std::uint64_t bytes, std::uint64_t offset) {
    std::int64_t code = 0;
    if (g.is_leader()) code = begin_change(g, c, slot);
    code = share_code(g, code);
    if (code != 0) return code;
    const std::int64_t done = write_within(g, c, slot, from, bytes, offset);
    if (g.is_leader()) go_out(c, slot);
    return done;
}

// Leader only. Takes room for an appended record, at the offset `at`. Returns 0 or a negative
// errno. What can be told before is told before: room that another record follows cannot be given
// back.
PENSTOCK_HD PENSTOCK_NOINLINE inline std::int64_t begin_append(const cache_view& c,
                                                               std::uint32_t slot,
                                                               std::uint64_t bytes,
                                                               std::uint64_t& at) {
    at = raise_room(c, slot);
    if (bytes == 0) return 0;
    if (const std::int64_t code = stop_code(c); code != 0) return code;
    if (!can_grow_to(c, slot, at + bytes)) return -EFBIG;
    at = take_room(c, slot, bytes);
    return 0;
}

// Whole group. Writes a record to room of its own. Returns its offset or a negative errno. The room
// is taken, and given back, inside the gate: a cut changes where rooms begin.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t append_file(const Group g, const cache_view& c,
                                                       std::uint32_t slot, const std::byte* from,
                                                       std::uint64_t bytes) {
    std::int64_t code = 0;
    if (g.is_leader()) code = begin_change(g, c, slot);
    code = share_code(g, code);
    if (code != 0) return code;
    std::uint64_t at = 0;
    if (g.is_leader()) code = begin_append(c, slot, bytes, at);
    code = share_code(g, code);
    at = g.broadcast(at);
    if (code == 0 && bytes > 0) {
        const std::int64_t done = write_within(g, c, slot, from, bytes, at);
        if (done < 0) {
            code = done;
            if (g.is_leader()) give_room_back(c, slot, at, bytes);
        } else if (static_cast<std::uint64_t>(done) != bytes) {
            code = -EIO;
        }
    }
    if (g.is_leader()) go_out(c, slot);
    return code != 0 ? code : static_cast<std::int64_t>(at);
}

// Whole group. Does the file have pages to write back?
template <typename Group>
PENSTOCK_HD inline bool has_dirty_pages(const Group& g, const cache_view& c, std::uint32_t slot) {
    return g.broadcast(g.is_leader() && dirty_pages_of(c, slot) != 0);
}

// Whole group. Brings all bytes written to the file so far to storage. Returns 0, or the first
// error: of this call, or of a write-back that no group was told of yet.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t sync_file(const Group g, const cache_view& c,
                                                     std::uint32_t slot) {
    std::int64_t code = 0;
    if (has_dirty_pages(g, c, slot)) code = flush_pages(g, c, slot, 0, ~std::uint64_t{0});
    if (g.is_leader()) {
        const std::int64_t synced = ask_about_file(g, c, op::sync, slot, 0);
        const std::int64_t earlier = take_write_error(c, slot);
        if (code == 0) code = synced != 0 ? synced : earlier;
    }
    return share_code(g, code);
}

// Leader only, after the last reference was given back while the file had writable mappings.
// Returns true if the mappings are gone by now: the caller has a reference again and writes back
// the pages that they left dirty. Otherwise the last unmap finds the file closed and does so.
PENSTOCK_HD inline bool take_up_again(const cache_view& c, std::uint32_t slot,
                                      std::uint32_t generation) {
    return mappings_after_close(c, slot) == 0 &&
           try_reopen(&c.file_words[slot], generation, &c.openings[slot]);
}

// Leader only. Gives the reference of a descriptor back if the file word is still `seen`. If it has
// changed, tries again from its newest value while at least `enough` references are left: then the
// close is not the last, and what it looked at before decides nothing. Many groups that close at
// once would else look at all of it again for each close that came before theirs.
PENSTOCK_HD inline bool release_while(const cache_view& c, int fd, file_word seen,
                                      std::uint64_t enough) {
    const std::uint32_t number = descriptor_number(c, fd);
    file_word* const word = &c.file_words[descriptor_slot(c, fd)];
    for (std::uint32_t round = 0;; ++round) {
        if (number == 0 ? try_release_from(word, seen) : release_number_from(word, seen, number))
            return true;
        let_others_first(round);
        seen = look(word);
        if (references_of(seen) < enough || !is_closable(seen, descriptor_generation(fd), number))
            return false;
    }
}

// Leader only. Gives the reference back if the file word is still `seen`, or has at least `enough`
// references and `seen` was not the last. Then it returns true, and `error` is an error that no
// caller was told of yet. False: try again, maybe with another `fd`. `mapped`: the file had
// writable mappings before the check for dirty pages.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool release_written(const Group& g, const cache_view& c, int& fd,
                                                   file_word seen, std::uint64_t enough,
                                                   bool mapped, std::int64_t& error) {
    const std::uint32_t slot = descriptor_slot(c, fd);
    const bool writes = descriptor_access(fd) != may_read, last = references_of(seen) == 1;
    // Read all of it before the reference goes: afterwards the slot may belong to another file.
    const std::uint32_t answers = answers_of(c, slot);
    const std::uint64_t size_bytes = has_guesses(c, slot) ? unknown_size : size_of(c, slot);
    const bool settles = last && !mapped && dirty_pages_of(c, slot) == 0;
    if (writes) {
        if (const std::int64_t earlier = take_write_error(c, slot); error == 0) error = earlier;
        count_writers(c, slot, ~std::uint32_t{0});
    }
    // From another word than `seen` the reference would not be the last, which all above is for.
    if (!release_while(c, fd, seen, last ? ~std::uint64_t{0} : enough)) {
        if (writes) count_writers(c, slot, 1);
        return false;
    }
    if (mapped && last && take_up_again(c, slot, descriptor_generation(fd))) {
        fd = make_descriptor(slot, descriptor_generation(fd),
                             may_read);  // the steps of a writer are done
        return false;
    }
    // The host keeps a file in its slot as long as a group may have it open for writing. It counts
    // its answers to opens, so that it notices one that is still on its way, whether it came before
    // or after those that groups took.
    if (settles)
        ask_about_generation(g, c, op::settle, slot, descriptor_generation(fd), size_bytes,
                             answers);
    return true;
}

// Leader only. Is there such a descriptor to close? For a descriptor without a number, the answer
// is no only if all open descriptors are for the other access. `writers` counts no descriptor
// before it has its reference, nor after it began to give it back. So `writers` may already count a
// writer that came after `seen`. Then the word has changed: the result is true, and the caller's
// step from `seen` fails and is tried again.
PENSTOCK_HD inline bool is_close_of_open(const cache_view& c, int fd, file_word seen) {
    const std::uint32_t slot = descriptor_slot(c, fd);
    if (!is_closable(seen, descriptor_generation(fd), descriptor_number(c, fd))) return false;
    if (descriptor_number(c, fd) != 0 || descriptor_access(fd) != may_read) return true;
    return writers_of(c, slot) < references_of(seen) || look(&c.file_words[slot]) != seen;
}

// Whole group, in a runtime that writes. Writes the file back if the caller has the last reference
// to a written file, or its share if others have the file open (engine/close_share.hpp), and then
// gives the caller's reference back. Returns 0, -EBADF, or the error of
// a write; the reference is gone then too, and the pages stay. The word that holds the references
// also decides whether a reference is the last: of two groups that close at once, the later sees
// that its own is.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t close_written(const Group g, const cache_view& c,
                                                         int fd) {
    const std::uint32_t slot = descriptor_slot(c, fd);
    constexpr int most_flushes = 1000, most_asked = 100;
    std::int64_t code = 0;
    int asked = 0;    // for a share that was not due any more by then
    int flushes = 0;  // equal in all threads, like the result of flush_pages; `code` need not
                      // be: the leader's counts
    bool shared = descriptor_access(fd) == may_read;  // readers have no share
    for (std::uint32_t round = 0;; let_others_first(round++)) {
        const file_word seen = g.broadcast(look(&c.file_words[slot]));
        if (!g.broadcast(g.is_leader() && is_close_of_open(c, fd, seen))) return -EBADF;
        // No group has written the file. This still holds when the reference goes, or the word has
        // changed.
        if (!g.broadcast(g.is_leader() && is_granted(c, slot))) {
            const std::uint32_t number = descriptor_number(c, fd);
            const bool released =
                g.is_leader() &&
                (number == 0 ? try_release_together(&c.file_words[slot], seen)
                             : release_number_from(&c.file_words[slot], seen, number));
            if (g.broadcast(released)) return 0;
            continue;
        }
        if (references_of(seen) > 1 && !shared) {
            const bool due = g.is_leader() && is_share_due(c, slot);
            if (g.broadcast(due)) {
                shared = write_share(g, c, slot) || ++asked == most_asked;
                continue;
            }
        }
        // Flushes again for groups that opened, wrote and closed meanwhile: they have left the
        // write-back to this close. If such groups come and go for ever, this close fails, for the
        // file does not have all bytes then. Mapped pages stay dirty, and the unmap writes them
        // back once more.
        const bool mapped =
            g.broadcast(g.is_leader() && references_of(seen) == 1 && mappings_of(c, slot) != 0
                            ? 1
                            : 0) != 0;
        if (references_of(seen) == 1 && flushes <= most_flushes && (flushes == 0 || !mapped) &&
            has_dirty_pages(g, c, slot)) {
            const std::int64_t flushed =
                flushes < most_flushes ? flush_pages(g, c, slot, 0, ~std::uint64_t{0}) : -ETIMEDOUT;
            flushes = flushed == 0 ? flushes + 1 : most_flushes + 1;
            if (code == 0) code = flushed;
            continue;
        }
        bool released = false;
        if (g.is_leader()) {
            std::uint64_t enough = shared ? 2 : references_without_share(c, slot);
            // A reader looks at the writers too, for each word that it would release from.
            if (descriptor_access(fd) == may_read) enough = ~std::uint64_t{0};
            released = release_written(g, c, fd, seen, enough, mapped, code);
        }
        if (g.broadcast(released)) return share_code(g, code);
    }
}

}  // namespace penstock::engine
