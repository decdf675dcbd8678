// From (file, page number) to page word.
//
// A file whose table is small has its page words in one piece of the arena: one addition. A huge
// file has a directory there instead, whose entries name leaves of 2^leaf_shift page words; a leaf
// is asked of the host when the first page of its range is touched, so only touched ranges cost
// memory. The host decides once per (file, leaf), so groups that ask for the same leaf at once get
// the same answer and store the same entry.
//
// A file that grows while it is open gets a directory for the pages that come after those its table
// has words for; its leaves are asked for in the same way.
//
// Invariants: (1) a directory entry goes from 0 to its leaf once while the file is live; (2) every
//                 arena word that is
// handed out as a page word is in state absent, every one handed out as a directory entry is
// cleared by the opener.
#pragma once

#include <cstdint>

#include "penstock/engine/dirty.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/retire.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

// What a verb knows of its file, in registers.
struct file_handle {
    std::uint64_t size_bytes;
    std::uint64_t table;
    std::uint32_t slot;
    std::uint32_t generation;
    bool two_level;
};

// What is known of the file in a slot; the caller knows that it is open.
PENSTOCK_HD PENSTOCK_INLINE file_handle handle_of(const cache_view& c, std::uint32_t slot) {
    const file_record& record = c.file_records[slot];
    // Where nothing is written a file keeps the size it was opened with.
    const std::uint64_t size = c.writes == nullptr ? record.size_bytes : size_of(c, slot);
    return {size, record.table, slot, record.generation, record.two_level != 0};
}

// May some page of the file have no word yet? Then threads of a group may find different things,
// and the leader's counts.
PENSTOCK_HD PENSTOCK_INLINE bool has_leaves(const cache_view& c, const file_handle& f) {
    return f.two_level || c.writes != nullptr;
}

// The word of the page that has the place `offset`, looked at on the way to it: before it is known
// whether the descriptor is good, or while an earlier page is read. So the two trips to memory are
// made together. No order: end_load_for_read comes before the frame is used. 0, which is no valid
// page's word, where it cannot be told yet, and always on the host, where no trip is worth it. The
// record may be a wrong descriptor's, hence the look at the bound.
PENSTOCK_HD PENSTOCK_INLINE page_word look_ahead([[maybe_unused]] const cache_view& c,
                                                 [[maybe_unused]] const file_handle& f,
                                                 [[maybe_unused]] std::uint64_t offset) {
#if PENSTOCK_ON_DEVICE
    if (has_leaves(c, f) || offset >= f.size_bytes) return 0;
    const std::uint64_t word_index = f.table + (offset >> c.page_shift);
    return word_index < c.word_count ? load_relaxed(&c.words[word_index]) : 0;
#else
    return 0;
#endif
}

// Reads the record behind a descriptor; false for a number that is no open descriptor, or one of
// the access that is not wanted. Any number is safe to ask for. `meanwhile`, called with the record
// before its word has come, may look at what the record leads to.
template <typename Meanwhile>
PENSTOCK_HD PENSTOCK_INLINE bool find_file_and(const cache_view& c, int fd, file_handle& out,
                                               std::uint32_t unwanted_access,
                                               const Meanwhile& meanwhile) {
    const std::uint32_t slot = descriptor_slot(c, fd);
    if (fd < 0 || slot >= c.file_slots) return false;
    // All loads before the branch: one after the other they would cost a hit another trip to memory
    // each.
    const file_word word = load_file_relaxed(&c.file_words[slot]);
    out = handle_of(c, slot);
    meanwhile(out);
    return is_open(word, descriptor_generation(fd)) && has_number(word, descriptor_number(c, fd)) &&
           descriptor_access(fd) != unwanted_access;
}
PENSTOCK_HD PENSTOCK_INLINE bool find_file(const cache_view& c, int fd, file_handle& out,
                                           std::uint32_t unwanted_access = may_write) {
    return find_file_and(c, fd, out, unwanted_access, [](const file_handle&) {});
}

// The same for a whole group, whose threads may find the file of different sizes while others write
// it: the leader's counts.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool find_file(const Group& g, const cache_view& c, int fd,
                                           file_handle& out,
                                           std::uint32_t unwanted_access = may_write) {
    const bool found = find_file(c, fd, out, unwanted_access);
    if (c.writes != nullptr) out.size_bytes = g.broadcast(out.size_bytes);
    return found;
}

// The same for a group that reads at `offset`, with a look ahead at the page there.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool find_to_read(const Group& g, const cache_view& c, int fd,
                                              std::int64_t offset, file_handle& out,
                                              page_word& early) {
    const bool found = find_file_and(c, fd, out, may_write, [&](const file_handle& f) {
        early = look_ahead(c, f, static_cast<std::uint64_t>(offset));
    });
    if (c.writes != nullptr) out.size_bytes = g.broadcast(out.size_bytes);
    return found;
}

inline constexpr std::uint64_t no_word = ~std::uint64_t{0};

// By way of the directory at `directory`.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t find_in_leaf(const cache_view& c, std::uint64_t directory,
                                                       std::uint64_t page) {
    // Acquire: pairs with the release in ask_for_leaf; the leaf was swept clean before the entry
    // named it.
    const std::uint64_t entry =
        atomic_load<order::acquire>(&c.words[directory + (page >> c.leaf_shift)]);
    return entry == 0 ? no_word : entry - 1 + (page & ((std::uint64_t{1} << c.leaf_shift) - 1));
}

// The same for a page that the file did not have when it was opened, `beyond` the first such.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t find_grown_word(const cache_view& c, std::uint32_t slot,
                                                          std::uint64_t beyond) {
    const std::uint64_t growth = growth_of(c, slot);
    if (growth < growth_first || beyond >> c.leaf_shift >= c.growth_entries) return no_word;
    return find_in_leaf(c, growth - growth_first, beyond);
}

// Arena index of the page word, or no_word if its leaf does not exist yet.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t find_word(const cache_view& c, const file_handle& f,
                                                    std::uint64_t page) {
    if (c.writes != nullptr) {
        const std::uint64_t known = c.file_records[f.slot].page_count;
        if (page >= known) return find_grown_word(c, f.slot, page - known);
    }
    if (!f.two_level) return f.table + page;
    return find_in_leaf(c, f.table, page);
}

// Leader only: asks the host for a piece of the arena for the file, making room for it if need be.
// 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_for_words(const Group& g, const cache_view& c,
                                                         const file_handle& f, leaf_kind kind,
                                                         std::uint64_t number,
                                                         std::uint64_t& word_index) {
    ring_request request{};
    request.operation = op::leaf;
    request.file_slot = f.slot;
    request.generation = f.generation;
    request.offset = number;
    request.argument = kind;
    wait_deadline room(g, c.frame_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        ring_ticket at{};
        if (const std::int64_t code = claim_slot(g, c, true, at); code != 0) return code;
        post(g, c, at, request);
        if (const std::int64_t code = await(g, c, at); code != 0) {
            orphan_slot(c, at);
            return code;
        }
        const ring_reply& reply = c.rings[at.ring].replies[slot_of(c.rings[at.ring], at.ticket)];
        const std::int64_t result = reply.result;
        word_index = reply.words[0];
        recycle_slot(c, at);
        if (result != -ENOSPC) return result;
        // The arena is full: take down a closed file and ask again.
        const std::int64_t code = retire_one(g, c);
        if (code != 0 && code != -ENFILE) return code;
        if (const std::int64_t late = room.check(g, c); late != 0)
            return late == -ETIME ? -ENOMEM : late;
        if (code == -ENFILE) g.pause(round);
    }
}

// Leader only: the directory of what the file grows by, as `directory`. 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t make_growth(const Group& g, const cache_view& c,
                                                       const file_handle& f,
                                                       std::uint64_t& directory) {
    wait_deadline waiting(
        g, 2 * c.request_wait_ns);  // another group may wait for a ring slot and for the answer
    for (std::uint32_t round = 0;; ++round) {
        const std::uint64_t growth = growth_of(c, f.slot);
        directory = growth - growth_first;
        if (growth >= growth_first) return 0;
        if (growth == growth_none && begin_growth(c, f.slot)) {
            const std::int64_t code = ask_for_words(g, c, f, growth_directory, 0, directory);
            for (std::uint32_t i = 0; code == 0 && i < c.growth_entries; ++i)
                reset(&c.words[directory + i]);
            end_growth(c, f.slot, code == 0 ? directory + growth_first : growth_none);
            return code;
        }
        if (const std::int64_t code = waiting.check(g, c); code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

// Leader only: asks the host for the leaf of `page` and enters it. 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_for_leaf(const Group& g, const cache_view& c,
                                                        const file_handle& f, std::uint64_t page) {
    const std::uint64_t known = c.file_records[f.slot].page_count;
    std::uint64_t directory = f.table, number = page >> c.leaf_shift, leaf = 0;
    leaf_kind kind = leaf_of_table;
    if (c.writes != nullptr && page >= known) {
        number = (page - known) >> c.leaf_shift;
        kind = leaf_of_growth;
        if (number >= c.growth_entries) return -EFBIG;
        if (const std::int64_t code = make_growth(g, c, f, directory); code != 0) return code;
    }
    const std::int64_t code = ask_for_words(g, c, f, kind, number, leaf);
    if (code == 0) atomic_store<order::release>(&c.words[directory + number], leaf + 1);
    return code;
}

}  // namespace penstock::engine
