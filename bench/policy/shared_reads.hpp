// Which pages the readers of linked caches want, and the best static placement for that.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "traces.hpp"

namespace penstock::bench::policy {

// Page p belongs to the part of cache p % caches. A reader draws from its own part with probability
// `own_share`, and from all pages otherwise; in both the pages have the same popularity, which is
// uniform (exponent 0) or falls by Zipf's law, in no order of place.
struct read_law {
    std::uint32_t caches, pages;
    double exponent;
    double own_share = 0;
};

class shared_reads {
public:
    shared_reads(const read_law& law, std::uint64_t seed)
        : law_(law), ranked_(law.pages), popularity_(law.pages), part_sums_(law.caches) {
        dice from(seed);
        std::iota(ranked_.begin(), ranked_.end(), 0u);
        for (std::uint32_t i = law.pages; i-- > 1;)
            std::swap(ranked_[i], ranked_[from.below(i + 1)]);
        for (std::uint32_t rank = 0; rank < law.pages; ++rank)
            popularity_[ranked_[rank]] = std::pow(rank + 1.0, -law.exponent);
        double sum = 0;
        for (std::uint32_t page = 0; page < law.pages; ++page) {
            sums_.push_back(sum += popularity_[page]);
            std::vector<double>& part = part_sums_[page % law.caches];
            part.push_back((part.empty() ? 0 : part.back()) + popularity_[page]);
        }
    }

    [[nodiscard]] const read_law& law() const { return law_; }
    // All pages, the most popular first.
    [[nodiscard]] const std::vector<std::uint32_t>& ranked() const { return ranked_; }

    // How likely the next page of that cache's reader is this one.
    [[nodiscard]] double share(std::uint32_t cache, std::uint32_t page) const {
        const double own =
            page % law_.caches == cache ? popularity_[page] / part_sums_[cache].back() : 0;
        return law_.own_share * own + (1 - law_.own_share) * popularity_[page] / sums_.back();
    }

    std::uint32_t draw(std::uint32_t cache, dice& from) const {
        if (law_.own_share > 0 && from.share() < law_.own_share)
            return place_in(part_sums_[cache], from) * law_.caches + cache;
        return place_in(sums_, from);
    }

private:
    static std::uint32_t place_in(const std::vector<double>& sums, dice& from) {
        const double at = from.share() * sums.back();
        return static_cast<std::uint32_t>(
            std::min(std::upper_bound(sums.begin(), sums.end(), at), sums.end() - 1) -
            sums.begin());
    }

    read_law law_;
    std::vector<std::uint32_t> ranked_;
    std::vector<double> popularity_, sums_;
    std::vector<std::vector<double>> part_sums_;
};

// Of all reads, the shares that came from the own cache, from a neighbour and from the host.
struct source_shares {
    double own = 0, neighbour = 0, host = 0;
};

// A static placement: each cache holds the most popular pages of other parts in `replicas` frames,
// and the most popular pages of its own part in the others. The mean of all caches.
inline source_shares place_statically(const shared_reads& reads, std::uint32_t frames,
                                      std::uint32_t replicas) {
    const read_law& law = reads.law();
    source_shares out;
    for (std::uint32_t cache = 0; cache < law.caches; ++cache) {
        std::vector<std::uint32_t> ranks(law.caches);  // pages of each part so far
        std::uint32_t copied = 0;
        for (const std::uint32_t page : reads.ranked()) {
            const std::uint32_t part = page % law.caches;
            const bool is_held = ranks[part]++ < frames - replicas;
            double* into = is_held ? &out.neighbour : &out.host;
            if (part == cache) {
                if (is_held) into = &out.own;
            } else if (copied < replicas) {
                ++copied;
                into = &out.own;
            }
            *into += reads.share(cache, page) / law.caches;
        }
    }
    return out;
}

}  // namespace penstock::bench::policy
