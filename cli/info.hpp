// penstock info: what there is, what works here and why not, and the options in force.
#pragma once

#include "common/command_line.hpp"

namespace penstock::info {

// The exit status; what went wrong has been said.
int run(const apps::common_flags& flags);

}  // namespace penstock::info
