// Sequences of pages to try policies on, each from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/numbers.hpp"

namespace penstock::bench::policy {

struct trace {
    std::string name;
    std::vector<std::uint32_t> pages;
};

using apps::dice;

// The n-th of `count` things with probability proportional to 1/n^exponent, by a table of sums;
// which thing is n-th is shuffled.
class skewed {
public:
    skewed(std::uint32_t count, dice& from, double exponent = 0.9) : sums_(count), thing_(count) {
        double sum = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
            sums_[i] = sum += std::pow(i + 1.0, -exponent);
            thing_[i] = i;
        }
        for (std::uint32_t i = count; i-- > 1;) std::swap(thing_[i], thing_[from.below(i + 1)]);
    }
    std::uint32_t draw(dice& from) const {
        const double at = from.share() * sums_.back();
        return thing_[static_cast<std::size_t>(
            std::min(std::upper_bound(sums_.begin(), sums_.end(), at), sums_.end() - 1) -
            sums_.begin())];
    }

private:
    std::vector<double> sums_;
    std::vector<std::uint32_t> thing_;
};

template <typename Draw>
trace make(const char* name, std::uint64_t length, const Draw& draw) {
    trace out{name, std::vector<std::uint32_t>(length)};
    for (std::uint64_t i = 0; i < length; ++i) out.pages[i] = draw(i);
    return out;
}

inline trace scan_and_hot(std::uint32_t pages, std::uint64_t length, dice& from) {
    const skewed hot(std::max(pages / 16, 1u), from);
    std::uint32_t scan = 0;
    return make("scan and hot", length, [&](std::uint64_t) {
        if (from.below(2) == 0) return hot.draw(from);
        return scan = scan + 1 < pages ? scan + 1 : 0;
    });
}

inline trace shift(std::uint32_t pages, std::uint64_t length, dice& from) {
    const std::uint32_t set = std::max(pages / 8, 1u);
    const skewed inside(set, from);
    std::uint32_t begin = 0;
    return make("shift", length, [&](std::uint64_t i) {
        if (i % (std::uint64_t{set} * 4) == 0) begin = from.below(pages);
        return (begin + inside.draw(from)) % pages;
    });
}

inline trace streams(std::uint32_t pages, std::uint64_t length, dice& from) {
    constexpr std::uint32_t count = 64, touches = 4;
    const std::uint32_t shared = std::max(pages / 32, 1u),
                        stretch = std::max((pages - shared) / count, 1u);
    const skewed index(shared, from);
    struct stream {
        std::uint32_t place = 0, stride = 1, touched = 0;
    };
    std::vector<stream> all(count);
    for (std::uint32_t s = 0; s < count; ++s) all[s] = {from.below(stretch), 1 + s % 4, 0};
    return make("streams", length, [&](std::uint64_t) {
        if (from.below(8) == 0) return index.draw(from);
        const std::uint32_t number = from.below(count);
        stream& chosen = all[number];
        if (chosen.touched++ == touches) {
            chosen.place = (chosen.place + chosen.stride) % stretch;
            chosen.touched = 1;
        }
        return (shared + number * stretch + chosen.place) % pages;
    });
}

// Every kind, over `pages` pages and `length` accesses:
//   uniform      every page as likely as every other
//   zipf         the n-th page with probability 1/n^0.9, in no order of place
//   loop         all pages from front to back, again and again: larger than any cache that is tried
//   scan and hot one half goes to a 16th of the pages, skewed; the other half scans the file
//   shift        a working set of an 8th, skewed, that moves elsewhere four times over while it is
//                used
//   streams      many warps: 64 streams, each in a stretch of its own, touch a page four times in a
//                row while they stride; every eighth access goes to an index that all share
inline std::vector<trace> make_traces(std::uint32_t pages, std::uint64_t length,
                                      std::uint64_t seed) {
    dice from(seed);
    std::vector<trace> out;
    out.push_back(make("uniform", length, [&](std::uint64_t) { return from.below(pages); }));
    const skewed all(pages, from);
    out.push_back(make("zipf", length, [&](std::uint64_t) { return all.draw(from); }));
    out.push_back(make("loop", length,
                       [&](std::uint64_t i) { return static_cast<std::uint32_t>(i % pages); }));
    out.push_back(scan_and_hot(pages, length, from));
    out.push_back(shift(pages, length, from));
    out.push_back(streams(pages, length, from));
    return out;
}

}  // namespace penstock::bench::policy
