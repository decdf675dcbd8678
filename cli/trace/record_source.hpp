// Reading the records of one format; reader puts the right one behind it.
#pragma once

#include <memory>

#include "byte_source.hpp"
#include "trace.hpp"

namespace penstock::trace {

class record_source {
public:
    virtual ~record_source() = default;
    // Reads the header; called once, first.
    virtual status begin(trace_header& out) = 0;
    // Adds records to `out`, until it has `most` or the trace ends.
    virtual status next(std::vector<record>& out, std::size_t most) = 0;
};

std::unique_ptr<record_source> make_text_source(byte_source& from);
std::unique_ptr<record_source> make_binary_source(byte_source& from);

}  // namespace penstock::trace
