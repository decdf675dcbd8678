// One shared page in small: its bytes in every place, what the protocol knows of it, and what the
// programs know of each other's writes.
//
// Of the bytes one is looked at, in which each write leaves a value of its own; of the others it is
// only told that some differ from the base, which is all that they can do to the one. A read is
// right if no write that the reader must know, by the releases and acquires there were, had
// replaced what it returns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "penstock/consistency/page_versions.hpp"

namespace penstock::consistency::model {

inline constexpr int most_writes = 6;
using value = std::uint8_t;      // number of the write, from 1; 0: what the file had
using write_set = std::uint8_t;  // bit v: the write of value v

// The request that a caller waits for, with the page held. There is one at most.
enum class wish : std::uint8_t { none, release_end, access, evict, sync };

template <unsigned Devices>
struct world {
    static constexpr place places = Devices + 1;
    static_assert(Devices <= 3 && most_writes < 8, "each_part packs them");
    using page = page_versions<Devices>;

    page p;
    value home = 0, stored = 0, view = 0, replica[places]{},
          base[places]{};           // [cpu] of the last two is not used
    bool others_changed[places]{};  // by that device, among the bytes that are not looked at
    bool view_changed = false;  // by the CPU's programs, and the kernel has not written that back

    // The writes that each place must know, and the writes that were known when each was made.
    write_set known[places]{}, published = 0, known_before[most_writes + 1]{};
    value writes = 0;
    write_set wanted = 0;    // of a sync: what must be in storage when it ends
    bool returning = false;  // a release has been stamped and has not returned

    // Version vectors as they are in the papers: how many released changes of each place a copy
    // has.
    value count[places]{}, has_home[places]{}, has_replica[places][places]{}, has_filled[places]{};

    wish asked = wish::none;
    place by = 0;
    step doing;          // `nothing`: between two steps
    place source = 0;    // where the bytes of this step come from
    bool moved = false;  // they are there

    // The CPU's programs write until their view is gone.
    [[nodiscard]] bool view_is_there() const {
        return p.view || doing.kind == work::invalidate_view;
    }
    // No request of the device itself is under way; those of others do not stop it.
    [[nodiscard]] bool at_boundary(place d) const { return asked == wish::none || by != d; }
    [[nodiscard]] bool may_use(place d) const {
        return has(p.present & ~p.stale, d) && at_boundary(d);
    }
    [[nodiscard]] bool is_changed(place d) const {
        return replica[d] != base[d] || others_changed[d];
    }

    [[nodiscard]] bool is_right(value v, write_set must_know) const {
        for (value w = 1; w <= writes; ++w) {
            if ((must_know >> w & 1) == 0 || w == v) continue;
            if (v == 0 || (known_before[w] >> v & 1) != 0) return false;
        }
        return true;
    }
    [[nodiscard]] bool vector_says_outdated(place d) const {
        for (place w = 0; w < places; ++w)
            if (w != d && count[w] > has_replica[d][w]) return true;
        return false;
    }

    void write(value& byte, place holder) {
        ++writes;
        known_before[writes] = known[holder];
        known[holder] |= static_cast<write_set>(1u << writes);
        byte = writes;
    }
    [[nodiscard]] stamp later() const {
        stamp now = doing.seen;
        for (place w = 0; w < places; ++w) now = std::max({now, p.released[w], p.seen[w]});
        return now + 1;
    }

    // Makes one state of states that no later move can tell apart. Parts that are not looked at
    // again are cleared. Of stamps and counts it only matters which places are behind: a new one is
    // always the latest, and being behind ends only by catching up with all.
    void normalize() {
        for (place d = 1; d < places; ++d) {
            if (has(p.present, d)) continue;
            others_changed[d] = false;
            if (doing.kind != work::fill || doing.holder != d) replica[d] = base[d] = 0;
        }
        if (!view_is_there()) view = 0;
        if (!has(p.present, cpu) && doing.kind != work::load_home) home = 0;
        if (asked == wish::none) by = 0, wanted = 0;
        if (doing.kind == work::nothing) doing = {}, source = 0, moved = false;
        doing.from = 0;
        normalize_versions();
    }

    // Names for the devices: order[p] is the place that is called p. The CPU and storage keep
    // theirs.
    using naming = std::array<place, places + 1>;
    static constexpr naming own_names() {
        naming out{};
        for (place w = 0; w <= places; ++w) out[w] = w;
        return out;
    }
    // Calls act(naming) for each way to name the devices.
    template <typename Act>
    static void each_naming(Act&& act) {
        naming names = own_names();
        do {
            act(names);
        } while (std::next_permutation(names.begin() + 1, names.begin() + places));
    }

    // All that tells states apart, each part below 256, by other names of the devices.
    template <typename Act>
    void each_part(const naming& order, Act&& act) const {
        naming named{};  // the name of each place
        for (place w = 0; w <= places; ++w) named[order[w]] = w;
        const auto renamed = [&](place_set set) {
            place_set out = 0;
            for (place w = 0; w < places; ++w) out |= (set >> order[w] & 1) << w;
            return out;
        };
        for (place name = 0; name < places; ++name) {
            const place w = order[name];
            act(p.seen[w] | has_home[w] << 1 | has_filled[w] << 2 | has_replica[w][0] << 3 |
                others_changed[w] << 4);
            act(known[w]), act(replica[w] | base[w] << 4);
        }
        for (const write_set set : known_before) act(set);
        act(renamed(p.present) | renamed(p.stale) << 4),
            act(renamed(p.pending) | static_cast<std::uint32_t>(asked) << 4);
        act(p.view | p.newer << 1 | p.wrote << 2 | view_changed << 3 | returning << 4 | moved << 5);
        act(home | stored << 4), act(view | writes << 4), act(published), act(wanted);
        act(named[by] | static_cast<std::uint32_t>(doing.kind) << 4),
            act(named[doing.holder] | doing.seen << 3 | named[source] << 4);
    }

private:
    void normalize_versions() {
        const bool filling = doing.kind == work::fill;
        doing.seen = filling && newest_of_others(p, doing.holder) <= doing.seen ? 1 : 0;
        bool filled_behind = false;
        for (place w = 0; w < places; ++w)
            filled_behind = filled_behind || (w != doing.holder && count[w] > has_filled[w]);
        for (place w = 0; w < places; ++w) {
            has_filled[w] = filling && !filled_behind ? 1 : 0;
            has_home[w] = has_home[w] < count[w] ? 0 : 1;
        }
        for (place d = 1; d < places; ++d) {
            p.seen[d] = has(p.present, d) && !is_outdated(p, d) ? 1 : 0;
            const value own = has(p.present, d) && !vector_says_outdated(d) ? 1 : 0;
            for (place w = 0; w < places; ++w) has_replica[d][w] = own;
        }
        for (place w = 0; w < places; ++w) p.released[w] = count[w] = 1;
    }
};

}  // namespace penstock::consistency::model
