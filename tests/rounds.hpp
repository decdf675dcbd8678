// How long a test that repeats itself runs. The build option PENSTOCK_LONG_TESTS asks for the full
// length, as `./test.sh --all` does; without it a test runs a quarter of its rounds. Under a
// sanitizer, where a round takes up to thirty times as long, it runs a part of that: the kinds of
// rounds decide what a sanitizer finds.
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

#if defined(PENSTOCK_LONG_TESTS)
inline constexpr unsigned usual_share = 1;
#else
inline constexpr unsigned usual_share = 4;
#endif

// So many rounds of a random test, at least `fewest`: as many as its checks need to mean something.
// With less than a 24th of its rounds a test of racing threads may see none of what it asks for.
template <typename Count>
constexpr Count rounds(Count full, Count fewest = 1) {
    return std::max<Count>(fewest, full / std::min<Count>(24, sanitizer_slowdown * usual_share));
}

// The preemptions of an exploration that takes seconds with three: three in the long form.
inline constexpr int deep_preemptions = usual_share == 1 ? 3 : 2;

}  // namespace penstock::test
