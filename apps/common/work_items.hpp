// Work of a kernel or of CPU threads: how a whole is cut into pieces, and how groups take items
// from one counter and note the first error.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/base/macros.hpp"
#include "penstock/file.hpp"

namespace penstock::apps {

// Items of work that groups of a kernel, or CPU threads, take from one counter, and the first error
// that any of them met.
struct work_totals {
    std::uint64_t items_taken;
    std::int32_t code;     // 0, or the first error
    std::uint32_t failed;  // what it was about, in the program's own numbers
};

// By one thread.
PENSTOCK_HD PENSTOCK_INLINE void note_error(work_totals* totals, std::uint32_t about,
                                            std::int64_t code) {
    if (atomic_compare_swap<order::relaxed>(&totals->code, 0, static_cast<std::int32_t>(code)))
        totals->failed = about;
}

// Whole group. The next item in order, or `count` when no more is to be done: after the last, after
// an error, or when `stop()` says that the user interrupted.
template <typename Group, typename Stop>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t take_item(const Group& g, work_totals* totals,
                                                    std::uint64_t count, const Stop& stop) {
    std::uint64_t item = count;
    if (g.is_leader() && !stop() && atomic_load<order::relaxed>(&totals->code) == 0)
        item = atomic_fetch_add<order::relaxed>(&totals->items_taken, std::uint64_t{1});
    item = g.broadcast(item);
    return item < count ? item : count;
}

// Whole group, which has done its part of something that `parts` make together. True for the one
// group that was the last to end: then every thread of it sees what the others did, and `ended`
// counts from 0 again.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool ends_last(const Group& g, std::uint64_t* ended,
                                           std::uint64_t parts) {
    bool last = false;
    g.sync();  // what any thread did comes before the leader's release
    if (g.is_leader()) {
        // Release: with what this group did. Acquire: of every group that added before; their
        // releases are its partners. Without it the last group could use what is still on its way.
        last = atomic_fetch_add<order::acq_rel>(ended, std::uint64_t{1}) + 1 == parts;
        if (last) *ended = 0;  // no other group looks before the next product in this memory
    }
    last = g.broadcast(last);
    g.sync();  // the leader's acquire comes before what any thread reads now
    return last;
}

// For a kernel. What waits is ended by an interrupt; what finds all pages in the cache has to look.
struct user_interrupt {
    const runtime_ref& fs;

    PENSTOCK_HD bool operator()() const {
        return atomic_load<order::relaxed, scope::system>(&fs.view.control->abort_code) != 0;
    }
};

// How many pieces a whole is cut into; the last may be shorter.
constexpr PENSTOCK_HD std::uint64_t pieces_of(std::uint64_t whole, std::uint64_t piece) {
    return whole / piece + (whole % piece != 0 ? 1 : 0);
}

template <typename T>
constexpr PENSTOCK_HD T lesser(T a, T b) {
    return a < b ? a : b;
}

}  // namespace penstock::apps
