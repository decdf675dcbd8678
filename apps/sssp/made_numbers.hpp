// What a seed makes of a place: degrees, targets and weights of a made graph, and the pages that an
// update changes. Nothing depends on what is made elsewhere, so any thread can make any part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "penstock/base/hash.hpp"

namespace penstock::sssp {

inline constexpr std::uint32_t most_weight = 100;

inline std::uint64_t made_number(std::uint64_t seed, std::uint64_t kind, std::uint64_t place) {
    return mix64(mix64(mix64(seed + 1) + kind) + place);
}

// From 1 to 100. Round 0 is the weight that `make` gives, later ones those that updates give.
inline std::uint32_t weight_of(std::uint64_t round_start, std::uint64_t edge_number) {
    return 1 +
           static_cast<std::uint32_t>((mix64(round_start + edge_number) >> 32) * most_weight >> 32);
}
inline std::uint64_t weights_of_round(std::uint64_t seed, std::uint64_t round) {
    return made_number(seed, 2, round);
}

// How many edges a vertex has beside others: at least 16, more than 16 k one in k times k, at most
// 65536.
inline std::uint64_t share_of_edges(std::uint64_t seed, std::uint64_t vertex) {
    const double even = (static_cast<double>(made_number(seed, 0, vertex) >> 40) + 1) / (1u << 24);
    return static_cast<std::uint64_t>(std::min(16 / std::sqrt(even), 65536.0));
}

// Half of the targets are even over the vertices, of the others some vertices are met much more
// often than others; these lie anywhere.
class made_targets {
public:
    made_targets(std::uint64_t seed, std::uint64_t vertices)
        : start_(made_number(seed, 1, 0)), vertices_(vertices), stride_(stride_for(vertices)) {}

    [[nodiscard]] std::uint32_t of(std::uint64_t edge_number) const {
        const std::uint64_t dice = mix64(start_ + edge_number), high = dice >> 32;
        if (dice % 2 == 0) return static_cast<std::uint32_t>(high * vertices_ >> 32);
        const std::uint64_t rank = (high * high >> 32) * vertices_ >> 32;
        return static_cast<std::uint32_t>(rank * stride_ % vertices_);
    }

private:
    // Without a common factor, so that every vertex has one rank.
    static std::uint64_t stride_for(std::uint64_t vertices) {
        std::uint64_t stride =
            static_cast<std::uint64_t>(static_cast<double>(vertices) * 0.6180339887) | 1;
        while (std::gcd(stride, vertices) != 1) ++stride;
        return stride;
    }
    std::uint64_t start_, vertices_, stride_;
};

// Pages spread evenly over the edges, others in each round.
class page_choice {
public:
    page_choice(std::uint64_t pages, double percent, std::uint64_t seed, std::uint64_t round)
        : pages_(pages) {
        count_ = std::min(pages, static_cast<std::uint64_t>(
                                     std::llround(percent / 100 * static_cast<double>(pages))));
        if (count_ == 0 && percent > 0 && pages > 0) count_ = 1;
        shift_ = pages == 0 ? 0 : made_number(seed, 3, round) % pages;
    }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] std::uint64_t page(std::uint64_t i) const {
        return (i * pages_ / count_ + shift_) % pages_;
    }

private:
    std::uint64_t pages_, count_ = 0, shift_ = 0;
};

}  // namespace penstock::sssp
