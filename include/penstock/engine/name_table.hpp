// The table of opened names: with it a million opens of one name cost one host call.
//
// Open addressing with a bounded probe. A used slot never becomes unused again, so a search may
// stop at the first unused slot. A search takes no lock: it reads a slot, compares it, and checks
// that its word is the same as before (engine/file_word.hpp). Only an opener that enters a new name
// takes a short lock, chosen by the name's hash, so that two openers of one new name cannot take
// two slots. A slot may be given to another name while its own file is not open, or if it has no
// path.
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

// May this slot be given to another name? Not while the file that the name leads to is open, even
// if the last open failed: the next group that opens the name has to tell the host which file is
// open (ask_to_open). But without a path no search finds the slot again: there was no room for the
// name. Else each further open of it would take a slot until the file is closed.
PENSTOCK_HD inline bool reusable_name(const cache_view& c, const name_slot& slot, name_word word) {
    if (name_state(word) == name_unused) return true;
    if (name_state(word) == name_busy) return false;
    const std::uint32_t file_slot = atomic_load<order::relaxed>(&slot.file_slot);
    return !is_open(look(&c.file_words[file_slot]),
                    atomic_load<order::relaxed>(&slot.generation)) ||
           path_bytes_of(slot) == 0;
}

// Leader only. Takes a slot for a name that find_name did not find. Returns 1: the caller owns
// `slot`, which is busy and carries the hash. 0: not now, because the lock is taken, a group
// entered the name meanwhile, or another name's opener was faster. -ENFILE: no slot within reach
// can be reused.
PENSTOCK_HD inline std::int64_t try_enter_name(const cache_view& c, const name_key& key,
                                               std::uint32_t& slot) {
    std::uint32_t* const lock = &c.name_locks[mix64(key.hash) & (c.name_lock_count - 1)];
    if (!try_lock(lock)) return 0;
    std::int64_t outcome = 0;
    name_match found{};
    if (!find_name(c, key, found)) {
        outcome = -ENFILE;
        for (std::uint32_t probe = 0; probe < probe_count(c); ++probe) {
            slot = probe_slot(c, key.hash, probe);
            const name_word word = load_name_for_read(&c.names[slot].word);
            if (!reusable_name(c, c.names[slot], word)) continue;
            outcome = try_own_name(&c.names[slot].word, word) ? 1 : 0;
            break;
        }
        if (outcome == 1) {
            atomic_store<order::relaxed>(&c.names[slot].hash, key.hash);
            forget_target(&c.names[slot].generation);  // the slot's new name has another file
        }
    }
    unlock(lock);
    return outcome;
}

}  // namespace penstock::engine
