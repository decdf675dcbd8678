// Cuts the planned tiles out of the pictures and writes tiles, histograms and features. All
// processors: some read pictures, the others count what was read.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "staging_folder.hpp"
#include "tiling.hpp"

namespace penstock::collage {

// Where tile number n goes: n * tile_bytes, n * record_stride_bytes, n * features * 2.
struct tile_files {
    staged_file tiles;
    staged_file histograms;
    staged_file features;
};

struct damaged_picture {
    std::size_t picture;  // its place in the plan
    std::string message;
};

// Pictures that turn out damaged are read to that point and reported; then the files hold no use
// for a library, and the caller plans again without them. `done` counts pictures.
status cut_tiles(const tiling& plan, const tile_files& files, std::uint32_t threads,
                 std::atomic<std::uint64_t>& done, std::vector<damaged_picture>& damaged);

}  // namespace penstock::collage
