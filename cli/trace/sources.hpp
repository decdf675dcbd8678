// Reading a trace: the bytes of a file or pipe, its lines, and the records of one format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/files.hpp"
#include "penstock/error.hpp"
#include "trace.hpp"

namespace penstock::trace {

// A file or pipe that is read from front to back through one buffer.
class byte_source {
public:
    byte_source() = default;
    byte_source(const byte_source&) = delete;
    byte_source& operator=(const byte_source&) = delete;

    // Reads at most `piece_bytes` at a time, and keeps up to `kept_bytes` that were not consumed
    // yet. `label` says what is meant, for messages: "trace".
    status open(const std::string& path, const std::string& label, std::size_t piece_bytes,
                std::size_t kept_bytes);

    // What was read and not consumed. more() moves it.
    [[nodiscard]] const char* begin() const { return begin_; }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
    void consume(std::size_t bytes) { begin_ += bytes; }

    // Reads another piece; at_end() if there is none. At most `kept_bytes` may be unconsumed.
    status more();
    [[nodiscard]] bool at_end() const { return at_end_; }
    // Whether what the last more() read has a NUL byte.
    [[nodiscard]] bool saw_nul() const { return saw_nul_; }

    // Reads until `bytes` are there, or the end.
    status reach(std::size_t bytes);

    [[nodiscard]] const std::string& path() const { return path_; }

private:
    apps::input_stream from_;
    std::string path_;
    std::vector<char> buffer_;
    std::size_t piece_bytes_ = 0;
    const char* begin_ = nullptr;
    char* end_ = nullptr;
    bool at_end_ = false, saw_nul_ = false;
};

// The lines of a text, one after the other, with their numbers.
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

// What every record must keep to, whatever format it came from.

// A read or write within its file, or a flush; not before the record that came before it.
inline bool fits(const record& r, const trace_header& header, std::uint64_t last_ns) {
    if (r.time_ns < last_ns || r.file >= header.files.size()) return false;
    if (r.kind == operation::flush) return r.page == 0 && r.pages == 0 && !r.has_content;
    const std::uint64_t pages = header.files[r.file].pages;
    if (r.pages == 0 || r.page >= pages || r.pages > pages - r.page) return false;
    return !r.has_content || (r.kind == operation::write && r.content <= most_content - r.pages);
}

// Why a record does not fit, and what was expected.
std::string why_not(const record& r, const trace_header& header, std::uint64_t last_ns);

// Reading the records of one format; reader puts the right one behind it.
class record_source {
public:
    virtual ~record_source() = default;
    // Reads the header; called once, first.
    virtual status begin(trace_header& out) = 0;
    // Adds records to `out`, until it has `most` or the trace ends.
    virtual status next(std::vector<record>& out, std::size_t most) = 0;
};

std::unique_ptr<record_source> make_text_source(byte_source& from);
std::unique_ptr<record_source> make_binary_source(byte_source& from);

}  // namespace penstock::trace
