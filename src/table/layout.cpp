// Rows that the caller describes by numbers, and the choice of a format by the name of the file.
#include <algorithm>
#include <cerrno>
#include <numeric>
#include <string_view>

#include "os/exceptions.hpp"
#include "os/regular_file.hpp"
#include "penstock/table_layout.hpp"
#include "table/elements.hpp"

namespace penstock {

namespace formats {

namespace {

// row_bytes, stride_bytes, dtype and row_shape.
status check_raw_row(const std::string& path, const raw_rows& asked, table_layout& out) {
    const auto wrong = [&](const std::string& problem) -> status {
        return {-EINVAL, path + ": " + problem};
    };
    out.row_bytes = asked.row_bytes;
    if (asked.dtype.empty() && !asked.row_shape.empty())
        return wrong("a row_shape without a dtype means nothing; give both or neither");
    if (!asked.dtype.empty()) {
        const element_type* const type = find_type(asked.dtype);
        if (type == nullptr)
            return wrong("the dtype " + in_quotes(asked.dtype) +
                         " is not known; give one such as float32, or uint8 for raw bytes");
        std::uint64_t bits = 0;
        const std::string elements =
            "a row_shape of " + shape_text(asked.row_shape) + " of " + asked.dtype;
        if (asked.row_shape.size() > most_dimensions ||
            !count_bits(asked.row_shape, type->bits, bits))
            return wrong(elements + " is too large; give smaller extents");
        if (bits == 0) return wrong(elements + " has no bytes; leave out the 0");
        if (bits % 8 != 0)
            return wrong(elements + " has " + std::to_string(bits) +
                         " bits, no whole number of bytes; describe padded rows as raw bytes");
        if (asked.row_bytes != 0 && asked.row_bytes != bits / 8)
            return wrong("row_bytes is " + std::to_string(asked.row_bytes) + ", and " + elements +
                         " has " + std::to_string(bits / 8) +
                         " bytes; make them agree, and give padding by stride_bytes");
        out.row_bytes = bits / 8;
    }
    if (out.row_bytes == 0) return wrong("row_bytes is 0; give the bytes of a row, or a dtype");
    out.stride_bytes = asked.stride_bytes == 0 ? out.row_bytes : asked.stride_bytes;
    if (out.stride_bytes < out.row_bytes)
        return wrong("stride_bytes is " + std::to_string(out.stride_bytes) + ", less than the " +
                     std::to_string(out.row_bytes) + " bytes of a row; rows may not overlap");
    out.dtype = asked.dtype;
    out.row_shape = asked.row_shape;
    return {};
}

// How many rows lie from the first byte on, where the last need not have the padding behind it.
status count_raw_rows(const std::string& path, const raw_rows& asked, std::uint64_t file_bytes,
                      const table_layout& row, std::uint64_t& rows) {
    const std::string first = std::to_string(asked.first_byte);
    const std::uint64_t there_bytes = file_bytes - std::min(asked.first_byte, file_bytes);
    const std::uint64_t left_bytes = there_bytes % row.stride_bytes;
    rows = there_bytes / row.stride_bytes + (left_bytes >= row.row_bytes ? 1 : 0);
    const std::string has = "has " + std::to_string(rows) + " rows of " +
                            std::to_string(row.row_bytes) + " bytes from byte " + first +
                            " on, in " + std::to_string(file_bytes) + " bytes";
    if (asked.rows > rows)
        return {-EINVAL, path + ": " + has + ", and " + std::to_string(asked.rows) +
                             " are asked for; ask for fewer"};
    if (asked.rows != 0) {
        rows = asked.rows;
        return {};
    }
    if (left_bytes != 0 && left_bytes < row.row_bytes)
        return {-EINVAL, path + ": " + has + ", and a part of one of " +
                             std::to_string(left_bytes) +
                             " bytes; correct the size of a row, or give the number of rows"};
    if (rows == 0)
        return {-ENODATA,
                path + ": " + has + "; name a file with rows, or correct where they begin"};
    return {};
}

status rows_of_raw(const std::string& path, const raw_rows& asked, table_layout& out) {
    table_layout made;
    if (status s = check_raw_row(path, asked, made); !s) return s;
    host::regular_file file;
    if (status s = file.open(path); !s) return s;
    std::uint64_t rows = 0;
    if (status s = count_raw_rows(path, asked, file.size_bytes(), made, rows); !s) return s;
    made.pieces.push_back({host::absolute_path(path), asked.first_byte, rows});
    out = std::move(made);
    return {};
}

}  // namespace

}  // namespace formats

std::uint64_t table_layout::rows() const {
    return std::accumulate(
        pieces.begin(), pieces.end(), std::uint64_t{0},
        [](std::uint64_t sum, const table_piece& piece) { return sum + piece.rows; });
}

status describe_raw(const std::string& path, const raw_rows& how_they_lie, table_layout& out) try {
    return formats::rows_of_raw(path, how_they_lie, out);
} catch (...) {
    return host::status_of_exception_about(path);
}

status describe(const std::string& path, const std::string& tensor, table_layout& out) try {
    const std::string_view name = path;
    if (host::is_folder(path) || name.ends_with(".safetensors") ||
        name.ends_with(".safetensors.index.json"))
        return describe_checkpoint(path, tensor, out);
    if (!name.ends_with(".npy") && !host::is_there(path))
        return {-ENOENT, path + ": " + error_text(-ENOENT) + "; correct the path"};
    if (!name.ends_with(".npy"))
        return {-EINVAL,
                path +
                    ": the name ends in none of .npy, .safetensors and "
                    ".safetensors.index.json; give the shape of its rows (describe_raw; in "
                    "Python dtype= and shape=)"};
    if (!tensor.empty())
        return {-EINVAL, path + ": an .npy file has one array without a name, and tensor " +
                             formats::in_quotes(tensor) + " is asked for; leave the name empty"};
    return describe_npy(path, out);
} catch (...) {
    return host::status_of_exception_about(path);
}

}  // namespace penstock
