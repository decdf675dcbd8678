// The lines of a text, one after the other, with their numbers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "byte_source.hpp"
#include "trace.hpp"

namespace penstock::trace {

class line_source {
public:
    explicit line_source(byte_source& from) : from_(from), odd_(from.saw_nul()) {}

    // Without its line end; valid until the next call. False: there is none, because of the end or
    // of an error, which status() tells. A line without an end, one that is too long, and one with
    // a NUL byte are errors.
    bool next(std::string_view& line) {
        const void* const end = std::memchr(from_.begin(), '\n', from_.size());
        if (end == nullptr || odd_) return slow(line);
        return give(static_cast<const char*>(end), line);
    }

    // Of the line that was given last, from 1.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    [[nodiscard]] const penstock::status& status() const { return status_; }

    // -EINVAL and "'path' line n: why".
    [[nodiscard]] penstock::status wrong(const std::string& why) const;
    // The same for line `number`.
    [[nodiscard]] penstock::status wrong(std::uint64_t number, const std::string& why) const;

private:
    bool give(const char* end, std::string_view& line) {
        line = {from_.begin(), static_cast<std::size_t>(end - from_.begin())};
        from_.consume(line.size() + 1);
        ++number_;
        return line.size() <= most_line_bytes || too_long();
    }
    bool slow(std::string_view& line);
    bool too_long();
    bool fail(std::uint64_t number, const std::string& why);

    byte_source& from_;
    std::uint64_t number_ = 0;
    penstock::status status_;
    bool odd_;  // a NUL byte was read: look at every line from here on
};

// Takes the next word from the front of a line; words are parted by blanks. Empty: there is none.
std::string_view take_word(std::string_view& line);

// A whole number that is the whole word.
bool number_of(std::string_view word, std::uint64_t& out);

}  // namespace penstock::trace
