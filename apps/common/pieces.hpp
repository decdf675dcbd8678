// How a whole is cut into pieces: arithmetic that host and device share.
#pragma once

#include <cstdint>

#include "penstock/base/macros.hpp"

namespace penstock::apps {

// The last may be shorter.
constexpr PENSTOCK_HD std::uint64_t pieces_of(std::uint64_t whole, std::uint64_t piece) {
    return whole / piece + (whole % piece != 0 ? 1 : 0);
}

template <typename T>
constexpr PENSTOCK_HD T lesser(T a, T b) {
    return a < b ? a : b;
}

}  // namespace penstock::apps
