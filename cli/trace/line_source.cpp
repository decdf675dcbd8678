#include "line_source.hpp"

#include <charconv>

#include "common/message.hpp"

namespace penstock::trace {

status line_source::wrong(std::uint64_t number, const std::string& why) const {
    return {-EINVAL, apps::shown(from_.path()) + " line " + std::to_string(number) + ": " + why};
}

status line_source::wrong(const std::string& why) const { return wrong(number_, why); }

bool line_source::fail(std::uint64_t number, const std::string& why) {
    status_ = wrong(number, why);
    return false;
}

bool line_source::too_long() {
    return fail(number_, "has more than " + apps::with_commas(most_line_bytes) +
                             " bytes; expected a text with short lines");
}

bool line_source::slow(std::string_view& line) {
    if (!status_) return false;
    for (;;) {
        const void* const end =
            from_.size() == 0 ? nullptr : std::memchr(from_.begin(), '\n', from_.size());
        if (end != nullptr) {
            if (!give(static_cast<const char*>(end), line)) return false;
            if (line.find('\0') == std::string_view::npos) return true;
            return fail(number_, "has a NUL byte; expected text");
        }
        if (from_.size() > most_line_bytes) return ++number_, too_long();
        if (from_.at_end()) break;
        status_ = from_.more();
        if (!status_) return false;
        odd_ = odd_ || from_.saw_nul();
    }
    if (from_.size() == 0) return false;
    return fail(number_ + 1,
                "has no line end, so the file was cut short; make it again, or end its last line");
}

std::string_view take_word(std::string_view& line) {
    std::size_t from = 0;
    while (from < line.size() && (line[from] == ' ' || line[from] == '\t')) ++from;
    std::size_t to = from;
    while (to < line.size() && line[to] != ' ' && line[to] != '\t') ++to;
    const std::string_view word = line.substr(from, to - from);
    line.remove_prefix(to);
    return word;
}

bool number_of(std::string_view word, std::uint64_t& out) {
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
}

}  // namespace penstock::trace
