// Pages of linked caches: what another cache of this machine holds of a file, on another device, in
// another process, or beside this one.
//
//   look    the page's word in each neighbour that has the same version of the file
//   copy    neighbour's frame -> caller, or -> a frame of this cache
//   check   the neighbour's page word and file word, and the own entry, are as they were; else the
//           bytes do not count
//
// A reader writes nothing to a neighbour: no pin, no use bit. So a neighbour whose process died
// holds nothing up, links need no atomics, and a neighbour's memory may be mapped for reading only.
//
// Why the bytes count
//   Of this page. The owner evicts a page (try_evict), makes a fence of the system
//   (begin_overwrite), and stores the next page's bytes. The reader loads word, bytes, word
//   in this order, at system scope. If it loaded a byte of the next page, its second look finds
//   another generation. (A plain load of a byte may come from a first-level cache and be older than
//   that; all of these are relaxed.)
//   Of this file. The neighbour's file word has the entry's generation at the check and is not
//   vacant. So the slot and its table were this life's all the while: they pass on only after the
//   word was vacant (engine/retire.hpp).
//   Of this version. The host makes entries between slots only whose files had the same identity
//   when they were opened, and of which no linked cache writes (src/links/links.hpp). Before an
//   open for writing is answered, the entries of the file are gone. The check finds its entry there
//   still, so the copy came before any store of that writer. `granted` in the neighbour's write
//   record is the second line: a neighbour of another process may not have been heard in time. Two
//   generations of a page word that are equal by chance need 4096 evictions of one page during one
//   copy, as at home.
//
//   Of this table. The two words of an entry are loaded together at the look, so `life` may be of a
//   new entry and `table` of the last. The host writes `table` first, so the check then finds
//   another table.
//
// Neighbours that leave
//   A neighbour of another process may leave at any time, and then its memory is unmapped and its
//   place is given to another. So in a runtime that shares (cache_view::visits) a reader counts
//   itself (enter) before it loads the entries that it goes by, and again after its check (leave).
//   The host takes the entries away and then looks at the counts, with a change of its own to each:
//   an addition of 0 on CPU threads; on a GPU its upload is complete before its look begins. A
//   reader that the look does not include has its addition after it, and so loads the entries as
//   they are without that neighbour. Once each count was seen at 0, no reader is left that goes by
//   an entry which was taken away. New readers would keep a count above 0 for ever, so each shard
//   has two, and the host sends them to the other one for a while (links/visit_drain.hpp). The
//   reader that entered leaves by the same count; it releases, so its loads come before it.
//   A reader that dies holds its own device's counts alone, and they end with that.
//
// The host never waits for readers: a place whose neighbour left stays mapped until they are gone.
// So a reader may wait between look and check, and does so where several loads are in flight.
//
// Source of the design: GPUfs left several GPUs with a cache each (Silberstein et al., TOCS 2014);
// the simulation of rates and placements is in docs/decisions/neighbours.md.
#pragma once

#include "penstock/base/hash.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/page_table.hpp"

namespace penstock::engine {

PENSTOCK_HD PENSTOCK_INLINE bool is_linked(const cache_view& c) { return c.neighbour_places != 0; }

// A page that a neighbour holds.
struct neighbour_page {
    const std::byte* frame = nullptr;  // null: no neighbour has the page
    const page_word* word = nullptr;
    page_word seen = 0;
    // The entry that led here.
    std::uint64_t life = 0, table = 0;
    std::uint32_t place = 0;
    std::uint16_t visit = 0;  // 0: the reader is not counted; else 1 + the number of its count
    bool is_loading = false;  // not there, but a neighbour of a lower rank is loading it
};

PENSTOCK_HD PENSTOCK_INLINE const neighbour_entry* entry_at(const cache_view& c,
                                                            const file_handle& f,
                                                            std::uint32_t place) {
    return &c.neighbour_entries[std::uint64_t{f.slot} * c.neighbour_places + place];
}

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t* visit_count(const cache_view& c, std::uint32_t visit) {
    return &c.visits->shards[(visit - 1) >> 1].inside[(visit - 1) & 1];
}

// One thread. Acquire: pairs with the host's look at the counts, so that a reader which that look
// does not include sees the entries that were taken away before it.
PENSTOCK_HD PENSTOCK_INLINE std::uint16_t enter_neighbours(const cache_view& c,
                                                           std::uint64_t page) {
    const auto shard = static_cast<std::uint32_t>(mix64(page)) & (visit_shards - 1),
               round = static_cast<std::uint32_t>(load_relaxed(&c.visits->round)) & 1;
    const auto visit = static_cast<std::uint16_t>(shard * 2 + round + 1);
    static_cast<void>(add_acquire(visit_count(c, visit), 1));
    return visit;
}
// One thread, after the last load of neighbours' memory by any thread of its group. Release: pairs
// with the host's look at the counts, so that the memory is unmapped after these loads.
PENSTOCK_HD PENSTOCK_INLINE void leave_neighbours(const cache_view& c, const neighbour_page& page) {
    if (page.visit != 0) reduce_release(visit_count(c, page.visit), ~std::uint64_t{0});
}

// One thread. Does any neighbour have this file? A hint, for files that none has.
PENSTOCK_HD PENSTOCK_INLINE bool has_entries(const cache_view& c, const file_handle& f) {
    std::uint64_t any = 0;
    for (std::uint32_t place = 0; place < c.neighbour_places; ++place)
        any |= load_relaxed(&entry_at(c, f, place)->life);
    return any != 0;
}

// One thread. The index of the page's word in the neighbour's arena, or no_word. Whatever lies in
// the entry or in the neighbour's memory, the index is within bounds.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t find_neighbour_word(const neighbour_view& n,
                                                              const page_word* words,
                                                              std::uint64_t life,
                                                              std::uint64_t table,
                                                              std::uint64_t page) {
    std::uint64_t index = table + page;
    if (has_neighbour_leaves(life)) {
        const std::uint64_t at = table + (page >> n.leaf_shift);
        if (at >= n.word_count) return no_word;
        const std::uint64_t leaf = load_far(words + at);
        // In order: the leaf was swept clean before the directory named it (find_in_leaf).
        end_load_for_read();
        if (leaf == 0) return no_word;
        index = leaf - 1 + (page & ((std::uint64_t{1} << n.leaf_shift) - 1));
    }
    return index < n.word_count ? index : no_word;
}

// Has the neighbour's slot still the life of an entry?
PENSTOCK_HD PENSTOCK_INLINE bool has_life(file_word file, std::uint64_t life) {
    return file_state(file) != file_vacant &&
           file_generation(file) == neighbour_generation_of(life);
}

// The file word of an entry that was looked at before, so that its slot is within bounds.
PENSTOCK_HD PENSTOCK_INLINE file_word load_file_there(const neighbour_view& n, std::uint64_t life) {
    return load_far(reinterpret_cast<const file_word*>(load_relaxed(&n.file_words)) +
                    neighbour_slot_of(life));
}

// Has an open for writing of the neighbour's slot been answered? The look of a second line.
PENSTOCK_HD PENSTOCK_INLINE bool is_granted_there(const neighbour_view& n, std::uint64_t life) {
    const auto* const writes = reinterpret_cast<const write_record*>(load_relaxed(&n.writes));
    const std::uint32_t slot = neighbour_slot_of(life);
    return writes != nullptr && slot < n.file_slots && load_far(&writes[slot].granted) != 0;
}

// What a look at one neighbour loads. The steps are apart so that looks at several neighbours, and
// the loads of each, are under way together.
struct neighbour_look {
    std::uint64_t life = 0, table = 0, words = 0, files = 0;
    const page_word* word = nullptr;
    page_word seen = 0;
    file_word file_seen = 0;

    // Entry and view: loads of the own device.
    PENSTOCK_HD PENSTOCK_INLINE void begin(const cache_view& c, const file_handle& f,
                                           std::uint32_t place) {
        const neighbour_entry* const entry = entry_at(c, f, place);
        const neighbour_view& n = c.neighbours[place];
        life = load_reference(&entry->life);  // the host wrote the view first
        table = load_relaxed(&entry->table);
        words = load_relaxed(&n.words);
        files = load_relaxed(&n.file_words);
    }
    // Page word and file word: loads of the neighbour.
    PENSTOCK_HD PENSTOCK_INLINE void ask(const neighbour_view& n, const file_handle& f,
                                         std::uint64_t page) {
        if (life == 0 || own_generation_of(life) != f.generation) return;
        const std::uint32_t slot = neighbour_slot_of(life);
        const auto* const arena = reinterpret_cast<const page_word*>(words);
        const std::uint64_t index = find_neighbour_word(n, arena, life, table, page);
        if (index == no_word || slot >= n.file_slots) return;
        word = arena + index;
        seen = load_far(word);
        file_seen = load_far(reinterpret_cast<const file_word*>(files) + slot);
    }
    // An entry may be of a life that ended, until the host withdraws it: a page that was found
    // through it would be refused at each check.
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE bool is_good(const neighbour_view& n) const {
        return word != nullptr && has_life(file_seen, life) && !is_granted_there(n, life);
    }
};

// One thread. Looks for the page in the neighbours at a distance of `nearest` to `farthest`, and
// takes the nearest: with a page of it the caller calls leave_neighbours when it is done. It asks
// two at a time: more under way would cost every kernel that reads registers (80 with four, and 64
// is all that a kernel of four blocks to a multiprocessor has).
PENSTOCK_HD PENSTOCK_NOINLINE inline neighbour_page look_at_neighbours(
    const cache_view& c, const file_handle& f, std::uint64_t page,
    std::uint32_t nearest = same_memory, std::uint32_t farthest = by_nvlink) {
    constexpr std::uint32_t at_once = 2;
    neighbour_page out;
    std::uint16_t visit = 0;
    if (c.visits != nullptr) {
        if (!has_entries(c, f)) return out;
        visit = enter_neighbours(c, page);
    }
    std::uint32_t best = farthest + 1;
    PENSTOCK_ROLLED
    for (std::uint32_t first = 0; first < c.neighbour_places; first += at_once) {
        neighbour_look look[at_once];
        PENSTOCK_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k)
            if (first + k < c.neighbour_places) look[k].begin(c, f, first + k);
        PENSTOCK_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k)
            if (first + k < c.neighbour_places) look[k].ask(c.neighbours[first + k], f, page);
        PENSTOCK_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k) {
            if (first + k >= c.neighbour_places) continue;
            const neighbour_view& n = c.neighbours[first + k];
            if (is_absent(look[k].seen) || n.distance < nearest || n.distance >= best ||
                !look[k].is_good(n))
                continue;
            if (is_loading(look[k].seen) && n.rank < c.link_rank && out.frame == nullptr)
                out.is_loading = true;
            if (!is_valid(look[k].seen) || frame_of(look[k].seen) >= n.frame_count) continue;
            best = n.distance;
            const auto* const frames = reinterpret_cast<const std::byte*>(load_relaxed(&n.frames));
            out = {frames + (std::uint64_t{frame_of(look[k].seen)} << c.page_shift),
                   look[k].word,
                   look[k].seen,
                   look[k].life,
                   look[k].table,
                   first + k,
                   0,
                   false};
        }
    }
    out.visit = visit;
    if (visit != 0 && out.frame == nullptr) {
        leave_neighbours(c, out);
        out.visit = 0;
    }
    return out;
}

// One thread. Does a neighbour hold the page, or does one of a lower rank load it? Such a page need
// not be read from the file ahead of its use. A hint: the neighbour may evict it at any time.
PENSTOCK_HD PENSTOCK_NOINLINE inline bool is_next_door(const cache_view& c, const file_handle& f,
                                                       std::uint64_t page) {
    if (!is_linked(c)) return false;
    const neighbour_page there = look_at_neighbours(c, f, page, same_memory, by_bus);
    leave_neighbours(c, there);
    return there.frame != nullptr || there.is_loading;
}

// One thread, after the copy and begin_recheck: do the bytes count?
PENSTOCK_HD PENSTOCK_INLINE bool is_as_seen(const cache_view& c, const file_handle& f,
                                            const neighbour_page& page) {
    // All looks are under way together.
    const page_word again = load_far(page.word);
    const file_word file = load_file_there(c.neighbours[page.place], page.life);
    const neighbour_entry* const entry = entry_at(c, f, page.place);
    const std::uint64_t life = load_relaxed(&entry->life), table = load_relaxed(&entry->table);
    const bool granted = is_granted_there(c.neighbours[page.place], page.life);
    return same_frame(again, page.seen) && has_life(file, page.life) && !granted &&
           life == page.life && table == page.table;
}

// One in so many reads that a neighbour serves lets its page enter this cache, if it wants whole
// pages and these are large; reads of parts of pages enter as much more seldom. A page at a
// neighbour is near already, and a frame for it is one less for a page that none has
// (docs/decisions/neighbours.md).
inline constexpr std::uint32_t neighbour_rate = 64, filling_neighbour_rate = 4;

// What entering costs besides its bytes, as so many bytes of the link: a claim, a frame, an
// eviction and fences of the system (bench/results/h200/2026-11-26-links-earlier.json, R3).
inline constexpr std::uint32_t neighbour_entry_bytes = 8192;

PENSTOCK_HD PENSTOCK_INLINE std::uint32_t neighbour_rate_of(const cache_view& c,
                                                            std::uint64_t wanted) {
    const auto part = static_cast<std::uint32_t>(wanted < c.page_bytes() ? wanted : c.page_bytes()),
               page_bytes = static_cast<std::uint32_t>(c.page_bytes());
    if (is_filling(c)) return filling_neighbour_rate * (page_bytes / part);
    return neighbour_rate * ((page_bytes + neighbour_entry_bytes) / part);
}

// Called by every thread that writes bytes of a frame which was taken from an earlier page.
PENSTOCK_HD PENSTOCK_INLINE void begin_overwrite_in(const cache_view& c) {
    begin_overwrite(is_linked(c));
}
// The same for the frames of several pages, one fence for all.
PENSTOCK_HD PENSTOCK_INLINE void begin_overwrites_in(const cache_view& c) { begin_overwrite_in(c); }

}  // namespace penstock::engine
