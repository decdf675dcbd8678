// Files that cat and cp are told to read: which can be, and what their errors mean to the user.
#pragma once

#include <cstdint>
#include <string>
#include <sys/stat.h>

#include "penstock/error.hpp"

namespace penstock::apps {

// What can be done about an error of reading a file; `instead` is the program for files that are no
// regular ones.
std::string cure_of_reading(std::int64_t code, const char* instead);

// "'name': text of the error; cure".
status about_source(const std::string& name, std::int64_t code, const char* instead);

// Looks at a file before there is a runtime, so that a wrong name costs no time and one line.
//
// Files of /proc and the like say that they have another size than they have. Through a cache of
// what the size promises they would look empty or cut, so they are refused.
status look_at_source(const std::string& name, const char* instead, struct stat& facts);

}  // namespace penstock::apps
