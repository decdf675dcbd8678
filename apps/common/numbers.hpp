// Numbers on the command line, and files that are nothing but numbers.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "common/message.hpp"
#include "penstock/error.hpp"

namespace penstock::apps {

// Numbers on the command line.

// Leaves `out` as it is if nothing was given. -EINVAL and a message with flag, text and `range`
// unless it is a number from `least` to `most`; what is not a number is neither.
template <typename Number>
status parse_number(const char* flag, const std::string& text, Number least, Number most,
                    const std::string& range, Number& out) {
    if (text.empty()) return {};
    Number value{};
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || !(value >= least && value <= most))
        return {-EINVAL,
                std::string(flag) + ": " + shown(text) +
                    (std::is_integral_v<Number> ? " is no whole number " : " is no number ") +
                    range};
    out = value;
    return {};
}

// Files that are nothing but single-precision numbers, one after the other, in the byte order of
// the machine.
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
