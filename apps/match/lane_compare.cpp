// The inner loop of lane_compare.hpp. CMakeLists.txt compiles this file three times: for every
// processor, for AVX2 with fused multiply and add, and for AVX-512. Each kind has as many sums at
// once as its registers hold, so this is not one function with clones.
#include "lane_compare.hpp"

#include "common/vectors.hpp"

namespace penstock::match {

// Internal linkage: what is compiled for different processors must not be shared. For the same
// reason nothing here calls an inline function of the header.
namespace {

struct add_square {
    template <typename Vector>
    static typename Vector::type add(typename Vector::type sum, typename Vector::type query,
                                     typename Vector::type image) {
        const typename Vector::type difference = query - image;
        return Vector::add_product(sum, difference, difference);
    }
};

template <typename Vector, std::uint32_t Vectors>
constexpr micro_kernel kernel_with(const char* name) {
    return {apps::add_tile<Vector, Vectors, lane_queries, lane_images, add_square>,
            Vector::lanes * Vectors, name};
}

}  // namespace

#if defined(PENSTOCK_KERNELS_AVX512)
const micro_kernel avx512_kernel = kernel_with<apps::vector_of_16, 4>("AVX-512");
#elif defined(PENSTOCK_KERNELS_AVX2)
const micro_kernel avx2_kernel = kernel_with<apps::vector_of_8, 2>("AVX2");
#else
const micro_kernel plain_kernel = kernel_with<apps::one_number, 4>("single numbers");

const micro_kernel& chosen_kernel() {
#if defined(__x86_64__)
    static const apps::vectors here = apps::vectors_here();
    if (here == apps::vectors::avx512) return avx512_kernel;
    if (here == apps::vectors::avx2) return avx2_kernel;
#endif
    return plain_kernel;
}
#endif

}  // namespace penstock::match
