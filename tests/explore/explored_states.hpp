// The states from which a bounded exploration has gone on already, so that it goes on from each
// once (explorer.hpp says why that leaves nothing out).
//
// A state is known by a key of 64 bits: two of ten million states share one by chance in three of a
// million explorations.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace explore {

constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u + b;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

// A hash of memory that changes little between two looks: only words that changed are hashed.
class memory_hash {
public:
    std::uint64_t look(const std::byte* memory, std::size_t bytes) {
        if (seen_.size() != (bytes + 7) / 8) {
            seen_.assign((bytes + 7) / 8, 0);
            sum_ = 0;
        }
        std::size_t at = 0;
        for (; (at + block) * 8 <= bytes; at += block) {
            std::array<std::uint64_t, block> now;
            std::memcpy(now.data(), memory + at * 8, sizeof now);
            std::uint64_t changed = 0;
            for (std::size_t i = 0; i < block; ++i) changed |= now[i] ^ seen_[at + i];
            if (changed != 0)
                for (std::size_t i = 0; i < block; ++i) replace(at + i, now[i]);
        }
        for (; at < seen_.size(); ++at) {
            std::uint64_t now = 0;
            std::memcpy(&now, memory + at * 8, std::min<std::size_t>(8, bytes - at * 8));
            replace(at, now);
        }
        return sum_;
    }

private:
    static constexpr std::size_t block = 8;
    // Memory of zeros has the sum 0.
    static std::uint64_t term(std::size_t at, std::uint64_t word) {
        return word == 0 ? 0 : mix(word, at + 1);
    }
    void replace(std::size_t at, std::uint64_t now) {
        sum_ += term(at, now) - term(at, seen_[at]);
        seen_[at] = now;
    }

    std::vector<std::uint64_t> seen_;
    std::uint64_t sum_ = 0;
};

// Fibers are numbered from 0, and Fibers stands for none of them.
template <std::uint32_t Fibers>
class explored_states {
public:
    // Is there a schedule from here that was not possible from the state as it was met before? Then
    // it counts as met. `last` made the last step and can go on, so that every other fiber would be
    // one more preemption; `preemptions` were used up.
    bool enter(std::uint64_t key, std::uint32_t last, std::uint32_t preemptions) {
        key |= key == 0 ? 1 : 0;
        if (2 * used_ >= entries_.size()) grow();
        entry& met = find(key);
        if (met.key == 0) ++used_;
        met.key = key;
        const auto most =
            static_cast<std::uint8_t>(std::min<std::uint32_t>(preemptions, unmet - 1));
        for (std::uint32_t fiber = 0; fiber <= Fibers; ++fiber) {
            // Where a switch was free, or would have been from the same fiber, all was possible
            // with as many; from another fiber, with one fewer.
            const std::uint32_t dearer = fiber == last || fiber == Fibers ? 0 : 1;
            if (met.fewest[fiber] != unmet && met.fewest[fiber] + dearer <= most) return false;
        }
        met.fewest[last] = most;
        return true;
    }

    void clear() {
        entries_.clear();
        used_ = 0;
    }
    std::size_t count() const { return used_; }

private:
    static constexpr std::uint8_t unmet = 0xff;
    struct entry {
        std::uint64_t key = 0;  // 0: free
        std::array<std::uint8_t, Fibers + 1> fewest;
        entry() { fewest.fill(unmet); }
    };

    entry& find(std::uint64_t key) {
        const std::size_t mask = entries_.size() - 1;
        std::size_t at = key & mask;
        while (entries_[at].key != 0 && entries_[at].key != key) at = (at + 1) & mask;
        return entries_[at];
    }
    void grow() {
        std::vector<entry> old(std::max<std::size_t>(1024, 2 * entries_.size()));
        old.swap(entries_);
        for (const entry& e : old)
            if (e.key != 0) find(e.key) = e;
    }

    std::vector<entry> entries_;
    std::size_t used_ = 0;
};

}  // namespace explore
