#include "text_record.hpp"

#include <charconv>

#include "common/message.hpp"
#include "line_source.hpp"

namespace penstock::trace {

namespace {

struct cursor {
    const char* at;
    const char* end;

    // At least one blank before a field.
    bool gap() {
        const char* const from = at;
        while (at != end && (*at == ' ' || *at == '\t')) ++at;
        return at != from;
    }
    template <typename Number>
    bool number(Number& out) {
        const auto parsed = std::from_chars(at, end, out);
        at = parsed.ptr;
        return parsed.ec == std::errc();
    }
    bool letter(operation& out) {
        if (at == end) return false;
        const char c = *at++;
        out = c == 'R' ? operation::read : c == 'W' ? operation::write : operation::flush;
        return c == 'R' || c == 'W' || c == 'F';
    }
};

template <typename Number>
char* put(char* to, char before, Number number) {
    if (before != 0) *to++ = before;
    return std::to_chars(to, to + 20, number).ptr;
}

constexpr const char* form = "expected TIME_NS R|W|F FILE PAGE PAGES [CONTENT]";

}  // namespace

bool parse_record(std::string_view line, record& out) {
    cursor c{line.data(), line.data() + line.size()};
    c.gap();
    if (!c.number(out.time_ns) || !c.gap() || !c.letter(out.what) || !c.gap() ||
        !c.number(out.file) || !c.gap() || !c.number(out.page) || !c.gap() || !c.number(out.pages))
        return false;
    out.content = 0;
    out.has_content = false;
    if (c.at == c.end) return true;
    if (!c.gap()) return false;
    if (c.at == c.end) return true;
    out.has_content = true;
    if (!c.number(out.content)) return false;
    return c.at == c.end || (c.gap() && c.at == c.end);
}

std::string why_no_record(std::string_view line) {
    struct field {
        const char* name;
        std::uint64_t most;
    };
    constexpr field fields[] = {{"TIME_NS", UINT64_MAX}, {"", 0},
                                {"FILE", UINT32_MAX},    {"PAGE", UINT64_MAX},
                                {"PAGES", UINT32_MAX},   {"CONTENT", UINT64_MAX}};
    std::size_t count = 0;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line), ++count) {
        if (count == std::size(fields))
            return apps::shown(std::string(word)) + " is one field too many; " + form;
        if (count == 1) {
            if (word != "R" && word != "W" && word != "F")
                return apps::shown(std::string(word)) + " is no operation; expected R, W or F";
            continue;
        }
        std::uint64_t value = 0;
        const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
        if (parsed.ec == std::errc::result_out_of_range ||
            (parsed.ec == std::errc() && value > fields[count].most))
            return std::string(fields[count].name) + " " + apps::shown(std::string(word)) +
                   " is too large; expected at most " + std::to_string(fields[count].most);
        if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size())
            return std::string(fields[count].name) + " " + apps::shown(std::string(word)) +
                   " is no whole number; " + form;
    }
    return std::to_string(count) + (count == 1 ? " field; " : " fields; ") + form;
}

char* print_record(const record& r, char* to) {
    to = put(to, 0, r.time_ns);
    *to++ = ' ';
    *to++ = letters[static_cast<std::size_t>(r.what)];
    to = put(to, ' ', r.file);
    to = put(to, ' ', r.page);
    to = put(to, ' ', r.pages);
    if (r.has_content) to = put(to, ' ', r.content);
    *to++ = '\n';
    return to;
}

}  // namespace penstock::trace
