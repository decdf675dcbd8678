#include "distance.hpp"

namespace penstock::collage {

namespace {

using distance_function = std::uint32_t (*)(const std::uint32_t*, const std::uint32_t*,
                                            std::uint32_t);

std::uint32_t plain(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count) {
    return detail::sum_of_squares(a, b, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::uint32_t with_avx2(const std::uint32_t* a, const std::uint32_t* b,
                                                std::uint32_t count) {
    return detail::sum_of_squares(a, b, count);
}

[[gnu::target("avx512f,prefer-vector-width=512")]] std::uint32_t with_avx512(const std::uint32_t* a,
                                                                             const std::uint32_t* b,
                                                                             std::uint32_t count) {
    return detail::sum_of_squares(a, b, count);
}
#endif

struct choice {
    distance_function function = plain;
    const char* name = "SSE2";
    choice() {
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f") != 0) {
            function = with_avx512;
            name = "AVX-512";
        } else if (__builtin_cpu_supports("avx2") != 0) {
            function = with_avx2;
            name = "AVX2";
        }
#else
        name = "the compiler's vectors";
#endif
    }
};

const choice& chosen() {
    static const choice one;
    return one;
}

}  // namespace

std::uint32_t distance_of(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count) {
    return chosen().function(a, b, count);
}

const char* vector_name() { return chosen().name; }

}  // namespace penstock::collage
