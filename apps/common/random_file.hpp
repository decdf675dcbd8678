// Files of random numbers that a seed alone decides.
#pragma once

#include <cstdint>
#include <string>

#include "common/output_file.hpp"

namespace penstock::apps {

// `count` numbers even from -1 to 1, from random_start on (common/random_numbers.hpp): all threads
// make and write pieces of their own.
status fill_with_numbers(const output_file& file, std::uint64_t start, std::uint64_t count,
                         std::uint32_t threads);

// By name, and by where the names lead to if both are there.
bool same_file(const std::string& one, const std::string& other);

}  // namespace penstock::apps
