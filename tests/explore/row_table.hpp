// The table that a reader of an exploration takes its rows from.
#pragma once

#include "explore/explorer.hpp"
#include "penstock/table.hpp"

namespace penstock::explore_kit {

// Rows of so many bytes, one behind the other from byte `first` of a file on. Each reader has one
// of its own: what is noted is not explored.
class row_table {
public:
    row_table(const engine::cache_view& c, std::int32_t fd, std::uint64_t page_bytes,
              std::uint64_t row_bytes, std::uint64_t first, std::uint64_t rows) {
        engine::table_view& t = ref.view;
        engine::file_handle f{};
        explore::require(engine::find_file(c, fd, f), "the descriptor is not open");
        t.only = {f, first, 0, rows, fd};
        t.rows = rows;
        t.row_bytes = t.stride_bytes = row_bytes;
        t.rows_per_run = rows;
        t.run_count = 1;
        t.low_bits = static_cast<std::uint32_t>((row_bytes | first) & 15);
        t.parts = engine::parts_of_row(page_bytes, row_bytes | first, row_bytes);
        t.claimed = &claimed_;
        t.note = &note_;
    }
    row_table(const row_table&) = delete;

    table_ref ref{};

private:
    engine::table_note note_{};
    std::uint64_t claimed_ = 0;
};

}  // namespace penstock::explore_kit
