// A vector of one number, for every processor. Where it has no fused multiply and add, the C
// library computes it.
#pragma once

#include <cmath>
#include <cstdint>

namespace penstock::apps {

// Internal linkage: files that are compiled for different processors must not share one.
namespace {

struct one_number {
    using type = float;
    static constexpr std::uint32_t lanes = 1;
    static type load(const float* from) { return *from; }
    static void store(float* to, type value) { *to = value; }
    static type broadcast(float value) { return value; }
    static type subtract(type a, type b) { return a - b; }
    static type add_product(type sum, type a, type b) {
        return std::fma(a, b, sum);
    }  // one rounding
};

}  // namespace

}  // namespace penstock::apps
