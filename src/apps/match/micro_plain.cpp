// For every processor: one number at a time. Where it has no fused multiply and add, the C library computes it.
#include <cmath>

#include "common/processor.hpp"
#include "micro_loop.hpp"

namespace penstock::match {

namespace {

struct one_number {
    using type = float;
    static constexpr std::uint32_t lanes = 1;
    static type load(const float* from) { return *from; }
    static void store(float* to, type value) { *to = value; }
    static type broadcast(float value) { return value; }
    static type subtract(type a, type b) { return a - b; }
    static type add_square(type sum, type value) { return std::fma(value, value, sum); }
};

const micro_kernel& choose() {
#if defined(__x86_64__)
    if (apps::vectors_here() == apps::vectors::avx512) return avx512_kernel;
    if (apps::vectors_here() == apps::vectors::avx2) return avx2_kernel;
#endif
    return plain_kernel;
}

}  // namespace

const micro_kernel plain_kernel{add_squares_with<one_number, 4>, 4, "single numbers"};

const micro_kernel& chosen_kernel() {
    static const micro_kernel& one = choose();
    return one;
}

}  // namespace penstock::match
