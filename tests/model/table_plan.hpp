// What the table calls of the model test ask for: where the rows of a table lie in the open files
// of an actor, and a list of row numbers. All of it follows from the operation and the sizes of the
// files, so all threads of a group know it alike, and the judge need not ask the engine.
#pragma once

#include <cerrno>
#include <cstdint>

#include "model/judge.hpp"
#include "penstock/engine/table_rows.hpp"

namespace penstock::model {

inline constexpr std::uint32_t most_runs = 4;
inline constexpr std::uint32_t most_numbers = 160;  // of 8 bytes, or twice as many of 4

// What the engine reads besides the files; one for each actor.
struct table_desk {
    engine::table_note note;
    std::uint64_t claimed;
    engine::table_run runs[most_runs];
    alignas(8) std::byte numbers[8 * most_numbers];
};

constexpr PENSTOCK_HD std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) {
    return value / unit * unit;
}

struct planned_run {
    std::uint32_t held;  // which of the actor's open files
    std::uint64_t first_byte, first_row, rows;
};

struct table_plan {
    planned_run runs[most_runs];
    std::uint32_t run_count;
    std::uint64_t unit;  // divides the places of all rows, their bytes and their stride
    std::uint64_t rows, row_bytes, stride_bytes;

    // The row is one of the table.
    PENSTOCK_HD const planned_run& run_of(std::uint64_t row) const {
        std::uint32_t i = 0;
        while (row - runs[i].first_row >= runs[i].rows) ++i;
        return runs[i];
    }
    PENSTOCK_HD std::uint64_t byte_of(std::uint64_t row) const {
        const planned_run& run = run_of(row);
        return run.first_byte + (row - run.first_row) * stride_bytes;
    }
    // As the host has it in a table's view: of all runs but the last, or 0.
    PENSTOCK_HD std::uint64_t rows_per_run() const {
        bool equal = true;
        for (std::uint32_t i = 0; i + 1 < run_count; ++i)
            equal = equal && runs[i].rows == runs[0].rows;
        return equal && runs[run_count - 1].rows <= runs[0].rows ? runs[0].rows : 0;
    }
};

// Half of the tables have places and bytes that are multiples of 16, as by embeddings; the others
// of 8, of 4, or none.
constexpr PENSTOCK_HD std::uint64_t unit_of_rows(std::uint64_t r) {
    constexpr std::uint64_t units[] = {16, 16, 16, 16, 8, 4, 4, 1};
    return units[r % 8];
}

// From a few bytes to some pages.
constexpr PENSTOCK_HD std::uint64_t row_bytes_for(const world& w, std::uint64_t most,
                                                  std::uint64_t unit, std::uint64_t r) {
    const std::uint64_t n = r >> 8;
    const std::uint64_t bytes = r % 8 < 4   ? 1 + n % 96
                                : r % 8 < 6 ? 1 + n % 2048
                                            : length_for(w, most, mix64(n));
    const std::uint64_t least = bytes < unit ? unit : round_down(bytes, unit);
    return least < most ? least : round_down(most, unit);
}

// A third of the tables have no gaps, a third gaps of a few units, a third larger ones.
constexpr PENSTOCK_HD std::uint64_t gap_for(const world& w, std::uint64_t unit, std::uint64_t r) {
    const std::uint64_t n = r >> 8;
    if (r % 3 == 0) return 0;
    return r % 3 == 1 ? unit * (1 + n % 8) : round_down(n % w.page_bytes, unit);
}

// A run of rows of a file that is as long as one row at least. It begins where a read would, and
// spans no more pages than the regions of a big file.
inline PENSTOCK_HD planned_run run_for(const world& w, const held_file* open, std::uint32_t held,
                                       const table_plan& t, std::uint64_t r) {
    const held_file& f = open[held];
    const std::uint64_t last = f.size - t.row_bytes;  // a row may begin here
    const std::uint64_t wanted = offset_for(w, f.file, f.size, mix64(r));
    const std::uint64_t first = round_down(wanted <= last ? wanted : wanted % (last + 1), t.unit);
    const std::uint64_t span = (region_pages + 2) * w.page_bytes;
    const std::uint64_t most = (last - first < span ? last - first : span) / t.stride_bytes + 1;
    return {held, first, 0, r % 2 == 0 ? most : 1 + (r >> 8) % most};
}

// False if the file `held` has no byte, so that no table can be made of it.
inline PENSTOCK_HD bool plan_table(const world& w, const held_file* open, std::uint32_t held,
                                   std::uint64_t room, std::uint64_t r, table_plan& out) {
    const std::uint64_t size = open[held].size;
    if (size == 0) return false;
    out.unit = unit_of_rows(mix64(r ^ 1));
    if (out.unit > size) out.unit = 1;
    out.row_bytes = row_bytes_for(w, size < room ? size : room, out.unit, mix64(r ^ 2));
    out.stride_bytes = out.row_bytes + gap_for(w, out.unit, mix64(r ^ 3));
    const std::uint64_t shape = mix64(r ^ 4);
    out.run_count = shape % 3 == 0 ? 2 + static_cast<std::uint32_t>((shape >> 8) % 3) : 1;
    const bool is_even = (shape >> 16) % 2 == 0;  // runs of equally many rows
    out.rows = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (std::uint32_t i = 0; i < out.run_count; ++i) {
        const auto other = static_cast<std::uint32_t>((held + (shape >> 20) * i) % files_held);
        const bool is_usable = open[other].fd >= 0 && open[other].size >= out.row_bytes;
        out.runs[i] = run_for(w, open, is_usable ? other : held, out, mix64(r ^ (5 + i)));
        least = out.runs[i].rows < least ? out.runs[i].rows : least;
    }
    for (std::uint32_t i = 0; i < out.run_count; ++i) {
        if (is_even) out.runs[i].rows = least;
        out.runs[i].first_row = out.rows;
        out.rows += out.runs[i].rows;
    }
    if (is_even && least > 1 && out.run_count > 1) --out.runs[out.run_count - 1].rows, --out.rows;
    return true;
}

// The list of numbers, and where its rows go.
struct list_plan {
    std::uint64_t r;
    std::uint64_t rows;  // of the table
    std::uint64_t count;
    engine::number_type type;
    bool has_padding, has_outside;
    std::int64_t padding;
    std::uint64_t shift;         // of the first row behind the guard
    std::uint64_t stride_bytes;  // between rows of the output

    PENSTOCK_HD bool is_short() const {
        return type == engine::number_type::int32 || type == engine::number_type::uint32;
    }
    PENSTOCK_HD bool is_signed() const {
        return type == engine::number_type::int32 || type == engine::number_type::int64;
    }

    // A number that names no row and that the type can hold. Unsigned numbers of 64 bits keep their
    // bits.
    PENSTOCK_HD std::int64_t outside(std::uint64_t h) const {
        const std::int64_t above = std::int64_t{1} << 31;  // of an int32
        switch (h % 4) {
            case 0: return is_short() && !is_signed() ? 2 * above - 1 : -1;
            case 1: return !is_short() ? INT64_MIN : is_signed() ? -above : above;
            case 2: return is_short() ? above - 1 : INT64_MAX;
            default: return static_cast<std::int64_t>(rows + (h >> 8) % 3);
        }
    }
    // Some lists keep to a few rows, so that numbers repeat and rows are found in the cache; some
    // go from row to row.
    PENSTOCK_HD std::int64_t at(std::uint64_t i) const {
        const std::uint64_t h = mix(r, i);
        if (has_padding && h % 8 == 0) return padding;
        if (has_outside && h % 16 == 1) return outside(h >> 8);
        const std::uint64_t begin = mix64(r ^ 1) % rows, n = h >> 16;
        switch (r % 4) {
            case 0: return static_cast<std::int64_t>(n % rows);
            case 1: return static_cast<std::int64_t>((begin + i) % rows);
            default: return static_cast<std::int64_t>((begin + n % (1 + (r >> 8) % 12)) % rows);
        }
    }
    PENSTOCK_HD bool is_padding(std::int64_t number) const {
        return has_padding && number == padding;
    }
    // Is there a row to be delivered for this number?
    PENSTOCK_HD bool has_row(std::int64_t number) const {
        return !is_padding(number) && static_cast<std::uint64_t>(number) < rows;
    }
};

// A padding number is mostly none of the table's rows, and now and then it hides one.
inline PENSTOCK_HD std::int64_t padding_for(const list_plan& list, std::uint64_t r) {
    return r % 4 == 0 ? static_cast<std::int64_t>((r >> 8) % list.rows) : list.outside(r >> 8);
}

// `room`: bytes for the rows.
inline PENSTOCK_HD list_plan plan_list(const world& w, const table_plan& t, std::uint64_t room,
                                       std::uint64_t r) {
    constexpr engine::number_type types[] = {
        engine::number_type::int64, engine::number_type::int32, engine::number_type::uint32,
        engine::number_type::uint64, engine::number_type::int64};
    list_plan out{};
    out.r = mix64(r ^ 21);
    out.rows = t.rows;
    const std::uint64_t kind = mix64(r ^ 22), n = mix64(r ^ 23);
    out.type = types[kind % 5];
    out.has_padding = (kind >> 8) % 4 == 0;
    out.has_outside = (kind >> 16) % 3 == 0;
    if (out.has_padding) out.padding = padding_for(out, mix64(r ^ 24));
    const bool has_gaps = (kind >> 24) % 2 == 0;
    out.stride_bytes = t.row_bytes + (has_gaps ? t.unit * (1 + (n >> 8) % 8) : 0);
    if (out.stride_bytes > room) out.stride_bytes = t.row_bytes;
    // One in eight outputs begins at an odd place.
    out.shift = (kind >> 32) % 8 == 0 ? n % 16 : round_down(n % 16, t.unit);
    const std::uint64_t budget = 1024 + length_for(w, room, mix64(n));
    const std::uint64_t fit = (budget < room ? budget : room) / out.stride_bytes;
    const std::uint64_t most = out.is_short() ? 2 * most_numbers : most_numbers;
    out.count = 1 + (n >> 32) % most;
    if (out.count > fit) out.count = fit < 1 ? 1 : fit;
    if ((kind >> 40) % 32 == 0) out.count = 0;
    return out;
}

}  // namespace penstock::model
