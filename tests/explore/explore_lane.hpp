// Groups of one lane for the explorer: they wait, tell the time and spread over shards as the
// explorer says.
#pragma once

#include "explore/explorer.hpp"
#include "penstock/group/racing_lane.hpp"

namespace penstock::explore_kit {

// Copies without a pin and checks afterwards, like a GPU group.
struct explore_lane : racing_lane {
    std::uint32_t id = 0;
    explore_lane() = default;
    explicit explore_lane(std::uint32_t number) : id(number) {}

    std::uint32_t home() const { return id; }
    std::uint64_t now_ns() const { return explore::explorer::current()->now(); }
    void pause(std::uint32_t) const { explore::explorer::current()->pause(); }
    void wake(host_doorbell*) const {}

    // The same for a window, whose bytes a program may change and the host may take away.
    void copy_through(std::byte* to, const std::byte* from, std::size_t bytes) const {
        for (std::size_t i = 0; i < bytes; i += 8) {
            explore::point(from + i, false);
            std::memcpy(to + i, from + i, bytes - i < 8 ? bytes - i : 8);
        }
    }

    // Reading the staging area is a plain access; here it is a schedule point as well, so that its
    // reuse is explored.
    void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) const {
        for (std::size_t i = 0; i < bytes; i += 8) {
            explore::point(from + i, false);
            racing_lane::copy_in(to + i, from + i, 8);
        }
    }
};

// Pins before it copies, like a CPU thread. The copy itself is still word by word, so that others
// may run within it.
struct pinning_lane : explore_lane {
    using explore_lane::explore_lane;
    static constexpr bool copies_race() { return false; }
};

// Its clock runs faster: the explorer's few jumps of time are longer than the wait for a neighbour.
struct hasty_lane : explore_lane {
    using explore_lane::explore_lane;
    std::uint64_t now_ns() const { return 100 * explore_lane::now_ns(); }
};

// Its clock stands still, so that no wait of it ends by time.
struct timeless_lane : explore_lane {
    using explore_lane::explore_lane;
    std::uint64_t now_ns() const { return 0; }
};

static_assert(group<hasty_lane> && group<timeless_lane>);
static_assert(group<explore_lane> && group<pinning_lane>);

}  // namespace penstock::explore_kit
