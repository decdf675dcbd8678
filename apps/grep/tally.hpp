// Counting within one job: a dense counter per word and the list of those in use, so that ending a
// job costs what it found and not the size of the dictionary.
//
// Thread safety: a tally belongs to one group. Its threads add together; on the GPU that is why
// counters are changed atomically. Orders are relaxed throughout: within the group, sync() stands
// between adding and reading; to the host, the end of the launch does.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "search_view.hpp"

namespace penstock::grep {

struct tally {
    std::uint64_t* counters;
    std::uint32_t* touched;
    std::uint32_t* touched_count;
    chain_state* chains;
    unsigned char* text;

    PENSTOCK_HD tally(const search_view& v, std::uint64_t group) {
        std::byte* const base = v.scratch + group * v.layout.bytes;
        counters = reinterpret_cast<std::uint64_t*>(base);
        chains = reinterpret_cast<chain_state*>(base + v.layout.chains_at);
        touched = reinterpret_cast<std::uint32_t*>(base + v.layout.touched_at);
        touched_count = reinterpret_cast<std::uint32_t*>(base + v.layout.touched_count_at);
        text = reinterpret_cast<unsigned char*>(base + v.layout.text_at);
    }

    // By any thread of the group.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE void add(const Group& g, std::uint32_t word) const {
        if (g.size() == 1) {  // no other thread adds here
            if (counters[word]++ == 0) touched[(*touched_count)++] = word;
        } else if (atomic_fetch_add<order::relaxed>(&counters[word], std::uint64_t{1}) == 0) {
            touched[atomic_fetch_add<order::relaxed>(touched_count, std::uint32_t{1})] = word;
        }
    }
};

inline constexpr std::uint64_t no_room = ~std::uint64_t{0};

// Where `count` records may be written, all or none, so that no gap is left; or no_room.
PENSTOCK_HD inline std::uint64_t reserve_records(const search_view& v, std::uint64_t count) {
    std::uint64_t used = atomic_load<order::relaxed>(&v.shared->records_used);
    while (count <= v.record_capacity - used) {
        if (atomic_compare_swap<order::relaxed>(&v.shared->records_used, used, used + count))
            return used;
        used = atomic_load<order::relaxed>(&v.shared->records_used);
    }
    return no_room;
}

// Whole group. Writes the job's counts out if `keep`, and clears them. Returns false if they did
// not fit.
template <typename Group>
PENSTOCK_HD inline bool empty_tally(const Group& g, const search_view& v, const tally& t,
                                    std::uint32_t job_index, bool keep) {
    g.sync();  // every thread has added what it found
    const auto count =
        static_cast<std::uint32_t>(g.broadcast(atomic_load<order::relaxed>(t.touched_count)));
    std::uint64_t at = 0;
    if (g.is_leader() && keep) at = reserve_records(v, count);
    at = g.broadcast(at);
    const bool fits = at != no_room;
    for (std::uint32_t i = g.rank(); i < count; i += g.size()) {
        const std::uint32_t word = atomic_load<order::relaxed>(&t.touched[i]);
        if (keep && fits)
            v.records[at + i] = {job_index, word, atomic_load<order::relaxed>(&t.counters[word])};
        atomic_store<order::relaxed>(&t.counters[word], std::uint64_t{0});
    }
    g.sync();  // every thread has read the list before it is empty
    if (g.is_leader()) atomic_store<order::relaxed>(t.touched_count, std::uint32_t{0});
    g.sync();  // and it is empty before any thread adds again
    return fits;
}

// Lowers the file's first zero byte to `position`. By any thread.
PENSTOCK_HD inline void note_zero_byte(const search_view& v, std::uint32_t file,
                                       std::uint64_t position) {
    std::uint64_t known = atomic_load<order::relaxed>(&v.first_zero[file]);
    while (position < known) {
        if (atomic_compare_swap<order::relaxed>(&v.first_zero[file], known, position)) return;
        known = atomic_load<order::relaxed>(&v.first_zero[file]);
    }
}

}  // namespace penstock::grep
