// Readers of both formats, and the bytes and lines that they read.
#include "sources.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <string_view>

#include "formats.hpp"
#include "common/message.hpp"
#include "trace.hpp"

namespace penstock::trace {

status byte_source::open(const std::string& path, const std::string& label, std::size_t piece_bytes,
                         std::size_t kept_bytes) {
    path_ = path;
    if (const int code = from_.open(path); code != 0)
        return {code, apps::shown(path) + ": " + error_text(code) + "; name a " + label +
                          " that can be read"};
    static_cast<void>(::posix_fadvise(from_.fd(), 0, 0,
                                      POSIX_FADV_SEQUENTIAL));  // only advice; a pipe takes none
    piece_bytes_ = std::max<std::size_t>(piece_bytes, 1);
    buffer_.resize(piece_bytes_ + kept_bytes);
    begin_ = end_ = buffer_.data();
    at_end_ = saw_nul_ = false;
    return {};
}

status byte_source::more() {
    const std::size_t kept = size();
    if (kept > 0) std::memmove(buffer_.data(), begin_, kept);
    begin_ = buffer_.data();
    end_ = buffer_.data() + kept;
    saw_nul_ = false;
    if (at_end_) return {};
    const ssize_t got = from_.read(end_, std::min(piece_bytes_, buffer_.size() - kept));
    if (got == -ECANCELED) return {-ECANCELED, "interrupted; nothing was written"};
    const auto code = static_cast<int>(got);
    if (code < 0)
        return {code, apps::shown(path_) + ": " +
                          apps::about_stream(code, "name a file that can be read")};
    at_end_ = got == 0;
    saw_nul_ = std::memchr(end_, 0, static_cast<std::size_t>(got)) != nullptr;
    end_ += got;
    return {};
}

status byte_source::reach(std::size_t bytes) {
    while (size() < bytes && !at_end_)
        if (status s = more(); !s) return s;
    return {};
}

status line_source::wrong(std::uint64_t number, const std::string& why) const {
    return {-EINVAL, apps::shown(from_.path()) + " line " + std::to_string(number) + ": " + why};
}

status line_source::wrong(const std::string& why) const { return wrong(number_, why); }

bool line_source::fail(std::uint64_t number, const std::string& why) {
    status_ = wrong(number, why);
    return false;
}

bool line_source::too_long() {
    return fail(number_, "has more than " + apps::with_commas(most_line_bytes) +
                             " bytes; expected a text with short lines");
}

bool line_source::slow(std::string_view& line) {
    if (!status_) return false;
    for (;;) {
        const void* const end =
            from_.size() == 0 ? nullptr : std::memchr(from_.begin(), '\n', from_.size());
        if (end != nullptr) {
            if (!give(static_cast<const char*>(end), line)) return false;
            if (line.find('\0') == std::string_view::npos) return true;
            return fail(number_, "has a NUL byte; expected text");
        }
        if (from_.size() > most_line_bytes) return ++number_, too_long();
        if (from_.at_end()) break;
        status_ = from_.more();
        if (!status_) return false;
        odd_ = odd_ || from_.saw_nul();
    }
    if (from_.size() == 0) return false;
    return fail(number_ + 1,
                "has no line end, so the file was cut short; make it again, or end its last line");
}

std::string_view take_word(std::string_view& line) {
    std::size_t from = 0;
    while (from < line.size() && (line[from] == ' ' || line[from] == '\t')) ++from;
    std::size_t to = from;
    while (to < line.size() && line[to] != ' ' && line[to] != '\t') ++to;
    const std::string_view word = line.substr(from, to - from);
    line.remove_prefix(to);
    return word;
}

bool number_of(std::string_view word, std::uint64_t& out) {
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
}

std::string why_not(const record& r, const trace_header& header, std::uint64_t last_ns) {
    using std::to_string;
    if (r.time_ns < last_ns)
        return "time " + to_string(r.time_ns) + " lies before " + to_string(last_ns) +
               ", the time of the record before it; sort the records by time";
    if (r.file >= header.files.size())
        return "file " + to_string(r.file) + " is not in the header; expected 0 to " +
               to_string(header.files.size() - 1);
    if (r.kind == operation::flush)
        return r.has_content
                   ? "a flush with a content number; only a write has one"
                   : "a flush of pages; a flush is of a whole file, so expected PAGE 0 and PAGES 0";
    if (r.pages == 0) return "PAGES is 0; a read or write has at least 1";
    const std::uint64_t pages = header.files[r.file].pages;
    if (r.page >= pages || r.pages > pages - r.page)
        return apps::with_commas(r.pages) + " pages from page " + to_string(r.page) +
               " on lie beyond the end of file " + to_string(r.file) + ", which has " +
               apps::with_commas(pages);
    if (r.kind != operation::write) return "a read with a content number; only a write has one";
    return "content number " + to_string(r.content) +
           " is too large; the contents of a write end at 2^62";
}

struct reader::parts {
    byte_source from;
    trace_header header;
    std::unique_ptr<record_source> records;
    bool binary = false;
    status failed;  // what next() said; it says so again
};

reader::reader() : parts_(std::make_unique<parts>()) {}
reader::~reader() = default;
reader::reader(reader&&) noexcept = default;
reader& reader::operator=(reader&&) noexcept = default;

status reader::open(const std::string& path, std::size_t piece_bytes) {
    parts_ = std::make_unique<parts>();
    parts& p = *parts_;
    if (status s = p.from.open(path, "trace", piece_bytes, most_line_bytes + 1); !s) return s;
    if (status s = p.from.reach(1); !s) return s;
    p.binary = p.from.size() > 0 && static_cast<unsigned char>(*p.from.begin()) == binary_magic[0];
    p.records = p.binary ? make_binary_source(p.from) : make_text_source(p.from);
    return p.records->begin(p.header);
}

const trace_header& reader::header() const { return parts_->header; }
bool reader::is_binary() const { return parts_->binary; }

status reader::next(std::vector<record>& out, std::size_t most) {
    out.clear();
    status& failed = parts_->failed;
    if (failed) failed = parts_->records->next(out, most);
    if (!failed) out.clear();
    return failed;
}

namespace {

class binary_source : public record_source {
public:
    explicit binary_source(byte_source& from) : from_(from) {}

    status begin(trace_header& out) override {
        binary_head head{};
        if (status s = from_.reach(sizeof head); !s) return s;
        if (from_.size() < sizeof head)
            return cut("in its first " + std::to_string(sizeof head) + " bytes");
        std::memcpy(&head, from_.begin(), sizeof head);
        if (std::memcmp(head.magic, binary_magic, sizeof head.magic) != 0)
            return wrong(
                "begins like a binary trace but is none; expected a file that penstock trace made");
        if (head.version != binary_version)
            return wrong("is a binary trace of version " + std::to_string(head.version) +
                         "; expected version " + std::to_string(binary_version));
        if (head.header_bytes > most_header_bytes)
            return wrong("has a header of " + apps::with_commas(head.header_bytes) +
                         " bytes; expected at most " + apps::with_commas(most_header_bytes));
        sum_.add(&head, sizeof head);
        from_.consume(sizeof head);
        std::string text;
        if (status s = read_header(head.header_bytes, text); !s) return s;
        if (status s = parse_header(text); !s) return s;
        out = header_;
        return {};
    }

    status next(std::vector<record>& out, std::size_t most) override {
        while (out.size() < most && !ended_) {
            if (from_.size() < sizeof(binary_record))
                if (status s = from_.reach(sizeof(binary_record)); !s) return s;
            if (from_.size() < sizeof(binary_record))
                return cut("after " + apps::with_commas(count_) + " records");
            binary_record raw;
            std::memcpy(&raw, from_.begin(), sizeof raw);
            from_.consume(sizeof raw);
            if (raw.page_and_kind == kind_end << kind_shift) return end(raw);
            sum_.add(&raw, sizeof raw);
            record entry;
            if (!unpack(raw, entry))
                return wrong_record(
                    "has bits that no record has; the file is damaged, so make it again");
            if (!fits(entry, header_, last_ns_))
                return wrong_record(why_not(entry, header_, last_ns_));
            last_ns_ = entry.time_ns;
            ++count_;
            out.push_back(entry);
        }
        return {};
    }

private:
    // Only as much memory as there are bytes, whatever the head says.
    status read_header(std::size_t bytes, std::string& text) {
        for (std::size_t left = padded(bytes); left > 0;) {
            if (from_.size() == 0)
                if (status s = from_.reach(1); !s) return s;
            if (from_.size() == 0) return cut("in its header");
            const std::size_t taken = std::min(left, from_.size());
            text.append(from_.begin(), taken);
            from_.consume(taken);
            left -= taken;
        }
        sum_.add(text.data(), text.size());
        text.resize(bytes);
        return {};
    }

    status parse_header(const std::string& text) {
        header_parser parser;
        for (std::string_view rest = text; !rest.empty();) {
            const std::size_t end = rest.find('\n');
            if (end == std::string_view::npos)
                return wrong(
                    "has a header whose last line has no end; the file is damaged, so make it "
                    "again");
            if (const std::string bad = parser.take(rest.substr(0, end)); !bad.empty())
                return wrong("header: " + bad);
            rest.remove_prefix(end + 1);
        }
        const std::string bad = parser.finish(header_);
        return bad.empty() ? status{} : wrong("header: " + bad);
    }

    status end(const binary_record& last) {
        ended_ = true;
        if (last.file != 0 || last.pages != 0)
            return wrong(
                "has an end with bits that no end has; the file is damaged, so make it again");
        if (last.time_ns != count_)
            return wrong("has " + apps::with_commas(count_) + " records, and its end counts " +
                         apps::with_commas(last.time_ns) +
                         "; the file is damaged, so make it again");
        if (last.content != sum_.value())
            return wrong(
                "has records that do not add up to the checksum at its end; the file is damaged, "
                "so make it again");
        if (status s = from_.reach(1); !s) return s;
        return from_.size() == 0 ? status{}
                                 : wrong("goes on behind its end; expected nothing there");
    }

    status wrong(const std::string& why) const {
        return {-EINVAL, apps::shown(from_.path()) + ": " + why};
    }
    status wrong_record(const std::string& why) const {
        return {-EINVAL,
                apps::shown(from_.path()) + " record " + std::to_string(count_ + 1) + ": " + why};
    }
    status cut(const std::string& where) const {
        return wrong("ends " + where + ", so it was cut short; copy it again or make it again");
    }

    byte_source& from_;
    trace_header header_;
    word_sum sum_;
    std::uint64_t count_ = 0, last_ns_ = 0;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<record_source> make_binary_source(byte_source& from) {
    return std::make_unique<binary_source>(from);
}

}  // namespace penstock::trace
