// The pictures below a folder.
#pragma once

#include <string>
#include <vector>

#include "tiling.hpp"

namespace penstock::collage {

struct found_pictures {
    std::vector<source_picture>
        pictures;  // by path, so that the same folder always gives the same library
    std::uint64_t other_files = 0;        // no pictures at all
    std::uint64_t too_small = 0;          // below 32 pixels in width or height
    std::vector<std::string> complaints;  // one line for each picture or folder that cannot be read
};

// Links are not followed below the folder; hidden files are pictures like others.
status find_pictures(const std::string& folder, found_pictures& out);

}  // namespace penstock::collage
