// Numbers on the command line.
#pragma once

#include <cerrno>
#include <charconv>
#include <string>

#include "common/message.hpp"
#include "penstock/error.hpp"

namespace penstock::apps {

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
        return {-EINVAL, std::string(flag) + ": " + shown(text) + " is no number " + range};
    out = value;
    return {};
}

}  // namespace penstock::apps
