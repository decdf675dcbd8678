// Every option as text: what it is called in each place, its value, and where that value came from.
#pragma once

#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "penstock/options.hpp"

namespace penstock::info {

struct option_row {
    std::string name;         // as in options.hpp
    std::string environment;  // its variable
    std::string unit;         // "bytes", "ms", or empty
    std::string value;        // in force; sizes as plain bytes
    std::string shown;        // the same for people
    std::string source;  // "command line", "environment", "default", or "automatic": worked out by
                         // the runtime
};

// `asked` is what the command line and the environment gave, `in_force` the same after a runtime
// settled it, or `asked` again if there is none.
std::vector<option_row> option_table(const apps::common_flags& flags, const options& asked,
                                     const options& in_force);

}  // namespace penstock::info
