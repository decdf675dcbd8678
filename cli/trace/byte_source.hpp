// A file or pipe that is read from front to back through one buffer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/input_file.hpp"
#include "penstock/error.hpp"

namespace penstock::trace {

class byte_source {
public:
    byte_source() = default;
    byte_source(const byte_source&) = delete;
    byte_source& operator=(const byte_source&) = delete;

    // Reads at most `piece_bytes` at a time, and keeps up to `kept_bytes` that were not consumed
    // yet. `what` says what is meant, for messages: "trace".
    status open(const std::string& path, const std::string& what, std::size_t piece_bytes,
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

}  // namespace penstock::trace
