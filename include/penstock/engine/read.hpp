// Reads: the hit path, and the way from it to the miss path.
//
// A hit by a group whose copies may race (every GPU group, and CPU lanes on x86): read the page
// word, copy, read the word again. No word that other groups use is updated atomically. A hit by a
// group whose copies must not race: pin, copy, unpin.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/pin.hpp"
#include "penstock/engine/read_ahead.hpp"
#include "penstock/engine/through.hpp"

namespace penstock::engine {

// Copies `bytes` bytes of one page if it is valid. Returns true if they arrived; all threads of the
// group get the same answer. `early`: a look ahead at the page word.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool try_copy_page(const Group& g, const cache_view& c,
                                               std::uint64_t word_index, std::uint32_t in_page,
                                               std::byte* to, std::uint32_t bytes,
                                               page_word early = 0) {
    page_word* const word = &c.words[word_index];
    if constexpr (Group::copies_race()) {
        // Every thread looks for itself: a broadcast would cost more than a second load of the same
        // word.
        page_word seen = early;
        if (is_valid(seen)) end_load_for_read();
        else seen = load_for_read(word);
        bool good = is_valid(seen);
        if (good) {
            g.copy_out(to, c.frame_address(frame_of(seen)) + in_page, bytes);
            good = validate(word, seen);
        }
        if (g.is_leader() && stop_code_in_turn(c) != 0) good = false;  // the miss path tells why
        good = g.all(good);
        if (g.is_leader()) {
            if (good) {
                touch(word, seen);
                count(g, c, count_hits);
            } else if (is_valid(seen)) {
                count(g, c, count_retries);
            }
        }
        return good;
    } else {
        if (!is_valid(load_relaxed(word)) || stop_code(c) != 0)
            return false;  // then the miss path tells why
        const page_word seen = pin(word);
        const bool good = is_valid(seen) && pins_of(seen) < pin_limit;
        if (good) {
            touch(word, seen);
            g.copy_out(to, c.frame_address(frame_of(seen)) + in_page, bytes);
            count(g, c, count_hits);
        }
        unpin(word);
        return good;
    }
}

// Copies the part of page `page` that lies in the byte range [begin, end) of the file. `to` is the
// place of byte `begin`.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void copy_overlap(const Group& g, const cache_view& c,
                                                std::uint64_t page, const std::byte* frame,
                                                std::uint64_t begin, std::uint64_t end,
                                                std::byte* to) {
    const std::uint64_t page_begin = page << c.page_shift, page_end = page_begin + c.page_bytes();
    const std::uint64_t from = begin > page_begin ? begin : page_begin;
    const std::uint64_t until = end < page_end ? end : page_end;
    if (from < until) g.copy_out(to + (from - begin), frame + (from - page_begin), until - from);
}

// Whole group; the page at `offset` was not valid a moment ago. Delivers at least the rest of that
// page and returns how many bytes from `offset` on it delivered, or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t read_missing(const Group& g, const cache_view& c,
                                                        const file_handle& f, std::byte* to,
                                                        std::uint64_t bytes, std::uint64_t offset) {
    wait_deadline deadline(g, c.frame_wait_ns);
    const std::uint64_t first = offset >> c.page_shift, end = offset + bytes;
    const std::uint64_t pages = ((end - 1) >> c.page_shift) - first + 1;
    std::uint64_t next = first;  // every page below it was delivered, from `first` on without a gap
    const std::int64_t loaded = load_pages(g, c, f, first, pages, deadline,
                                           [&](std::uint64_t page, const std::byte* frame) {
                                               copy_overlap(g, c, page, frame, offset, end, to);
                                               if (page == next) ++next;
                                           });
    if (loaded < 0) return loaded;
    if (next == first) {
        // Another group has the first page. Pinned, it cannot slip away again before it is copied.
        pinned_page page{};
        if (const std::int64_t code = pin_page(g, c, f, first, deadline, page); code != 0)
            return code;
        copy_overlap(g, c, first, c.frame_address(page.frame), offset, end, to);
        g.sync();  // every thread has copied before the leader unpins
        if (g.is_leader()) unpin(&c.words[page.word_index]);
        ++next;
    }
    const std::uint64_t until = next << c.page_shift;
    return static_cast<std::int64_t>((until < end ? until : end) - offset);
}

// The part of a read that lies in one page: its place, and how many bytes are wanted.
struct page_part {
    std::uint64_t page;
    std::uint32_t in_page, bytes;
};

PENSTOCK_HD PENSTOCK_INLINE page_part part_at(const cache_view& c, std::uint64_t offset,
                                              std::uint64_t wanted) {
    const auto in_page = static_cast<std::uint32_t>(offset & (c.page_bytes() - 1));
    const std::uint64_t room = c.page_bytes() - in_page;
    return {offset >> c.page_shift, in_page,
            static_cast<std::uint32_t>(room < wanted ? room : wanted)};
}

// Whole group. Delivers the part if its page is in the cache.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool try_read_part(const Group& g, const cache_view& c,
                                               const file_handle& f, const page_part& part,
                                               std::byte* to, page_word early = 0) {
    std::uint64_t word_index = find_word(c, f, part.page);
    if (has_leaves(c, f))
        word_index = g.broadcast(word_index);  // a leaf may appear between two threads' loads
    return word_index != no_word &&
           try_copy_page(g, c, word_index, part.in_page, to, part.bytes, early);
}

// Whole group. The same as read_missing, for a read that ends in its first page.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t read_one_missing(const Group& g, const cache_view& c,
                                                          const file_handle& f, std::byte* to,
                                                          const page_part& part) {
    wait_deadline deadline(g, c.frame_wait_ns);
    const auto deliver = [&](const std::byte* frame) {
        g.copy_out(to, frame + part.in_page, part.bytes);
    };
    const std::int64_t loaded = load_one(g, c, f, part.page, deadline, deliver);
    if (loaded < 0) return loaded;
    if (loaded == 0) {
        // Another group has the page. Pinned, it cannot slip away again before it is copied.
        pinned_page page{};
        if (const std::int64_t code = pin_page(g, c, f, part.page, deadline, page); code != 0)
            return code;
        deliver(c.frame_address(page.frame));
        g.sync();  // every thread has copied before the leader unpins
        if (g.is_leader()) unpin(&c.words[page.word_index]);
    }
    return static_cast<std::int64_t>(part.bytes);
}

// Whole group. Finishes a read of which `done` bytes are delivered, and whose next page read_rest
// could not read through. `missed`: that page was not in the cache a moment ago.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t read_by_loads(const Group g, const cache_view& c,
                                                         std::uint32_t slot, std::byte* to,
                                                         std::uint64_t bytes, std::uint64_t offset,
                                                         std::uint64_t done, bool missed) {
    const file_handle f = handle_of(c, slot);
    bool tried = true;
    for (; done < bytes; missed = tried = false) {
        const page_part part = part_at(c, offset + done, bytes - done);
        if (!missed && try_read_part(g, c, f, part, to + done)) {
            done += part.bytes;
            continue;
        }
        std::uint64_t through =
            tried ? 0 : read_through(g, c, slot, to + done, bytes - done, offset + done);
        std::int64_t delivered = static_cast<std::int64_t>(through);
        if (through == 0)
            delivered = part.bytes == bytes - done
                            ? read_one_missing(g, c, f, to + done, part)
                            : read_missing(g, c, f, to + done, bytes - done, offset + done);
        if (delivered == -ENOBUFS || delivered == -ENOMEM) {
            // No room for the page, but its bytes may be had without.
            through = read_through(g, c, slot, to + done, bytes - done, offset + done, true);
            if (through > 0) delivered = static_cast<std::int64_t>(through);
        }
        if (delivered < 0) return done > 0 ? static_cast<std::int64_t>(done) : delivered;
        done += static_cast<std::uint64_t>(delivered);
    }
    return static_cast<std::int64_t>(done);
}

// Whole group; the page at offset + done is not in the cache. Finishes the read of which `done`
// bytes are delivered. It is the last call of a read, so the hit path has next to nothing to keep
// across a call. Read-ahead comes after this function and not within it: further down, its
// registers would add to those of the miss path.
//
// What can be read through is read here, without a further call by the whole group. On a GPU a
// function saves the registers that it takes, for all threads, in local memory; what calls within
// calls save is more, with all resident groups, than the caches hold, and goes to device memory and
// back (bench/results/h200/2026-11-26-links-profile.txt).
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t read_rest(const Group g, const cache_view& c,
                                                     std::uint32_t slot, std::byte* to,
                                                     std::uint64_t bytes, std::uint64_t offset,
                                                     std::uint64_t done) {
    bool missed = true;
    while (may_read_through(c)) {
        const std::uint64_t through =
            read_through_here(g, c, slot, to + done, bytes - done, offset + done);
        if (through == 0) break;
        done += through;
        missed = false;
        if (done == bytes) return static_cast<std::int64_t>(done);
    }
    return read_by_loads(g, c, slot, to, bytes, offset, done, missed);
}

// Whole group. Reads up to `bytes` bytes from `offset` into `to`. Returns a count, which is less
// than `bytes` only at the end of the file; or a negative errno if no byte could be delivered.
// `early`: a look ahead at the page word of `offset`.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t read_file(const Group& g, const cache_view& c,
                                                   const file_handle& f, std::byte* to,
                                                   std::uint64_t bytes, std::uint64_t offset,
                                                   page_word early = 0) {
    if (offset >= f.size_bytes) return 0;
    if (bytes > f.size_bytes - offset) bytes = f.size_bytes - offset;
    std::uint64_t done = 0;
    while (done < bytes) {
        const page_part part = part_at(c, offset + done, bytes - done);
        const page_word seen = early;
        early = 0;  // a look ahead at the next page too costs reads of one page more than it gains
                    // reads of many
        if (!try_read_part(g, c, f, part, to + done, seen)) {
            const std::int64_t got = by_address(&read_rest<Group>)(
                g, c, f.slot, to, bytes, offset, done);  // the whole count, `done` included
            if (c.read_ahead_pages != 0)
                by_address (&read_ahead<Group>)(g, c, f.slot, offset + done,
                                                got - static_cast<std::int64_t>(done));
            return got;
        }
        done += part.bytes;
    }
    return static_cast<std::int64_t>(done);
}

// Whole group. Is the page in the cache, or is a group loading it?
template <typename Group>
PENSTOCK_HD inline bool is_under_way(const Group& g, const cache_view& c, const file_handle& f,
                                     std::uint64_t page) {
    bool there = false;
    if (g.is_leader()) {
        const std::uint64_t index = find_word(c, f, page);
        there = index != no_word && !is_absent(load_relaxed(&c.words[index]));
    }
    return g.broadcast(there);
}

// Whole group. Loads the absent pages that the byte range [begin, end), not empty and within the
// file, touches. Returns how many bytes of the range lie in pages that are there or under way
// before the first error; or the error, if the first page has it.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t bring_in(const Group g, const cache_view& c,
                                                    std::uint32_t slot, std::uint64_t begin,
                                                    std::uint64_t end) {
    const file_handle f = handle_of(c, slot);
    const std::uint64_t last = (end - 1) >> c.page_shift;
    wait_deadline deadline(g, c.frame_wait_ns);
    for (std::uint64_t page = begin >> c.page_shift; page <= last;) {
        std::uint64_t next = page;  // every page below it was loaded, from `page` on without a gap
        const std::int64_t loaded = load_pages(g, c, f, page, last - page + 1, deadline,
                                               [&](std::uint64_t got, const std::byte*) {
                                                   if (got == next) ++next;
                                                   // No group has read it yet: with its use bit
                                                   // clear the clock might evict it unread.
                                                   if (g.is_leader())
                                                       touch(&c.words[find_word(c, f, got)], 0);
                                               });
        if (loaded < 0) {
            const std::uint64_t reached = page << c.page_shift;
            return reached > begin ? static_cast<std::int64_t>(reached - begin) : loaded;
        }
        // Behind a gap the next round looks at each page again: the one in the gap may have failed,
        // or another group has it. One deadline for all rounds that come no further: where no page
        // can be written back for a frame, each round may end at once.
        if (next == page && !is_under_way(g, c, f, page)) continue;
        page = next > page ? next : page + 1;
        deadline = wait_deadline(g, c.frame_wait_ns);
    }
    return static_cast<std::int64_t>(end - begin);
}

// Whole group. Pins a page that was not valid a moment ago. Returns its frame, or a negative errno.
// Group and file come by value: a variable whose address is taken lives in memory, and the hit path
// must keep its own in registers.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t pin_missing(const Group g, const cache_view& c,
                                                       std::uint32_t slot, std::uint64_t page) {
    if (const std::int64_t code = shared_stop_code(g, c); code != 0) return code;
    const file_handle f = handle_of(c, slot);
    wait_deadline deadline(g, c.frame_wait_ns);
    pinned_page out{};
    const std::int64_t code = pin_page(g, c, f, page, deadline, out);
    return code != 0 ? code : static_cast<std::int64_t>(out.frame);
}

// Whole group. Pins the page that a mapping needs; the hit path is inline. Returns 0 or a negative
// errno. `early`: a look ahead at the page word.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t map_page(const Group& g, const cache_view& c,
                                                  const file_handle& f, std::uint64_t page,
                                                  pinned_page& out, page_word early = 0) {
    std::uint64_t word_index = find_word(c, f, page);
    if (has_leaves(c, f))
        word_index = g.broadcast(word_index);  // a leaf may appear between two threads' loads
    page_word pinned = 0;                      // 0: not pinned; a valid word is never 0
    if (g.is_leader() && word_index != no_word && stop_code_in_turn(c) == 0) {
        page_word seen = early;
        if (is_valid(seen) ? pin_valid(&c.words[word_index], seen)
                           : try_pin(&c.words[word_index], seen)) {
            pinned = seen;
            count(g, c, count_hits);
        }
    }
    pinned = g.broadcast(pinned);
    if (pinned != 0) {
        g.sync();  // the leader's acquire comes before every thread's reads of the frame
        out = {word_index, frame_of(pinned)};
        return 0;
    }
    const std::int64_t frame = by_address(&pin_missing<Group>)(g, c, f.slot, page);
    if (frame < 0) return frame;
    if (c.read_ahead_pages != 0)
        by_address (&read_ahead<Group>)(g, c, f.slot, page << c.page_shift, 1);
    if (word_index == no_word) word_index = g.broadcast(find_word(c, f, page));  // its leaf is new
    out = {word_index, static_cast<std::uint32_t>(frame)};
    return 0;
}

}  // namespace penstock::engine
