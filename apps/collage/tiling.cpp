#include "tiling.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "library.hpp"

namespace penstock::collage {

namespace {

std::uint32_t steps(std::uint32_t length, std::uint32_t stride) {
    return (length - tile_side) / stride + 1;
}

tiling lay_out(const std::vector<source_picture>& pictures, std::uint32_t scales,
               std::uint32_t stride) {
    tiling out;
    out.stride = stride;
    for (const source_picture& source : pictures) {
        picture_plan plan{source, {}};
        for (std::uint32_t level = 0; level < scales; ++level) {
            const std::uint32_t width = source.width >> level, height = source.height >> level;
            if (width < tile_side || height < tile_side) break;
            plan.levels.push_back(
                {width, height, steps(width, stride), steps(height, stride), out.places});
            out.places += std::uint64_t{plan.levels.back().columns} * plan.levels.back().rows;
        }
        if (!plan.levels.empty()) out.pictures.push_back(std::move(plan));
    }
    return out;
}

}  // namespace

status plan_tiles(const std::vector<source_picture>& pictures, std::uint32_t scales,
                  std::uint32_t stride, std::uint64_t tiles, tiling& out) {
    const std::uint32_t least = stride != 0 ? stride : tiles == 0 ? tile_side : 1;
    std::uint32_t use = stride != 0 ? stride : tile_side;
    out = lay_out(pictures, scales, use);
    while (out.places < tiles && use > least) out = lay_out(pictures, scales, --use);
    if (out.places == 0)
        return {-ERANGE, "no picture has 32 by 32 pixels or more; give larger pictures"};
    if (out.places < tiles)
        return {-ERANGE, "--tiles: the pictures give " + apps::with_commas(out.places) +
                             " tiles at a stride of " + std::to_string(use) + ", fewer than " +
                             apps::with_commas(tiles) +
                             "; ask for fewer, or give more pictures or a smaller --stride"};
    out.tiles = tiles != 0 ? tiles : out.places;
    if (out.tiles > most_tiles)
        return {-ERANGE, "the pictures give " + apps::with_commas(out.tiles) +
                             " tiles, more than " + apps::with_commas(most_tiles) +
                             "; give --tiles, or a larger --stride"};
    return {};
}

}  // namespace penstock::collage
