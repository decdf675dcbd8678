// What penstock trace reports of what it did.
#pragma once

#include <string>

#include "generate.hpp"
#include "import.hpp"
#include "summary.hpp"

namespace penstock::trace_command {

struct report_form {
    bool json = false, quiet = false;
};

status report(const report_form& form, const trace::generate_request& asked,
              const trace::generate_report& done);
status report(const report_form& form, const trace::import_request& asked,
              const trace::import_report& done);
status report(const report_form& form, const std::string& path, const trace::summary& found);
status report_converted(const report_form& form, const std::string& from, const std::string& to,
                        bool binary, std::uint64_t records);

}  // namespace penstock::trace_command
