// Files of images, and databases of them mapped into this process for the baseline.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/files.hpp"
#include "match_view.hpp"
#include "penstock/error.hpp"

namespace penstock::match {

// Files of images: a header, then one image after the other, each a vector of single-precision
// numbers. docs/apps/match.md describes them byte by byte.

inline constexpr std::uint64_t image_magic = 0x31534547414d4950ull;  // "PIMAGES1"
inline constexpr std::uint32_t image_version = 1;
inline constexpr std::uint64_t data_alignment_bytes = 4096;
// Images begin at multiples of 64 bytes, so that vectors of every kind load a whole one and no 64
// bytes lie on two pages.
inline constexpr std::uint32_t stride_unit_floats = 16;
inline constexpr std::uint32_t most_floats = 1u << 18;
// An image's number among all databases takes half of a 64-bit word, of which the last value says
// "none".
inline constexpr std::uint64_t most_images = (std::uint64_t{1} << 32) - 1;

// The first 64 bytes: little-endian, as the memory of every machine that CUDA runs on.
struct image_header {
    std::uint64_t magic = image_magic;
    std::uint32_t version = image_version;
    std::uint32_t header_bytes = 64;
    std::uint64_t image_count = 0;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::uint32_t channels = 0;
    std::uint32_t stride_floats = 0;  // from one image to the next; what is over is zero
    std::uint64_t data_offset = data_alignment_bytes;
    std::uint64_t reserved[2] = {};

    [[nodiscard]] std::uint64_t floats() const { return std::uint64_t{width} * height * channels; }
    [[nodiscard]] std::uint64_t stride_bytes() const {
        return std::uint64_t{stride_floats} * sizeof(float);
    }
    [[nodiscard]] std::uint64_t data_bytes() const { return image_count * stride_bytes(); }
};
static_assert(std::is_trivially_copyable_v<image_header> && sizeof(image_header) == 64);

// Numbers that are compared: those of the image and the zeros that make it a multiple of the unit.
constexpr std::uint32_t padded_floats(std::uint64_t floats) {
    return static_cast<std::uint32_t>((floats + stride_unit_floats - 1) / stride_unit_floats *
                                      stride_unit_floats);
}

// A file whose header and size were checked.
struct image_file {
    std::string path;
    image_header header;
};

// "64x64x1".
std::string shape_of(const image_header& h);

// Checks everything that can be checked without reading the images. Messages name the file, what is
// wrong and the cure.
status open_images(const std::string& path, image_file& out);

// -EINVAL and a message that names both files if the images of `other` have not the shape of those
// of `first`.
status check_shapes(const image_file& first, const image_file& other);

// Databases in this process's address space, for the baseline.
class mapped_images {
public:
    status open(const std::vector<image_file>& files) {
        for (const image_file& file : files)
            if (status s = maps_.emplace_back().open(
                    file.path, file.header.data_offset + file.header.data_bytes());
                !s)
                return s;
        return {};
    }

    // A source for compare_on_lane.
    template <typename Visit>
    int visit(const tile_place& at, std::uint64_t first_byte, std::uint64_t bytes,
              const Visit& visit) const {
        visit(reinterpret_cast<const float*>(maps_[at.database].data() + first_byte), 0,
              bytes / sizeof(float));
        return 0;
    }

private:
    std::vector<apps::mapped_file> maps_;
};

}  // namespace penstock::match
