// What a group's leader tells the other threads in fewer instructions than a broadcast of 64 bits
// takes: a flag, and a small number such as an error code. Whole group; both order nothing else.
//
// On a GPU an exchange between lanes is an instruction for each 32 bits, with a second way beside
// it for lanes that do not arrive together; of a block it is a word in shared memory between two
// barriers. A vote is one instruction, or one barrier.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/group/concept.hpp"

namespace penstock {

// The leader's flag. Those of the other threads do not matter.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool leader_says(const Group& g, bool flag) {
    return g.all(flag || !g.is_leader());
}

// The leader's number, which has at most 32 bits with its sign: 0, a negative errno, or another
// small outcome. Those of the other threads do not matter.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t code_of_leader(const Group& g, std::int64_t code) {
    PENSTOCK_ASSERT(!g.is_leader() || code == static_cast<std::int32_t>(code));
    const auto bits = static_cast<std::uint32_t>(code);
    if constexpr (narrow_group<Group>) return static_cast<std::int32_t>(g.from_rank(bits, 0));
    else return static_cast<std::int32_t>(g.broadcast(bits));
}

}  // namespace penstock
