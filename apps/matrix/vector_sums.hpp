// The sums of a matrix times a vector: of a row as a group makes it, and the work of a group on
// items and bands.
#pragma once

#include <cstdint>

#include "penstock/group/lane.hpp"
#include "views.hpp"
#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock::matrix {

// The sum of a row, or of a segment of one: 128 parts, then their sum in a fixed order. On CPU
// threads an array of parts; in a warp four parts in the registers of each lane, so that a lane
// loads 16 bytes at a time.
//
// The order in which parts are added: four neighbours as (0 + 1) + (2 + 3), which gives 32; then
// those that lie 16 apart, 8, 4, 2, 1.

inline constexpr std::uint32_t lanes_of_sum = part_count / 4;

template <typename Group>
class row_sum;

template <>
class row_sum<lane> {
public:
    PENSTOCK_HD void clear() {
        for (float& part : parts_) part = 0;
    }
    // Numbers of the matrix from place `first` on, and those of the vector that belong to them.
    PENSTOCK_HD void add(const lane&, const vector_view& v, const float* a, const float* x,
                         std::uint64_t first, std::uint64_t count) {
        v.add_products(parts_, a, x, static_cast<std::uint32_t>(first % part_count), count);
    }
    PENSTOCK_HD float total(const lane&) {
        float four[lanes_of_sum];
        for (std::uint32_t i = 0; i < lanes_of_sum; ++i)
            four[i] = (parts_[4 * i] + parts_[4 * i + 1]) + (parts_[4 * i + 2] + parts_[4 * i + 3]);
        return total_of(four);
    }
    // The sum of `count` numbers: each 32nd one after the other, then these in the order above.
    PENSTOCK_HD static float total_of(const lane&, const float* numbers, std::uint64_t count) {
        float sums[lanes_of_sum] = {};
        for (std::uint64_t i = 0; i < count; ++i) sums[i % lanes_of_sum] += numbers[i];
        return total_of(sums);
    }

private:
    PENSTOCK_HD static float total_of(float* sums) {
        for (std::uint32_t apart = lanes_of_sum / 2; apart > 0; apart /= 2)
            for (std::uint32_t i = 0; i < apart; ++i) sums[i] += sums[i + apart];
        return sums[0];
    }
    alignas(64) float parts_[part_count];
};

#if defined(__CUDACC__)
template <>
class row_sum<warp> {
public:
    PENSTOCK_D PENSTOCK_INLINE void clear() { parts_ = {}; }

    // `a` lies in memory as its place in the file says, modulo 512 bytes, so that the four numbers
    // of a lane are 16 aligned bytes.
    PENSTOCK_D PENSTOCK_INLINE void add(const warp& g, const vector_view&, const float* a,
                                        const float* x, std::uint64_t first, std::uint64_t count) {
        const std::int64_t phase = static_cast<std::int64_t>(first % part_count),
                           end = phase + static_cast<std::int64_t>(count);
        a -= phase, x -= phase;  // both begin where the file's 128 numbers do
        std::int64_t at = g.rank() * 4;
        if (phase != 0) {
            add_some(a + at, x + at, phase - at, end - at);
            at += part_count;
        }
        const bool aligned = (reinterpret_cast<std::uintptr_t>(x) & 15) == 0;
        for (; at + 3 * part_count + 4 <= end; at += 4 * part_count) {
            float4 numbers[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                numbers[i] =
                    *reinterpret_cast<const float4*>(a + at + i * static_cast<int>(part_count));
#pragma unroll
            for (int i = 0; i < 4; ++i)
                add_four(numbers[i], x + at + i * static_cast<int>(part_count), aligned);
        }
        for (; at + 4 <= end; at += part_count)
            add_four(*reinterpret_cast<const float4*>(a + at), x + at, aligned);
        if (at < end) add_some(a + at, x + at, 0, end - at);
    }

    PENSTOCK_D PENSTOCK_INLINE float total(const warp& g) const {
        return total_of(g, (parts_.x + parts_.y) + (parts_.z + parts_.w));
    }

    PENSTOCK_D PENSTOCK_INLINE static float total_of(const warp& g, const float* numbers,
                                                     std::uint64_t count) {
        float sum = 0;
        for (std::uint64_t i = g.rank(); i < count; i += lanes_of_sum) sum += numbers[i];
        return total_of(g, sum);
    }

private:
    PENSTOCK_D PENSTOCK_INLINE static float total_of(const warp&, float sum) {
#pragma unroll
        for (std::uint32_t apart = lanes_of_sum / 2; apart > 0; apart /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        return sum;
    }
    PENSTOCK_D PENSTOCK_INLINE void add_four(const float4& a, const float* x, bool aligned) {
        float4 b;
        if (aligned) b = __ldg(reinterpret_cast<const float4*>(x));
        else b = {__ldg(x), __ldg(x + 1), __ldg(x + 2), __ldg(x + 3)};
        parts_.x = __fmaf_rn(a.x, b.x, parts_.x);
        parts_.y = __fmaf_rn(a.y, b.y, parts_.y);
        parts_.z = __fmaf_rn(a.z, b.z, parts_.z);
        parts_.w = __fmaf_rn(a.w, b.w, parts_.w);
    }
    // Those of the lane's four that lie from `begin` to before `end`.
    PENSTOCK_D PENSTOCK_INLINE void add_some(const float* a, const float* x, std::int64_t begin,
                                             std::int64_t end) {
        if (begin <= 0 && end > 0) parts_.x = __fmaf_rn(a[0], __ldg(x), parts_.x);
        if (begin <= 1 && end > 1) parts_.y = __fmaf_rn(a[1], __ldg(x + 1), parts_.y);
        if (begin <= 2 && end > 2) parts_.z = __fmaf_rn(a[2], __ldg(x + 2), parts_.z);
        if (begin <= 3 && end > 3) parts_.w = __fmaf_rn(a[3], __ldg(x + 3), parts_.w);
    }
    float4 parts_;
};
#endif

// The work of a group: items one after the other, and the bands that it ends.
//
// A source has `expect(g, first, count)`, which says what is wanted next; `piece take(g, first,
// count)`, which gives numbers of the matrix from place `first` on, as many as it has side by side
// and at least one, or a negative errno as their count; and `give_back(g, piece)`.

// Whole group. 0, or a negative errno from the source.
template <typename Group, typename Source>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t sum_item(const Group& g, const Source& source,
                                                  const vector_view& v, const item_place& at) {
    row_sum<Group> sum;
    sum.clear();
    const stretch all = at.elements(v.columns);
    source.expect(g, all.begin, all.count());
    std::uint64_t row = at.rows.begin;
    for (std::uint64_t place = all.begin; place < all.end;) {
        const auto piece = source.take(g, place, all.end - place);
        if (piece.count <= 0) return piece.count;
        const std::uint64_t first = place, stop = place + static_cast<std::uint64_t>(piece.count);
        while (place < stop) {
            const std::uint64_t row_begin = row * v.columns, row_end = row_begin + at.columns.end,
                                until = lesser(row_end, stop);
            sum.add(g, v, piece.data + (place - first), v.x + (place - row_begin), place,
                    until - place);
            place = until;
            if (place != row_end) continue;
            const float total = sum.total(g);
            if (g.is_leader()) v.sums[row * v.segments + at.segment] = total;
            sum.clear();
            ++row;
        }
        source.give_back(g, piece);
    }
    return 0;
}

// Whole group, which sees the sums. Adds the segments of rows that have several.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void add_segments(const Group& g, const vector_view& v,
                                              const stretch& rows) {
    if (v.segments == 1) return;
    for (std::uint64_t row = rows.begin; row < rows.end; ++row) {
        const float total = row_sum<Group>::total_of(g, v.sums + row * v.segments, v.segments);
        if (g.is_leader()) v.y[row] = total;
    }
    g.sync();  // the leader's results are there for all
}

// Whole group. `stop` as in take_item. `write(rows)`: brings results to their file; 0 or a negative
// errno.
template <typename Group, typename Source, typename Stop, typename Write>
PENSTOCK_HD PENSTOCK_INLINE void sum_items(const Group& g, const Source& source,
                                           const vector_view& v, const Stop& stop,
                                           const Write& write) {
    const std::uint64_t count = v.item_count();
    for (std::uint64_t item = apps::take_item(g, v.totals, count, stop); item < count;
         item = apps::take_item(g, v.totals, count, stop)) {
        const item_place at = place_of(v, item);
        if (const std::int64_t code = sum_item(g, source, v, at); code != 0) {
            if (g.is_leader()) note_error(v, bad_file::a, code);
            continue;
        }
        const std::uint64_t band = at.rows.begin / band_rows;
        const stretch rows = rows_of_band(v, band);
        const std::uint64_t parts =
            v.segments == 1 ? pieces_of(rows.count(), v.item_rows) : rows.count() * v.segments;
        if (!apps::ends_last(g, &v.ended[band], parts)) continue;
        add_segments(g, v, rows);
        if (const std::int64_t code = write(rows); code != 0 && g.is_leader())
            note_error(v, bad_file::result, code);
    }
}

}  // namespace penstock::matrix
