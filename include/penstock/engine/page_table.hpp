// From (file, page number) to page word.
//
// A file whose table is small has its page words in one piece of the arena: one addition. A huge file has a directory
// there instead, whose entries name leaves of 2^leaf_shift page words; a leaf is asked of the host when the first page of
// its range is touched, so only touched ranges cost memory. The host decides once per (file, leaf), so groups that ask
// for the same leaf at once get the same answer and store the same entry.
//
// Invariants: (1) a directory entry goes from 0 to its leaf once while the file is live; (2) every arena word that is
// handed out as a page word is in state absent, every one handed out as a directory entry is cleared by the opener.
#pragma once

#include <cstdint>

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
    return {record.size_bytes, record.table, slot, record.generation, record.two_level != 0};
}

// Reads the record behind a descriptor; false for a number that is no open descriptor. Any number is safe to ask for.
PENSTOCK_HD PENSTOCK_INLINE bool find_file(const cache_view& c, int fd, file_handle& out) {
    const std::uint32_t slot = descriptor_slot(fd);
    if (fd < 0 || slot >= c.file_slots) return false;
    // Both loads before the branch: one after the other they would cost a hit a second trip to memory.
    const file_word word = glance_file(&c.file_words[slot]);
    out = handle_of(c, slot);
    return is_open(word, descriptor_generation(fd));
}

inline constexpr std::uint64_t no_word = ~std::uint64_t{0};

// Arena index of the page word, or no_word if its leaf does not exist yet.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t find_word(const cache_view& c, const file_handle& f, std::uint64_t page) {
    if (!f.two_level) return f.table + page;
    // Acquire: pairs with the release in ask_for_leaf; the leaf was swept clean before the entry named it.
    const std::uint64_t entry = atomic_load<order::acquire>(&c.words[f.table + (page >> c.leaf_shift)]);
    return entry == 0 ? no_word : entry - 1 + (page & ((std::uint64_t{1} << c.leaf_shift) - 1));
}

// Leader only: asks the host for the leaf of `page` and enters it. 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_for_leaf(const Group& g, const cache_view& c, const file_handle& f,
                                                        std::uint64_t page) {
    ring_request request{};
    request.operation = op::leaf;
    request.file_slot = f.slot;
    request.generation = f.generation;
    request.offset = page >> c.leaf_shift;
    patience room(g, c.frame_wait_ns);
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
        const std::uint64_t leaf = reply.words[0];
        recycle_slot(c, at);
        if (result == 0) {
            atomic_store<order::release>(&c.words[f.table + request.offset], leaf + 1);
            return 0;
        }
        if (result != -ENOSPC) return result;
        // The arena is full: take down a closed file and ask again.
        const std::int64_t code = retire_one(g, c);
        if (code != 0 && code != -ENFILE) return code;
        if (const std::int64_t late = room.check(g, c); late != 0) return late == -ETIME ? -ENOMEM : late;
        if (code == -ENFILE) g.pause(round);
    }
}

}  // namespace penstock::engine
