// Which files to search.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::grep {

struct input_file {
    std::string path;  // as printed
    std::uint64_t bytes = 0;
};

struct file_list {
    std::vector<input_file> files;   // sorted bytewise by path, each path once
    std::vector<std::string> roots;  // directories below which they lie, for the runtime's options
    std::vector<std::string> named;  // files named on the command line, for runtime::allow
    std::vector<std::string> complaints;  // what could not be looked at inside a directory
};

// Regular files as they are; directories with everything below them, links inside not followed,
// other kinds of file inside skipped. A path that is absent, unreadable or neither file nor
// directory is an error: a negative errno and a message with path and cure.
status find_files(const std::vector<std::string>& paths, file_list& out);

}  // namespace penstock::grep
