// Checkpoints: an index and many files, tensors in natural order, and what does not fit together.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sys/stat.h>

#include "table/safetensors.hpp"
#include "table/support.hpp"

namespace penstock::test {

class checkpoints : public table_folder {
protected:
    struct tensor {
        std::string name, file, dtype;
        std::uint64_t rows = 0, columns = 0;
    };

    // Writes the files with an index, and notes where each tensor begins.
    void write(const std::vector<tensor>& tensors) {
        std::map<std::string, std::vector<const tensor*>> by_file;
        for (const tensor& t : tensors) by_file[t.file].push_back(&t);
        std::string map;
        for (const auto& [file, inside] : by_file) {
            std::string header;
            std::uint64_t end = 0;
            for (const tensor* const t : inside) {
                const std::uint64_t bytes = t->rows * t->columns * (t->dtype == "F32" ? 4 : 1);
                const std::string shape =
                    "[" + std::to_string(t->rows) + "," + std::to_string(t->columns) + "]";
                header += (header.empty() ? "{" : ",") +
                          entry_text(t->name, t->dtype, shape, end, end + bytes);
                begins[t->name] = end;
                end += bytes;
                map += (map.empty() ? "\"" : ",\"") + t->name + "\":\"" + file + "\"";
            }
            const std::string bytes = safetensors_bytes(header + "}", end);
            made(file, bytes);
            for (const tensor* const t : inside) begins[t->name] += bytes.size() - end;
        }
        index = made("model.safetensors.index.json",
                     "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + map + "}}");
    }

    std::string index;
    std::map<std::string, std::uint64_t> begins;
};

TEST_F(checkpoints, a_table_of_128_tensors_in_10_files) {
    std::vector<tensor> tensors;
    for (std::uint64_t i = 0; i < 128; ++i)
        tensors.push_back({"ple.ngram.shard_" + std::to_string(i),
                           "part-" + std::to_string(i * 7 % 10) + ".safetensors", "F32", i % 5 + 1,
                           16});
    tensors.push_back({"ple.ngram.scale", "part-3.safetensors", "U8", 2, 1});
    tensors.push_back({"other.shard_1", "part-4.safetensors", "U8", 2, 1});
    write(tensors);
    for (const std::string& path : {index, folder, folder + "/"}) {
        table_layout rows;
        const status s = describe_checkpoint(path, "ple.ngram.shard_*", rows);
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(rows.row_bytes, 64u);
        EXPECT_EQ(rows.dtype, "float32");
        EXPECT_EQ(rows.row_shape, std::vector<std::uint64_t>{16});
        ASSERT_EQ(rows.pieces.size(), 128u);
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < 128; ++i) {
            const tensor& t = tensors[i];
            EXPECT_EQ(rows.pieces[i], (table_piece{at(t.file), begins[t.name], t.rows})) << i;
            sum += t.rows;
        }
        EXPECT_EQ(rows.rows(), sum);
        expect_inside(rows, path);
        table_layout same;
        ASSERT_TRUE(describe(path, "ple.ngram.shard_*", same));
        EXPECT_EQ(same, rows);
    }
}

TEST_F(checkpoints, a_name_stands_for_one_tensor) {
    write({{"a.1", "x/part.safetensors", "U8", 2, 3}, {"a.11", "y.safetensors", "U8", 4, 3}});
    table_layout rows;
    ASSERT_TRUE(describe_checkpoint(index, "a.1", rows));
    EXPECT_EQ(rows.pieces,
              (std::vector<table_piece>{{at("x/part.safetensors"), begins["a.1"], 2}}));
}

TEST_F(checkpoints, only_files_with_a_match_are_read) {
    write({{"a", "x.safetensors", "U8", 2, 3}, {"b", "y.safetensors", "U8", 4, 3}});
    std::filesystem::remove(at("y.safetensors"));
    table_layout rows;
    EXPECT_TRUE(describe_checkpoint(index, "a", rows));
    rows = {};
    expect_refused(describe_checkpoint(index, "b", rows), -ENOENT, at("y.safetensors"), rows);
    expect_refused(describe_checkpoint(index, "*", rows), -ENOENT, "has tensor 'b' in it", rows);
}

TEST_F(checkpoints, a_folder_with_one_file_needs_no_index) {
    const std::string bytes =
        safetensors_bytes("{" + entry_text("t", "U8", "[2,4]", 0, 8) + "}", 8);
    made("model.safetensors", bytes);
    table_layout rows;
    ASSERT_TRUE(describe(folder, "t", rows));
    EXPECT_EQ(rows.pieces[0].path, at("model.safetensors"));
    std::filesystem::remove(at("model.safetensors"));
    rows = {};
    expect_refused(describe(folder, "t", rows), -ENOENT,
                   "has neither model.safetensors.index.json nor model.safetensors", rows);
}

TEST_F(checkpoints, tensors_that_differ_are_named_with_their_files) {
    write({{"a.1", "x.safetensors", "U8", 2, 3},
           {"a.2", "y.safetensors", "I8", 4, 3},
           {"b.1", "x.safetensors", "U8", 2, 3},
           {"b.2", "y.safetensors", "U8", 2, 4}});
    table_layout rows;
    expect_refused(describe_checkpoint(index, "a.*", rows), -EINVAL,
                   "tensors 'a.1' (" + at("x.safetensors") + ") and 'a.2' (" + at("y.safetensors") +
                       ") differ in their dtype, uint8 and int8",
                   rows);
    expect_refused(describe_checkpoint(index, "b.*", rows), -EINVAL,
                   "tensors 'b.1' (" + at("x.safetensors") + ") and 'b.2' (" + at("y.safetensors") +
                       ") differ in the shape of a row, 3 and 4",
                   rows);
}

TEST_F(checkpoints, an_index_that_does_not_fit_its_files) {
    write({{"a", "x.safetensors", "U8", 2, 3}});
    const auto refused = [&](const std::string& text, int code, const std::string& words) {
        table_layout rows;
        const std::string path = made("bad.safetensors.index.json", text);
        expect_refused(describe(path, "a*", rows), code, words, rows, text);
    };
    const auto map = [](const std::string& text) { return "{\"weight_map\":{" + text + "}}"; };
    refused(map("\"ab\":\"x.safetensors\""), -EBADMSG, "has no tensor 'ab'");
    refused(map("\"a\":\"../x.safetensors\""), -EBADMSG, "leaves the folder of the index");
    refused(map("\"a\":\"y/../../x.safetensors\""), -EBADMSG, "leaves the folder of the index");
    refused(map("\"a\":\"y/..\""), -EBADMSG, "leaves the folder of the index");
    refused(map("\"a\":\"/etc/passwd\""), -EBADMSG, "an absolute path");
    refused(map("\"a\":\"\""), -EBADMSG, "which is no name");
    refused(map("\"a\":\"x.safetensors\\u0000y\""), -EBADMSG, "control characters");
    refused(map("\"a\":\"x\\ny\""), -EBADMSG, "control characters");
    refused(map("\"a\":7"), -EBADMSG, "has 7 for tensor 'a', no file");
    refused(map("\"a\":\"gone.safetensors\""), -ENOENT, "gone.safetensors");
    refused(map("\"a\":\".\""), -EISDIR, "is a directory");
    refused(map("\"a\":\"x.safetensors\",\"a\":\"x.safetensors\""), -EBADMSG, "the key 'a' twice");
    refused(map("\"b\":\"x.safetensors\""), -ENOENT,
            "no tensor matches 'a*'; it has 1 tensor: 'b'");
    refused(map(""), -ENOENT, "it has 0 tensors");
    refused("{\"metadata\":{}}", -EBADMSG, "has no 'weight_map'");
    refused("{\"weight_map\":[]}", -EBADMSG, "'weight_map' is a list, no object");
    refused("[]", -EBADMSG, "the index is no JSON object");
    refused("{\"weight_map\":", -EBADMSG, "the index is no JSON from byte");
    refused("", -EBADMSG, "the index is no JSON from byte");
    refused("{\"a\":" + std::string(100'000, '['), -EBADMSG, "nested deeper than 32 levels");
}

TEST_F(checkpoints, odd_files_among_the_shards) {
    write({{"a", "x.safetensors", "U8", 2, 3}, {"b", "y.safetensors", "U8", 4, 3}});
    std::filesystem::remove(at("x.safetensors"));
    ASSERT_EQ(::mkfifo(at("x.safetensors").c_str(), 0600), 0);
    std::filesystem::resize_file(at("y.safetensors"),
                                 std::filesystem::file_size(at("y.safetensors")) - 1);
    table_layout rows;
    expect_refused(describe_checkpoint(index, "a", rows), -EOPNOTSUPP,
                   at("x.safetensors") + ": is no regular file", rows);
    expect_refused(describe_checkpoint(index, "b", rows), -EBADMSG,
                   at("y.safetensors") + ": tensor 'b': data_offsets end at 12, and 11 bytes",
                   rows);
    // Sparse: it takes no room.
    std::filesystem::resize_file(index, 100'000'001);
    expect_refused(describe_checkpoint(index, "a", rows), -EBADMSG,
                   "has 100000001 bytes, more than the 100000000 of an index", rows);
}

TEST(names_of_tensors, patterns_match_whole_names) {
    using formats::matches;
    EXPECT_TRUE(matches("*", ""));
    EXPECT_TRUE(matches("*", "a.b/c"));
    EXPECT_TRUE(matches("shard_*", "shard_"));
    EXPECT_TRUE(matches("a*b*c", "a-b-b-c"));
    EXPECT_TRUE(matches("*.weight", "x.weight.weight"));
    EXPECT_TRUE(matches("a**b", "ab"));
    EXPECT_FALSE(matches("shard_*", "a.shard_1"));
    EXPECT_FALSE(matches("*.weight", "x.weights"));
    EXPECT_FALSE(matches("a*b*c", "a-c-b"));
    EXPECT_FALSE(matches("a?", "ab"));
    EXPECT_FALSE(matches("", "a"));
    EXPECT_FALSE(matches(std::string(2000, '*') + "b", std::string(2000, 'a')));
}

TEST(names_of_tensors, numbers_in_names_count_as_such) {
    const std::vector<std::string> sorted = {"a",
                                             "a.0.b",
                                             "a.1.b2",
                                             "a.1.b10",
                                             "a.2.b1",
                                             "a.10.b1",
                                             "a.010.b2",
                                             "a.10.b2",
                                             "b",
                                             "shard_2",
                                             "shard_10",
                                             "shard_10x",
                                             "shard_99999999999999999999999",
                                             "shard_100000000000000000000000",
                                             "shard_a",
                                             "\xc3\xa9"};
    for (std::size_t i = 0; i < sorted.size(); ++i)
        for (std::size_t k = 0; k < sorted.size(); ++k)
            EXPECT_EQ(formats::comes_before(sorted[i], sorted[k]), i < k)
                << sorted[i] << " " << sorted[k];
    EXPECT_TRUE(formats::comes_before("a.02", "a.2"));
    EXPECT_FALSE(formats::comes_before("a.2", "a.02"));
}

}  // namespace penstock::test
