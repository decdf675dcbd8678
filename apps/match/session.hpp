// One search: what was asked, what each method found, how long each part took.
#pragma once

#include <string>
#include <vector>

#include "methods.hpp"
#include "request.hpp"

namespace penstock::match {

struct session {
    request asked;
    match_job job;
    std::vector<method_report> runs;  // the last one is the one whose lines are printed
    std::vector<std::string> notes;   // what the runtime said when it was made
    double check_seconds = 0;         // opening and checking the files
    double output_seconds = 0;
};

// Opens and checks the files, all of them before any work is done.
status open_files(session& s);

// Runs one method and appends it to the session's runs.
status run_method(session& s, const std::string& name);

// Runs all methods there are. -EILSEQ and a message if two of them disagree.
status compare_methods(session& s);

// Where an image of all databases is.
struct image_place {
    std::size_t database;
    std::uint64_t image;
};
image_place place_of_image(const match_job& job, std::uint64_t number);

}  // namespace penstock::match
