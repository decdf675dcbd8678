// The version of these headers and of the library they belong to.
#pragma once

#include "penstock/base/language.hpp"

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 2
#define PENSTOCK_VERSION_PATCH 0

namespace penstock {

// Version of the linked library, for instance "0.2.0". Host only, thread-safe.
const char* version();

}  // namespace penstock
