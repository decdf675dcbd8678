// Numbers on the command line, files that are nothing but numbers, those that a kernel works on,
// and random numbers.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "common/message.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/error.hpp"
#include "penstock/runtime.hpp"

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

    [[nodiscard]] std::uint64_t count() const { return bytes / sizeof(float); }
};

// Finds out what can be known without reading. A negative errno and a message with file, size and
// cure: it cannot be read, is no regular file, is empty, or has no whole number of numbers.
// `content` says what is in it: "vector".
status open_numbers(const std::string& path, const std::string& content, number_file& out);

// Random numbers that a seed and a place alone decide, so that any thread can make any part of a
// file.

// Where the numbers of part `part` of what the seed stands for begin.
inline std::uint64_t random_start(std::uint64_t seed, std::uint64_t part) {
    return mix64(seed + part);
}

// The number at `place`, evenly from 0 to 1.
inline float even_number(std::uint64_t start, std::uint64_t place) {
    return static_cast<float>(mix64(start + place) >> 40) * (1.0f / (1u << 24));
}

// Random numbers one after the other from a seed, the same everywhere.
class dice {
public:
    explicit dice(std::uint64_t seed) : state_(mix64(seed + 1)) {}

    std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ull); }
    // Below `limit`, which is far below 2^64.
    template <typename Integer>
    Integer below(Integer limit) {
        return static_cast<Integer>(next() % limit);
    }
    // Evenly from 0 to 1, without 1.
    double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

private:
    std::uint64_t state_;
};

// `count` numbers even from -1 to 1, from random_start on: all threads make and write pieces of
// their own.
status fill_with_numbers(const output_file& file, std::uint64_t start, std::uint64_t count,
                         std::uint32_t threads);

// Files that a kernel works on, opened by the host before the launch, and what their errors mean to
// the user.

// -ESTALE and a message if the file has no longer the size that was checked.
status open_input(runtime& rt, const number_file& file, int& fd);

// Makes the file under its passing name empty and opens it for a kernel to write.
status open_result(runtime& rt, const output_file& file, int& fd);

// After the kernel, whose own result `written` is: everything comes to the file, and other programs
// see it.
status close_result(runtime& rt, int fd, const status& written);

// Windows let the GPU fetch pages without a request. What has none, for want of budget or because
// the driver refuses, comes by request as ever. Returns how many bytes of the files have one.
std::uint64_t open_windows(runtime& rt, const std::vector<int>& fds);
// On every device of the runtime.
std::uint64_t open_windows(runtime& rt, const std::vector<shared_file>& files);

// What an error code of a kernel means.
status read_error(const number_file& file, int code);
status write_error(int code, const std::string& reason = "");

}  // namespace penstock::apps
