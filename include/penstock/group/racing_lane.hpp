// A host lane that copies the way the GPU does: without a pin, word by word with relaxed atomics,
// checked afterwards.
//
// It exists so that the optimistic read path runs under ThreadSanitizer, the schedule explorer and
// the model test on any machine. It is correct but slower than lane, which copies the same way by
// machine code (host_copy.hpp).
#pragma once

#include "penstock/base/atomic.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/group/lane.hpp"

namespace penstock {

struct racing_lane : lane {
    static constexpr bool copies_race() { return true; }

    void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
        // Frames are 16-byte aligned, so the aligned words around the range lie inside the frame.
        const auto address = reinterpret_cast<std::uintptr_t>(from);
        const std::size_t head = address % 8;
        const auto* word = reinterpret_cast<const std::uint64_t*>(from - head);
        std::size_t skip = head;
        while (bytes > 0) {
            const std::uint64_t value = atomic_load<order::relaxed>(word++);
            const std::size_t take = bytes < 8 - skip ? bytes : 8 - skip;
            std::memcpy(to, reinterpret_cast<const std::byte*>(&value) + skip, take);
            to += take;
            bytes -= take;
            skip = 0;
        }
    }

    // `from` may be a frame of a linked cache.
    void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) const {
        for (std::size_t i = 0; i < bytes; i += 8) {
            std::uint64_t value = 0;
            detail::load_atomically(reinterpret_cast<std::byte*>(&value), from + i, 8);
            store_word(to + i, value);
        }
    }

    void copy_store(std::byte* to, const std::byte* from, std::size_t bytes) const {
        while (bytes > 0) {
            if (reinterpret_cast<std::uintptr_t>(to) % 8 == 0 && bytes >= 8) {
                std::uint64_t value = 0;
                std::memcpy(&value, from, 8);
                store_word(to, value);
                to += 8, from += 8, bytes -= 8;
            } else {
                detail::store_atomically(to++, from++, 1);
                --bytes;
            }
        }
    }

    static void store_word(std::byte* to, std::uint64_t value) {
        atomic_store<order::relaxed>(reinterpret_cast<std::uint64_t*>(to), value);
    }

    // Uses the atomics of the engine, so that the explorer sees the accesses.
    void copy_frame(std::byte* to, const std::byte* from, std::size_t bytes) const {
        for (std::size_t i = 0; i < bytes; i += 8)
            atomic_store<order::relaxed>(
                reinterpret_cast<std::uint64_t*>(to + i),
                atomic_load<order::relaxed>(reinterpret_cast<const std::uint64_t*>(from + i)));
    }

    void copy_written(std::byte* to, const std::byte* from, std::size_t bytes) const {
        copy_out(to, from, bytes);
    }

    // Callers round the range to whole words: only the tail of a page past the end of the file is
    // cleared.
    void zero(std::byte* to, std::size_t bytes) const {
        for (; bytes > 0 && reinterpret_cast<std::uintptr_t>(to) % 8 != 0; --bytes)
            atomic_store<order::relaxed>(reinterpret_cast<std::uint8_t*>(to++), std::uint8_t{0});
        for (; bytes >= 8; bytes -= 8, to += 8)
            atomic_store<order::relaxed>(reinterpret_cast<std::uint64_t*>(to), std::uint64_t{0});
        for (; bytes > 0; --bytes)
            atomic_store<order::relaxed>(reinterpret_cast<std::uint8_t*>(to++), std::uint8_t{0});
    }
};

static_assert(group<racing_lane>);

}  // namespace penstock
