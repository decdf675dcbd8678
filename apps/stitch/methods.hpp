// Methods that make the image, and how the work is shared between two processors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image_file.hpp"
#include "penstock/runtime.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

// The makers of the image's two parts. A GPU makes the left part, or on the cpu back end threads
// that stand for it. Threads make the right part. What a maker does knows nothing of Penstock:
// pointers to tiles, a pointer to pixels.

// Tiles in memory: where number `first` begins; the others lie `stride` pixels apart.
struct tiles_in_memory {
    const std::uint16_t* pixels = nullptr;
    std::uint32_t first = 0;
    std::uint64_t stride = 0;
    std::uint32_t width = 0, height = 0;
};

// Where pixels of the image go: x, y is number y * stride + x.
struct image_in_memory {
    std::uint16_t* pixels = nullptr;
    std::uint64_t stride = 0;
};

struct part_work {
    tiles_in_memory tiles;
    image_in_memory image;
    const std::vector<piece>* pieces = nullptr;
    std::uint32_t convolutions = 0;
};

// By so many threads. -ECANCELED after an interrupt.
status make_on_threads(const part_work& work, std::uint32_t threads);

// Rows of the image's left part, one after the other in memory of the device.
struct rows_in_memory {
    const std::uint16_t* pixels;
    std::uint32_t width, height;  // of the part
    std::uint64_t stride;         // of the image
};

// Memory of its own for the left part's tiles and pixels; freed with its owner or by drop().
class part_memory {
public:
    virtual ~part_memory() = default;
    // Image memory is all zero. -ENOMEM and a message with the cure.
    virtual status take(std::uint64_t tile_bytes, std::uint64_t image_bytes, std::byte*& tiles,
                        std::byte*& image) = 0;
    virtual void drop() = 0;
    // All cores bring part of the tiles' file there, and rows to their places in the image.
    virtual status bring(const tile_set& tiles, std::uint64_t offset, std::uint64_t bytes,
                         std::byte* to) = 0;
    virtual status send(const rows_in_memory& rows, const image_file& to) = 0;
};

// Its memory is for the method private.
class part_maker : public part_memory {
public:
    // The pixels of these pieces are there when it returns.
    virtual status make(const part_work& work) = 0;
};

// `copiers`: threads that copy while no maker computes.
std::unique_ptr<part_maker> make_thread_maker(std::uint32_t threads, std::uint32_t copiers);
// Null where the program was built without CUDA.
std::unique_ptr<part_maker> make_gpu_maker(int device, std::uint32_t copiers);

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

// How much of the image each processor should have, so that both end at the same time: found by
// measuring them on a few tiles.

struct balance {
    double left_rate = 0, right_rate = 0;  // pixels a second
    double seconds = 0;                    // that it took to find out
    double share = 0;                      // of the left one
};

status measure_balance(const stitch_job& job, balance& out);

}  // namespace penstock::stitch
