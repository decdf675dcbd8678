// Reads traces of both formats: the bytes of a file or pipe, the lines of a text, and records.
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

    // What was read and not consumed. more() moves it.
    [[nodiscard]] const char* begin() const { return begin_; }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
    void consume(std::size_t bytes) { begin_ += bytes; }

    // Reads another piece; at_end() if there is none.
    status more() {
        const std::size_t kept = size();
        if (kept > 0) std::memmove(buffer_.data(), begin_, kept);
        begin_ = buffer_.data();
        end_ = buffer_.data() + kept;
        if (at_end_) return {};
        const ssize_t got = from_.read(end_, std::min(piece_bytes_, buffer_.size() - kept));
        if (got == -ECANCELED) return {-ECANCELED, "interrupted; nothing was written"};
        if (const auto code = static_cast<int>(got); code < 0)
            return {code,
                    shown(path_) + ": " + apps::about_stream(code, "name a file that can be read")};
        at_end_ = got == 0;
        end_ += got;
        return {};
    }
    [[nodiscard]] bool at_end() const { return at_end_; }

    // Reads until `bytes` are there, or the end.
    status reach(std::size_t bytes) {
        while (size() < bytes && !at_end_)
            if (status s = more(); !s) return s;
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

// What every record must keep to, whatever format it came from.

// A read or write within its file, or a flush; not before the record that came before it.
bool fits(const record& r, const trace_header& header, std::uint64_t last_ns) {
    if (r.time_ns < last_ns || r.file >= header.files.size()) return false;
    if (r.kind == operation::flush) return r.page == 0 && r.pages == 0 && !r.has_content;
    const std::uint64_t pages = header.files[r.file].pages;
    if (r.pages == 0 || r.page >= pages || r.pages > pages - r.page) return false;
    return !r.has_content || (r.kind == operation::write && r.content <= most_content - r.pages);
}

// Why a record does not fit, and what was expected.
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
        return with_commas(r.pages) + " pages from page " + to_string(r.page) +
               " on lie beyond the end of file " + to_string(r.file) + ", which has " +
               with_commas(pages);
    if (r.kind != operation::write) return "a read with a content number; only a write has one";
    return "content number " + to_string(r.content) +
           " is too large; the contents of a write end at 2^62";
}

// Reads the records of one format; reader puts the right one behind it.
class record_source {
public:
    explicit record_source(byte_source& from) : from_(from) {}
    virtual ~record_source() = default;
    record_source(const record_source&) = delete;
    record_source& operator=(const record_source&) = delete;

    // Reads the header; called once, first.
    virtual status begin() = 0;
    // Adds records to `out`, until it has `most` or the trace ends.
    virtual status next(std::vector<record>& out, std::size_t most) = 0;

    [[nodiscard]] const trace_header& header() const { return header_; }

protected:
    byte_source& from_;
    trace_header header_;
    std::uint64_t last_ns_ = 0;  // of the last record
};

class text_source : public record_source {
public:
    using record_source::record_source;

    status begin() override {
        const std::string first_line = shown(std::string(text_first_line));
        std::string_view line;
        if (!next_line(line))
            return ended_.ok() ? wrong_next("the file is empty; expected " + first_line) : ended_;
        if (line != text_first_line)
            return wrong(shown(std::string(line.substr(0, 80))) +
                         " is not how a trace of version 1 begins; expected " + first_line);
        header_parser parser;
        while (next_line(line)) {
            if (line.starts_with('#')) continue;
            const bool last = line.empty();
            const std::string bad = last ? parser.finish(header_) : parser.take(line);
            if (!bad.empty()) return wrong(bad);
            if (last) return {};
        }
        return ended_.ok() ? wrong_next(
                                 "the file ends in its header; expected an empty line "
                                 "before the first record")
                           : ended_;
    }

    status next(std::vector<record>& out, std::size_t most) override {
        std::string_view line;
        record entry;
        while (out.size() < most && next_line(line)) {
            if (line.empty() || line[0] == '#') continue;
            if (!parse_record(line, entry)) return wrong(why_no_record(line));
            if (!fits(entry, header_, last_ns_)) return wrong(why_not(entry, header_, last_ns_));
            last_ns_ = entry.time_ns;
            out.push_back(entry);
        }
        return ended_;
    }

private:
    // Without its line end; valid until the next call. False: there is none, because of the end or
    // of an error, which ended_ tells. A line without an end, one that is too long, and one with a
    // NUL byte are errors.
    bool next_line(std::string_view& line) {
        while (ended_.ok()) {
            const void* const end =
                from_.size() == 0 ? nullptr : std::memchr(from_.begin(), '\n', from_.size());
            if (end != nullptr) {
                line = {from_.begin(),
                        static_cast<std::size_t>(static_cast<const char*>(end) - from_.begin())};
                from_.consume(line.size() + 1);
                ++number_;
                if (line.size() <= most_line_bytes && line.find('\0') == line.npos) return true;
                ended_ = line.size() > most_line_bytes ? too_long()
                                                       : wrong("has a NUL byte; expected text");
            } else if (from_.size() > most_line_bytes) {
                ++number_;
                ended_ = too_long();
            } else if (!from_.at_end()) {
                ended_ = from_.more();
            } else if (from_.size() > 0) {
                ended_ = wrong_next(
                    "has no line end, so the file was cut short; make it again, or end its last "
                    "line");
            } else {
                break;
            }
        }
        return false;
    }

    // About the line that was read last, or about the one after it.
    [[nodiscard]] status wrong(const std::string& why) const {
        return from_.wrong(" line " + std::to_string(number_), why);
    }
    [[nodiscard]] status wrong_next(const std::string& why) const {
        return from_.wrong(" line " + std::to_string(number_ + 1), why);
    }
    [[nodiscard]] status too_long() const {
        return wrong("has more than " + with_commas(most_line_bytes) +
                     " bytes; expected a text with short lines");
    }

    std::uint64_t number_ = 0;  // of the line that was read last, from 1
    status ended_;
};

class binary_source : public record_source {
public:
    using record_source::record_source;

    status begin() override {
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
            return wrong("has a header of " + with_commas(head.header_bytes) +
                         " bytes; expected at most " + with_commas(most_header_bytes));
        sum_.add(&head, sizeof head);
        from_.consume(sizeof head);
        std::string text;
        if (status s = read_header(head.header_bytes, text); !s) return s;
        return parse_header(text);
    }

    status next(std::vector<record>& out, std::size_t most) override {
        while (out.size() < most && !ended_) {
            if (from_.size() < sizeof(binary_record))
                if (status s = from_.reach(sizeof(binary_record)); !s) return s;
            if (from_.size() < sizeof(binary_record))
                return cut("after " + with_commas(count_) + " records");
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
            return wrong("has " + with_commas(count_) + " records, and its end counts " +
                         with_commas(last.time_ns) + "; the file is damaged, so make it again");
        if (last.content != sum_.value())
            return wrong(
                "has records that do not add up to the checksum at its end; the file is damaged, "
                "so make it again");
        if (status s = from_.reach(1); !s) return s;
        return from_.size() == 0 ? status{}
                                 : wrong("goes on behind its end; expected nothing there");
    }

    [[nodiscard]] status wrong(const std::string& why) const { return from_.wrong("", why); }
    [[nodiscard]] status wrong_record(const std::string& why) const {
        return from_.wrong(" record " + std::to_string(count_ + 1), why);
    }
    [[nodiscard]] status cut(const std::string& where) const {
        return wrong("ends " + where + ", so it was cut short; copy it again or make it again");
    }

    word_sum sum_;
    std::uint64_t count_ = 0;
    bool ended_ = false;
};

}  // namespace

struct reader::parts {
    byte_source from;
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
    if (status s = p.from.open(path, piece_bytes); !s) return s;
    if (status s = p.from.reach(1); !s) return s;
    p.binary = p.from.size() > 0 && static_cast<unsigned char>(*p.from.begin()) == binary_magic[0];
    if (p.binary) p.records = std::make_unique<binary_source>(p.from);
    else p.records = std::make_unique<text_source>(p.from);
    return p.records->begin();
}

const trace_header& reader::header() const { return parts_->records->header(); }
bool reader::is_binary() const { return parts_->binary; }

status reader::next(std::vector<record>& out, std::size_t most) {
    out.clear();
    status& failed = parts_->failed;
    if (failed) failed = parts_->records->next(out, most);
    if (!failed) out.clear();
    return failed;
}

}  // namespace penstock::trace
