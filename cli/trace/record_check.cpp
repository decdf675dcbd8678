#include "record_check.hpp"

#include "common/message.hpp"

namespace penstock::trace {

std::string why_not(const record& r, const trace_header& header, std::uint64_t last_ns) {
    using std::to_string;
    if (r.time_ns < last_ns)
        return "time " + to_string(r.time_ns) + " lies before " + to_string(last_ns) +
               ", the time of the record before it; sort the records by time";
    if (r.file >= header.files.size())
        return "file " + to_string(r.file) + " is not in the header; expected 0 to " +
               to_string(header.files.size() - 1);
    if (r.what == operation::flush)
        return r.has_content
                   ? "a flush with a content number; only a write has one"
                   : "a flush of pages; a flush is of a whole file, so expected PAGE 0 and PAGES 0";
    if (r.pages == 0) return "PAGES is 0; a read or write has at least 1";
    const std::uint64_t pages = header.files[r.file].pages;
    if (r.page >= pages || r.pages > pages - r.page)
        return apps::with_commas(r.pages) + " pages from page " + to_string(r.page) +
               " on lie beyond the end of file " + to_string(r.file) + ", which has " +
               apps::with_commas(pages);
    if (r.what != operation::write) return "a read with a content number; only a write has one";
    return "content number " + to_string(r.content) +
           " is too large; the contents of a write end at 2^62";
}

}  // namespace penstock::trace
