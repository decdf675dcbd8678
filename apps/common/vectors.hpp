// Loops that are compiled once for each kind of processor, the choice between the kinds, vectors of
// numbers, and the loop of a tile.
#pragma once

#include <cmath>
#include <cstdint>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

// A function that is compiled for each of these kinds of processor; the loader chooses when the
// program starts. Not with ThreadSanitizer, which is not ready when the loader asks.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PENSTOCK_ONE_PROCESSOR
#endif
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(PENSTOCK_ONE_PROCESSOR)
#define PENSTOCK_CLONES(...) [[gnu::target_clones(__VA_ARGS__)]]
#else
#define PENSTOCK_CLONES(...)
#endif

namespace penstock::apps {

// Which vectors this processor has.
enum class vectors { none, avx2, avx512 };  // avx2: with fused multiply and add

inline vectors vectors_here() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") != 0) return vectors::avx512;
    if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
        return vectors::avx2;
#endif
    return vectors::none;
}

// Internal linkage from here on: files that are compiled for different processors must not share
// these.
namespace {

// A vector of one number, for every processor. Where it has no fused multiply and add, the C
// library computes it.
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

#if defined(__AVX2__) && defined(__FMA__)
// Vectors of 8 numbers, for files that are compiled for AVX2 with fused multiply and add.
struct vector_of_8 {
    using type = __m256;
    static constexpr std::uint32_t lanes = 8;
    static type load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, type value) { _mm256_storeu_ps(to, value); }
    static type broadcast(float value) { return _mm256_set1_ps(value); }
    static type subtract(type a, type b) { return _mm256_sub_ps(a, b); }
    static type add_product(type sum, type a, type b) {
        return _mm256_fmadd_ps(a, b, sum);
    }  // one rounding
};
#endif

#if defined(__AVX512F__)
// Vectors of 16 numbers, for files that are compiled for AVX-512.
struct vector_of_16 {
    using type = __m512;
    static constexpr std::uint32_t lanes = 16;
    static type load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, type value) { _mm512_storeu_ps(to, value); }
    static type broadcast(float value) { return _mm512_set1_ps(value); }
    static type subtract(type a, type b) { return _mm512_sub_ps(a, b); }
    static type add_product(type sum, type a, type b) {
        return _mm512_fmadd_ps(a, b, sum);
    }  // one rounding
};
#endif

// The inner loop of a tile on CPU threads: some rows with the columns of panels, sums in registers,
// each made one number after the other.
//
// rows: pointers to `floats` numbers. packed: of the columns, in panels of so many side by side:
// for each number of a row, that of all columns of the panel. sums: Columns for each row.
// Add::add(sum, row, column) on vectors.
template <typename Vector, std::uint32_t Vectors, std::uint32_t Rows, std::uint32_t Columns,
          typename Add>
[[maybe_unused]] void add_tile(const float* const* rows, const float* packed, std::uint32_t floats,
                               float* sums) {
    constexpr std::uint32_t width = Vector::lanes * Vectors;
    for (std::uint32_t panel = 0; panel < Columns; panel += width, packed += floats * width) {
        typename Vector::type sum[Rows][Vectors];
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                sum[i][j] = Vector::load(sums + i * Columns + panel + j * Vector::lanes);
        for (std::uint32_t k = 0; k < floats; ++k) {
            typename Vector::type column[Vectors];
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                column[j] = Vector::load(packed + k * width + j * Vector::lanes);
#pragma GCC unroll 8
            for (std::uint32_t i = 0; i < Rows; ++i) {
                const typename Vector::type row = Vector::broadcast(rows[i][k]);
#pragma GCC unroll 8
                for (std::uint32_t j = 0; j < Vectors; ++j)
                    sum[i][j] = Add::template add<Vector>(sum[i][j], row, column[j]);
            }
        }
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                Vector::store(sums + i * Columns + panel + j * Vector::lanes, sum[i][j]);
    }
}

}  // namespace

}  // namespace penstock::apps
