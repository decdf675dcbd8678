// A run of the program: what it makes or searches, and the report of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "methods.hpp"
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

// Files of random images with matches that are known, from a seed.
status make_images(const request& asked, make_report& report);

// One search: what was asked, what each method found, how long each part took.
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

// What the program prints: lines, the JSON object, the summary.

// Query, database, image, distance.
status write_lines(const session& s, apps::output_file& to);

// One line each.
std::string json_of(const session& s);
std::string json_of(const request& asked, const make_report& report);

void say_summary(const session& s);
void say_summary(const request& asked, const make_report& report);

}  // namespace penstock::match
