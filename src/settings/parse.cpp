// Turning text into option values, with messages that name the value and the cure.
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "penstock/options.hpp"

namespace penstock {

namespace {

struct unit {
    const char* name;
    std::uint64_t bytes;
};

constexpr std::uint64_t kib = 1024, mib = kib * 1024, gib = mib * 1024, tib = gib * 1024;
constexpr unit units[] = {{"", 1},
                          {"B", 1},
                          {"K", kib},
                          {"KiB", kib},
                          {"KB", 1000},
                          {"M", mib},
                          {"MiB", mib},
                          {"MB", 1000000},
                          {"G", gib},
                          {"GiB", gib},
                          {"GB", 1000000000},
                          {"T", tib},
                          {"TiB", tib},
                          {"TB", 1000000000000}};

status bad_size(const std::string& what, const std::string& text) {
    return {
        -EINVAL,
        what + ": '" + text +
            "' is not a size; give a number with an optional unit, such as 65536, 64KiB, 1.5GiB"};
}

}  // namespace

status parse_size(const std::string& what, const std::string& text, std::uint64_t& bytes) {
    const char* const end = text.data() + text.size();
    double number = 0;
    const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (parsed.ec != std::errc() || parsed.ptr == text.data() || number < 0 ||
        !std::isfinite(number))
        return bad_size(what, text);
    const char* at = parsed.ptr;
    if (at != end && *at == ' ') ++at;
    const std::string name(at, end);
    for (const unit& u : units) {
        if (name != u.name) continue;
        const double value = number * static_cast<double>(u.bytes);
        if (value >= 9.2e18) return bad_size(what, text);
        // Whole numbers are computed as integers, so that no large size loses its last digits.
        std::uint64_t whole = 0;
        const auto exact = std::from_chars(text.data(), parsed.ptr, whole);
        bytes = exact.ec == std::errc() && exact.ptr == parsed.ptr
                    ? whole * u.bytes
                    : static_cast<std::uint64_t>(value);
        return {};
    }
    return bad_size(what, text);
}

std::string format_size(std::uint64_t bytes) {
    const unit shown[] = {{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}};
    for (const unit& u : shown)
        if (bytes >= u.bytes && bytes % u.bytes == 0)
            return std::to_string(bytes / u.bytes) + " " + u.name;
    for (const unit& u : shown) {
        if (bytes < u.bytes) continue;
        char text[64];
        std::snprintf(text, sizeof text, "%.1f %s",
                      static_cast<double>(bytes) / static_cast<double>(u.bytes), u.name);
        return text;
    }
    return std::to_string(bytes) + " B";
}

status parse_backend(const std::string& what, const std::string& text, backend& out) {
    for (const backend b : {backend::automatic, backend::gpu, backend::cpu})
        if (text == name_of(b)) return out = b, status{};
    return {-EINVAL, what + ": '" + text + "' is no back end; use auto, gpu or cpu"};
}

status parse_io_method(const std::string& what, const std::string& text, io_method& out) {
    for (const io_method m : {io_method::automatic, io_method::uring, io_method::pread})
        if (text == name_of(m)) return out = m, status{};
    return {-EINVAL, what + ": '" + text + "' is no way to read files; use auto, uring or pread"};
}

status parse_direct_mode(const std::string& what, const std::string& text, direct_mode& out) {
    for (const direct_mode m : {direct_mode::automatic, direct_mode::off, direct_mode::on})
        if (text == name_of(m)) return out = m, status{};
    return {-EINVAL, what + ": '" + text +
                         "' does not say when to read past the page cache; use auto, off or on"};
}

status parse_switch(const std::string& what, const std::string& text, bool& out) {
    if (text == "on" || text == "off") return out = text == "on", status{};
    return {-EINVAL, what + ": '" + text + "' is neither; use on or off"};
}

const char* name_of(backend where) {
    return where == backend::gpu ? "gpu" : where == backend::cpu ? "cpu" : "auto";
}

const char* name_of(io_method io) {
    return io == io_method::uring ? "uring" : io == io_method::pread ? "pread" : "auto";
}

const char* name_of(direct_mode direct) {
    return direct == direct_mode::off ? "off" : direct == direct_mode::on ? "on" : "auto";
}

}  // namespace penstock
