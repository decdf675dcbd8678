// What a block holds by the calls of the original GPUfs: its mappings, and the sizes of its files
// when it opened them.
//
// gmunmap is told an address and nothing else. An address one past a page is the first of the next
// frame, which may be another block's mapping; so a block notes what it mapped, and may unmap only
// that. fstat may be called by one thread or by all, so it cannot synchronise; from a note all
// threads take the same size, whatever other blocks write meanwhile.
//
// The notes lie in shared memory, 1.8 KiB in each kernel that uses these calls. Shared memory is
// not cleared for a new block, so a tag says whose notes they are. Leaders alone change them, each
// word by one atomic step; several warps may do so at once.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"
#include "penstock/group/gpu_groups.cuh"
#include "penstock/group/lane.hpp"

namespace penstock::gpufs {

using note_word = unsigned long long;  // the type of CUDA's atomics

struct block_notes {
    static constexpr std::uint32_t most_mappings = 128, most_files = 16;
    note_word tag;
    std::uint32_t places;               // how many of the mappings, from the first on, were in use
    note_word mappings[most_mappings];  // mapping_key and a count of references; 0 free, 1 reserved
    std::uint32_t ends[most_mappings];  // where in its page a mapping ends
    note_word files[most_files];        // descriptor + 1, and how often it was opened below; or
                                        // 0 free, 1 being filled
    note_word sizes[most_files];
};

// One for each block. Not inlined: with -rdc=true source files share the function, and by it the
// notes.
PENSTOCK_D PENSTOCK_NOINLINE inline block_notes& notes_memory() {
    __shared__ block_notes memory;
    return memory;
}

// Another number for every block of every launch, with bit 0 clear.
PENSTOCK_D inline note_word tag_of_block() {
    note_word grid = 0;
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
    return mix64(mix64(grid + 0x9e3779b97f4a7c15ull) + detail::device_block_number()) &
           ~note_word{1};
}

PENSTOCK_D inline note_word look(const note_word* word) {
    note_word seen = 0;
    asm volatile("ld.relaxed.cta.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
    return seen;
}

// The block's notes, or null if it has none yet.
PENSTOCK_D inline block_notes* notes_if_any() {
    block_notes& n = notes_memory();
    return look(&n.tag) == tag_of_block() ? &n : nullptr;
}

// Leader only. The block's notes, cleared by the first leader that asks; bit 0 of the tag is set
// meanwhile.
PENSTOCK_D inline block_notes& notes_of_block() {
    block_notes& n = notes_memory();
    const note_word own_tag = tag_of_block();
    for (note_word seen = look(&n.tag); seen != own_tag; seen = look(&n.tag)) {
        if (seen == (own_tag | 1) || atomicCAS(&n.tag, seen, own_tag | 1) != seen) continue;
        // Atomic, as every other change of these words: the next leader may change them right
        // after.
        atomicExch(&n.places, 0u);
        for (note_word& word : n.mappings) atomicExch(&word, note_word{0});
        for (note_word& word : n.files) atomicExch(&word, note_word{0});
        __threadfence_block();  // pairs with the fence below: the words are cleared before the tag
        atomicExch(&n.tag, own_tag);
    }
    __threadfence_block();
    return n;
}

// The holder of a mapping: 0 the whole block, else the number of a warp + 1.
PENSTOCK_D inline std::uint32_t holder_of(const block&) { return 0; }
PENSTOCK_D inline std::uint32_t holder_of(const warp&) {
    return detail::device_thread_in_block() / 32 + 1;
}

// Frame, holder and kind in the upper half and bits 31..24; the count of references below.
inline constexpr note_word one_reserved = 1, count_mask = 0xffffff;
PENSTOCK_D inline note_word mapping_key(std::uint32_t frame, std::uint32_t holder, bool changes) {
    return (note_word{frame} + 1) << 32 | note_word{changes ? 1u : 0u} << 31 |
           note_word{holder} << 24;
}

// Leader only. A place for a mapping that is to be made, or most_mappings if the block holds as
// many as it may.
PENSTOCK_D inline std::uint32_t reserve_mapping(block_notes& n) {
    for (std::uint32_t i = 0; i < block_notes::most_mappings; ++i) {
        if (look(&n.mappings[i]) != 0 || atomicCAS(&n.mappings[i], note_word{0}, one_reserved) != 0)
            continue;
        atomicMax(&n.places, i + 1);
        return i;
    }
    return block_notes::most_mappings;
}
PENSTOCK_D inline void drop_reserved(block_notes& n, std::uint32_t place) {
    atomicExch(&n.mappings[place], note_word{0});
}
PENSTOCK_D inline void note_mapping(block_notes& n, std::uint32_t place, note_word key,
                                    std::uint32_t end, int references) {
    atomicExch(&n.ends[place], end);  // a word that another warp's mapping had before
    __threadfence_block();  // the end comes before the key, by which another warp may find it
    atomicExch(&n.mappings[place], key | static_cast<note_word>(references));
}

// Leader only. Where a mapping of the frame is noted: the holder's own before the block's, one for
// reading before one for changing. So of two of one page, stores through the second are not lost.
// most_mappings if there is none.
PENSTOCK_D inline std::uint32_t find_mapping(block_notes& n, std::uint32_t frame,
                                             std::uint32_t holder, note_word& found) {
    const note_word keys[] = {mapping_key(frame, holder, false), mapping_key(frame, holder, true),
                              mapping_key(frame, 0, false), mapping_key(frame, 0, true)};
    std::uint32_t place = block_notes::most_mappings, best = 4;
    const std::uint32_t places = atomicAdd(&n.places, 0u);
    for (std::uint32_t i = 0; i < places && best != 0; ++i) {
        const note_word seen = look(&n.mappings[i]);
        for (std::uint32_t rank = 0; rank < best; ++rank) {
            if ((seen & ~count_mask) != keys[rank]) continue;
            best = rank;
            place = i;
            found = seen;
        }
    }
    return place;
}

// A reference that a holder gives back, or is about to use.
struct held_mapping {
    std::uint32_t frame, end;
    bool held, changes;
};

// Leader only. Looks for a reference to the frame and, with `take`, takes it off the notes.
PENSTOCK_D inline held_mapping held_by(std::uint32_t frame, std::uint32_t holder, bool take) {
    block_notes* const n = notes_if_any();
    if (n == nullptr) return {frame, 0, false, false};
    for (;;) {
        note_word found = 0;
        const std::uint32_t place = find_mapping(*n, frame, holder, found);
        if (place == block_notes::most_mappings) return {frame, 0, false, false};
        __threadfence_block();  // pairs with that of note_mapping
        const std::uint32_t end = n->ends[place];
        const note_word rest = (found & count_mask) == 1 ? 0 : found - 1;
        if (!take || atomicCAS(&n->mappings[place], found, rest) == found)
            return {frame, end, true, (found >> 31 & 1) != 0};
    }
}

// Leader only. The size of a file that the block has just opened; of one that it has open already,
// the first counts.
PENSTOCK_D inline void note_open(int fd, std::uint64_t size_bytes) {
    block_notes& n = notes_of_block();
    const note_word key = (note_word{static_cast<std::uint32_t>(fd)} + 1) << 32;
    for (note_word& word : n.files)
        for (note_word seen = look(&word); seen >> 32 == key >> 32; seen = look(&word))
            if (atomicCAS(&word, seen, seen + 1) == seen) return;
    for (std::uint32_t i = 0; i < block_notes::most_files; ++i) {
        if (look(&n.files[i]) != 0 || atomicCAS(&n.files[i], note_word{0}, note_word{1}) != 0)
            continue;
        n.sizes[i] = size_bytes;
        __threadfence_block();  // the size comes before the key
        atomicExch(&n.files[i], key | 1);
        return;
    }
}

// Leader only, before the descriptor is given back.
PENSTOCK_D inline void forget_open(int fd) {
    block_notes* const n = notes_if_any();
    if (n == nullptr) return;
    for (note_word& word : n->files)
        for (note_word seen = look(&word);
             seen >> 32 == note_word{static_cast<std::uint32_t>(fd)} + 1; seen = look(&word))
            if (atomicCAS(&word, seen, (seen & 0xffffffff) == 1 ? 0 : seen - 1) == seen) return;
}

// Any thread. True if the block has the file open; its size then, as the block found it.
PENSTOCK_D inline bool size_at_open(int fd, std::uint64_t& size_bytes) {
    block_notes* const n = notes_if_any();
    if (n == nullptr) return false;
    for (std::uint32_t i = 0; i < block_notes::most_files; ++i) {
        if (look(&n->files[i]) >> 32 != note_word{static_cast<std::uint32_t>(fd)} + 1) continue;
        __threadfence_block();  // pairs with that of note_open
        size_bytes = n->sizes[i];
        return true;
    }
    return false;
}

}  // namespace penstock::gpufs
