// The chunks of files that were asked for while they lay in no window: what windows may grow by.
//
// Windows show what lies in memory when they are opened. Rows that are wanted later and lie in no
// window come by request, or by a system call of the caller's thread, and both note here which
// chunk they read. At a moment that is safe for it the host looks whether these chunks are in
// memory by now, and takes them in (runtime::grow_windows); it need not look at whole files.
//
// Notes are hints: the host judges each chunk by itself. So a note may be lost to another one when
// there are very many, and words are relaxed. Thread-safe, without a lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "penstock/base/hash.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::host {

class asked_chunks {
public:
    struct chunk {
        std::uint32_t slot, generation;
        std::uint64_t number;
        auto operator<=>(const chunk&) const = default;
    };

    // 64 GiB of files, and 256 KiB of memory.
    static constexpr std::uint32_t most_places = 32768;

    // `places`: a power of two, at least `probes`.
    explicit asked_chunks(std::uint32_t file_slots, std::uint32_t places = most_places)
        : watched_(file_slots), places_(places) {}

    // From now on chunks of this life of the slot are noted, and of no earlier one.
    void watch(std::uint32_t slot, std::uint32_t generation) {
        if (slot < watched_.size()) watched_[slot].store(generation + 1, relaxed);
    }

    // This range of the file was asked for, and lay in no window.
    void note(std::uint32_t slot, std::uint32_t generation, std::uint64_t offset,
              std::uint64_t bytes) {
        if (!is_watched(slot, generation) || bytes == 0) return;
        constexpr std::uint32_t shift = engine::window_chunk_shift;
        const std::uint64_t first = offset >> shift, last = (offset + bytes - 1) >> shift;
        for (std::uint64_t number = first; number <= last && number < most_number; ++number)
            note(word_of({slot, generation, number}));
    }

    [[nodiscard]] bool empty() const { return noted_.load(relaxed) == 0; }

    // Takes the notes for which wanted(chunk) is true, up to `most`, in order and each once. Notes
    // of earlier lives of slots go as well.
    template <typename Wanted>
    std::vector<chunk> take(const Wanted& wanted, std::size_t most = SIZE_MAX) {
        std::vector<chunk> out;
        for (std::size_t i = 0; i < places_.size() && out.size() < most && !empty(); ++i) {
            const std::uint64_t word = places_[i].load(relaxed);
            if (word == 0) continue;
            const chunk c = chunk_of(word);
            const bool is_stale = !is_watched(c.slot, c.generation);
            if (!is_stale && !wanted(c)) continue;
            // Another thread may have put another note here meanwhile, which goes.
            if (places_[i].exchange(0, relaxed) == 0) continue;
            noted_.fetch_sub(1, relaxed);
            if (!is_stale) out.push_back(c);
        }
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
        return out;
    }

private:
    static constexpr std::memory_order relaxed = std::memory_order_relaxed;
    static constexpr std::uint32_t probes = 8;
    // A word of a note: bit 63, slot in 62..44, generation in 43..34, number of the chunk below.
    static constexpr std::uint32_t slot_shift = 44, generation_shift = 34;
    static constexpr std::uint64_t noted_bit = std::uint64_t{1} << 63,
                                   most_number = std::uint64_t{1} << generation_shift;

    static std::uint64_t word_of(const chunk& c) {
        return noted_bit | std::uint64_t{c.slot} << slot_shift |
               std::uint64_t{c.generation} << generation_shift | c.number;
    }
    static chunk chunk_of(std::uint64_t word) {
        return {static_cast<std::uint32_t>((word & ~noted_bit) >> slot_shift),
                static_cast<std::uint32_t>(word >> generation_shift) & engine::file_generation_mask,
                word & (most_number - 1)};
    }
    [[nodiscard]] bool is_watched(std::uint32_t slot, std::uint32_t generation) const {
        return slot < watched_.size() && watched_[slot].load(relaxed) == generation + 1;
    }

    void note(std::uint64_t word) {
        const std::uint64_t at = mix64(word);
        for (std::uint32_t i = 0; i < probes; ++i) {
            std::atomic<std::uint64_t>& place = places_[(at + i) & (places_.size() - 1)];
            std::uint64_t seen = place.load(relaxed);
            if (seen == 0 && place.compare_exchange_strong(seen, word, relaxed)) {
                noted_.fetch_add(1, relaxed);
                return;
            }
            if (seen == word) return;
        }
        // The newest stays.
        if (places_[at & (places_.size() - 1)].exchange(word, relaxed) == 0)
            noted_.fetch_add(1, relaxed);
    }

    std::vector<std::atomic<std::uint32_t>> watched_;  // by slot: generation + 1; 0: none
    std::vector<std::atomic<std::uint64_t>> places_;   // words of notes; 0: free
    std::atomic<std::uint64_t> noted_{0};              // places that are not free
};

}  // namespace penstock::host
