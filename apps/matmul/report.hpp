// A run of the program: what it makes or multiplies, and the report of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "methods.hpp"
#include "request.hpp"

namespace penstock::matmul {

struct make_report {
    std::uint64_t bytes = 0;  // of both files
    double seconds = 0;
    std::uint32_t threads = 0;
};

// Two matrices of random numbers, from a seed. Numbers even from -1 to 1; docs/apps/matrix.md says
// which.
status make_inputs(const request& asked, make_report& report);

// One product: what was asked, what the method did, how long each part took.
struct session {
    request asked;
    matmul_job job;
    apps::output_file result;
    method_report report;
    check_report check;
    std::vector<std::string> notes;  // what the runtime said when it was made
};

// Opens and checks the files, all of them before any work is done.
status open_files(session& s);

// Multiplies, and checks the result if that was asked for. The result is in its file, under a
// passing name.
status multiply(session& s);

// What the program prints: the JSON object, the summary.

// One line each.
std::string json_of(const session& s);
std::string json_of(const request& asked, const make_report& report);

void say_summary(const session& s);
void say_summary(const request& asked, const make_report& report);

}  // namespace penstock::matmul
