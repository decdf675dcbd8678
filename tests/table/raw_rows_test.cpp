// Rows described by numbers, the choice of a format by the name, and odd files in place of good
// ones.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include "table/support.hpp"

namespace penstock::test {

class raw_files : public table_folder {};

TEST_F(raw_files, as_many_rows_as_the_file_has) {
    const std::string path = made("rows", std::string(1000, 'x'));
    struct {
        raw_rows asked;
        std::uint64_t row_bytes, stride_bytes, rows;
    } const cases[] = {
        {{.row_bytes = 10}, 10, 10, 100},
        {{.row_bytes = 1000}, 1000, 1000, 1},
        {{.row_bytes = 10, .first_byte = 500}, 10, 10, 50},
        {{.row_bytes = 10, .stride_bytes = 16, .first_byte = 8}, 10, 16, 62},
        {{.row_bytes = 8, .stride_bytes = 16}, 8, 16, 63},  // no padding behind the last
        {{.row_bytes = 10, .stride_bytes = 16, .rows = 3}, 10, 16, 3},
        {{.row_bytes = 7, .rows = 142}, 7, 7, 142},
        {{.first_byte = 8, .dtype = "float32", .row_shape = {2, 4}}, 32, 32, 31},
        {{.row_bytes = 4, .dtype = "float4_e2m1fn", .row_shape = {8}}, 4, 4, 250},
        {{.dtype = "uint8"}, 1, 1, 1000},
    };
    for (const auto& good : cases) {
        table_layout rows;
        const status s = describe_raw(path, good.asked, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.row_bytes, good.row_bytes);
        EXPECT_EQ(rows.stride_bytes, good.stride_bytes);
        EXPECT_EQ(rows.dtype, good.asked.dtype);
        EXPECT_EQ(rows.row_shape, good.asked.row_shape);
        EXPECT_EQ(rows.pieces,
                  (std::vector<table_piece>{{path, good.asked.first_byte, good.rows}}));
        expect_inside(rows, "");
    }
}

TEST_F(raw_files, numbers_that_do_not_go_together) {
    const std::string path = made("rows", std::string(1000, 'x'));
    constexpr std::uint64_t most = ~std::uint64_t{0};
    struct {
        raw_rows asked;
        int code;
        const char* words;
    } const cases[] = {
        {{}, -EINVAL, "row_bytes is 0"},
        {{.row_bytes = 10, .stride_bytes = 9}, -EINVAL, "stride_bytes is 9, less than the 10"},
        {{.row_bytes = 7},
         -EINVAL,
         "142 rows of 7 bytes from byte 0 on, in 1000 bytes, and a part"},
        {{.row_bytes = 10, .rows = 101}, -EINVAL, "and 101 are asked for"},
        {{.row_bytes = 10, .rows = most}, -EINVAL, "are asked for"},
        {{.row_bytes = 1001}, -EINVAL, "0 rows of 1001 bytes"},
        {{.row_bytes = most, .stride_bytes = most, .first_byte = most, .rows = most}, -EINVAL, ""},
        {{.row_bytes = 10, .first_byte = 1000}, -ENODATA, "0 rows of 10 bytes from byte 1000 on"},
        {{.row_bytes = 10, .first_byte = most}, -ENODATA, "0 rows"},
        {{.row_bytes = 10, .row_shape = {10}}, -EINVAL, "row_shape without a dtype"},
        {{.row_bytes = 10, .dtype = "float33"}, -EINVAL, "'float33' is not known"},
        {{.row_bytes = 10, .dtype = "float32", .row_shape = {2}}, -EINVAL, "has 8 bytes"},
        {{.dtype = "float4_e2m1fn", .row_shape = {3}}, -EINVAL, "12 bits"},
        {{.dtype = "float32", .row_shape = {3, 0}}, -EINVAL, "has no bytes"},
        {{.dtype = "float32", .row_shape = {most, most}}, -EINVAL, "too large"},
        {{.dtype = "float32", .row_shape = std::vector<std::uint64_t>(65, 1)},
         -EINVAL,
         "too large"},
    };
    for (const auto& refusal : cases) {
        table_layout rows;
        expect_refused(describe_raw(path, refusal.asked, rows), refusal.code, refusal.words, rows);
    }
}

TEST_F(raw_files, the_name_chooses_the_format) {
    const std::string npy = made("a.npy", npy_bytes(npy_text("<f4", "(3, 5)"), 60));
    table_layout rows;
    EXPECT_TRUE(describe(npy, "", rows));
    EXPECT_EQ(rows.rows(), 3u);
    rows = {};
    expect_refused(describe(npy, "a", rows), -EINVAL, "leave the name empty", rows);
    expect_refused(describe(made("a.bin", "x"), "", rows), -EINVAL, "describe_raw", rows);
    expect_refused(describe(at("gone.safetensors"), "t", rows), -ENOENT, "gone.safetensors", rows);
    expect_refused(describe(at("gone"), "t", rows), -ENOENT, "gone: No such file", rows);
}

TEST_F(raw_files, odd_files_are_refused_by_name_and_none_waits) {
    ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
    ASSERT_EQ(::symlink(at("pipe").c_str(), at("link").c_str()), 0);
    ASSERT_EQ(::symlink("nowhere", at("broken").c_str()), 0);
    struct {
        std::string path;
        int code;
    } const cases[] = {{at("pipe"), -EOPNOTSUPP},
                       {at("link"), -EOPNOTSUPP},
                       {"/dev/zero", -EOPNOTSUPP},
                       {"/proc/self/status", -EOPNOTSUPP},
                       {folder, -EISDIR},
                       {at("broken"), -ENOENT},
                       {at("gone/file"), -ENOENT},
                       {"", -EINVAL},
                       {at(std::string("a\0b", 3)), -EINVAL}};
    for (const auto& odd : cases) {
        table_layout rows;
        const std::string words = odd.path.substr(0, odd.path.find('\0'));
        expect_refused(describe_raw(odd.path, {.row_bytes = 1}, rows), odd.code, words, rows);
        expect_refused(describe_npy(odd.path, rows), odd.code, words, rows);
        expect_refused(describe_safetensors(odd.path, "t", rows), odd.code, words, rows);
        if (odd.path != folder) {
            expect_refused(describe_checkpoint(odd.path, "t", rows), odd.code, words, rows);
        }
    }
}

TEST_F(raw_files, a_link_to_a_file_is_that_file) {
    const std::string path = made("rows", std::string(1000, 'x'));
    ASSERT_EQ(::symlink(path.c_str(), at("link").c_str()), 0);
    table_layout rows;
    EXPECT_TRUE(describe_raw(at("link"), {.row_bytes = 10}, rows));
    EXPECT_EQ(rows.pieces[0].path, at("link"));
}

TEST_F(raw_files, a_relative_name_is_of_the_folder_where_it_was_described) {
    static_cast<void>(made("rows", std::string(1000, 'x')));
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder);
    table_layout rows;
    const status s = describe_raw("./rows", {.row_bytes = 10}, rows);
    std::filesystem::current_path(before);
    ASSERT_TRUE(s.ok()) << s.message;
    ASSERT_TRUE(rows.pieces[0].path.starts_with('/')) << rows.pieces[0].path;
    EXPECT_TRUE(std::filesystem::equivalent(rows.pieces[0].path, at("rows")));
}

TEST(table_layouts, count_the_rows_of_all_pieces) {
    EXPECT_EQ(table_layout{}.rows(), 0u);
    table_layout rows;
    rows.pieces = {{"a", 0, 3}, {"b", 0, 4}};
    EXPECT_EQ(rows.rows(), 7u);
}

}  // namespace penstock::test
