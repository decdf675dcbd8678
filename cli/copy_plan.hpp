// Which file goes where, found out and judged before anything is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::cp {

// For sources that are no regular file.
inline constexpr const char* instead = "cp";

struct planned_copy {
    std::string from, to;
    unsigned mode = 0;    // of a new file: the source's permission bits less the umask
    bool is_new = false;  // `to` is not there
};

// One source to a file, or all of them into a directory. Every file is looked at; the first that
// cannot be copied is told, and then nothing has been changed: no regular file or none that can be
// read, a destination that cannot be written, a file onto itself or onto another source (also by a
// link), two to one place.
status plan_copies(const std::vector<std::string>& sources, const std::string& destination,
                   std::vector<planned_copy>& out);

}  // namespace penstock::cp
