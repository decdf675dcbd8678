// A whole picture in memory, and writing one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/output_file.hpp"
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
status write_picture(const std::string& path, const picture& what, apps::output_file& to);

}  // namespace penstock::collage
