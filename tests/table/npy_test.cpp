// Headers of .npy files: every version and kind of element, and what has no rows here.
#include <gtest/gtest.h>

#include "table/support.hpp"

namespace penstock::test {

class npy_files : public table_folder {};

TEST_F(npy_files, the_three_versions_of_the_format) {
    for (const int major : {1, 2, 3}) {
        const std::string bytes = npy_bytes(npy_text("<f4", "(3, 5)"), 60, major);
        const std::string path = made("a.npy", bytes);
        table_layout rows;
        const status s = describe_npy(path, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.row_bytes, 20u);
        EXPECT_EQ(rows.stride_bytes, 20u);
        EXPECT_EQ(rows.dtype, "float32");
        EXPECT_EQ(rows.row_shape, std::vector<std::uint64_t>{5});
        EXPECT_EQ(rows.pieces, (std::vector<table_piece>{{path, bytes.size() - 60, 3}}));
        EXPECT_EQ(rows.pieces[0].first_byte % 64, 0u) << "as numpy pads";
        EXPECT_EQ(rows.rows(), 3u);
    }
}

TEST_F(npy_files, every_kind_of_element) {
    struct {
        const char *descr, *dtype;
        std::uint64_t bytes;
    } const kinds[] = {
        {"|b1", "bool", 1},      {"|i1", "int8", 1},         {"<i2", "int16", 2},
        {"<i4", "int32", 4},     {"<i8", "int64", 8},        {"|u1", "uint8", 1},
        {"<u2", "uint16", 2},    {"<u4", "uint32", 4},       {"<u8", "uint64", 8},
        {"<f2", "float16", 2},   {"<f4", "float32", 4},      {"<f8", "float64", 8},
        {"<c8", "complex64", 8}, {"<c16", "complex128", 16}, {">u1", "uint8", 1},
        {"=f4", "float32", 4},   {"f8", "float64", 8},
    };
    for (const auto& kind : kinds) {
        const std::string path =
            made("a.npy", npy_bytes(npy_text(kind.descr, "(7, 2, 3)"), 42 * kind.bytes));
        table_layout rows;
        const status s = describe_npy(path, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.dtype, kind.dtype) << kind.descr;
        EXPECT_EQ(rows.row_bytes, 6 * kind.bytes) << kind.descr;
        EXPECT_EQ(rows.row_shape, (std::vector<std::uint64_t>{2, 3})) << kind.descr;
        EXPECT_EQ(rows.rows(), 7u) << kind.descr;
    }
}

TEST_F(npy_files, raw_elements_become_raw_rows) {
    for (const char* const descr : {"|V6", "<V6", "|S6"}) {
        table_layout rows;
        const status s =
            describe_npy(made("a.npy", npy_bytes(npy_text(descr, "(4, 2)"), 48)), rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.dtype, "") << descr;
        EXPECT_EQ(rows.row_bytes, 12u) << descr;
        EXPECT_TRUE(rows.row_shape.empty()) << descr;
    }
}

TEST_F(npy_files, an_array_of_one_dimension_has_scalar_rows) {
    for (const char* const fortran : {"False", "True"}) {
        table_layout rows;
        const status s =
            describe_npy(made("a.npy", npy_bytes(npy_text("<i8", "(9,)", fortran), 72)), rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.row_bytes, 8u);
        EXPECT_TRUE(rows.row_shape.empty());
        EXPECT_EQ(rows.rows(), 9u);
    }
}

TEST_F(npy_files, other_ways_to_write_the_same_header) {
    for (const char* const header :
         {"{'shape': (3, 5), 'fortran_order': False, 'descr': '<f4'}",
          "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(3,5)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 5L), }",
          "  { 'descr' : '<f4' ,\n 'fortran_order' : False , 'shape' : ( 3 , 5 , ) , }"}) {
        table_layout rows;
        const status s = describe_npy(made("a.npy", npy_bytes(header, 60)), rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.row_bytes, 20u) << header;
        EXPECT_EQ(rows.rows(), 3u) << header;
    }
}

TEST_F(npy_files, bytes_behind_the_array_do_not_matter) {
    table_layout rows;
    EXPECT_TRUE(describe_npy(made("a.npy", npy_bytes(npy_text("<f4", "(3, 5)"), 100)), rows));
    EXPECT_EQ(rows.rows(), 3u);
}

TEST_F(npy_files, what_has_no_rows_is_refused_with_a_cure) {
    struct {
        std::string header;
        int code;
        const char* words;
    } const cases[] = {
        {npy_text("<f4", "(3, 5)", "True"), -EOPNOTSUPP, "numpy.ascontiguousarray"},
        {npy_text(">f4", "(3, 5)"), -EOPNOTSUPP, "newbyteorder('<')"},
        {"{'descr': [('a', '<f4'), ('b', '<i2')], 'fortran_order': False, 'shape': (3,), }",
         -EOPNOTSUPP, "records of several fields"},
        {"{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (3,), }", -EOPNOTSUPP,
         "records of several fields"},
        {npy_text("|O", "(3,)"), -EOPNOTSUPP, "the elements are objects of Python, pickled"},
        {npy_text("<U5", "(3,)"), -EOPNOTSUPP, "array.view(f'V{array.itemsize}')"},
        {npy_text("<M8[ns]", "(3,)"), -EOPNOTSUPP, "'<M8[ns]'"},
        {npy_text("<f16", "(3,)"), -EOPNOTSUPP, "'<f16'"},
        {npy_text("<f1", "(3,)"), -EOPNOTSUPP, "'<f1'"},
        {npy_text("<", "(3,)"), -EOPNOTSUPP, "'<'"},
        {npy_text("", "(3,)"), -EOPNOTSUPP, "''"},
        {npy_text("<f4", "()"), -EOPNOTSUPP, "one scalar"},
        {npy_text("<f4", "(0, 5)"), -ENODATA, "has 0 rows (shape 0 x 5)"},
        {npy_text("<f4", "(3, 0)"), -ENODATA, "rows of 0 bytes (shape 3 x 0)"},
        {npy_text("|V0", "(3,)"), -ENODATA, "rows of 0 bytes"},
    };
    for (const auto& refusal : cases) {
        table_layout rows;
        const std::string path = made("a.npy", npy_bytes(refusal.header, 4096));
        const status s = describe_npy(path, rows);
        expect_refused(s, refusal.code, refusal.words, rows, refusal.header);
        EXPECT_TRUE(s.message.starts_with(path + ": ")) << s.message;
    }
}

}  // namespace penstock::test
