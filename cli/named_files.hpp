// Files that the command line of cat, cp or keep names, judged before there is a runtime: the
// sources, and where copies go. So a wrong name costs no time and one line.
#pragma once

#include <cstdint>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::cli {

// What can be done about an error of reading a file; `instead` is the program for files that are no
// regular ones, null if there is none.
std::string cure_of_reading(std::int64_t code, const char* instead);

// "'name': text of the error; cure".
status about_source(const std::string& name, std::int64_t code, const char* instead);

// Files of /proc and the like say that they have another size than they have. Through a cache of
// what the size promises they would look empty or cut, so they are refused.
status look_at_source(const std::string& name, const char* instead, struct stat& facts);

struct planned_copy {
    std::string from, to;
    unsigned mode = 0;        // of a new file: the source's permission bits less the umask
    std::uint64_t bytes = 0;  // of the source, when it was looked at
    bool is_new = false;      // `to` is not there
};

// One source to a file, or all of them into a directory. Every file is looked at; the first that
// cannot be copied is told, and then nothing has been changed: no regular file or none that can be
// read, a destination that cannot be written, a file onto itself or onto another source (also by a
// link), two to one place.
status plan_copies(const std::vector<std::string>& sources, const std::string& destination,
                   std::uint64_t most_bytes, std::vector<planned_copy>& out);

// "." for a name without one.
std::string directory_of(const std::string& path);

}  // namespace penstock::cli
