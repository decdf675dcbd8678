// Errors of the library as exceptions of Python. The class of each is chosen in Python
// (penstock/_errors.py), so that C++ knows codes and texts only.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/error.hpp"

namespace penstock::python {

// The caller holds the GIL. `path` may be empty.
[[noreturn]] void raise(std::int64_t negative_errno, const std::string& text,
                        const std::string& path = {});

// Raises unless the status is ok.
void check(const status& s, const std::string& path = {});

// Of calls that return a count or a negative errno.
std::int64_t check(std::int64_t result, const std::string& verb, const std::string& path = {});

}  // namespace penstock::python
