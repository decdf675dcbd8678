// Files of images: their form, checking them, and the command that makes some.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/program.hpp"
#include "penstock/error.hpp"

namespace penstock::match {

// A file of images is a header, then one image after the other, each a vector of single-precision
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
    // One side at a time, so that the product cannot overflow.
    [[nodiscard]] bool can_be_compared() const {
        return width > 0 && height > 0 && channels > 0 && width <= most_floats &&
               height <= most_floats && channels <= 16 && floats() <= most_floats;
    }
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

// Files of random images with matches that are known, from a seed.
struct make_session final : apps::command {
    make_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    [[nodiscard]] std::uint64_t images_of(std::uint64_t database) const {
        return database == 0 ? queries : images;
    }
    [[nodiscard]] std::uint64_t bytes_of(std::uint64_t database) const {
        return data_alignment_bytes + images_of(database) * form.stride_bytes();
    }

    // What was asked for.
    std::string folder;
    std::uint64_t queries = 2016;
    std::uint64_t images = 25000;  // of each database
    std::uint32_t databases = 3;
    image_header form{.width = 64, .height = 64, .channels = 1, .stride_floats = 64 * 64};
    std::uint64_t seed = 20140224;
    double matches = 0.5;  // fraction of the queries that are put into a database
    double noise = 0.01;   // most that a number of such an image differs

    std::vector<std::string> files;  // the queries', then one for each database
    std::uint64_t bytes = 0;         // of all files
    std::uint64_t planted = 0;       // queries that have a match
    double threshold = 0;  // that finds them all and, for all but tiny images, nothing else
    double seconds = 0;
    std::uint32_t threads = 0;
};

}  // namespace penstock::match
