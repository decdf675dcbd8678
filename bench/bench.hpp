// penstock bench: measures Penstock and its baselines in one run and prints one JSON object.
#pragma once

#include <string>

#include "settings.hpp"

namespace penstock::bench {

// For the help: one line a case.
std::string about_cases();

// The exit status; what went wrong has been said.
int run(const request& asked);

}  // namespace penstock::bench
