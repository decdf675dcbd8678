// What every record must keep to, whatever format it came from.
#pragma once

#include <string>

#include "trace.hpp"

namespace penstock::trace {

// A read or write within its file, or a flush; not before the record that came before it.
inline bool fits(const record& r, const trace_header& header, std::uint64_t last_ns) {
    if (r.time_ns < last_ns || r.file >= header.files.size()) return false;
    if (r.what == operation::flush) return r.page == 0 && r.pages == 0 && !r.has_content;
    const std::uint64_t pages = header.files[r.file].pages;
    if (r.pages == 0 || r.page >= pages || r.pages > pages - r.page) return false;
    return !r.has_content || (r.what == operation::write && r.content <= most_content - r.pages);
}

// Why a record does not fit, and what was expected.
std::string why_not(const record& r, const trace_header& header, std::uint64_t last_ns);

}  // namespace penstock::trace
