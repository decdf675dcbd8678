// The check of bytes from a neighbour with looks left out, for canaries. Included after a canary
// has named its engine.
#pragma once

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

struct looks {
    bool page = true, generation = true, file = true, entry = true, table = true;
};

inline bool seen_by(const looks& kept, const cache_view& c, const file_handle& f,
                    const neighbour_page& page) {
    const page_word again = load_far(page.word),
                    ignored = kept.generation ? page_word{0} : generation_mask;
    const file_word file = load_file_there(c.neighbours[page.place], page.life);
    const neighbour_entry* const entry = entry_at(c, f, page.place);
    const std::uint64_t life = load_relaxed(&entry->life), table = load_relaxed(&entry->table);
    if (kept.page && !same_frame(again & ~ignored, page.seen & ~ignored)) return false;
    if (kept.file && !has_life(file, page.life)) return false;
    if (kept.table && table != page.table) return false;
    return !kept.entry || life == page.life;
}

}  // namespace penstock::engine
