// Methods that make the image, and how the work is shared between two processors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image_file.hpp"
#include "part_maker.hpp"
#include "penstock/runtime.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

// The methods: each makes the whole image once, from the tiles in their file to the image in its
// own.

struct stitch_job {
    tile_set tiles;
    std::vector<piece> all, left, right;  // all: left and right of the line together
    std::uint32_t split = 0;              // the first column of the right part
    std::uint32_t convolutions = 1;
    std::uint32_t threads = 1;      // of the right part
    std::uint32_t all_threads = 1;  // where no maker runs beside them
    bool whole_pages = false;       // how a region's changes come to the file
    runtime* rt = nullptr;          // null: only the method cpu
    part_maker* left_maker = nullptr;
};

// Seconds, one after the other; `left` and `right` both lie in `compute`. `end` gives back what was
// allocated, after the image was complete.
struct phases {
    double map = 0, input = 0, compute = 0, merge = 0, end = 0, left = 0, right = 0;
    std::uint64_t bytes_released = 0, pages_released = 0, pages_fetched = 0;

    [[nodiscard]] double total() const { return map + input + compute + merge; }
};

status with_penstock(const stitch_job& job, image_file& image, phases& out);
status with_private(const stitch_job& job, image_file& image, phases& out);
status with_managed(const stitch_job& job, image_file& image, phases& out);
status with_cpu(const stitch_job& job, image_file& image, phases& out);

// The tiles of the left part and its pixels in memory of its own, or, with `has_both`, the pixels
// of both parts there.
status with_own_memory(const stitch_job& job, part_memory& memory, bool has_both, image_file& image,
                       phases& out);

// Whether the method managed can be used for this; -ENODEV or -ENOMEM and why not.
status check_managed(const stitch_job& job);

// The part of the tiles' file that has all tiles of the left part; 0 bytes if there is none.
struct tile_range {
    std::uint32_t first = 0;
    std::uint64_t offset = 0, bytes = 0;
};
tile_range left_tiles(const stitch_job& job);

// Tiles from number `first` on, which begin at `at`.
tiles_in_memory tiles_at(const stitch_job& job, const void* at, std::uint32_t first);

// Work of threads: pieces from tiles in a map of their file to an image from `pixels` on.
part_work on_host(const stitch_job& job, const apps::mapped_file& tiles, std::uint16_t* pixels,
                  const std::vector<piece>& pieces);

// Both parts at the same time: the left one by its maker, the right one by threads.
status make_both(const stitch_job& job, const part_work& left, const part_work& right, phases& out);

// How much of the image each processor should have, so that both end at the same time: found by
// measuring them on a few tiles.

struct balance {
    double left_rate = 0, right_rate = 0;  // pixels a second
    double seconds = 0;                    // that it took to find out
    double share = 0;                      // of the left one
};

status measure_balance(const stitch_job& job, balance& out);

}  // namespace penstock::stitch
