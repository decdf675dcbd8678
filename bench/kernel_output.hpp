// What the kernels of the cases that write make up: words that tell where they belong.
#pragma once

#include <cstdint>

#include "penstock/launch.hpp"
#include "workload.hpp"

namespace penstock::bench {

// The i-th word is mix64(first + i), as in the scratch file.
struct fill_words {
    std::uint64_t* words;
    std::uint64_t count, groups, first = 0;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t index) const {
        for (std::uint64_t i = index * g.size() + g.rank(); i < count; i += groups * g.size())
            words[i] = mix64(first + i);
    }
};

}  // namespace penstock::bench
