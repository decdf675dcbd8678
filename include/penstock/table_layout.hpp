// Where the rows of a table lie: rows of equal size in one file or in many, numbered through. Made
// from raw numbers, or from the headers of .npy and .safetensors files and of checkpoints in many
// such files.
//
//     penstock::table_layout rows;
//     if (penstock::status s = penstock::describe("model/", "embedding.shard_*", rows); !s)
//         return fail(s.message);
//
// Each call reads headers and no row. A layout is what the headers said: a file that is replaced or
// cut afterwards is not seen here. The files may be damaged or hostile: a layout that is handed out
// lies inside its files, and memory and time are bounded by the length of the headers.
//
// Errors, which leave `out` as it was; the message is one line and names file, tensor, value and
// cure:
//   -EBADMSG     the file is damaged, or not of the format that it is taken for
//   -EOPNOTSUPP  a good file that has no such rows: Fortran order, big-endian numbers, records,
//                scalars, rows of no whole number of bytes; or no regular file (a pipe, a device)
//   -ENODATA     no rows, or rows of no bytes
//   -EINVAL      the caller's values do not go together, or tensors of one table differ
//   -ENOENT      no such file, no such tensor, no match of the pattern
//   -EISDIR, -EACCES, -EIO, -ENOMEM ...  as the operating system said
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock {

// A run of rows of one file. Row i of the piece begins at first_byte + i * stride.
struct table_piece {
    std::string path;  // describe() makes it absolute; a relative one is of the first root
    std::uint64_t first_byte = 0;  // of its first row
    std::uint64_t rows = 0;

    friend bool operator==(const table_piece&, const table_piece&) = default;
};

struct table_layout {
    std::uint64_t row_bytes = 0;
    std::uint64_t stride_bytes = 0;  // distance of rows, equal in all pieces; 0: row_bytes
    // As numpy and its extension ml_dtypes have it: "float32", "bfloat16", "float8_e4m3fn",
    // "int64", "uint8", "bool" ...; empty: raw bytes. In memory the lowest byte comes first.
    std::string dtype{};
    std::vector<std::uint64_t> row_shape{};  // of one row; empty: a scalar, or raw bytes
    std::vector<table_piece> pieces{};       // in the order of the row numbers

    [[nodiscard]] std::uint64_t rows() const;  // of all pieces

    friend bool operator==(const table_layout&, const table_layout&) = default;
};

// How rows lie in a file that has no header that is known here.
struct raw_rows {
    std::uint64_t row_bytes = 0;     // 0: as dtype and row_shape have it
    std::uint64_t stride_bytes = 0;  // 0: row_bytes
    std::uint64_t first_byte = 0;    // where the first row begins
    std::uint64_t rows = 0;          // 0: as many as the file has; then no part of one may be left
    std::string dtype{};             // empty: raw bytes
    std::vector<std::uint64_t> row_shape{};  // empty: a scalar, or raw bytes
};

status describe_raw(const std::string& path, const raw_rows& how_they_lie, table_layout& out);

// An array saved by numpy, versions 1.0, 2.0 and 3.0, in C order. The first dimension counts the
// rows; an array of one dimension has scalar rows. Elements of kind V, as bfloat16 is saved, and of
// kind S are raw bytes.
status describe_npy(const std::string& path, table_layout& out);

// A tensor of a .safetensors file; its first dimension counts the rows. An empty name stands for
// the only tensor of the file. The whole header is checked, as the format asks: no overlaps, no
// holes, nothing behind the last tensor.
status describe_safetensors(const std::string& path, const std::string& tensor, table_layout& out);

// Tensors of a checkpoint as one table. `index_or_folder`: an index that says which tensor lies in
// which file (model.safetensors.index.json), a folder with an index of that name or with one
// model.safetensors, or a .safetensors file. `pattern`: the name of a tensor, where each `*` stands
// for any characters or none. All tensors that match are pieces of the table, in the order of their
// names, where numbers count as such: shard_2 comes before shard_10. They have one dtype and one
// shape of a row; their numbers of rows may differ. Reads the index and the headers of the files
// with a match.
status describe_checkpoint(const std::string& index_or_folder, const std::string& pattern,
                           table_layout& out);

// Chooses by the name: .npy (the tensor is empty), .safetensors, .safetensors.index.json, or a
// folder with such an index. `tensor` may be a pattern, as above.
status describe(const std::string& path, const std::string& tensor, table_layout& out);

}  // namespace penstock
