// Headers of .safetensors files: every dtype, several tensors, texts beside them.
#include <gtest/gtest.h>

#include "table/support.hpp"

namespace penstock::test {

class safetensors_files : public table_folder {};

TEST_F(safetensors_files, several_tensors_and_metadata) {
    const std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\\u00e9\"}," +
                               entry_text("weight", "F32", "[3,2,5]", 0, 120) + "," +
                               entry_text("bias", "BF16", "[7]", 120, 134) + "," +
                               entry_text("scale", "F16", "[]", 134, 136) + "," +
                               entry_text("empty", "I8", "[0,4]", 136, 136) + "}";
    const std::string bytes = safetensors_bytes(header, 136);
    const std::string path = made("m.safetensors", bytes);
    const std::uint64_t begin = bytes.size() - 136;

    table_layout rows;
    status s = describe_safetensors(path, "weight", rows);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(rows.row_bytes, 40u);
    EXPECT_EQ(rows.stride_bytes, 40u);
    EXPECT_EQ(rows.dtype, "float32");
    EXPECT_EQ(rows.row_shape, (std::vector<std::uint64_t>{2, 5}));
    EXPECT_EQ(rows.pieces, (std::vector<table_piece>{{path, begin, 3}}));

    s = describe_safetensors(path, "bias", rows);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(rows.row_bytes, 2u);
    EXPECT_EQ(rows.dtype, "bfloat16");
    EXPECT_TRUE(rows.row_shape.empty());
    EXPECT_EQ(rows.pieces, (std::vector<table_piece>{{path, begin + 120, 7}}));

    rows = {};
    expect_refused(describe_safetensors(path, "scale", rows), -EOPNOTSUPP, "'scale': is one scalar",
                   rows);
    expect_refused(describe_safetensors(path, "empty", rows), -ENODATA, "'empty': has 0 rows",
                   rows);
    expect_refused(describe_safetensors(path, "wait", rows), -ENOENT,
                   "no tensor is called 'wait'; it has 4 tensors: 'bias', 'empty', 'scale' ...",
                   rows);
    expect_refused(describe_safetensors(path, "", rows), -EINVAL, "which tensor is meant?", rows);
    expect_refused(describe_safetensors(path, "__metadata__", rows), -ENOENT, "__metadata__", rows);
}

TEST_F(safetensors_files, every_dtype_of_the_format) {
    struct {
        const char *in_file, *dtype;
        std::uint64_t bits;
    } const types[] = {
        {"BOOL", "bool", 8},
        {"U8", "uint8", 8},
        {"I8", "int8", 8},
        {"U16", "uint16", 16},
        {"I16", "int16", 16},
        {"U32", "uint32", 32},
        {"I32", "int32", 32},
        {"U64", "uint64", 64},
        {"I64", "int64", 64},
        {"F16", "float16", 16},
        {"BF16", "bfloat16", 16},
        {"F32", "float32", 32},
        {"F64", "float64", 64},
        {"C64", "complex64", 64},
        {"F8_E5M2", "float8_e5m2", 8},
        {"F8_E4M3", "float8_e4m3fn", 8},
        {"F8_E8M0", "float8_e8m0fnu", 8},
        {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
        {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
        {"F6_E2M3", "float6_e2m3fn", 6},
        {"F6_E3M2", "float6_e3m2fn", 6},
        {"F4", "float4_e2m1fn", 4},
    };
    for (const auto& type : types) {
        const std::uint64_t bytes = 5 * 8 * type.bits / 8;
        table_layout rows;
        const status s = describe_safetensors(
            made("m.safetensors",
                 safetensors_bytes("{" + entry_text("t", type.in_file, "[5,8]", 0, bytes) + "}",
                                   bytes)),
            "", rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.dtype, type.dtype);
        EXPECT_EQ(rows.row_bytes, type.bits) << type.in_file;
        EXPECT_EQ(rows.rows(), 5u) << type.in_file;
    }
}

TEST_F(safetensors_files, a_row_of_no_whole_bytes_is_refused) {
    const std::string path = made(
        "m.safetensors", safetensors_bytes("{" + entry_text("t", "F4", "[2,3]", 0, 3) + "}", 3));
    table_layout rows;
    expect_refused(describe_safetensors(path, "t", rows), -EOPNOTSUPP,
                   "a row has 12 bits (shape 2 x 3 of float4_e2m1fn)", rows);
}

TEST_F(safetensors_files, an_unknown_dtype_does_not_hide_the_other_tensors) {
    const std::string path = made(
        "m.safetensors", safetensors_bytes("{" + entry_text("new", "F128", "[2]", 0, 32) + "," +
                                               entry_text("old", "U8", "[2,4]", 32, 40) + "}",
                                           40));
    table_layout rows;
    expect_refused(describe_safetensors(path, "new", rows), -EOPNOTSUPP,
                   "tensor 'new': the dtype 'F128' is not known", rows);
    EXPECT_TRUE(describe_safetensors(path, "old", rows));
    EXPECT_EQ(rows.rows(), 2u);
}

TEST_F(safetensors_files, names_are_compared_whole_and_messages_stay_one_line) {
    const std::string path =
        made("m.safetensors",
             safetensors_bytes("{" + entry_text("a\\n\\u0007b*", "U8", "[2,4]", 0, 8) + "}", 8));
    table_layout rows;
    expect_refused(describe_safetensors(path, "a", rows), -ENOENT, "1 tensor: 'a??b*'", rows);
    EXPECT_TRUE(describe_safetensors(path,
                                     "a\n\x07"
                                     "b*",
                                     rows));
}

TEST_F(safetensors_files, a_pattern_joins_tensors_of_one_file) {
    const std::string bytes =
        safetensors_bytes("{" + entry_text("t.10", "U8", "[1,4]", 0, 4) + "," +
                              entry_text("t.2", "U8", "[3,4]", 4, 16) + "}",
                          16);
    const std::string path = made("m.safetensors", bytes);
    table_layout rows;
    const status s = describe(path, "t.*", rows);
    ASSERT_TRUE(s.ok()) << s.message;
    const std::uint64_t begin = bytes.size() - 16;
    EXPECT_EQ(rows.pieces, (std::vector<table_piece>{{path, begin + 4, 3}, {path, begin, 1}}));
    EXPECT_EQ(rows.rows(), 4u);
}

}  // namespace penstock::test
