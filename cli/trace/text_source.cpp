#include "common/message.hpp"
#include "header_text.hpp"
#include "line_source.hpp"
#include "record_check.hpp"
#include "record_source.hpp"
#include "text_record.hpp"

namespace penstock::trace {

namespace {

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
        record one;
        while (out.size() < most && lines_.next(line)) {
            if (line.empty() || line[0] == '#') continue;
            if (!parse_record(line, one)) return lines_.wrong(why_no_record(line));
            if (!fits(one, header_, last_ns_)) return lines_.wrong(why_not(one, header_, last_ns_));
            last_ns_ = one.time_ns;
            out.push_back(one);
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

std::unique_ptr<record_source> make_text_source(byte_source& from) {
    return std::make_unique<text_source>(from);
}

}  // namespace penstock::trace
