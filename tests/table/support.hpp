// Files of the formats, written byte by byte as their descriptions say, and what a described table
// has to promise.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "penstock/table_layout.hpp"

namespace penstock::test {

// A folder that goes away with the test. (The unit tests have one too, with a runtime behind it.)
class table_folder : public ::testing::Test {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder = name;
    }
    void TearDown() override {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }

    std::string at(const std::string& name) const { return folder + "/" + name; }
    std::string made(const std::string& name, const std::string& bytes) const {
        std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
        // Some file systems wait for the disk where a file is cut to be written anew.
        std::filesystem::remove(at(name));
        std::ofstream out(at(name), std::ios::binary);
        out << bytes;
        out.close();
        EXPECT_TRUE(out.good()) << name;
        return at(name);
    }

    std::string folder;
};

inline std::string little_endian(std::uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
}

// An .npy file with this text as its header, padded as numpy does, and this many zero bytes behind.
inline std::string npy_bytes(std::string header, std::uint64_t data_bytes, int major = 1) {
    const std::size_t length_bytes = major == 1 ? 2 : 4;
    while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
    header += '\n';
    return "\x93NUMPY" + std::string{static_cast<char>(major), '\0'} +
           little_endian(header.size(), static_cast<int>(length_bytes)) + header +
           std::string(data_bytes, '\0');
}

inline std::string npy_text(const std::string& descr, const std::string& shape,
                            const std::string& fortran = "False") {
    return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

// A .safetensors file with this header and this many zero bytes behind it.
inline std::string safetensors_bytes(std::string header, std::uint64_t data_bytes) {
    while (header.size() % 8 != 0) header += ' ';
    return little_endian(header.size(), 8) + header + std::string(data_bytes, '\0');
}

inline std::string entry_text(const std::string& name, const std::string& dtype,
                              const std::string& shape, std::uint64_t begin, std::uint64_t end) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// Every byte of every row lies in its file.
inline void expect_inside(const table_layout& rows, const std::string& why) {
    EXPECT_GT(rows.row_bytes, 0u) << why;
    EXPECT_GE(rows.stride_bytes, rows.row_bytes) << why;
    EXPECT_FALSE(rows.pieces.empty()) << why;
    for (const table_piece& piece : rows.pieces) {
        std::error_code failed;
        const std::uint64_t size_bytes = std::filesystem::file_size(piece.path, failed);
        ASSERT_FALSE(failed) << piece.path << " " << why;
        ASSERT_GT(piece.rows, 0u) << why;
        ASSERT_LE(piece.first_byte, size_bytes) << why;
        const std::uint64_t there_bytes = size_bytes - piece.first_byte;
        ASSERT_LE(rows.row_bytes, there_bytes) << why;
        ASSERT_LE(piece.rows - 1, (there_bytes - rows.row_bytes) / rows.stride_bytes) << why;
    }
}

// It failed as it should: with this code and these words, in one line, and with `out` as it was.
inline void expect_refused(const status& ended, int code, const std::string& words,
                           const table_layout& out, const std::string& why = {}) {
    EXPECT_EQ(ended.code, code) << why << ": " << ended.message;
    EXPECT_NE(ended.message.find(words), std::string::npos)
        << why << ": '" << words << "' is not in: " << ended.message;
    EXPECT_EQ(ended.message.find('\n'), std::string::npos) << ended.message;
    EXPECT_EQ(out, table_layout{}) << why;
}

}  // namespace penstock::test
