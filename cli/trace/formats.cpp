#include "formats.hpp"

#include <bit>
#include <charconv>
#include <unordered_set>

#include "common/message.hpp"
#include "common/numbers.hpp"
#include "sources.hpp"

namespace penstock::trace {

namespace {

using apps::shown;
using apps::with_commas;

bool blank(std::string_view rest) {
    return rest.find_first_not_of(" \t") == std::string_view::npos;
}

// All of `rest` as numbers.
template <typename... Numbers>
bool numbers(std::string_view rest, Numbers&... out) {
    return (number_of(take_word(rest), out) && ...) && blank(rest);
}

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

constexpr const char* record_form = "expected TIME_NS R|W|F FILE PAGE PAGES [CONTENT]";

class text_source : public record_source {
public:
    explicit text_source(byte_source& from) : lines_(from) {}

    status begin(trace_header& out) override {
        std::string_view line;
        if (!lines_.next(line))
            return lines_.status().ok()
                       ? lines_.wrong(1, std::string("the file is empty; expected ") + first_line())
                       : lines_.status();
        if (line != text_first_line)
            return lines_.wrong(apps::shown(std::string(line.substr(0, 80))) +
                                " is not how a trace of version 1 begins; expected " +
                                first_line());
        header_parser parser;
        while (lines_.next(line)) {
            if (line.starts_with('#')) continue;
            const bool last = line.empty();
            if (std::string wrong = last ? parser.finish(header_) : parser.take(line);
                !wrong.empty())
                return lines_.wrong(wrong);
            if (!last) continue;
            out = header_;
            return {};
        }
        return lines_.status().ok() ? lines_.wrong(lines_.number() + 1,
                                                   "the file ends in its header; expected an empty "
                                                   "line before the first record")
                                    : lines_.status();
    }

    status next(std::vector<record>& out, std::size_t most) override {
        std::string_view line;
        record entry;
        while (out.size() < most && lines_.next(line)) {
            if (line.empty() || line[0] == '#') continue;
            if (!parse_record(line, entry)) return lines_.wrong(why_no_record(line));
            if (!fits(entry, header_, last_ns_))
                return lines_.wrong(why_not(entry, header_, last_ns_));
            last_ns_ = entry.time_ns;
            out.push_back(entry);
        }
        return lines_.status();
    }

private:
    static std::string first_line() { return apps::shown(std::string(text_first_line)); }

    line_source lines_;
    trace_header header_;
    std::uint64_t last_ns_ = 0;
};

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

std::string header_parser::check_sizes() const {
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
    return {};
}

std::string header_parser::check_contents() const {
    if (!has_common_) return {};
    const made_contents& c = *header_.contents;
    if ((c.common_pages == 0) != (c.common_distinct == 0))
        return "common pages need common contents, and the reverse; expected common PAGES DISTINCT "
               "OWN with both or none 0";
    if (c.common_distinct > c.distinct ||
        (c.distinct - c.common_distinct) % header_.files.size() != 0 ||
        (c.distinct - c.common_distinct) / header_.files.size() != c.own_distinct)
        return "'common' does not fit 'contents'; expected that its DISTINCT, and OWN for each "
               "file, add up to the DISTINCT of 'contents'";
    if (c.common_pages == 0 && c.own_distinct == 0)
        return "'common' has neither common nor own contents; leave it out";
    for (const file_entry& file : header_.files)
        if (file.pages > c.common_pages && c.own_distinct == 0)
            return shown(file.path) + " has pages of its own, but OWN is 0; expected at least 1";
    return {};
}

std::string header_parser::finish(trace_header& out) {
    if (std::string wrong = check_sizes(); !wrong.empty()) return wrong;
    if (std::string wrong = check_contents(); !wrong.empty()) return wrong;
    out = std::move(header_);
    return {};
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
bool parse_record(std::string_view line, record& out) {
    cursor c{line.data(), line.data() + line.size()};
    c.gap();
    if (!c.number(out.time_ns) || !c.gap() || !c.letter(out.kind) || !c.gap() ||
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
            return apps::shown(std::string(word)) + " is one field too many; " + record_form;
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
                   " is no whole number; " + record_form;
    }
    return std::to_string(count) + (count == 1 ? " field; " : " fields; ") + record_form;
}

char* print_record(const record& r, char* to) {
    to = put(to, 0, r.time_ns);
    *to++ = ' ';
    *to++ = letters[static_cast<std::size_t>(r.kind)];
    to = put(to, ' ', r.file);
    to = put(to, ' ', r.page);
    to = put(to, ' ', r.pages);
    if (r.has_content) to = put(to, ' ', r.content);
    *to++ = '\n';
    return to;
}
std::unique_ptr<record_source> make_text_source(byte_source& from) {
    return std::make_unique<text_source>(from);
}

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

}  // namespace

status writer::open(const std::string& path, const std::string& input, const trace_header& header,
                    bool binary) {
    if (!input.empty() && apps::same_file(path, input))
        return {-EINVAL, "output file " + apps::shown(path) + ": is the input " +
                             apps::shown(input) + "; give another name"};
    binary_ = binary;
    buffer_.resize(buffer_bytes);
    if (status s = file_.open(path); !s) return s;
    return write_header(header);
}

status writer::write_header(const trace_header& header) {
    std::string text = header_text(header);
    if (!binary_) {
        text = std::string(text_first_line) + "\n" + text + "\n";
        return file_.write(text.data(), text.size());
    }
    if (text.size() > most_header_bytes)
        return {-EINVAL, "a header of " + apps::with_commas(text.size()) +
                             " bytes is too large; use fewer files or shorter paths"};
    binary_head head{{}, binary_version, static_cast<std::uint32_t>(text.size())};
    std::memcpy(head.magic, binary_magic, sizeof head.magic);
    text.resize(padded(text.size()));
    sum_.add(&head, sizeof head);
    sum_.add(text.data(), text.size());
    if (status s = file_.write(reinterpret_cast<const char*>(&head), sizeof head); !s) return s;
    return file_.write(text.data(), text.size());
}

status writer::flush(std::size_t least_free) {
    if (buffer_.size() - used_ >= least_free) return {};
    const std::size_t bytes = used_;
    used_ = 0;
    return file_.write(buffer_.data(), bytes);
}

void writer::put(const void* bytes, std::size_t count) {
    std::memcpy(buffer_.data() + used_, bytes, count);
    used_ += count;
}

status writer::add(std::span<const record> batch) {
    records_ += batch.size();
    return binary_ ? add_binary(batch) : add_text(batch);
}

status writer::add_text(std::span<const record> batch) {
    for (const record& entry : batch) {
        if (status s = flush(most_record_bytes); !s) return s;
        used_ =
            static_cast<std::size_t>(print_record(entry, buffer_.data() + used_) - buffer_.data());
    }
    return {};
}

status writer::add_binary(std::span<const record> batch) {
    for (const record& entry : batch) {
        if (status s = flush(sizeof(binary_record)); !s) return s;
        const binary_record raw = packed(entry);
        sum_.add(&raw, sizeof raw);
        put(&raw, sizeof raw);
    }
    return {};
}

status writer::commit() {
    if (binary_) {
        if (status s = flush(sizeof(binary_record)); !s) return s;
        const binary_record last{records_, kind_end << kind_shift, sum_.value(), 0, 0};
        put(&last, sizeof last);
    }
    if (status s = file_.write(buffer_.data(), used_); !s) return s;
    used_ = 0;
    return file_.commit();
}

}  // namespace penstock::trace
