// The page table: finds the page word of a page of a file.
//
// A file with a small table has its page words in one piece of the arena, so a look-up is one
// addition. A huge file has a directory there instead, whose entries name leaves of 2^leaf_shift
// page words. A group asks the host for a leaf when it touches the first page of the leaf's range,
// so only touched ranges cost memory. The host decides once per (file, leaf), so groups that ask
// for the same leaf at once get the same answer and store the same entry.
//
// A file that grows while it is open gets a directory for the pages behind those that its table has
// words for; groups ask for its leaves in the same way.
//
// Invariants
//  (1) A directory entry goes from 0 to its leaf once while the file is live.
//  (2) Every arena word that is handed out as a page word is in state absent. The opener clears
//      every word that is handed out as a directory entry.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/retire.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/group/concept.hpp"

namespace penstock::engine {

// A verb's copy of its file's record, in registers.
struct file_handle {
    std::uint64_t size_bytes;
    std::uint64_t table;
    std::uint32_t slot;
    std::uint32_t generation;
    bool two_level;
};

// The handle of the file in a slot; the caller knows that the file is open.
PENSTOCK_HD PENSTOCK_INLINE file_handle handle_of(const cache_view& c, std::uint32_t slot) {
    const file_record& record = c.file_records[slot];
    // In a runtime that does not write, a file keeps the size that it was opened with.
    const std::uint64_t size = c.writes == nullptr ? record.size_bytes : size_of(c, slot);
    return {size, record.table, slot, record.generation, record.two_level != 0};
}

// The same for a whole group. Its threads may see different sizes while other groups write the
// file. The leader's counts for all of them: threads that differed would go to different barriers.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE file_handle handle_of(const Group& g, const cache_view& c,
                                                  std::uint32_t slot) {
    file_handle out = handle_of(c, slot);
    if (c.writes != nullptr) out.size_bytes = g.broadcast(out.size_bytes);
    return out;
}

// May some page of the file have no word yet? Then the threads of a group may get different results
// of a look-up, and the leader's result counts.
PENSTOCK_HD PENSTOCK_INLINE bool has_leaves(const cache_view& c, const file_handle& f) {
    return f.two_level || c.writes != nullptr;
}

// Loads the word of the page at `offset` early: before the descriptor has been checked, or while an
// earlier page is read. So the two trips to memory overlap. No order: end_load_for_read comes
// before the frame is used. Returns 0, which is never the word of a valid page, if the word is not
// known yet, and always on the host, where the trip is not worth it. The record may belong to a
// wrong descriptor, hence the check of the bound.
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

// Reads the record behind a descriptor. Returns false if the number is no open descriptor, or a
// descriptor with the unwanted access. Any number is safe to pass. `meanwhile` is called with the
// record before the file word has arrived, and may load words that the record leads to.
template <typename Meanwhile>
PENSTOCK_HD PENSTOCK_INLINE bool find_file_and(const cache_view& c, int fd, file_handle& out,
                                               std::uint32_t unwanted_access,
                                               const Meanwhile& meanwhile) {
    const std::uint32_t slot = descriptor_slot(c, fd);
    if (fd < 0 || slot >= c.file_slots) return false;
    // All loads come before the branch: one after the other, each would cost a hit another trip to
    // memory.
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

// Whole group, whose threads have each looked for themselves. The leader's look counts: sizes may
// differ while other groups write the file, and whether it is open, where the program uses a
// descriptor that it has closed and another group opens the file. Lanes of one warp look by the
// same load, so only the threads of several warps ask each other for that alone.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool share_look(const Group& g, const cache_view& c, bool found,
                                            file_handle& file) {
    if (c.writes != nullptr) {
        const std::uint64_t seen = g.broadcast(found ? file.size_bytes + 1 : 0);
        file.size_bytes = seen - 1;
        return seen != 0;
    }
    if constexpr (narrow_group<Group>) return found;
    else return g.broadcast(found);
}

// The same as find_file for a whole group.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool find_file(const Group& g, const cache_view& c, int fd,
                                           file_handle& out,
                                           std::uint32_t unwanted_access = may_write) {
    return share_look(g, c, find_file(c, fd, out, unwanted_access), out);
}

// The same for a group that reads at `offset`, with a look ahead at the page there.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool find_to_read(const Group& g, const cache_view& c, int fd,
                                              std::int64_t offset, file_handle& out,
                                              page_word& early) {
    const bool found = find_file_and(c, fd, out, may_write, [&](const file_handle& f) {
        early = look_ahead(c, f, static_cast<std::uint64_t>(offset));
    });
    return share_look(g, c, found, out);
}

// Whole group. How many rows or elements the group has of a file, where each thread made a view of
// its own and found `own`: as many as the leader, or none if a thread has none.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t share_count(const Group& g, const cache_view& c,
                                                      std::uint64_t own) {
    if constexpr (narrow_group<Group>)
        if (c.writes == nullptr) return own;  // as in share_look
    if (!g.all(own > 0)) return 0;
    return c.writes == nullptr ? own : g.broadcast(own);
}

inline constexpr std::uint64_t no_word = ~std::uint64_t{0};

// Finds a page word through the directory at `directory`.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t find_in_leaf(const cache_view& c, std::uint64_t directory,
                                                       std::uint64_t page) {
    // Loads in order: pairs with the release in ask_for_leaf; the leaf was swept clean before the
    // entry named it.
    const std::uint64_t entry = load_for_read(&c.words[directory + (page >> c.leaf_shift)]);
    return entry == 0 ? no_word : entry - 1 + (page & ((std::uint64_t{1} << c.leaf_shift) - 1));
}

// The same for a page that the file did not have when it was opened; `beyond` counts from the first
// such page.
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

// May a file that is open for writing become that long? Its growth has so many leaves.
PENSTOCK_HD PENSTOCK_INLINE bool can_grow_to(const cache_view& c, std::uint32_t slot,
                                             std::uint64_t size_bytes) {
    const std::uint64_t pages = pages_of(c, size_bytes), known = c.file_records[slot].page_count;
    return pages <= known || (pages - known - 1) >> c.leaf_shift < c.growth_entries;
}

// Leader only: asks the host for a piece of the arena for the file, and makes room for it if need
// be and the caller may wait. Returns 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_for_words(const Group& g, const cache_view& c,
                                                         const file_handle& f, leaf_kind kind,
                                                         std::uint64_t number,
                                                         std::uint64_t& word_index,
                                                         bool may_wait = true) {
    const ring_request request = leaf_request{f.slot, f.generation, kind, number}.packed();
    wait_deadline room(g, c.frame_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        ring_ticket at{};
        if (const std::int64_t code = claim_slot(g, c, may_wait, at); code != 0) return code;
        post(g, c, at, request);
        if (const std::int64_t code = await(g, c, at); code != 0) {
            orphan_slot(c, at);
            return code;
        }
        const ring_reply& reply = c.rings[at.ring].replies[slot_of(c.rings[at.ring], at.ticket)];
        const std::int64_t result = reply.result;
        word_index = reply.words[0];
        recycle_slot(c, at);
        if (result != -ENOSPC || !may_wait) return result;
        // The arena is full: take down a closed file and ask again.
        const std::int64_t code = retire_one(g, c);
        if (code != 0 && code != -ENFILE) return code;
        if (const std::int64_t late = room.check(g, c); late != 0)
            return late == -ETIME ? -ENOMEM : late;
        if (code == -ENFILE) g.pause(round);
    }
}

// Leader only: finds or makes the directory of the pages by which the file grows, as `directory`.
// Returns 0 or a negative errno.
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
            if (code == 0) reset_words(c, directory, c.growth_entries);
            end_growth(c, f.slot, code == 0 ? directory + growth_first : growth_none);
            return code;
        }
        if (const std::int64_t code = waiting.check(g, c); code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

// Leader only: asks the host for the leaf of `page` and enters it. Returns 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_for_leaf(const Group& g, const cache_view& c,
                                                        const file_handle& f, std::uint64_t page,
                                                        bool may_wait = true) {
    const std::uint64_t known = c.file_records[f.slot].page_count;
    std::uint64_t directory = f.table, number = page >> c.leaf_shift, leaf = 0;
    leaf_kind kind = leaf_of_table;
    if (c.writes != nullptr && page >= known) {
        number = (page - known) >> c.leaf_shift;
        kind = leaf_of_growth;
        if (number >= c.growth_entries) return -EFBIG;
        if (const std::int64_t code = make_growth(g, c, f, directory); code != 0) return code;
    }
    const std::int64_t code = ask_for_words(g, c, f, kind, number, leaf, may_wait);
    if (code == 0) atomic_store<order::release>(&c.words[directory + number], leaf + 1);
    return code;
}

}  // namespace penstock::engine
