// Header and records of a trace as text, and the writer of both formats.
#include "formats.hpp"

#include <charconv>
#include <unordered_set>
#include <utility>

#include "common/message.hpp"
#include "common/numbers.hpp"

namespace penstock::trace {

namespace {

using apps::shown;
using apps::with_commas;

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

// Takes the next word from the front of a line; words are parted by blanks. Empty: there is none.
std::string_view take_word(std::string_view& line) {
    std::size_t from = 0;
    while (from < line.size() && (line[from] == ' ' || line[from] == '\t')) ++from;
    std::size_t to = from;
    while (to < line.size() && line[to] != ' ' && line[to] != '\t') ++to;
    const std::string_view word = line.substr(from, to - from);
    line.remove_prefix(to);
    return word;
}

// A whole number that is the whole word.
template <typename Number>
bool number_of(std::string_view word, Number& out) {
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
}

// All of `rest` as numbers.
template <typename... Numbers>
bool numbers(std::string_view rest, Numbers&... out) {
    return (number_of(take_word(rest), out) && ...) && take_word(rest).empty();
}

std::string header_text(const trace_header& header) {
    std::string out = "page " + std::to_string(header.page_bytes) + "\n";
    for (std::size_t f = 0; f < header.files.size(); ++f)
        out += "file " + std::to_string(f) + " " + std::to_string(header.files[f].pages) + " " +
               header.files[f].path + "\n";
    if (!header.contents) return out;
    const made_contents& c = *header.contents;
    out += "contents " + std::to_string(c.distinct) + " " + std::to_string(c.seed) + "\n";
    if (c.common_pages > 0 || c.own_distinct > 0)
        out += "common " + std::to_string(c.common_pages) + " " +
               std::to_string(c.common_distinct) + " " + std::to_string(c.own_distinct) + "\n";
    return out;
}

}  // namespace

std::string check_path(std::string_view path) {
    if (path.empty()) return "a file without a path; expected file NUMBER PAGES PATH";
    if (path.size() > most_path_bytes)
        return "a path of " + with_commas(path.size()) + " bytes; a path has at most " +
               with_commas(most_path_bytes);
    if (path.find('\n') != std::string_view::npos || path.find('\0') != std::string_view::npos)
        return "a path with a line end or a NUL byte; name the file otherwise";
    return {};
}

std::string header_parser::take(std::string_view line) {
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    if (word == "page") return take_page(rest);
    if (word == "file") return take_file(rest);
    if (word == "contents") return take_contents(rest);
    if (word == "common") return take_common(rest);
    return shown(std::string(line)) +
           " is no line of a header; expected page, file, contents or common, or an empty line "
           "before the first record";
}

std::string header_parser::take_page(std::string_view rest) {
    std::uint64_t bytes = 0;
    if (has_page_) return "a second line 'page'; a trace has one size of pages";
    if (!numbers(rest, bytes) || !std::has_single_bit(bytes) || bytes < least_page_bytes ||
        bytes > most_page_bytes)
        return shown(std::string(rest)) +
               " is no size of a page; expected page BYTES, a power of two from " +
               with_commas(least_page_bytes) + " to " + with_commas(most_page_bytes);
    header_.page_bytes = static_cast<std::uint32_t>(bytes);
    has_page_ = true;
    return {};
}

std::string header_parser::take_file(std::string_view rest) {
    std::uint64_t number = 0, pages = 0;
    if (header_.files.size() == most_files)
        return "more than " + with_commas(most_files) + " files";
    if (!number_of(take_word(rest), number) || !number_of(take_word(rest), pages))
        return "expected file NUMBER PAGES PATH, with whole numbers";
    if (number != header_.files.size())
        return "file " + std::to_string(number) +
               "; files are numbered from 0 in order, so expected file " +
               std::to_string(header_.files.size());
    if (pages == 0) return "file " + std::to_string(number) + " has 0 pages; a file has at least 1";
    if (!rest.empty()) rest.remove_prefix(1);  // one blank; others belong to the path
    if (std::string wrong = check_path(rest); !wrong.empty()) return wrong;
    header_.files.push_back({std::string(rest), pages});
    return {};
}

std::string header_parser::take_contents(std::string_view rest) {
    made_contents c;
    if (header_.contents) return "a second line 'contents'; a trace has one at most";
    if (!numbers(rest, c.distinct, c.seed))
        return "expected contents DISTINCT SEED, with whole numbers";
    if (c.distinct == 0 || c.distinct > most_content)
        return "DISTINCT is " + std::to_string(c.distinct) + "; expected 1 to 2^62";
    header_.contents = c;
    return {};
}

std::string header_parser::take_common(std::string_view rest) {
    if (has_common_) return "a second line 'common'; a trace has one at most";
    if (!header_.contents)
        return "'common' without 'contents' before it; expected contents DISTINCT SEED, then "
               "common PAGES DISTINCT OWN";
    made_contents& c = *header_.contents;
    if (!numbers(rest, c.common_pages, c.common_distinct, c.own_distinct))
        return "expected common PAGES DISTINCT OWN, with whole numbers";
    has_common_ = true;
    return {};
}

std::string header_parser::finish(trace_header& out) {
    if (!has_page_) return "the header has no line 'page'; expected page BYTES";
    if (header_.files.empty())
        return "the header has no line 'file'; expected file NUMBER PAGES PATH";
    const std::uint64_t most = most_file_bytes / header_.page_bytes;
    std::unordered_set<std::string_view> paths;
    for (std::size_t f = 0; f < header_.files.size(); ++f) {
        const file_entry& file = header_.files[f];
        if (file.pages > most)
            return "file " + std::to_string(f) + " has " + with_commas(file.pages) +
                   " pages; with pages of this size at most " + with_commas(most) + " fit";
        if (!paths.insert(file.path).second)
            return "two files are called " + shown(file.path) + "; expected each path once";
    }
    if (std::string wrong = has_common_ ? check_common() : ""; !wrong.empty()) return wrong;
    out = std::move(header_);
    return {};
}

std::string header_parser::check_common() const {
    const made_contents& c = *header_.contents;
    if ((c.common_pages == 0) != (c.common_distinct == 0))
        return "common pages need common contents, and the reverse; expected common PAGES DISTINCT "
               "OWN with both or none 0";
    const std::uint64_t own = c.distinct - c.common_distinct, files = header_.files.size();
    if (c.common_distinct > c.distinct || own % files != 0 || own / files != c.own_distinct)
        return "'common' does not fit 'contents'; expected that its DISTINCT, and OWN for each "
               "file, add up to the DISTINCT of 'contents'";
    if (c.common_pages == 0 && c.own_distinct == 0)
        return "'common' has neither common nor own contents; leave it out";
    for (const file_entry& file : header_.files)
        if (file.pages > c.common_pages && c.own_distinct == 0)
            return shown(file.path) + " has pages of its own, but OWN is 0; expected at least 1";
    return {};
}

std::string parse_record(std::string_view line, record& out) {
    struct field {
        const char* name;
        std::uint64_t most;
    };
    constexpr const char* form = "expected TIME_NS R|W|F FILE PAGE PAGES [CONTENT]";
    constexpr field fields[] = {{"TIME_NS", UINT64_MAX}, {"", 0},
                                {"FILE", UINT32_MAX},    {"PAGE", UINT64_MAX},
                                {"PAGES", UINT32_MAX},   {"CONTENT", UINT64_MAX}};
    std::uint64_t values[std::size(fields)] = {};
    std::size_t count = 0;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line), ++count) {
        if (count == std::size(fields))
            return shown(std::string(word)) + " is one field too many; " + form;
        std::uint64_t& value = values[count];
        if (count == 1) {
            value = letters.find(word[0]);
            if (word.size() == 1 && value != letters.npos) continue;
            return shown(std::string(word)) + " is no operation; expected R, W or F";
        }
        const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
        if (parsed.ec == std::errc::result_out_of_range ||
            (parsed.ec == std::errc() && value > fields[count].most))
            return std::string(fields[count].name) + " " + shown(std::string(word)) +
                   " is too large; expected at most " + std::to_string(fields[count].most);
        if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size())
            return std::string(fields[count].name) + " " + shown(std::string(word)) +
                   " is no whole number; " + form;
    }
    if (count < 5) return std::to_string(count) + (count == 1 ? " field; " : " fields; ") + form;
    out = {.time_ns = values[0],
           .page = values[3],
           .content = values[5],
           .file = static_cast<std::uint32_t>(values[2]),
           .pages = static_cast<std::uint32_t>(values[4]),
           .kind = static_cast<operation>(values[1]),
           .has_content = count == std::size(fields)};
    return {};
}

status writer::open(const std::string& path, const std::string& input, const trace_header& header,
                    bool binary) {
    if (!input.empty())
        if (status s = apps::check_not_input(path, {input}); !s) return s;
    binary_ = binary;
    if (status s = file_.open(path); !s) return s;
    std::string text = header_text(header);
    if (!binary) {
        buffer_ = std::string(text_first_line) + "\n" + text + "\n";
        return {};
    }
    if (text.size() > most_header_bytes)
        return {-EINVAL, "a header of " + with_commas(text.size()) +
                             " bytes is too large; use fewer files or shorter paths"};
    binary_head head{{}, binary_version, static_cast<std::uint32_t>(text.size())};
    std::memcpy(head.magic, binary_magic, sizeof head.magic);
    text.resize(padded(text.size()));
    append_binary(&head, sizeof head);
    append_binary(text.data(), text.size());
    return {};
}

void writer::append_binary(const void* words, std::size_t bytes) {
    sum_.add(words, bytes);
    buffer_.append(static_cast<const char*>(words), bytes);
}

void writer::append_text(const record& r) {
    const auto put = [&](std::uint64_t number, char after) {
        char digits[20];  // the longest number has as many
        buffer_.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
        buffer_ += after;
    };
    put(r.time_ns, ' ');
    buffer_ += letters[static_cast<std::size_t>(r.kind)];
    buffer_ += ' ';
    put(r.file, ' ');
    put(r.page, ' ');
    put(r.pages, r.has_content ? ' ' : '\n');
    if (r.has_content) put(r.content, '\n');
}

status writer::add(std::span<const record> batch) {
    for (const record& entry : batch) {
        if (binary_) {
            const binary_record raw = packed(entry);
            append_binary(&raw, sizeof raw);
        } else {
            append_text(entry);
        }
        if (buffer_.size() >= buffer_bytes)
            if (status s = flush(); !s) return s;
    }
    records_ += batch.size();
    return {};
}

status writer::flush() {
    status s = file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
    return s;
}

status writer::finish() {
    if (std::exchange(is_finished_, true)) return {};
    if (binary_) {
        const binary_record last{records_, kind_end << kind_shift, sum_.value(), 0, 0};
        append_binary(&last, sizeof last);
    }
    if (status s = flush(); !s) return s;
    return file_.finish();
}

status writer::commit() {
    if (status s = finish(); !s) return s;
    return file_.commit();
}

}  // namespace penstock::trace
