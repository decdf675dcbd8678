// Made tiles: a smooth scene, seen through a grid of tiles that are not quite where they should be,
// with the noise of a camera.
#pragma once

#include <cstdint>

#include "request.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

struct make_report {
    std::uint64_t bytes = 0;
    std::uint32_t image_width = 0, image_height = 0, threads = 0;
    double seconds = 0;
};

// Places column by column, so that the left part of an image has the first part of the file.
// -EINVAL and a message if the image would be too large.
status place_tiles(const make_request& m, tile_set& out);

status make_tiles(const request& asked, make_report& report);

}  // namespace penstock::stitch
