// A run of the program, and the report of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "count_files.hpp"
#include "penstock/runtime.hpp"
#include "request.hpp"

namespace penstock::grep {

struct seconds_by_phase {
    double dictionary = 0;
    double find_files = 0;
    double start = 0;  // creating the runtime, placing the dictionary
    double search = 0;
    double output = 0;
};

// What one method did.
struct method_run {
    std::string name;
    double start_seconds = 0;
    double search_seconds = 0;
    std::uint64_t groups = 0;
    std::uint64_t piece_bytes = 0;
    counted_files found;
};

// One run of the program: what it read, what it found, how long each part took.
struct session {
    request asked;
    dictionary words;
    file_list files;
    std::uint64_t total_bytes = 0;
    std::unique_ptr<runtime> rt;  // null if no method needed one
    std::vector<std::string> notes;
    std::vector<method_run> runs;  // the last one is the one whose lines are printed
    seconds_by_phase seconds;
};

// Runs one method and appends it to the session's runs.
status run_method(session& s, const std::string& name);

// Runs all methods there are. -EILSEQ and a message if two of them disagree.
status compare_methods(session& s);

// What the program prints: lines, the JSON object, the summary.

// word<TAB>path<TAB>count, one line per count, with field_of() the path; a word may have tabs, so
// lines are taken apart from their end. With --null the path as it is, and a zero byte behind every
// field in place of tabs and line ends.
status write_lines(const session& s, apps::output_file& to);

// The JSON object, one line.
std::string json_of(const session& s);

// The runtime's notes; files, bytes, time and cache figures in one line; one more for each method
// if they were compared.
void say_summary(const session& s);

// What was left out, one line each.
void say_left_out(const session& s);

}  // namespace penstock::grep
