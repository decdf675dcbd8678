// Gather over a whole device: what runtime::gather hands to the back ends.
#pragma once

#include <cstdint>

#include "penstock/gather.hpp"

namespace penstock {
class runtime;
}

namespace penstock::host {

// Spans of a file are numbered from its first byte; what lies behind the last one, or is outside
// the file, counts to the last one.
struct span_rule {
    std::uint32_t spans = 0;  // 0: rows are fetched in the order they are given in
    std::uint32_t shift = 0;

    template <typename Geometry>
    PENSTOCK_HD std::uint32_t span_of(const Geometry& rows, std::uint64_t index) const {
        const std::uint64_t span = index < rows.rows ? rows.byte_of(index) >> shift : spans - 1;
        return span < spans ? static_cast<std::uint32_t>(span) : spans - 1;
    }
};

inline constexpr std::uint32_t max_spans = 1024;

// Rows that are put in order together: 4 bytes each, and enough of them that each span has plenty.
inline constexpr std::uint64_t ordered_rows_at_once = std::uint64_t{1} << 26;

struct gather_job {
    int fd;
    row_shape shape;
    const std::uint64_t* indices;
    std::uint64_t count;  // not 0
    std::byte* out;
    span_rule spans;
    bool must_order;  // without memory for the order: fail, instead of taking the rows as they are
                      // given
};

// How many rows a warp or a worker takes at a time: enough to keep it busy, few enough to go round.
inline std::uint64_t rows_of_a_piece(const gather_job& job, std::uint64_t takers) {
    const std::uint64_t fair = (job.count + takers - 1) / takers;
    std::uint64_t rows = job.shape.row_bytes > 65536 ? 1 : 65536 / job.shape.row_bytes;
    if (rows > 256) rows = 256;
    if (rows > fair) rows = fair;
    return rows > 32 ? rows / 32 * 32 : rows;
}

std::int64_t gather_on_cpu(runtime& rt, const gather_job& job);

}  // namespace penstock::host
