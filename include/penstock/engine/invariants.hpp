// Checks every rule that holds while no group and no service thread is inside a verb. For tests and
// debugging.
//
// Host only: it walks all words of a cache whose memory the host can read (the cpu back end, or a
// copy of a device's). Slow, takes no lock, allocates nothing. The numbers are those of
// docs/protocol/page_word.md, docs/protocol/ring.md, docs/protocol/file_word.md.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

// Names the first broken rule and the index of the word, frame or slot that breaks it; `rule` is
// null if all rules hold.
struct invariant_report {
    const char* rule;
    std::uint64_t where;
};

// What the caller holds on purpose.
struct quiescent_state {
    std::uint64_t mappings = 0;    // pins of mappings that were not given back
    std::uint64_t references = 0;  // opens without their close
    std::uint32_t seats = 0;       // of groups that write behind
};

namespace detail {

// The live file whose table, directory excluded, holds this arena word; file_slots if there is
// none.
inline std::uint32_t file_of_word(const cache_view& c, std::uint64_t word_index) {
    for (std::uint32_t slot = 0; slot < c.file_slots; ++slot) {
        const file_record& record = c.file_records[slot];
        if (file_state(c.file_words[slot]) != file_live) continue;
        const std::uint64_t leaf_words = std::uint64_t{1} << c.leaf_shift;
        for (std::uint64_t i = 0; record.growth >= growth_first && i < c.growth_entries; ++i) {
            const page_word entry = c.words[record.growth - growth_first + i];
            if (entry != 0 && word_index - (entry - 1) < leaf_words) return slot;
        }
        if (record.two_level == 0) {
            if (word_index - record.table < record.page_count) return slot;
            continue;
        }
        const std::uint64_t leaves = (record.page_count + leaf_words - 1) >> c.leaf_shift;
        for (std::uint64_t i = 0; i < leaves; ++i) {
            const page_word entry = c.words[record.table + i];
            if (entry != 0 && word_index - (entry - 1) < leaf_words) return slot;
        }
    }
    return c.file_slots;
}

inline invariant_report check_words(const cache_view& c, std::uint64_t mappings) {
    std::uint64_t pins = 0;
    for (std::uint64_t i = 0; i < c.word_count; ++i) {
        const page_word word = c.words[i];
        pins += pins_of(word);
        if (is_loading(word)) return {"no page is loading", i};
        if (!is_valid(word)) continue;
        if (frame_of(word) >= c.frame_count) return {"a valid page names a frame", i};
        if (is_dirty(word) && c.writes == nullptr)
            return {"no page of a runtime that does not write is dirty", i};
        const std::uint32_t owner = file_of_word(c, i);
        if (owner == c.file_slots) return {"a valid page belongs to a live file", i};
        if ((c.frame_words[frame_of(word)] & ~replica_bit) != make_owned(owner, i))
            return {"the frame of a valid page names that page", i};
    }
    if (pins != mappings) return {"only mappings hold pins", pins};
    return {nullptr, 0};
}

// Marks, dirty bits and counts agree. A dirty page may have no marks: they were written back before
// their writer marked it dirty.
inline invariant_report check_writes(const cache_view& c, std::uint32_t seats) {
    if (c.writes == nullptr) return {nullptr, 0};
    if (victim_writers(c) != 0) return {"no group writes a victim back", victim_writers(c)};
    if (write_behind_writers(c) != seats)
        return {"no group writes behind", write_behind_writers(c)};
    for (std::uint32_t frame = 0; frame < c.frame_count; ++frame) {
        bool marked = false;
        for (std::uint64_t i = 0; i < mark_words(c); ++i)
            marked = marked || marks_of(c, frame)[i] != 0;
        if ((c.write_locks[frame] & lock_held) != 0) return {"no frame is locked", frame};
        if (c.pristine[frame] != 0) return {"no page is held to be changed", frame};
        const frame_word owner = c.frame_words[frame];
        const bool owned = (owner & frame_state_mask) == frame_owned;
        const page_word word = owned ? c.words[owner_word_index(owner)] : 0;
        const bool dirty = is_valid(word) && frame_of(word) == frame && is_dirty(word);
        if (marked && !dirty) return {"a page with marks is dirty", frame};
    }
    for (std::uint32_t slot = 0; slot < c.file_slots; ++slot) {
        if (file_state(c.file_words[slot]) != file_live) continue;
        if ((c.writes[slot].gate & gate_groups) != 0) return {"no group is in a gate", slot};
        if (c.writes[slot].cut_lock != 0) return {"no group cuts a file", slot};
        if ((c.writes[slot].writers & ~cut_due) > references_of(c.file_words[slot]))
            return {"every writer has a reference", slot};
        std::uint64_t dirty = 0;
        for (std::uint64_t i = 0; i < c.word_count; ++i)
            if (is_valid(c.words[i]) && is_dirty(c.words[i]) &&
                owner_file_slot(c.frame_words[frame_of(c.words[i])]) == slot)
                ++dirty;
        if (c.writes[slot].dirty_pages != dirty) return {"a file's dirty pages are counted", slot};
    }
    return {nullptr, 0};
}

// A fill that no group came for may still be under way, and then it has a pin.
inline invariant_report check_tier(const cache_view& c) {
    const tier_view& t = c.tier;
    for (std::uint64_t i = 0; t.words != nullptr && i < c.word_count; ++i) {
        const page_word word = t.words[i];
        if (is_loading(word)) return {"no page is on its way to the tier", i};
        if (!is_valid(word)) {
            if (pins_of(word) != 0) return {"no page that is not in the tier is pinned there", i};
            continue;
        }
        const std::uint32_t frame = frame_of(word);
        if (frame >= t.frame_count) return {"a valid page names a frame of the tier", i};
        if (pins_of(word) != (t.fill_marks[frame] > 1 ? 1u : 0u))
            return {"only fills under way hold pins in the tier", i};
        const std::uint32_t owner = file_of_word(c, i);
        if (owner == c.file_slots) return {"a valid page of the tier belongs to a live file", i};
        if (t.frame_words[frame] != make_owned(owner, i))
            return {"the frame of a valid page of the tier names that page", i};
    }
    return {nullptr, 0};
}

template <typename Pool>
inline invariant_report check_frames(const cache_view& whole, const Pool& c) {
    for (std::uint32_t frame = 0; frame < c.frame_count; ++frame) {
        const frame_word own = c.frame_words[frame];
        const frame_word state = own & frame_state_mask;
        if (state == frame_free) continue;
        if (state != frame_owned) return {"every frame is free or owned: none is lost", frame};
        if (owner_word_index(own) >= whole.word_count)
            return {"a frame names an arena word", frame};
        const page_word word = c.words[owner_word_index(own)];
        if (!is_valid(word) || frame_of(word) != frame)
            return {"an owned frame is named by its page", frame};
    }
    return {nullptr, 0};
}

// Every slot's free mark permits one of the next tickets. A slot that was given up becomes free
// with its answer; at this point it may still wait for that answer.
inline invariant_report check_ring(const ring_view& r, std::uint32_t index) {
    const std::uint64_t tail = *r.tail;
    for (std::uint64_t t = tail; t < tail + r.slots; ++t)
        if ((r.free_ticket[slot_of(r, t)] & ~orphan_bit) != t)
            return {"every ring slot was given back", index};
    return {nullptr, 0};
}

inline invariant_report check_files(const cache_view& c, std::uint64_t references) {
    std::uint64_t held = 0;
    for (std::uint32_t slot = 0; slot < c.file_slots; ++slot) {
        const file_word word = c.file_words[slot];
        if (file_state(word) == file_busy) return {"no file slot is busy", slot};
        if (file_state(word) != file_live) continue;
        held += references_of(word);
        if (c.file_records[slot].generation != file_generation(word))
            return {"a live file's record is its own", slot};
    }
    if (held != references) return {"only open descriptors hold references", held};
    return {nullptr, 0};
}

// Could one name find both slots? A slot whose opener could not ask the host may still carry its
// last name's text.
inline bool same_name(const cache_view& c, const name_slot& a, const name_slot& b) {
    if (a.hash == 0 || a.hash != b.hash || a.path_bytes == 0 || a.path_bytes != b.path_bytes)
        return false;
    for (std::uint32_t i = 0; i < (a.path_bytes + 7) / 8; ++i)
        if (c.paths[a.path_at + i] != c.paths[b.path_at + i]) return false;
    return true;
}

inline invariant_report check_names(const cache_view& c) {
    for (std::uint32_t i = 0; i < c.name_lock_count; ++i)
        if (c.name_locks[i] != 0) return {"no name lock is held", i};
    for (std::uint32_t i = 0; i < c.name_slots; ++i) {
        if (name_state(c.names[i].word) == name_busy) return {"no name is busy", i};
        for (std::uint32_t j = 0; j < i; ++j)
            if (same_name(c, c.names[i], c.names[j])) return {"a name is in one slot only", i};
    }
    return {nullptr, 0};
}

}  // namespace detail

inline invariant_report check_invariants(const cache_view& c, const quiescent_state& held = {}) {
    invariant_report found = detail::check_words(c, held.mappings);
    if (found.rule == nullptr) found = detail::check_frames(c, c);
    if (found.rule == nullptr) found = detail::check_writes(c, held.seats);
    if (found.rule == nullptr) found = detail::check_tier(c);
    if (found.rule == nullptr && c.tier.words != nullptr) found = detail::check_frames(c, c.tier);
    for (std::uint32_t i = 0; i < c.ring_count && found.rule == nullptr; ++i)
        found = detail::check_ring(c.rings[i], i);
    if (found.rule == nullptr) found = detail::check_files(c, held.references);
    if (found.rule == nullptr) found = detail::check_names(c);
    return found;
}

}  // namespace penstock::engine
