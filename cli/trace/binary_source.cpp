#include <algorithm>
#include <string_view>

#include "binary_form.hpp"
#include "common/message.hpp"
#include "sources.hpp"
#include "trace_lines.hpp"

namespace penstock::trace {

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
            record one;
            if (!unpack(raw, one))
                return wrong_record(
                    "has bits that no record has; the file is damaged, so make it again");
            if (!fits(one, header_, last_ns_)) return wrong_record(why_not(one, header_, last_ns_));
            last_ns_ = one.time_ns;
            ++count_;
            out.push_back(one);
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
            const std::size_t some = std::min(left, from_.size());
            text.append(from_.begin(), some);
            from_.consume(some);
            left -= some;
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
