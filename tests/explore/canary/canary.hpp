// What each canary begins with. A file of canaries has a section for each, `#ifdef CANARY_name`.
// The build makes a source of every section: it defines CANARY_name, gives the engine the namespace
// penstock_name, so that differently broken engines do not meet in one program, and includes the
// file. A section's macros break one step, and its test has to see that the exploration finds it.
#pragma once

#include <gtest/gtest.h>

// The library's headers that the tests use come before a canary's macros can change what is in
// them.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "explore/hook.hpp"

// What the tests use, so that no section has to open the namespace.
namespace penstock::explore_kit {}
using namespace penstock;
using namespace penstock::explore_kit;
