// Damaged and hostile headers: each is refused with its code and a line that says what is wrong.
#include <gtest/gtest.h>

#include "table/support.hpp"

namespace penstock::test {

class damaged_files : public table_folder {
protected:
    void refused_npy(const std::string& bytes, const std::string& words) const {
        table_layout rows;
        const std::string path = made("a.npy", bytes);
        const status s = describe_npy(path, rows);
        expect_refused(s, -EBADMSG, words, rows);
        EXPECT_TRUE(s.message.starts_with(path + ": ")) << s.message;
    }
    void refused_safetensors(const std::string& bytes, const std::string& words) const {
        table_layout rows;
        const std::string path = made("m.safetensors", bytes);
        const status s = describe_safetensors(path, "t", rows);
        expect_refused(s, -EBADMSG, words, rows);
        EXPECT_TRUE(s.message.starts_with(path + ": ")) << s.message;
    }
    void refused_header(const std::string& header, const std::string& words) const {
        refused_safetensors(safetensors_bytes(header, 40), words);
    }
};

TEST_F(damaged_files, npy_files_that_end_early_or_begin_wrong) {
    const std::string good = npy_bytes(npy_text("<f4", "(3, 5)"), 60);
    refused_npy("", "has 0 bytes, too few");
    refused_npy(good.substr(0, 7), "has 7 bytes, too few");
    refused_npy(good.substr(0, 9), "ends at byte 9, in the length");
    refused_npy(good.substr(0, 60), "claims a header of 118 bytes and has 60 bytes in all");
    refused_npy(good.substr(0, good.size() - 1),
                "has 59 bytes behind its header, and the shape 3 x 5 of '<f4' takes 3 rows of 20");
    refused_npy("PK" + good, "does not begin with \\x93NUMPY");
    refused_npy(npy_bytes(npy_text("<f4", "(3, 5)"), 60, 4), "has version 4.0");
    refused_npy("\x93NUMPY\x01\x01" + good.substr(8), "has version 1.1");
    refused_npy("\x93NUMPY" + std::string("\x02\0\xff\xff\xff\xff{}", 8),
                "claims a header of 4294967295 bytes");
}

TEST_F(damaged_files, npy_headers_that_are_no_dictionary) {
    const auto refused = [&](const std::string& header, const std::string& words) {
        refused_npy(npy_bytes(header, 60), words);
    };
    const std::string rest = "'fortran_order': False, 'descr': '<f4', ";
    refused("", "byte 54 of the header should be '{'");
    refused("[1, 2]", "byte 0 of the header should be '{' and is '['");
    refused("{", "should be a text in quotes");
    refused("{'descr", "should be a text that ends");
    refused("{'descr' '<f4'}", "should be ':'");
    refused("{'descr': <f4}", "should be a text in quotes and is '<'");
    refused("{'descr': '<f\\x34'}", "should be a text that ends");
    refused("{'descr': '<f4' 'shape': (3,)}", "should be ',' or '}' and is '''");
    refused(npy_text("<f4", "(3,)") + "x", "should be the end and is 'x'");
    refused("{" + rest + "}", "the key 'shape' is missing");
    refused("{'shape': (3,), 'descr': '<f4'}", "the key 'fortran_order' is missing");
    refused("{'shape': (3,), 'fortran_order': False}", "the key 'descr' is missing");
    refused("{" + rest + "'shape': (3,), 'shape': (3,)}", "the key 'shape' twice");
    refused("{" + rest + "'shape': (3,), 'extra': 1}", "the key 'extra', which the format");
    refused(npy_text("<f4", "(3,)", "None"), "fortran_order is 'None', neither");
    refused(npy_text("<f4", "3"), "should be '(' of the shape and is '3'");
    refused(npy_text("<f4", "[3]"), "should be '(' of the shape and is '['");
    refused(npy_text("<f4", "(3)"), "should be ',' of a shape of one dimension");
    refused(npy_text("<f4", "(3 5)"), "should be ',' or ')'");
    refused(npy_text("<f4", "(3,"), "should be a value");
    refused(npy_text("<f4", "(-3, 5)"), "the shape has '-3', no whole number");
    refused(npy_text("<f4", "(3.5,)"), "should be ',' or ')' and is '.'");
    refused(npy_text("<f4", "(0x10,)"), "the shape has '0x10'");
    refused(npy_text("<f4", "(L,)"), "the shape has 'L'");
    refused(npy_text("<f4", "(18446744073709551616,)"), "the shape has '18446744073709551616'");
    std::string ones;
    for (int i = 0; i < 65; ++i) ones += "1,";
    refused(npy_text("<f4", "(" + ones + ")"), "more than 64 dimensions");
}

TEST_F(damaged_files, npy_shapes_that_are_too_large) {
    const auto refused = [&](const std::string& descr, const std::string& shape,
                             const std::string& words) {
        refused_npy(npy_bytes(npy_text(descr, shape), 60), words);
    };
    refused("<f4", "(4294967296, 4294967296)", "more bytes than 64 bits can count");
    refused("<f8", "(1152921504606846976,)", "more bytes than 64 bits can count");
    refused("<f8", "(2, 288230376151711744)", "more bytes than 64 bits can count");
    refused("<f8", "(144115188075855872, 1)", "has 60 bytes behind its header");
    refused("|V2305843009213693952", "(1,)", "too large for a file");
    refused("|V2305843009213693951", "(8,)", "more bytes than 64 bits can count");
}

TEST_F(damaged_files, safetensors_files_that_end_early_or_begin_wrong) {
    const std::string good =
        safetensors_bytes("{" + entry_text("t", "F32", "[2,5]", 0, 40) + "}", 40);
    refused_safetensors("", "has 0 bytes, too few");
    refused_safetensors(good.substr(0, 7), "has 7 bytes, too few");
    refused_safetensors(good.substr(0, 8), "claims a header of 64 bytes and has 8 bytes in all");
    refused_safetensors(good.substr(0, 63), "claims a header of 64 bytes and has 63 bytes");
    refused_safetensors(good.substr(0, good.size() - 1),
                        "tensor 't': data_offsets end at 40, and 39 bytes follow the header");
    refused_safetensors(good + "x", "the last tensor ends at byte 112, and the file has 113 bytes");
    refused_safetensors(little_endian(0, 8) + good.substr(8), "does not begin with '{'");
    refused_safetensors(little_endian(100'000'001, 8) + good.substr(8),
                        "a header of 100000001 bytes, more than the 100000000");
    refused_safetensors(little_endian(~std::uint64_t{0}, 8) + good.substr(8),
                        "a header of 18446744073709551615 bytes");
}

TEST_F(damaged_files, safetensors_headers_that_are_no_object) {
    refused_header(" {}", "does not begin with '{'");
    refused_header("[]", "does not begin with '{'");
    refused_header("{", "the header is no JSON from byte");
    refused_header("{\"t\":1}}", "the header is no JSON from byte");
    refused_header("{\"t\":\"\xff\"}", "the header is no JSON from byte");
    refused_header("{\"t\":1e999}", "the header is no JSON from byte");
    refused_header(std::string("{}\0\0", 4), "has a zero byte at byte 2");
    refused_header("{\"t\":" + std::string(1'000'000, '['), "nested deeper than 32 levels");
    std::string objects;
    for (int i = 0; i < 100'000; ++i) objects += "{\"t\":";
    refused_header(objects, "nested deeper than 32 levels");
    refused_header("{\"t\":1,\"t\":1}", "the key 't' twice");
    refused_header("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "the key 'dtype' twice");
    refused_header("{\"__metadata__\":[]}", "'__metadata__' is a list, no object of texts");
    refused_header("{\"__metadata__\":{\"a\":1}}", "'__metadata__' has 1 for 'a', no text");
}

TEST_F(damaged_files, safetensors_entries_that_are_wrong) {
    const auto refused = [&](const std::string& dtype, const std::string& shape,
                             const std::string& offsets, const std::string& words) {
        refused_header("{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
                           ",\"data_offsets\":" + offsets + "}}",
                       "tensor 't': " + words);
    };
    refused_header("{\"t\":[]}", "tensor 't': is a list, no object");
    refused_header("{\"t\":{\"shape\":[2],\"data_offsets\":[0,2]}}", "the key 'dtype' is missing");
    refused_header("{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,2]}}", "the key 'shape' is");
    refused_header("{\"t\":{\"dtype\":\"U8\",\"shape\":[2]}}", "the key 'data_offsets' is missing");
    refused("8", "[40]", "[0,40]", "the dtype is 8, no text");
    refused("\"U8\"", "40", "[0,40]", "the shape is 40, no list of numbers");
    refused("\"U8\"", "[-40]", "[0,40]", "the shape has -40, no whole number");
    refused("\"U8\"", "[40.0]", "[0,40]", "the shape has 40.0, no whole number");
    refused("\"U8\"", "[18446744073709551616]", "[0,40]", "the shape has 18446744073709551616,");
    refused("\"U8\"", "[null]", "[0,40]", "the shape has null");
    refused("\"U8\"", "[[40]]", "[0,40]", "the shape has a list");
    refused("\"U8\"", "[40]", "{}", "data_offsets is an object, no list of numbers");
    refused("\"U8\"", "[40]", "[40]", "data_offsets is a list of 1, not of a begin and an end");
    refused("\"U8\"", "[40]", "[0,40,40]", "data_offsets has 3 numbers, more than 2");
    refused("\"U8\"", "[40]", "[40,0]", "data_offsets end at 0, before their begin 40");
    refused("\"U8\"", "[40]", "[-1,40]", "data_offsets has -1, no whole number");
    refused("\"U8\"", "[41]", "[0,41]", "data_offsets end at 41, and 40 bytes follow the header");
    refused("\"U8\"", "[40]", "[0,18446744073709551615]", "data_offsets end at 184467440737095516");
    refused("\"U8\"", "[39]", "[0,40]", "data_offsets span 40 bytes, and 39 of U8 take 39");
    refused("\"F32\"", "[2,4]", "[0,40]", "data_offsets span 40 bytes, and 2 x 4 of F32 take 32");
    refused("\"F4\"", "[79]", "[0,40]",
            "data_offsets span 40 bytes, and 79 of F4 take 39 and a part of one");
    refused("\"F64\"", "[4294967296,4294967296]", "[0,40]",
            "the shape 4294967296 x 4294967296 has more bytes than 64 bits can count");
    refused("\"F64\"", "[2305843009213693957]", "[0,40]",
            "the shape 2305843009213693957 has more bytes than 64 bits can count");
    std::string ones;
    for (int i = 0; i < 65; ++i) ones += (i == 0 ? "1" : ",1");
    refused("\"U8\"", "[" + ones + "]", "[0,40]", "the shape has 65 numbers, more than 64");
}

TEST_F(damaged_files, safetensors_tensors_that_overlap_or_leave_holes) {
    refused_header("{" + entry_text("t", "U8", "[24]", 0, 24) + "," +
                       entry_text("u", "U8", "[20]", 20, 40) + "}",
                   "tensors 't' and 'u' overlap at byte ");
    refused_header("{" + entry_text("t", "U8", "[40]", 0, 40) + "," +
                       entry_text("u", "U8", "[40]", 0, 40) + "}",
                   "tensors 't' and 'u' overlap");
    refused_header("{" + entry_text("t", "U8", "[30]", 10, 40) + "}",
                   "between the header and tensor 't' belong to no tensor");
    refused_header("{" + entry_text("t", "U8", "[10]", 0, 10) + "," +
                       entry_text("u", "U8", "[20]", 20, 40) + "}",
                   "between 't' and tensor 'u' belong to no tensor");
    refused_header("{" + entry_text("t", "U8", "[10]", 0, 10) + "}",
                   "the last tensor ends at byte");
    refused_header("{}", "the last tensor ends at byte");
}

TEST_F(damaged_files, a_header_with_millions_of_values_is_refused) {
    std::string header = "{\"t\":[0";
    header.reserve(9'000'000);
    for (int i = 0; i < 4'000'000; ++i) header += ",0";
    refused_header(header + "]}", "has more than 4000000 values");
}

}  // namespace penstock::test
