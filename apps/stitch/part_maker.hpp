// The makers of the image's two parts. A GPU makes the left part, or on the cpu back end threads
// that stand for it. Threads make the right part.
//
// What a maker does knows nothing of Penstock: pointers to tiles, a pointer to pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "image_file.hpp"
#include "penstock/error.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

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

}  // namespace penstock::stitch
