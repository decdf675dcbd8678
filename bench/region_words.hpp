// What the cases of regions change and look for: a word of each of some pages, spread over the
// region.
#pragma once

#include <cstdint>
#include <string>

#include "workload.hpp"

namespace penstock::bench {

inline constexpr std::uint64_t region_page_bytes = 4096;

// Kernels that know nothing of Penstock: plain loads and stores, a word of `count` pages spread
// over the region.
struct spread_words {
    std::uint64_t* words;
    std::uint64_t count, pages, value;

    [[nodiscard]] PENSTOCK_HD std::uint64_t& word(std::uint64_t i) const {
        return words[i * pages / count * (region_page_bytes / 8) + i % (region_page_bytes / 8)];
    }
};
struct change_words {
    spread_words to;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        to.word(i) = to.value;
    }
};
struct count_other_words {
    spread_words in;
    std::uint64_t* others;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        if (in.word(i) != in.value) atomic_add_relaxed(others, std::uint64_t{1});
    }
};

// What acquire or release counted, against what was changed.
inline void expect_pages(std::uint64_t pages, const char* act, std::int64_t found) {
    require(found, act);
    expect(
        found == static_cast<std::int64_t>(pages),
        std::string(act) + " found " + std::to_string(found) + " pages, other than were changed");
}

}  // namespace penstock::bench
