// Where rows lie: penstock/table_layout.hpp for Python.
#include "penstock/table_layout.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <tuple>

#include "core/core.hpp"
#include "penstock/options.hpp"

namespace penstock::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using piece = std::tuple<file_name, std::uint64_t, std::uint64_t>;

table_layout describe_file(const file_name& path, const std::string& tensor) {
    table_layout out;
    status s;
    {
        const without_gil free;
        s = describe(path.bytes, tensor, out);
    }
    check(s, path.bytes);
    return out;
}

table_layout describe_rows(const file_name& path, std::uint64_t row_bytes,
                           std::uint64_t stride_bytes, std::uint64_t first_byte, std::uint64_t rows,
                           const std::string& dtype, const std::vector<std::uint64_t>& row_shape) {
    table_layout out;
    status s;
    {
        const without_gil free;
        s = describe_raw(path.bytes, {row_bytes, stride_bytes, first_byte, rows, dtype, row_shape},
                         out);
    }
    check(s, path.bytes);
    return out;
}

std::vector<piece> pieces_of(const table_layout& layout) {
    std::vector<piece> out;
    for (const table_piece& p : layout.pieces)
        out.emplace_back(file_name{p.path}, p.first_byte, p.rows);
    return out;
}

// The tables one behind the other. Their rows have to be alike.
table_layout join(const std::vector<table_layout>& parts) {
    if (parts.empty()) raise(-EINVAL, "concat: there is no table; give at least one");
    table_layout out = parts[0];
    out.pieces.clear();
    const auto stride = [](const table_layout& of) {
        return of.stride_bytes != 0 ? of.stride_bytes : of.row_bytes;
    };
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const table_layout& part = parts[i];
        const std::string name = part.pieces.empty() ? "" : part.pieces[0].path;
        const auto differ = [&](const std::string& in, const auto& a, const auto& b) {
            if (a != b)
                raise(-EINVAL,
                      "concat: table " + std::to_string(i) + " differs from the first in " + in +
                          "; give tables of equal rows",
                      name);
        };
        differ("dtype", part.dtype, out.dtype);
        differ("the shape of a row", part.row_shape, out.row_shape);
        differ("the bytes of a row", part.row_bytes, out.row_bytes);
        differ("the distance of rows", stride(part), stride(out));
        out.pieces.insert(out.pieces.end(), part.pieces.begin(), part.pieces.end());
    }
    return out;
}

}  // namespace

void bind_layout(nb::module_& m) {
    nb::class_<table_layout>(m, "Layout", "Where the rows of a table lie, and of which elements.")
        .def_ro("row_bytes", &table_layout::row_bytes, "Bytes of a row.")
        .def_prop_ro(
            "stride_bytes",
            [](const table_layout& of) {
                return of.stride_bytes != 0 ? of.stride_bytes : of.row_bytes;
            },
            "Bytes from one row to the next.")
        .def_ro("dtype", &table_layout::dtype,
                "The name of the elements' type, as numpy and ml_dtypes have it. Empty: raw bytes.")
        .def_ro("row_shape", &table_layout::row_shape, "The shape of a row.")
        .def_prop_ro("rows", &table_layout::rows, "How many rows, of all pieces.")
        .def_prop_ro("pieces", pieces_of, "A tuple of path, first byte and rows for each.")
        .def_prop_ro(
            "page_bytes",
            [](const table_layout& of) { return options_for(of, options{}).page_bytes; },
            "Bytes of the pages that suit such rows.")
        .def(
            "__eq__", [](const table_layout& a, const table_layout& b) { return a == b; },
            nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__",
             [](const table_layout& of) {
                 std::size_t out = std::hash<std::string>()(of.dtype) ^ of.row_bytes;
                 for (const table_piece& p : of.pieces)
                     out = 31 * out + (std::hash<std::string>()(p.path) ^ p.first_byte ^ p.rows);
                 return out;
             })
        .def("__repr__", [](const table_layout& of) {
            return "<penstock.Layout of " + std::to_string(of.rows()) + " rows of " +
                   std::to_string(of.row_bytes) + " bytes, " +
                   (of.dtype.empty() ? "raw" : of.dtype) + ", in " +
                   std::to_string(of.pieces.size()) + " pieces>";
        });
    m.def("describe", describe_file, "path"_a, "tensor"_a,
          "Reads the header of a file or of a checkpoint.");
    m.def("describe_raw", describe_rows, "path"_a, "row_bytes"_a, "stride_bytes"_a, "first_byte"_a,
          "rows"_a, "dtype"_a, "row_shape"_a, "Rows of a file without a header.");
    m.def("join", join, "parts"_a, "The tables one behind the other.");
}

}  // namespace penstock::python
