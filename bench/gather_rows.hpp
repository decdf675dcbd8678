// What both bodies of the case gather share: which rows a run fetches, and whether there is memory
// for it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>

#include "penstock/base/hash.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

inline constexpr std::uint64_t gathered_row_bytes[] = {64, 512, 1024, 4096};

// Rows of one run: no more than 2^22, than fit into `most_out_bytes`, and than deliver the file 32
// times.
inline std::uint64_t rows_of_a_run(std::uint64_t file_bytes, std::uint64_t row_bytes,
                                   std::uint64_t most_out_bytes) {
    return std::min(
        {std::uint64_t{1} << 22, most_out_bytes / row_bytes, 32 * (file_bytes / row_bytes)});
}

// The largest `out` and list of a run, for all sizes of rows.
inline std::uint64_t most_delivered_bytes(std::uint64_t file_bytes, std::uint64_t most_out_bytes) {
    return std::min(most_out_bytes, 32 * file_bytes);
}
inline std::uint64_t most_index_bytes(std::uint64_t file_bytes, std::uint64_t most_out_bytes) {
    return rows_of_a_run(file_bytes, gathered_row_bytes[0], most_out_bytes) * 8;
}

// The row that stands at place i of the list; each run has a seed of its own.
PENSTOCK_HD inline std::uint64_t chosen_row(std::uint64_t i, std::uint64_t seed,
                                            std::uint64_t rows) {
    return mix64(i + seed * 0x9e3779b97f4a7c15ull) % rows;
}

// What the operating system could give to programs now; UINT64_MAX: it does not say.
std::uint64_t available_host_bytes();

// -ENOMEM if more is needed than is free. Asked before it is taken: the system ends a program that
// touches more than there is.
status require_memory(const char* kind, std::uint64_t needed_bytes, std::uint64_t free_bytes);

}  // namespace penstock::bench
