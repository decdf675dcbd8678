// How long a test that repeats itself runs: in full, or a part of it under a sanitizer, where each
// round takes up to thirty times as long. What a sanitizer finds lies in the kinds of rounds, and
// the optimised build runs them all.
#pragma once

#include <algorithm>

namespace penstock::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr unsigned sanitizer_slowdown = 12;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr unsigned sanitizer_slowdown = 5;
#else
inline constexpr unsigned sanitizer_slowdown = 1;
#endif

// So many rounds of a random test, at least one.
template <typename Count>
constexpr Count rounds(Count full) {
    return std::max<Count>(1, full / static_cast<Count>(sanitizer_slowdown));
}

}  // namespace penstock::test
