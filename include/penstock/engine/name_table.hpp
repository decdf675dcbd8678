// The table of opened names: with it a million opens of one name cost one host call.
//
// Open addressing with a bounded probe. A used slot never becomes unused again, so a search may
// stop at the first unused slot. A search takes no lock: it reads a slot, compares it, and checks
// that its word is the same as before (engine/file_word.hpp). Only an opener that enters a new name
// takes a short lock, chosen by the name's hash, so that two openers of one new name cannot take
// two slots. A new name takes a slot whose file is not open, or that has no path. If there is none
// within reach, it takes that of a name whose file is open: names that are used no more would fill
// the table otherwise while their file stays open by any name.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine {

inline constexpr std::uint32_t max_name_probes = 64;
// As Linux: PATH_MAX with its terminating zero.
inline constexpr std::uint32_t max_path_bytes = 4095;

// A name from the caller, with its hash, and the flags of the open, which are no part of the name.
struct name_key {
    const char* text;
    std::uint32_t bytes;
    std::uint64_t hash;
    std::uint32_t flags = 0;
};

// Makes the key of a name that ends with a zero byte. Returns 0, -EFAULT, -ENOENT or -ENAMETOOLONG.
PENSTOCK_HD inline std::int64_t make_key(const char* path, std::uint32_t flags, name_key& out) {
    if (path == nullptr) return -EFAULT;
    out = {path, 0, 0, flags};
    PENSTOCK_ROLLED
    while (out.bytes <= max_path_bytes && path[out.bytes] != '\0') ++out.bytes;
    if (out.bytes == 0) return -ENOENT;
    if (out.bytes > max_path_bytes) return -ENAMETOOLONG;
    out.hash = hash_name(path, out.bytes);
    return 0;
}

struct name_match {
    std::uint32_t slot;
    name_word word;
    std::uint32_t file_slot;
    std::uint32_t generation;
    opening_count opening;
    std::int64_t error;
    std::uint64_t flags;
};

PENSTOCK_HD inline std::uint32_t probe_slot(const cache_view& c, std::uint64_t hash,
                                            std::uint32_t probe) {
    return static_cast<std::uint32_t>(hash + probe) & (c.name_slots - 1);
}

// A probe past the whole table would look at the same slots again.
PENSTOCK_HD inline std::uint32_t probe_count(const cache_view& c) {
    return c.name_slots < max_name_probes ? c.name_slots : max_name_probes;
}

PENSTOCK_HD inline std::uint64_t path_chunk(const name_key& key, std::uint32_t at) {
    return name_chunk(key.text, key.bytes, at);
}

// Copies the name to a ring slot's staging area.
PENSTOCK_HD inline void put_name(std::byte* staging, const name_key& key) {
    PENSTOCK_ROLLED
    for (std::uint32_t i = 0; i < key.bytes; i += 8)
        reinterpret_cast<std::uint64_t*>(staging)[i / 8] = path_chunk(key, i);
}

// 0: the slot has no path.
PENSTOCK_HD inline std::uint32_t path_bytes_of(const name_slot& slot) {
    return atomic_load<order::relaxed>(&slot.path_bytes);
}

// The slot may be rewritten meanwhile, so its fields are read with relaxed atomics and believed
// only if the slot's word did not change.
PENSTOCK_HD inline bool same_path(const cache_view& c, const name_slot& slot, const name_key& key) {
    if (path_bytes_of(slot) != key.bytes) return false;
    const std::uint64_t* stored = c.paths + atomic_load<order::relaxed>(&slot.path_at);
    PENSTOCK_ROLLED
    for (std::uint32_t i = 0; i < key.bytes; i += 8)
        if (atomic_load<order::relaxed>(stored + i / 8) != path_chunk(key, i)) return false;
    return true;
}

// Leader only. Looks for the name. Returns true if `out` is its slot; its word may be ready,
// failed, or busy (then only the hash matched: the name in a busy slot cannot be compared yet).
PENSTOCK_HD inline bool find_name(const cache_view& c, const name_key& key, name_match& out) {
    for (std::uint32_t probe = 0; probe < probe_count(c); ++probe) {
        out.slot = probe_slot(c, key.hash, probe);
        const name_slot& slot = c.names[out.slot];
        for (;;) {
            out.word = load_name_for_read(&slot.word);
            if (name_state(out.word) == name_unused) return false;
            if (atomic_load<order::relaxed>(&slot.hash) != key.hash) break;
            if (name_state(out.word) == name_busy) return true;
            const bool same = same_path(c, slot, key);
            out.file_slot = atomic_load<order::relaxed>(&slot.file_slot);
            out.generation = atomic_load<order::relaxed>(&slot.generation);
            out.opening = openings_of(&slot.opening);
            out.error = atomic_load<order::relaxed>(&slot.error);
            out.flags = atomic_load<order::relaxed>(&slot.flags);
            if (!name_unchanged(&slot.word, out.word))
                continue;  // the slot was rewritten meanwhile; each time a group settled a name
            if (same) return true;
            break;
        }
    }
    return false;
}

// Is the file open to which the name led when it was opened last, and was it never closed since?
PENSTOCK_HD inline bool leads_to_open_file(const cache_view& c, const name_slot& name) {
    const std::uint32_t slot = atomic_load<order::relaxed>(&name.file_slot);
    return slot < c.file_slots &&
           is_open(look(&c.file_words[slot]), atomic_load<order::relaxed>(&name.generation)) &&
           openings_of(&c.openings[slot]) == openings_of(&name.opening);
}

// Does it cost nothing to give this slot, which is not busy, to another name? It does while the
// file that the name leads to is open, even if the last open failed: the next group that opens the
// name tells the host which file is open (ask_to_open). But without a path no search finds the slot
// again: there was no room for the name.
PENSTOCK_HD inline bool is_spare_name(const cache_view& c, const name_slot& slot, name_word word) {
    if (name_state(word) == name_unused) return true;
    return !leads_to_open_file(c, slot) || path_bytes_of(slot) == 0;
}

// The slot within reach that a new name is to take, and its word: the first that is spare, or else
// the first that is not busy. The next open of the name that loses its slot asks the host. That
// costs a call, but gives no wrong file: its file keeps its slot while it has not changed. False:
// all are busy.
PENSTOCK_HD inline bool choose_name_slot(const cache_view& c, std::uint64_t hash,
                                         std::uint32_t& slot, name_word& word) {
    bool is_chosen = false;
    for (std::uint32_t probe = 0; probe < probe_count(c); ++probe) {
        const std::uint32_t at = probe_slot(c, hash, probe);
        const name_word seen = load_name_for_read(&c.names[at].word);
        if (name_state(seen) == name_busy) continue;
        const bool is_spare = is_spare_name(c, c.names[at], seen);
        if (is_chosen && !is_spare) continue;
        is_chosen = true;
        slot = at;
        word = seen;
        if (is_spare) break;
    }
    return is_chosen;
}

// Leader only. Takes a slot for a name that find_name did not find. True: the caller owns `slot`,
// which is busy and carries the hash. False: not now, because the lock is taken, a group entered
// the name meanwhile, another name's opener was faster, or all slots within reach are busy.
PENSTOCK_HD inline bool try_enter_name(const cache_view& c, const name_key& key,
                                       std::uint32_t& slot) {
    std::uint32_t* const lock = &c.name_locks[mix64(key.hash) & (c.name_lock_count - 1)];
    if (!try_lock(lock)) return false;
    name_match found{};
    name_word word = 0;
    const bool owned = !find_name(c, key, found) && choose_name_slot(c, key.hash, slot, word) &&
                       try_own_name(&c.names[slot].word, word);
    if (owned) {
        atomic_store<order::relaxed>(&c.names[slot].hash, key.hash);
        forget_target(&c.names[slot].generation);  // the slot's new name has another file
    }
    unlock(lock);
    return owned;
}

}  // namespace penstock::engine
