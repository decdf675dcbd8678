#include "pyramid.hpp"

#include <cstring>

#include "tile.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint32_t kept_rows = 2 * tile_side;

}  // namespace

pyramid::pyramid(const picture_plan& plan, std::uint32_t stride, emitter emit)
    : stride_(stride), emit_(std::move(emit)) {
    for (const level_plan& one : plan.levels) {
        // The full scale may be wider by what halving leaves out, so each level keeps its own
        // width.
        levels_.push_back({one.width, one.height, 0, 0,
                           std::vector<std::uint8_t>(std::size_t{kept_rows} * one.width * 3)});
    }
}

std::uint8_t* pyramid::row_for(level& l) {
    const std::size_t stride_bytes = std::size_t{l.width} * 3;
    if (l.filled == kept_rows) {
        // Only the last 31 rows can still be part of a band.
        std::memmove(l.rows.data(), l.rows.data() + stride_bytes * (kept_rows - tile_side + 1),
                     stride_bytes * (tile_side - 1));
        l.filled = tile_side - 1;
    }
    return l.rows.data() + stride_bytes * l.filled;
}

void pyramid::pushed(std::uint32_t number) {
    level& l = levels_[number];
    ++l.filled;
    ++l.seen;
    const std::size_t stride_bytes = std::size_t{l.width} * 3;
    if (l.seen >= tile_side && (l.seen - tile_side) % stride_ == 0)
        emit_(number, (l.seen - tile_side) / stride_,
              l.rows.data() + stride_bytes * (l.filled - tile_side));
    if (number + 1 == levels_.size() || l.seen % 2 != 0) return;
    level& next = levels_[number + 1];
    if (next.seen == next.height) return;
    const std::uint8_t* const below = l.rows.data() + stride_bytes * (l.filled - 1);
    halve_rows(below - stride_bytes, below, next.width, row_for(next));
    pushed(number + 1);
}

void halve_rows(const std::uint8_t* above, const std::uint8_t* below, std::uint32_t out_width,
                std::uint8_t* out) {
    for (std::uint32_t x = 0; x < out_width; ++x)
        for (std::uint32_t c = 0; c < 3; ++c) {
            const std::uint32_t at = 6 * x + c;
            out[3 * x + c] = static_cast<std::uint8_t>(
                (above[at] + above[at + 3] + below[at] + below[at + 3] + 2) / 4);
        }
}

}  // namespace penstock::collage
