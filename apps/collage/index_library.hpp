// `penstock-collage index`: from a folder of pictures to a library.
#pragma once

#include <string>
#include <vector>

#include "library.hpp"

namespace penstock::collage {

struct index_request {
    std::string folder;
    std::string out;
    std::uint64_t tiles = 0;   // 0: all
    std::uint32_t stride = 0;  // 0: automatic
    std::uint32_t scales = 4;
    std::uint64_t seed = 20160606;
    bool strict = false;
    bool quiet = false;  // no progress bar
    std::uint32_t threads = 1;
};

struct index_report {
    library made;
    std::uint64_t pictures = 0;
    std::uint64_t other_files = 0;
    std::uint64_t too_small = 0;
    std::vector<std::string> left_out;  // pictures that could not be read, one message each
    double find_seconds = 0;
    double cut_seconds = 0;    // reading the pictures, tiles and histograms; all rounds
    double width_seconds = 0;  // choosing the width of the hash functions
    double table_seconds = 0;
    double total_seconds = 0;
    double cpu_seconds = 0;
};

status index_library(const index_request& asked, index_report& out);

}  // namespace penstock::collage
