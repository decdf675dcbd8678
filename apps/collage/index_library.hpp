// `penstock-collage index`: from a folder of pictures to a library.
#pragma once

#include <string>
#include <vector>

#include "library.hpp"
#include "request.hpp"

namespace penstock::collage {

struct index_report {
    library made;
    std::uint64_t pictures = 0;
    std::uint64_t other_files = 0;
    std::uint64_t too_small = 0;
    std::vector<std::string> left_out;  // pictures that could not be read, one message each
    std::uint32_t threads = 0;
    double find_seconds = 0;
    double cut_seconds = 0;    // reading the pictures, tiles and histograms; all rounds
    double width_seconds = 0;  // choosing the width of the hash functions
    double table_seconds = 0;
    double total_seconds = 0;
    double cpu_seconds = 0;
};

status index_library(const request& asked, index_report& out);

}  // namespace penstock::collage
