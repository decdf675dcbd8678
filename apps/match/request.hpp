// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line.hpp"

namespace penstock::match {

struct search_request {
    std::string queries;
    std::vector<std::string> databases;
    std::string out;  // empty: standard output
    std::string method = "penstock";
    float threshold = 0;
    bool compare = false;
    bool whole = false;
    bool windows = true;
};

struct make_request {
    std::string folder;
    std::uint64_t queries = 2016;
    std::uint64_t images = 25000;  // of each database
    std::uint32_t databases = 3;
    std::uint32_t width = 64;
    std::uint32_t height = 64;
    std::uint32_t channels = 1;
    std::uint64_t seed = 20140224;
    double matches = 0.5;  // fraction of the queries that are put into a database
    double noise = 0.01;   // most that a number of such an image differs
};

struct request {
    bool is_make = false;
    apps::common_flags common;
    search_request search;
    make_request make;
    options settings;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

}  // namespace penstock::match
