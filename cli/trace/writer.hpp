// Writes a trace of either format; the file appears whole or not at all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "binary_form.hpp"
#include "common/files.hpp"
#include "trace.hpp"

namespace penstock::trace {

class writer {
public:
    // Checks that `path` can be written and is not the file `input` (may be empty), which is still
    // read. Writes the header, which must be right.
    status open(const std::string& path, const std::string& input, const trace_header& header,
                bool binary);
    // Records that a reader would take, in the order of their times.
    status add(std::span<const record> some);
    // Writes the end and puts the file in its place.
    status commit();

    [[nodiscard]] std::uint64_t records() const { return records_; }

private:
    status write_header(const trace_header& header);
    status add_text(std::span<const record> some);
    status add_binary(std::span<const record> some);
    status flush(std::size_t least_free);
    void put(const void* bytes, std::size_t count);

    apps::output_file file_;
    std::vector<char> buffer_;
    std::size_t used_ = 0;
    word_sum sum_;
    std::uint64_t records_ = 0;
    bool binary_ = false;
};

}  // namespace penstock::trace
