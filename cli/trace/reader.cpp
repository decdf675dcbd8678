// Reads traces of both formats: the bytes of a file or pipe, the lines of a text, and records. And
// what the pages of their files hold.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>

#include "common/files.hpp"
#include "common/message.hpp"
#include "formats.hpp"

namespace penstock::trace {

namespace {

using apps::shown;
using apps::with_commas;

// A file or pipe that is read from front to back through one buffer. Keeps up to most_line_bytes
// and a line end that were not consumed yet.
class byte_source {
public:
    // Reads at most `piece_bytes` at a time.
    status open(const std::string& path, std::size_t piece_bytes) {
        path_ = path;
        if (const int code = from_.open(path); code != 0)
            return {code,
                    shown(path) + ": " + error_text(code) + "; name a trace that can be read"};
        // Only advice; a pipe takes none.
        static_cast<void>(::posix_fadvise(from_.fd(), 0, 0, POSIX_FADV_SEQUENTIAL));
        piece_bytes_ = std::max<std::size_t>(piece_bytes, 1);
        buffer_.resize(piece_bytes_ + most_line_bytes + 1);
        begin_ = end_ = buffer_.data();
        return {};
    }

    // What was read and not consumed. reach() moves it.
    [[nodiscard]] const char* begin() const { return begin_; }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
    void consume(std::size_t bytes) { begin_ += bytes; }
    [[nodiscard]] bool at_end() const { return at_end_; }

    // Reads until `bytes` are there, or the end.
    status reach(std::size_t bytes) {
        while (size() < bytes && !at_end_) {
            const std::size_t kept = size();
            std::memmove(buffer_.data(), begin_, kept);
            begin_ = buffer_.data();
            end_ = buffer_.data() + kept;
            const ssize_t got = from_.read(end_, std::min(piece_bytes_, buffer_.size() - kept));
            if (got == -ECANCELED)
                return {-ECANCELED, "interrupted while " + shown(path_) + " was read"};
            if (const auto code = static_cast<int>(got); code < 0)
                return {code, shown(path_) + ": " +
                                  apps::about_stream(code, "name a file that can be read")};
            at_end_ = got == 0;
            end_ += got;
        }
        return {};
    }

    // -EINVAL and "'path'place: why".
    [[nodiscard]] status wrong(const std::string& place, const std::string& why) const {
        return {-EINVAL, shown(path_) + place + ": " + why};
    }

private:
    apps::input_stream from_;
    std::string path_;
    std::vector<char> buffer_;
    std::size_t piece_bytes_ = 0;
    const char* begin_ = nullptr;
    char* end_ = nullptr;
    bool at_end_ = false;
};

// What every record must keep to, whatever format it came from: why this one does not, and what was
// expected; empty if it does.
std::string why_not(const record& r, const trace_header& header, std::uint64_t last_ns) {
    using std::to_string;
    if (r.time_ns < last_ns)
        return "time " + to_string(r.time_ns) + " lies before " + to_string(last_ns) +
               ", the time of the record before it; sort the records by time";
    if (r.file >= header.files.size())
        return "file " + to_string(r.file) + " is not in the header; expected 0 to " +
               to_string(header.files.size() - 1);
    if (r.kind == operation::flush) {
        if (r.has_content) return "a flush with a content number; only a write has one";
        if (r.page == 0 && r.pages == 0) return {};
        return "a flush of pages; a flush is of a whole file, so expected PAGE 0 and PAGES 0";
    }
    if (r.pages == 0) return "PAGES is 0; a read or write has at least 1";
    const std::uint64_t pages = header.files[r.file].pages;
    if (r.page >= pages || r.pages > pages - r.page)
        return with_commas(r.pages) + " pages from page " + to_string(r.page) +
               " on lie beyond the end of file " + to_string(r.file) + ", which has " +
               with_commas(pages);
    if (!r.has_content) return {};
    if (r.kind != operation::write) return "a read with a content number; only a write has one";
    if (r.content <= most_content - r.pages) return {};
    return "content number " + to_string(r.content) +
           " is too large; the contents of a write end at 2^62";
}

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

// Stretch number `page / distinct` has every content once, in order, from a place that seed, part
// and stretch decide.
std::uint64_t content_in(std::uint64_t distinct, std::uint64_t seed, std::uint64_t part,
                         std::uint64_t page) {
    const std::uint64_t stretch = page / distinct,
                        from = mix64(mix64(mix64(seed + golden) + part) + stretch) % distinct;
    const std::uint64_t place = page % distinct;
    return place < distinct - from ? place + from : place - (distinct - from);
}

}  // namespace

// One trace, of either format.
struct reader::parts {
    byte_source from;
    trace_header header;
    bool binary = false, ended = false;
    std::uint64_t number = 0;   // of the line or record that was taken last, from 1
    std::uint64_t last_ns = 0;  // of the last record
    word_sum sum;               // of a binary trace so far
    status failed;              // what next() said; it says so again

    status begin() {
        if (status s = from.reach(1); !s) return s;
        binary = from.size() > 0 && static_cast<unsigned char>(*from.begin()) == binary_magic[0];
        return binary ? begin_binary() : begin_text();
    }

    // Adds records to `out`, until it has `most` or the trace ends.
    status next(std::vector<record>& out, std::size_t most) {
        record entry;
        while (out.size() < most && !ended) {
            if (status s = binary ? next_binary(entry) : next_text(entry); !s) return s;
            if (ended) break;
            if (const std::string bad = why_not(entry, header, last_ns); !bad.empty())
                return wrong_here(bad);
            last_ns = entry.time_ns;
            out.push_back(entry);
        }
        return {};
    }

private:
    // About the trace, and about the line or record that was taken last.
    [[nodiscard]] status wrong(const std::string& why) const { return from.wrong("", why); }
    [[nodiscard]] status wrong_here(const std::string& why) const {
        return from.wrong((binary ? " record " : " line ") + std::to_string(number), why);
    }
    [[nodiscard]] status cut(const std::string& where) const {
        return wrong("ends " + where + ", so it was cut short; copy it again or make it again");
    }

    // Without its line end; valid until the next call. A line without an end, one that is too long,
    // and one with a NUL byte are errors. `ended`: there is none.
    status next_line(std::string_view& line) {
        const void* end = nullptr;
        for (;;) {
            if (from.size() > 0) end = std::memchr(from.begin(), '\n', from.size());
            if (end != nullptr || from.size() > most_line_bytes || from.at_end()) break;
            if (status s = from.reach(from.size() + 1); !s) return s;
        }
        ended = from.size() == 0;
        ++number;
        if (ended) return {};
        const char* const begin = from.begin();
        line = {begin, end == nullptr
                           ? from.size()
                           : static_cast<std::size_t>(static_cast<const char*>(end) - begin)};
        if (line.size() > most_line_bytes)
            return wrong_here("has more than " + with_commas(most_line_bytes) +
                              " bytes; expected a text with short lines");
        if (end == nullptr)
            return wrong_here(
                "has no line end, so the file was cut short; make it again, or end "
                "its last line");
        from.consume(line.size() + 1);
        if (line.find('\0') == line.npos) return {};
        return wrong_here("has a NUL byte; expected text");
    }

    status begin_text() {
        const std::string first_line = shown(std::string(text_first_line));
        std::string_view line;
        if (status s = next_line(line); !s) return s;
        if (ended) return wrong_here("the file is empty; expected " + first_line);
        if (line != text_first_line)
            return wrong_here(shown(std::string(line.substr(0, 80))) +
                              " is not how a trace of version 1 begins; expected " + first_line);
        header_parser parser;
        for (;;) {
            if (status s = next_line(line); !s) return s;
            if (ended)
                return wrong_here(
                    "the file ends in its header; expected an empty line before the "
                    "first record");
            if (line.starts_with('#')) continue;
            const bool last = line.empty();
            const std::string bad = last ? parser.finish(header) : parser.take(line);
            if (!bad.empty()) return wrong_here(bad);
            if (last) return {};
        }
    }

    status next_text(record& out) {
        std::string_view line;
        do {
            if (status s = next_line(line); !s || ended) return s;
        } while (line.empty() || line[0] == '#');
        const std::string bad = parse_record(line, out);
        return bad.empty() ? status{} : wrong_here(bad);
    }

    status begin_binary() {
        binary_head head{};
        if (status s = from.reach(sizeof head); !s) return s;
        if (from.size() < sizeof head)
            return cut("in its first " + std::to_string(sizeof head) + " bytes");
        std::memcpy(&head, from.begin(), sizeof head);
        if (std::memcmp(head.magic, binary_magic, sizeof head.magic) != 0)
            return wrong(
                "begins like a binary trace but is none; expected a file that penstock trace made");
        if (head.version != binary_version)
            return wrong("is a binary trace of version " + std::to_string(head.version) +
                         "; expected version " + std::to_string(binary_version));
        if (head.header_bytes > most_header_bytes)
            return wrong("has a header of " + with_commas(head.header_bytes) +
                         " bytes; expected at most " + with_commas(most_header_bytes));
        sum.add(&head, sizeof head);
        from.consume(sizeof head);
        // Only as much memory as there are bytes, whatever the head says.
        std::string text;
        for (std::size_t left = padded(head.header_bytes); left > 0;) {
            if (status s = from.reach(1); !s) return s;
            if (from.size() == 0) return cut("in its header");
            const std::size_t taken = std::min(left, from.size());
            text.append(from.begin(), taken);
            from.consume(taken);
            left -= taken;
        }
        sum.add(text.data(), text.size());
        return parse_header(std::string_view(text).substr(0, head.header_bytes));
    }

    status parse_header(std::string_view text) {
        header_parser parser;
        std::string bad;
        for (; !text.empty() && bad.empty(); text.remove_prefix(text.find('\n') + 1)) {
            const std::size_t end = text.find('\n');
            if (end == text.npos)
                return wrong(
                    "has a header whose last line has no end; the file is damaged, so "
                    "make it again");
            bad = parser.take(text.substr(0, end));
        }
        if (bad.empty()) bad = parser.finish(header);
        return bad.empty() ? status{} : wrong("header: " + bad);
    }

    status next_binary(record& out) {
        binary_record raw;
        if (status s = from.reach(sizeof raw); !s) return s;
        if (from.size() < sizeof raw) return cut("after " + with_commas(number) + " records");
        std::memcpy(&raw, from.begin(), sizeof raw);
        from.consume(sizeof raw);
        ended = raw.page_and_kind == kind_end << kind_shift;
        if (ended) return check_end(raw);
        ++number;
        sum.add(&raw, sizeof raw);
        if (unpack(raw, out)) return {};
        return wrong_here("has bits that no record has; the file is damaged, so make it again");
    }

    status check_end(const binary_record& last) {
        if (last.file != 0 || last.pages != 0)
            return wrong(
                "has an end with bits that no end has; the file is damaged, so make it again");
        if (last.time_ns != number)
            return wrong("has " + with_commas(number) + " records, and its end counts " +
                         with_commas(last.time_ns) + "; the file is damaged, so make it again");
        if (last.content != sum.value())
            return wrong(
                "has records that do not add up to the checksum at its end; the file is damaged, "
                "so make it again");
        if (status s = from.reach(1); !s) return s;
        return from.size() == 0 ? status{}
                                : wrong("goes on behind its end; expected nothing there");
    }
};

reader::reader() = default;
reader::~reader() = default;

status reader::open(const std::string& path, std::size_t piece_bytes) {
    parts_ = std::make_unique<parts>();
    status s = parts_->from.open(path, piece_bytes);
    return s.ok() ? parts_->begin() : s;
}

const trace_header& reader::header() const { return parts_->header; }
bool reader::is_binary() const { return parts_->binary; }

status reader::next(std::vector<record>& out, std::size_t most) {
    out.clear();
    if (parts_->failed) parts_->failed = parts_->next(out, most);
    if (!parts_->failed) out.clear();
    return parts_->failed;
}

std::uint64_t made_content(const made_contents& c, std::uint32_t file, std::uint64_t page) {
    if (c.common_pages == 0 && c.own_distinct == 0)
        return content_in(c.distinct, c.seed, file + std::uint64_t{1}, page);
    if (page < c.common_pages) return content_in(c.common_distinct, c.seed, 0, page);
    return c.common_distinct + file * c.own_distinct +
           content_in(c.own_distinct, c.seed, file + std::uint64_t{1}, page - c.common_pages);
}

// mix64 is one to one: the first word tells contents apart, and within one content the second word
// tells places apart.
void fill_page(std::uint64_t content, std::byte* to, std::uint32_t page_bytes) {
    constexpr std::uint32_t words = 8, chunk_bytes = 64;
    const std::uint64_t first = mix64(content + golden);
    for (std::uint32_t at = 0; at < page_bytes; at += chunk_bytes) {
        std::uint64_t chunk[words] = {first, mix64(first + at + golden)};
        for (std::uint32_t i = 2; i < words; ++i) chunk[i] = mix64(chunk[1] + i * golden);
        std::memcpy(to + at, chunk, chunk_bytes);
    }
}

}  // namespace penstock::trace
