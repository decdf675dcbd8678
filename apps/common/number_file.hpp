// Files that are nothing but single-precision numbers, one after the other, in the byte order of
// the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::apps {

struct number_file {
    std::string path;
    std::uint64_t bytes = 0;
    std::uint64_t device = 0, inode = 0;

    [[nodiscard]] std::uint64_t count() const { return bytes / sizeof(float); }
};

// Finds out what can be known without reading. A negative errno and a message with file, size and
// cure: it cannot be read, is no regular file, is empty, or has no whole number of numbers. `what`
// says what is in it: "vector".
status open_numbers(const std::string& path, const std::string& what, number_file& out);

// -EINVAL and a message if the output would go over one of the inputs, by whatever name.
status check_not_input(const std::string& output, const std::vector<const number_file*>& inputs);

}  // namespace penstock::apps
