// Options as text and back: sizes and names, environment, ranges, and rows of the document.
#include "penstock/options.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "settings/tables.hpp"

namespace penstock {

namespace {

struct size_unit {
    const char* name;
    std::uint64_t bytes;
};

constexpr std::uint64_t kib = 1024, mib = kib * 1024, gib = mib * 1024, tib = gib * 1024;
constexpr size_unit units[] = {{"", 1},
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

status bad_size(const std::string& label, const std::string& text) {
    return {
        -EINVAL,
        label + ": '" + text +
            "' is not a size; give a number with an optional unit, such as 65536, 64KiB, 1.5GiB"};
}

// "1.50": 1, and the digits behind the point without zeros at their end.
struct decimal {
    std::uint64_t whole = 0;
    std::string fraction;
    std::string rest;  // what follows the number
};

bool read_decimal(const std::string& text, decimal& out) {
    constexpr const char* digits = "0123456789";
    const std::size_t point = std::min(text.find_first_not_of(digits), text.size());
    std::size_t end = point;
    if (point < text.size() && text[point] == '.') {
        end = std::min(text.find_first_not_of(digits, point + 1), text.size());
        out.fraction = text.substr(point + 1, end - point - 1);
    }
    if (point == 0 && out.fraction.empty()) return false;
    out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
    out.rest = text.substr(end);
    return point == 0 ||
           std::from_chars(text.data(), text.data() + point, out.whole).ec == std::errc();
}

status not_whole(const std::string& label, const std::string& text, std::uint64_t below) {
    return {-EINVAL, label + ": '" + text + "' is no whole number of bytes; give " +
                         std::to_string(below) + " or " + std::to_string(below + 1)};
}

}  // namespace

// In whole numbers: a product of doubles has lost digits, and would not tell what is whole.
status parse_size(const std::string& label, const std::string& text, std::uint64_t& bytes) {
    __extension__ typedef unsigned __int128 wide;  // -Wpedantic would not have it
    constexpr std::uint64_t most = 9'200'000'000'000'000'000u;
    constexpr std::size_t most_digits = 26;  // times a TiB they are below 2^128
    decimal number;
    if (!read_decimal(text, number)) return bad_size(label, text);
    const std::string name = number.rest.substr(number.rest.rfind(' ', 0) == 0 ? 1 : 0);
    for (const size_unit& u : units) {
        if (name != u.name) continue;
        wide parts = 0, parts_each = 1;  // of the fraction, and of one
        for (const char digit : number.fraction.substr(0, most_digits)) {
            parts = parts * 10 + static_cast<unsigned>(digit - '0');
            parts_each *= 10;
        }
        const wide value = wide{number.whole} * u.bytes + parts * u.bytes / parts_each;
        if (value >= most) return bad_size(label, text);
        const auto below = static_cast<std::uint64_t>(value);
        if (number.fraction.size() > most_digits || parts * u.bytes % parts_each != 0)
            return not_whole(label, text, below);
        bytes = below;
        return {};
    }
    return bad_size(label, text);
}

std::string format_size(std::uint64_t bytes) {
    const size_unit shown[] = {{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}};
    for (const size_unit& u : shown)
        if (bytes >= u.bytes && bytes % u.bytes == 0)
            return std::to_string(bytes / u.bytes) + " " + u.name;
    for (const size_unit& u : shown) {
        if (bytes < u.bytes) continue;
        char text[64];
        std::snprintf(text, sizeof text, "%.1f %s",
                      static_cast<double>(bytes) / static_cast<double>(u.bytes), u.name);
        return text;
    }
    return std::to_string(bytes) + " B";
}

status parse_backend(const std::string& label, const std::string& text, backend& out) {
    for (const backend b : {backend::automatic, backend::gpu, backend::cpu})
        if (text == name_of(b)) return out = b, status{};
    return {-EINVAL, label + ": '" + text + "' is no back end; use auto, gpu or cpu"};
}

status parse_io_method(const std::string& label, const std::string& text, io_method& out) {
    for (const io_method m : {io_method::automatic, io_method::uring, io_method::pread})
        if (text == name_of(m)) return out = m, status{};
    return {-EINVAL, label + ": '" + text + "' is no way to read files; use auto, uring or pread"};
}

status parse_direct_mode(const std::string& label, const std::string& text, direct_mode& out) {
    for (const direct_mode m : {direct_mode::automatic, direct_mode::off, direct_mode::on})
        if (text == name_of(m)) return out = m, status{};
    return {-EINVAL, label + ": '" + text +
                         "' does not say when to read past the page cache; use auto, off or on"};
}

status parse_trust_mode(const std::string& label, const std::string& text, trust_mode& out) {
    for (const trust_mode m : {trust_mode::automatic, trust_mode::off, trust_mode::on})
        if (text == name_of(m)) return out = m, status{};
    return {-EINVAL,
            label + ": '" + text + "' does not say whether times are proof; use auto, off or on"};
}

status parse_switch(const std::string& label, const std::string& text, bool& out) {
    if (text == "on" || text == "off") return out = text == "on", status{};
    return {-EINVAL, label + ": '" + text + "' is neither; use on or off"};
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

const char* name_of(trust_mode trust) {
    return trust == trust_mode::off ? "off" : trust == trust_mode::on ? "on" : "auto";
}

namespace settings {

namespace {

template <typename... Cases>
struct by_type : Cases... {
    using Cases::operator()...;
};
template <typename... Cases>
by_type(Cases...) -> by_type<Cases...>;

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(':', at), text.size());
        if (end > at) parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

std::string joined(const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : ":") + part;
    return out;
}

std::string joined(const std::vector<int>& numbers) {
    std::string out;
    for (const int number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
    return out;
}

template <typename Integer>
status parse_number(const std::string& label, const std::string& text, Integer& out) {
    const char* const end = text.data() + text.size();
    Integer number = 0;
    const auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) return out = number, status{};
    return {-EINVAL,
            label + ": '" + text + "' is not a whole number that fits; give one, such as 4"};
}

status parse_numbers(const std::string& label, const std::string& text, std::vector<int>& out) {
    std::vector<int> numbers;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        int number = 0;
        if (!parse_number(label, text.substr(at, end - at), number))
            return {-EINVAL, label + ": '" + text +
                                 "' is no list of numbers; give some with commas between, such as "
                                 "0,1"};
        numbers.push_back(number);
        at = end + 1;
    }
    return out = std::move(numbers), status{};
}

status parse_zero_or_one(const std::string& label, const std::string& text, bool& out) {
    if (text == "0" || text == "1") return out = text == "1", status{};
    return {-EINVAL, label + ": '" + text + "' is neither 0 nor 1; give 1 for on, 0 for off"};
}

// 0 is refused here where no size of 0 is usable, so that the message names the label.
status parse_usable_size(const option_entry& entry, const std::string& label,
                         const std::string& text, std::uint64_t& out) {
    std::uint64_t bytes = 0;
    if (status s = parse_size(label, text, bytes); !s) return s;
    const bool may_be_zero = entry.or_zero || (entry.most != 0 && entry.least == 0);
    if (bytes == 0 && !may_be_zero)
        return {-EINVAL, label + ": '" + text +
                             "' is no usable size; give one, such as 64KiB, or leave " + label +
                             " out"};
    return out = bytes, status{};
}

// A value of the table as a number, if it is one.
std::optional<std::uint64_t> number_of(const option_entry& entry, const options& of) {
    return std::visit(
        by_type{[&](std::uint64_t options::*m) { return std::optional(of.*m); },
                [&](std::optional<std::uint64_t> options::*m) { return of.*m; },
                [&](std::uint32_t options::*m) { return std::optional<std::uint64_t>(of.*m); },
                [&](std::optional<std::uint32_t> options::*m) {
                    return (of.*m) ? std::optional<std::uint64_t>(*(of.*m)) : std::nullopt;
                },
                [](auto) { return std::optional<std::uint64_t>(); }},
        entry.member);
}

bool may_be_empty(const option_entry& entry) {
    return std::holds_alternative<std::optional<std::uint64_t> options::*>(entry.member) ||
           std::holds_alternative<std::optional<std::uint32_t> options::*>(entry.member);
}

std::string shown_number(const option_entry& entry, std::uint64_t value) {
    if (value != 0 && entry.unit == unit::bytes) return format_size(value);
    return std::to_string(value) + (entry.unit == unit::ms ? " ms" : "");
}

std::string range_text(const option_entry& entry) {
    if (entry.most == 0) return {};
    return shown_number(entry, entry.least) + " to " + shown_number(entry, entry.most) +
           (entry.or_zero ? ", or 0" : "");
}

status check_range(const option_entry& entry, const options& of) {
    const std::optional<std::uint64_t> value = number_of(entry, of);
    if (!value || entry.most == 0 || (*value >= entry.least && *value <= entry.most) ||
        (*value == 0 && entry.or_zero))
        return {};
    return {-EINVAL, std::string(entry.name) + ": " + shown_number(entry, *value) +
                         " is out of range; use " + range_text(entry) +
                         (may_be_empty(entry) ? ", or auto" : "")};
}

}  // namespace

status set_option(const option_entry& entry, const std::string& label, const std::string& text,
                  options& out) {
    return std::visit(
        by_type{
            [&](std::uint64_t options::*m) {
                return parse_usable_size(entry, label, text, out.*m);
            },
            [&](std::optional<std::uint64_t> options::*m) {
                if (text == "auto") return (out.*m).reset(), status{};
                std::uint64_t bytes = 0;
                status s = parse_usable_size(entry, label, text, bytes);
                if (s.ok()) out.*m = bytes;
                return s;
            },
            [&](std::optional<std::uint32_t> options::*m) {
                if (text == "auto") return (out.*m).reset(), status{};
                std::uint32_t number = 0;
                status s = parse_number(label, text, number);
                if (s.ok()) out.*m = number;
                return s;
            },
            [&](std::uint32_t options::*m) { return parse_number(label, text, out.*m); },
            [&](int options::*m) { return parse_number(label, text, out.*m); },
            [&](bool options::*m) {
                return entry.unit == unit::zero_or_one ? parse_zero_or_one(label, text, out.*m)
                                                       : parse_switch(label, text, out.*m);
            },
            [&](backend options::*m) { return parse_backend(label, text, out.*m); },
            [&](io_method options::*m) { return parse_io_method(label, text, out.*m); },
            [&](direct_mode options::*m) { return parse_direct_mode(label, text, out.*m); },
            [&](trust_mode options::*m) { return parse_trust_mode(label, text, out.*m); },
            [&](std::string options::*m) { return out.*m = text, status{}; },
            [&](std::vector<std::string> options::*m) { return out.*m = split(text), status{}; },
            [&](std::vector<int> options::*m) { return parse_numbers(label, text, out.*m); }},
        entry.member);
}

bool is_automatic(const option_entry& entry, const options& asked) {
    return std::visit(
        by_type{[&](backend options::*m) { return asked.*m == backend::automatic; },
                [&](io_method options::*m) { return asked.*m == io_method::automatic; },
                [&](std::vector<std::string> options::*m) { return (asked.*m).empty(); },
                [&](auto) { return may_be_empty(entry) && !number_of(entry, asked); }},
        entry.member);
}

std::string plain_text(const option_entry& entry, const options& of) {
    const auto number = [&](auto) {
        const std::optional<std::uint64_t> value = number_of(entry, of);
        return value ? std::to_string(*value) : std::string();
    };
    return std::visit(by_type{[&](int options::*m) { return std::to_string(of.*m); },
                              [&](bool options::*m) {
                                  if (entry.unit == unit::zero_or_one)
                                      return std::string(of.*m ? "1" : "0");
                                  return std::string(of.*m ? "on" : "off");
                              },
                              [&](backend options::*m) { return std::string(name_of(of.*m)); },
                              [&](io_method options::*m) { return std::string(name_of(of.*m)); },
                              [&](direct_mode options::*m) { return std::string(name_of(of.*m)); },
                              [&](trust_mode options::*m) { return std::string(name_of(of.*m)); },
                              [&](std::string options::*m) { return of.*m; },
                              [&](std::vector<std::string> options::*m) { return joined(of.*m); },
                              [&](std::vector<int> options::*m) { return joined(of.*m); }, number},
                      entry.member);
}

std::string shown_text(const option_entry& entry, const options& of) {
    const std::optional<std::uint64_t> value = number_of(entry, of);
    if (value) return shown_number(entry, *value);
    if (may_be_empty(entry)) return "automatic";
    const std::string text = plain_text(entry, of);
    const bool is_none =
        text.empty() && (std::holds_alternative<std::vector<int> options::*>(entry.member) ||
                         std::holds_alternative<std::string options::*>(entry.member));
    return is_none ? "none" : text;
}

std::string shown_address(const void* memory) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<std::uintptr_t>(memory));
    return text;
}

std::string document_rows(part of) {
    std::string out;
    for (const option_entry& entry : option_entries()) {
        if (entry.part != of) continue;
        const std::string flag = entry.flag;
        out += std::string("| `") + entry.name + "` | `" + entry.variable + "`" +
               (flag.empty() ? "" : ", `" + flag + "`") + " | " + shown_text(entry, options{}) +
               entry.of_default + " | " + range_text(entry) + entry.of_range + " | " +
               entry.change_when + " | " + entry.price + " |\n";
    }
    return out;
}

}  // namespace settings

status options::from_environment(options& out) {
    for (const settings::option_entry& entry : settings::option_entries()) {
        const char* const text = std::getenv(entry.variable);
        if (text == nullptr || *text == '\0') continue;
        if (status s = settings::set_option(entry, entry.variable, text, out); !s) return s;
    }
    return {};
}

status options::check() const {
    for (const settings::option_entry& entry : settings::option_entries()) {
        if (entry.check != nullptr)
            if (status s = entry.check(*this); !s) return s;
        if (status s = settings::check_range(entry, *this); !s) return s;
    }
    return {};
}

}  // namespace penstock
