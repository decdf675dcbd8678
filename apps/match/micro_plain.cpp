// For every processor: one number at a time.
#include "common/vectors.hpp"
#include "micro_loop.hpp"

namespace penstock::match {

namespace {

const micro_kernel& choose() {
#if defined(__x86_64__)
    if (apps::vectors_here() == apps::vectors::avx512) return avx512_kernel;
    if (apps::vectors_here() == apps::vectors::avx2) return avx2_kernel;
#endif
    return plain_kernel;
}

}  // namespace

const micro_kernel plain_kernel{add_squares_with<apps::one_number, 4>, 4, "single numbers"};

const micro_kernel& chosen_kernel() {
    static const micro_kernel& one = choose();
    return one;
}

}  // namespace penstock::match
