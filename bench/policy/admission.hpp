// Which missed pages enter a cache whose misses can also be read through, and traces to try that.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "policies.hpp"
#include "penstock/base/hash.hpp"
#include "traces.hpp"

namespace penstock::bench::policy {

// Rules of admission. All that they keep is what a GPU has at hand without a lock: a random bit
// from the clock, and the word of a page that is absent, whose frame number is free then.

enum class admit : std::uint8_t {
    always,
    never,
    sampled,       // one missed access in n
    second_touch,  // the first miss marks the page, one time in n; the next admits it
    drawn_twice,   // one missed access in n is drawn, and leaves its page's tag in a table with as
                   // many places as there are frames; if the tag is there already, it admits
    soon_again     // every miss stamps the page with an epoch; one soon after the last admits it.
                   // An epoch is as many misses as there are frames, over n.
};

struct admission_rule {
    const char* name;
    admit kind;
    std::uint32_t n = 1;
    // While frames were never used one miss in so many is admitted besides; 0: none.
    std::uint32_t filling = 0;
    std::uint32_t of_soon = 1;    // soon_again admits one in so many of those
    std::uint32_t of_others = 0;  // and one in so many of the others; 0: none
};

// An access ends as one of these. An admitted one brings in the whole page.
enum class found : std::uint8_t { hit, through, admitted };

// The engine's clock behind a rule of admission.
class gated_clock {
public:
    gated_clock(const admission_rule& rule, std::uint32_t frames, std::uint32_t pages,
                std::uint64_t seed)
        : rule_(rule),
          cache_(frames, pages, engine_shards(frames)),
          epoch_misses_(std::max(frames / rule.n, 1u)),
          free_(frames / engine_shards(frames) * engine_shards(frames)),
          mark_(pages),
          tags_(std::bit_ceil(frames), ~0u),
          chance_(seed) {}

    found access(std::uint32_t page) {
        if (cache_.holds(page)) {
            cache_.access(page);
            return found::hit;
        }
        ++misses_;
        const bool wanted = wants(page);
        if (!wanted && !(free_ > 0 && rule_.filling != 0 && one_in(rule_.filling)))
            return found::through;
        cache_.access(page);
        mark_[page] = 0;
        if (free_ > 0) --free_;
        return found::admitted;
    }

private:
    bool one_in(std::uint32_t n) { return n == 1 || chance_.below(n) == 0; }

    bool wants(std::uint32_t page) {
        switch (rule_.kind) {
            case admit::always: return true;
            case admit::never: return false;
            case admit::sampled: return one_in(rule_.n);
            case admit::second_touch:
                if (mark_[page] != 0) return true;
                if (one_in(rule_.n)) mark_[page] = 1;
                return false;
            case admit::drawn_twice: {
                if (!one_in(rule_.n)) return false;
                std::uint32_t& tag = tags_[mix64(page) & (tags_.size() - 1)];
                const bool again = tag == page;
                tag = page;
                return again;
            }
            case admit::soon_again: break;
        }
        // Epochs count from 2, so that a page without a stamp is never near.
        const auto epoch = static_cast<std::uint32_t>(2 + misses_ / epoch_misses_);
        const bool soon = mark_[page] + 1 >= epoch;
        mark_[page] = epoch;
        return (soon && one_in(rule_.of_soon)) || (rule_.of_others != 0 && one_in(rule_.of_others));
    }

    admission_rule rule_;
    clock cache_;
    std::uint64_t misses_ = 0;
    std::uint32_t epoch_misses_, free_;
    std::vector<std::uint32_t> mark_, tags_;
    dice chance_;
};

// Traces of rows. `space` is how many different rows there may be, more than `rows` where some
// come only once.
struct row_trace {
    std::string name;
    std::uint32_t rows, space;
    std::vector<std::uint32_t> accesses;
    std::uint64_t changes_at = 0;  // 0: the same all the time
};

inline constexpr double zipf_exponent = 0.99;

inline row_trace scan_again(const char* name, std::uint32_t rows, std::uint32_t scanned,
                            std::uint64_t length) {
    return {name, rows, rows, make(name, length, [&](std::uint64_t i) {
                                  return static_cast<std::uint32_t>(i % scanned);
                              }).pages};
}

// Half of the accesses are skewed, the other half a scan of rows that come once and never again.
inline row_trace scan_once_and_zipf(std::uint32_t rows, std::uint64_t length, dice& from) {
    const skewed all(rows, from, zipf_exponent);
    std::uint32_t next = rows;
    row_trace out{"scan once and zipf", rows, 0, {}};
    out.accesses = make("", length, [&](std::uint64_t) {
                       return from.below(2) == 0 ? all.draw(from) : next++;
                   }).pages;
    out.space = next;
    return out;
}

// Half way the rows change their places in the order of popularity, all at once.
inline row_trace zipf_that_changes(std::uint32_t rows, std::uint64_t length, dice& from) {
    const skewed before(rows, from, zipf_exponent), after(rows, from, zipf_exponent);
    row_trace out{"zipf that changes", rows, rows, {}, length / 2};
    out.accesses = make("", length, [&](std::uint64_t i) {
                       return (i < length / 2 ? before : after).draw(from);
                   }).pages;
    return out;
}

// 512 experts with strong recency: an access goes to the expert that was used d experts ago, d so
// distributed that LRU over 64 of them hits 67 % and over 128 of them 81 %.
inline row_trace experts(std::uint64_t length, dice& from) {
    constexpr std::uint32_t count = 512;
    // The share of accesses at distances up to d rises as a power of d between these points.
    const auto share_within = [](double d) {
        if (d <= 64) return 0.67 * std::pow(d / 64, 0.4);
        if (d <= 128) return 0.67 * std::pow(d / 64, std::log2(0.81 / 0.67));
        return 0.81 * std::pow(d / 128, -std::log2(0.81) / 2);
    };
    std::vector<double> within(count);
    for (std::uint32_t d = 0; d < count; ++d) within[d] = share_within(d + 1);
    std::vector<std::uint32_t> recent(count);
    std::iota(recent.begin(), recent.end(), 0u);
    row_trace out{"experts", count, count, {}};
    out.accesses = make("", length, [&](std::uint64_t) {
                       const auto at =
                           std::min(std::upper_bound(within.begin(), within.end(), from.share()),
                                    within.end() - 1);
                       const auto used = recent.begin() + (at - within.begin());
                       std::rotate(recent.begin(), used, used + 1);
                       return recent.front();
                   }).pages;
    return out;
}

}  // namespace penstock::bench::policy
