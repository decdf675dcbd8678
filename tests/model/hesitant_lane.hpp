// A racing lane that now and then stops in the middle of a copy, as a thread may anywhere, so that
// on few processors too frames change hands under optimistic readers.
#pragma once

#include <thread>

#include "penstock/base/hash.hpp"
#include "penstock/group/racing_lane.hpp"

namespace penstock::model {

struct hesitant_lane : racing_lane {
    void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
        thread_local std::uint64_t copies = 0;
        const bool stops = mix64(++copies) % 4 == 0;
        const std::size_t half = stops ? bytes / 2 : 0;
        racing_lane::copy_out(to, from, half);
        if (stops) std::this_thread::yield();
        racing_lane::copy_out(to + half, from + half, bytes - half);
    }
};

static_assert(group<hesitant_lane>);

}  // namespace penstock::model
