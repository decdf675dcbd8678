#include "header_text.hpp"

#include <bit>
#include <unordered_set>

#include "common/message.hpp"
#include "line_source.hpp"

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

}  // namespace penstock::trace
