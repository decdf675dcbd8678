// What one writes without Penstock to bring the output of a kernel to a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "context.hpp"

namespace penstock::bench {

std::string write_by_hand_name(const context& here);

// The whole file from `output`, memory of that back end. On a GPU each thread copies pieces of 4
// MiB to pinned buffers, two of its own, and writes one while the next is on its way.
status write_by_hand(const context& here, backend where, const std::byte* output, series& rate);

}  // namespace penstock::bench
