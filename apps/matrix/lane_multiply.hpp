// A tile on a CPU thread. Of each slab, its part of B is packed so that a vector holds neighbouring
// columns; then six rows of A at a time go through it.
//
// A source has `fetch(g, which, row, rows, column, columns, to)`: a part of A or B, its rows one
// behind the other. 0 or a negative errno.
#pragma once

#include <cstdint>
#include <cstring>

#include "views.hpp"
#include "penstock/group/lane.hpp"
#include "lane_kernels.hpp"

namespace penstock::matrix {

inline constexpr tile_shape lane_tile{96, 512};
static_assert(lane_tile.rows % kernel_rows == 0 && lane_tile.columns % kernel_columns == 0);

// What a thread works on.
struct lane_room {
    alignas(64) float a[lane_tile.rows * slab_depth];
    alignas(64) float b[slab_depth * lane_tile.columns];
    alignas(64) float packed[slab_depth * lane_tile.columns];
    alignas(64) float sums[kernel_rows * kernel_columns];
    alignas(64) float tile[lane_tile.rows * lane_tile.columns];  // its rows one behind the other,
                                                                 // as wide as the tile is
};

// Columns of B from `first` on, as apps::add_tile wants them; what is over is zero.
inline void pack_columns(const float* b, std::uint32_t width, std::uint32_t depth,
                         std::uint32_t first, std::uint32_t panel, float* to) {
    for (std::uint32_t begin = first; begin < first + kernel_columns; begin += panel)
        for (std::uint32_t i = 0; i < depth; ++i, to += panel) {
            const std::uint32_t there = begin < width ? lesser(panel, width - begin) : 0;
            if (there != 0)
                std::memcpy(to, b + std::uint64_t{i} * width + begin, there * sizeof(float));
            if (there < panel) std::memset(to + there, 0, (panel - there) * sizeof(float));
        }
}

// Adds a slab of all rows and of some columns, from `first` on.
inline void add_columns(const lane_kernels& kernel, const tile_place& at, std::uint32_t depth,
                        std::uint32_t first, lane_room& room) {
    const std::uint32_t width = lesser(kernel_columns, at.columns - first);
    for (std::uint32_t row = 0; row < at.rows; row += kernel_rows) {
        const float* rows[kernel_rows];
        // Where there are fewer, the first stands in.
        for (std::uint32_t i = 0; i < kernel_rows; ++i)
            rows[i] = room.a + std::uint64_t{row + i < at.rows ? row + i : row} * depth;
        std::memset(room.sums, 0, sizeof room.sums);
        kernel.add_tile(rows, room.packed, depth, room.sums);
        for (std::uint32_t i = 0; i < kernel_rows && row + i < at.rows; ++i) {
            float* const to = room.tile + std::uint64_t{row + i} * at.columns + first;
            for (std::uint32_t j = 0; j < width; ++j) to[j] += room.sums[i * kernel_columns + j];
        }
    }
}

// The tile, in the room. False if a part could not be had.
template <typename Source>
bool multiply_on_lane(const Source& source, const product_view& v, const tile_place& at,
                      lane_room& room) {
    const lane_kernels& kernel = chosen_kernels();
    std::memset(room.tile, 0, std::uint64_t{at.rows} * at.columns * sizeof(float));
    for (std::uint64_t first = 0; first < v.k; first += slab_depth) {
        const auto depth =
            static_cast<std::uint32_t>(lesser<std::uint64_t>(slab_depth, v.k - first));
        bad_file which = bad_file::a;
        std::int64_t code = source.fetch(lane{}, which, at.row, at.rows, first, depth, room.a);
        if (code == 0)
            code = source.fetch(lane{}, which = bad_file::b, first, depth, at.column, at.columns,
                                room.b);
        if (code != 0) {
            note_error(v, which, code);
            return false;
        }
        for (std::uint32_t column = 0; column < at.columns; column += kernel_columns) {
            pack_columns(room.b, at.columns, depth, column, kernel.panel_columns, room.packed);
            add_columns(kernel, at, depth, column, room);
        }
    }
    return true;
}

// Tiles one after the other. `write(at, rows)`: brings the tile to its file, 0 or a negative errno.
template <typename Source, typename Stop, typename Write>
void multiply_tiles_on_lane(const Source& source, const product_view& v, lane_room& room,
                            const Stop& stop, const Write& write) {
    const std::uint64_t count = v.tile_count(lane_tile);
    for (std::uint64_t tile = apps::take_item(lane{}, v.totals, count, stop); tile < count;
         tile = apps::take_item(lane{}, v.totals, count, stop)) {
        const tile_place at = place_of(v, lane_tile, tile);
        if (!multiply_on_lane(source, v, at, room)) continue;
        if (const std::int64_t code = write(at, room.tile); code != 0)
            note_error(v, bad_file::result, code);
    }
}

}  // namespace penstock::matrix
