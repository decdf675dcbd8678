// Files of random images with matches that are known, from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "request.hpp"

namespace penstock::match {

struct make_report {
    std::vector<std::string> files;
    std::uint64_t bytes = 0;
    std::uint64_t planted = 0;  // queries that have a match
    double threshold = 0;       // that finds them all and, for all but tiny images, nothing else
    double seconds = 0;
    std::uint32_t threads = 0;
};

status make_images(const request& asked, make_report& report);

}  // namespace penstock::match
