// Files in a window: readers whose pages stay out of the cache, and a window that the host closes
// and opens again elsewhere while pages are loaded through it.
#pragma once

#include <cstddef>

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

// Of a file whose pages stay out of the cache: what its readers may meet.
struct read_through_file : one_file {
    explicit read_through_file(const shape& dimensions) : one_file(dimensions) {
        in_window();
        w.view.admit_one_in = 1u << 28;
        prepare = [this, before = prepare] {
            before();
            w.memory.fill_done = 1;
            w.counters = {};
        };
    }

    [[nodiscard]] std::uint64_t counted(engine::counter kind) const {
        return w.counters.count[kind];
    }

    // The host closes the window, and the file is cut: its memory has other bytes from then on.
    template <typename Lane>
    void close_and_cut(const Lane&) {
        atomic_store<order::relaxed>(&w.memory.windows[0], engine::window_word{0});
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            atomic_store<order::relaxed>(bytes_of(0) + i, std::uint64_t{0});
    }

    // A program writes: the first word of a page is a version number.
    template <typename Lane>
    void write_version(const Lane&, std::uint64_t version, std::uint64_t page = 0) {
        atomic_store<order::relaxed>(bytes_of(page), version);
    }
    template <typename Lane>
    std::uint64_t read_version(const Lane& g) {
        std::uint64_t got = 0;
        explore::require(read(g, w.fs(), fd, &got, sizeof got, 0) == sizeof got, "a read failed");
        return got;
    }
    // A page that is mapped enters the cache.
    template <typename Lane>
    void bring_in(const Lane& g, std::uint64_t page = 0) {
        const mapping m =
            map(g, w.fs(), fd, static_cast<std::int64_t>(page * page_bytes), page_bytes);
        explore::require(m.bytes == page_bytes, "a map failed");
        explore::require(unmap(g, w.fs(), m) == 0, "an unmap failed");
    }
    // One lane reads twice, while another brings the page in and a program writes.
    void reader_while_the_page_enters() {
        lane([this](auto g) { bring_in(g); });
        lane([this](auto g) { write_version(g, ~std::uint64_t{0}); });
        lane([this](auto g) {
            const std::uint64_t first = read_version(g);
            explore::require(read_version(g) >= first, "a reader went back in time");
        });
    }

    // The same with the last page of a read that begins with a page out of the cache.
    void reader_of_two_while_the_second_enters() {
        const auto read_last = [this](const auto& g) {
            std::uint64_t got[2 * words_per_page] = {};
            explore::require(read(g, w.fs(), fd, got, sizeof got, 0) == sizeof got,
                             "a read failed");
            return got[words_per_page];
        };
        lane([this](auto g) { bring_in(g, 1); });
        lane([this](auto g) { write_version(g, ~std::uint64_t{0}, 1); });
        lane([read_last](auto g) {
            const std::uint64_t first = read_last(g);
            explore::require(read_last(g) >= first, "a reader went back in time");
        });
    }

private:
    std::uint64_t* bytes_of(std::uint64_t page) {
        return reinterpret_cast<std::uint64_t*>(w.memory.window_bytes + page * page_bytes);
    }
};

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
