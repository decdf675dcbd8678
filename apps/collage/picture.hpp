// A picture in memory, how it is read and written, and the order in which its blocks are made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

// A whole picture in memory, and writing one.

struct picture {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::vector<std::uint8_t> rgb;  // rows from top to bottom, three bytes a pixel
};

status load_picture(const std::string& path, picture& out);

// The form is chosen by the end of the name: .png, where the program was built with libpng, or
// .ppm. Found out before any work is done: -EINVAL and a message.
status check_output_name(const std::string& path);

// Appears whole or not at all.
status write_picture(const std::string& path, const picture& what, apps::output_file& to);

// In which order the blocks of a picture are made: blocks of like colours one after the other, for
// they are compared with the same tiles, which should still be in the cache.

// Smaller pictures are made row by row: their blocks are nearly all under way at once, whatever the
// order.
inline constexpr std::uint64_t least_ordered_blocks = 1024;

// Every block's number once; the same for any number of threads.
std::vector<std::uint32_t> block_order(const picture& of, std::uint32_t threads);

}  // namespace penstock::collage
