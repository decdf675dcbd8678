// A window that the host closes and opens again elsewhere, while pages are loaded through it.
#pragma once

#include <cstddef>

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

struct replaced_window : one_file {
    static constexpr std::uint64_t other_slot = 1, other_chunk = max_files + 1;

    explicit replaced_window(const shape& dimensions) : one_file(dimensions) {
        in_window();
        prepare = [this, before = prepare] {
            before();
            for (std::uint64_t page = 0; page < 2; ++page)
                for (std::uint64_t i = 0; i < words_per_page; ++i) {
                    bytes_of(other_slot)[page * words_per_page + i] = content(1, page, i);
                    bytes_of(other_slot + 1)[page * words_per_page + i] = content(2, page, i);
                }
            // A word of 0 names the chunk in front of the first, and what is there is no chunk
            // word.
            static_assert(offsetof(shared_memory, window_chunks) ==
                          offsetof(shared_memory, windows) + sizeof(shared_memory::windows));
            w.memory.windows[max_files - 1] =
                reinterpret_cast<std::uintptr_t>(bytes_of(other_slot + 1));
        };
    }

    // The file is cut and gets its bytes back; a new mapping shows them.
    template <typename Lane>
    void replace(const Lane&) {
        atomic_store<order::relaxed>(&w.memory.windows[0], engine::window_word{0});
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            atomic_store<order::relaxed>(bytes_of(0) + i, std::uint64_t{0});
        atomic_store<order::relaxed>(
            &w.memory.window_chunks[other_chunk],
            std::uint64_t{reinterpret_cast<std::uintptr_t>(bytes_of(other_slot))});
        atomic_store<order::release>(&w.memory.windows[0],
                                     engine::make_window_word(1, other_chunk));
    }

private:
    std::uint64_t* bytes_of(std::uint64_t slot) {
        return reinterpret_cast<std::uint64_t*>(w.memory.window_bytes + slot * 2 * page_bytes);
    }
};

}  // namespace penstock::explore_kit
