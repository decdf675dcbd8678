// A picture in memory, how it is read and written, and the order in which its blocks are made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

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
status write_picture(const std::string& path, const picture& image, apps::output_file& to);

// Blocks of like colours come one after the other, for they are compared with the same tiles, which
// should still be in the cache. Smaller pictures are made row by row: their blocks are nearly all
// under way at once, whatever the order.
inline constexpr std::uint64_t least_ordered_blocks = 1024;

// Every block's number once; the same for any number of threads.
std::vector<std::uint32_t> block_order(const picture& of, std::uint32_t threads);

// Rows of a picture from top to bottom, three bytes a pixel: red, green, blue. Used by one thread
// at a time.
class picture_reader {
public:
    virtual ~picture_reader() = default;
    // The next row, 3 * width() bytes. -EBADMSG and a message without the path if the picture is
    // damaged.
    virtual status read_row(std::uint8_t* rgb) = 0;
    [[nodiscard]] std::uint32_t width() const { return width_; }
    [[nodiscard]] std::uint32_t height() const { return height_; }
    // What the picture claims cannot be judged by the size of its file: read it once before room is
    // taken for its tiles.
    [[nodiscard]] bool needs_proof() const { return needs_proof_; }

protected:
    bool needs_proof_ = false;
    std::uint32_t width_ = 0;
    std::uint32_t height_ = 0;
};

// Tells JPEG, PNG and binary PPM apart by the first bytes, and reads the picture's size. JPEG and
// PNG only where the program was built with their libraries. -EMEDIUMTYPE: none of these. Messages
// name the path and the cure.
status open_picture(const std::string& path, std::unique_ptr<picture_reader>& out);

}  // namespace penstock::collage
