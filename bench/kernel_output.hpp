// Output of the kernels of the cases that write, and the way that it takes to a file by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "context.hpp"
#include "penstock/launch.hpp"
#include "workload.hpp"

namespace penstock::bench {

// Kernel that makes up words which tell where they belong. The i-th word is mix64(first + i), as in
// the scratch file.
struct fill_words {
    std::uint64_t* words;
    std::uint64_t count, groups, first = 0;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t index) const {
        for (std::uint64_t i = index * g.size() + g.rank(); i < count; i += groups * g.size())
            words[i] = mix64(first + i);
    }
};

// The baseline: a programmer's way without Penstock to bring the output of a kernel to a file.
std::string write_by_hand_name(const context& here);

// The whole file from `output`, memory of that back end. On a GPU each thread copies pieces of 4
// MiB to pinned buffers, two of its own, and writes one while the next is on its way.
status write_by_hand(const context& here, backend where, const std::byte* output, series& rate);

}  // namespace penstock::bench
