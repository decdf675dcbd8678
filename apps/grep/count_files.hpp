// From files to counts: cutting files into jobs, running them, and settling files that hold zero
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "join_records.hpp"
#include "search.hpp"

namespace penstock::grep {

struct file_error {
    std::uint32_t file;
    int code;
};

struct counted_files {
    apps::big_vector<word_count> counts;  // sorted by file, then word; none is zero
    std::vector<file_error> errors;       // files whose counts are left out
    std::uint64_t binary_files = 0;
    std::uint64_t jobs = 0;
    std::uint64_t launches = 0;
    double launch_seconds = 0;   // while kernels ran, or the threads that stand for them
    double collect_seconds = 0;  // fetching records and status
    double join_seconds = 0;     // putting records in order
};

// `piece_bytes`: how large files are cut. Fails only if the search as a whole does.
status count_files(search_method& method, const dictionary& words, const file_list& files,
                   std::uint64_t piece_bytes, counted_files& out);

// A piece size that gives every group some pieces of `total_bytes`, from `least` to 1 MiB.
std::uint64_t choose_piece_bytes(std::uint64_t total_bytes, std::uint64_t groups,
                                 std::uint64_t least);

}  // namespace penstock::grep
