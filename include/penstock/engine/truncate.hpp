// Changes the size of an open file.
//
// A cut writes back the pages behind the cut first. Then the host cuts the file, then the size goes
// down, and in the end the pages behind the cut are dropped. So if the host refuses, nothing is
// lost, and no write-back that was under way makes the file longer again. A group that reads or
// writes behind the cut at the same time comes before or after it, page by page.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/file_table.hpp"
#include "penstock/engine/write.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::engine {

// Leader only. Cuts a page whose bytes from `keep` on no longer belong to the file: evicts it if no
// byte is left, else clears those bytes. Pages that a group has written to since stay. Returns 0,
// or the code that ended a wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t cut_page(const Group& g, const cache_view& c,
                                                    std::uint64_t word_index, std::uint32_t keep) {
    page_word* const word = &c.words[word_index];
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        page_word seen = load_relaxed(word);
        if (is_absent(seen)) return 0;
        if (is_loading(seen)) {
            if (const std::int64_t code = waiting.check(g, c); code != 0)
                return code == -ETIME ? -ETIMEDOUT : code;
            g.pause(round);
            continue;
        }
        if (keep == 0 && pins_of(seen) == 0 && !is_dirty(seen)) {
            if (!try_evict(word, seen)) continue;
            set_frame_word(c, frame_of(seen), frame_free);
            return 0;
        }
        seen = pin(word);
        const bool there = is_valid(seen) && pins_of(seen) < pin_limit;
        if (there && (keep != 0 || !is_dirty(seen)))
            lane{}.zero(c.frame_address(frame_of(seen)) + keep, c.page_bytes() - keep);
        unpin(word);
        if (there) return 0;
    }
}

// Leader only.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t cut_pages(const Group& g, const cache_view& c,
                                                     std::uint32_t slot, std::uint64_t size_bytes,
                                                     std::uint64_t old_bytes) {
    const auto keep = static_cast<std::uint32_t>(size_bytes & (c.page_bytes() - 1));
    const std::uint64_t first = size_bytes >> c.page_shift, end = pages_of(c, old_bytes);
    for (std::uint64_t page = first; page < end;) {
        const word_run run = words_from(c, slot, page);
        const std::uint64_t pages = run.pages < end - page ? run.pages : end - page;
        for (std::uint64_t i = 0; run.index != no_words && i < pages; ++i)
            if (const std::int64_t code =
                    cut_page(g, c, run.index + i, page + i == first ? keep : 0);
                code != 0)
                return code;
        page += pages;
    }
    return 0;
}

// Whole group. Makes the file end at `size_bytes`; new bytes read as zeros. Returns 0 or a negative
// errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t truncate_file(const Group g, const cache_view& c,
                                                         std::uint32_t slot,
                                                         std::uint64_t size_bytes) {
    std::int64_t code = 0;
    if (has_dirty_pages(g, c, slot))
        code = flush_pages(g, c, slot, size_bytes >> c.page_shift, ~std::uint64_t{0});
    if (code != 0) return code;
    if (g.is_leader()) {
        const std::uint64_t old_bytes = size_of(c, slot);
        // While the opener that has to cut the file does so, no other group has it open to write.
        code = ask_about_generation(g, c, op::truncate, slot, c.file_records[slot].generation,
                                    size_bytes, is_being_cut(c, slot) ? cut_alone : 0);
        if (code == 0) {
            cut_to(c, slot, size_bytes);
            cut_room(c, slot, size_bytes);
            cut_stored(c, slot, size_bytes);
            if (size_bytes < old_bytes) code = cut_pages(g, c, slot, size_bytes, old_bytes);
        }
    }
    return share_code(g, code);
}

// Whole group. Opens a file with flags that may be for writing. Returns a descriptor or a negative
// errno.
template <typename Group>
PENSTOCK_HD inline std::int64_t open_written(const Group& g, const cache_view& c, const char* path,
                                             std::uint32_t flags) {
    const std::int64_t opened = open_file(g, c, path, flags);
    if (opened < 0) return opened;
    const int fd = static_cast<int>(opened & (yours_to_cut - 1));
    const std::uint32_t slot = descriptor_slot(c, fd);
    std::int64_t code = 0;
    if ((opened & yours_to_cut) != 0) {
        code = by_address(&truncate_file<Group>)(g, c, slot, 0);
        if (g.is_leader()) end_cut(c, slot);
    } else {
        if (g.is_leader()) code = wait_for_cut(g, c, slot);
        code = share_code(g, code);
    }
    if (code == 0) return fd;
    by_address (&close_written<Group>)(g, c, fd);
    return code;
}

}  // namespace penstock::engine
