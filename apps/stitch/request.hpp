// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/options.hpp"

namespace penstock::stitch {

struct run_request {
    std::string tiles;
    std::string out;
    std::vector<std::string> methods;  // in the order of the command line, each once
    bool all = false;                  // every method that can be used here
    std::uint32_t convolutions = 1;
    std::uint32_t repetitions = 1;
    std::optional<double> split;  // nothing: by measuring
    bool whole_pages = false;
};

struct make_request {
    std::string out;
    std::uint32_t rows = 0, columns = 0;
    std::uint32_t tile_width = 0, tile_height = 0;
    std::uint32_t overlap_percent = 10;
    std::uint32_t jitter = 0;
    std::uint64_t seed = 1;
};

struct request {
    bool is_make = false;
    bool json = false, quiet = false;
    run_request run;
    make_request make;
    options settings;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

}  // namespace penstock::stitch
