// One product: what was asked, what the method did, how long each part took.
#pragma once

#include <string>
#include <vector>

#include "check.hpp"
#include "methods.hpp"
#include "request.hpp"

namespace penstock::matvec {

struct session {
    request asked;
    matvec_job job;
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

}  // namespace penstock::matvec
