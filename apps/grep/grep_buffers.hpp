// Where grep stops printing matches of a file that holds a zero byte.
//
// grep reads a file in large pieces. It looks for zero bytes in each piece as it arrives; from the
// piece that holds the first one on, the file is binary and no match is printed any more. Matches
// in lines that were complete before that piece have been printed. So the sizes of grep's reads
// decide what `grep -o` counts; this is a model of them (GNU grep 3.8, src/grep.c: fillbuf, grep,
// file_must_have_nulls), with pages of 4096 bytes.
//
// The buffer holds 96 KiB behind an unfinished line that was carried over. How much of that is lost
// to alignment depends on the address that malloc gave, once the carried-over line is longer than
// the rest of the buffer's first page; see buffer_offset().
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/files.hpp"

namespace penstock::grep {

// The address of grep's buffer modulo 4096 when it is given this word: measured with grep 3.8 and
// glibc 2.36 on x86-64 in the C locale; other builds may differ. It matters only in binary files
// with a zero byte behind the first 96 KiB, and there only if a line of more than some hundred
// bytes crosses the end of a read.
std::uint32_t buffer_offset(const std::string& word);

// A file whose first zero byte lies at or behind first_read_bytes.
class binary_file {
public:
    // 0 or a negative errno; -ESTALE if its size is not the one given.
    int open(const std::string& path, std::uint64_t bytes, std::uint64_t first_zero);

    // `out`: matches below this offset are printed. 0 or a negative errno.
    int printed_below(std::uint32_t offset_of_buffer, std::uint64_t& out);

private:
    int behind_last_line_end(std::uint64_t from, std::uint64_t to, std::uint64_t& out);

    apps::unique_fd fd_;
    std::uint64_t bytes_ = 0;
    std::uint64_t first_zero_ = 0;
    bool has_holes_ = false;
    std::map<std::uint64_t, std::uint64_t> line_ends_;  // answers of behind_last_line_end by `to`
};

}  // namespace penstock::grep
