// A functor that files of nvcc and of the plain C++ compiler launch: both are in the program.
#pragma once

#include "penstock/launch.hpp"

namespace penstock::test {

struct count_groups_of_both {
    std::uint64_t* groups;
    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t) const {
        if (g.is_leader()) atomic_add_relaxed(groups, std::uint64_t{1});
    }
};

int launch_from_plain_file(runtime& rt, std::uint64_t groups, const count_groups_of_both& work);

}  // namespace penstock::test
