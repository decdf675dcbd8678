// Element types by the names that numpy and safetensors have for them, and the rows of an array of
// such elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/table_layout.hpp"

namespace penstock::formats {

struct element_type {
    std::string_view name;         // as table_layout::dtype has it
    std::string_view safetensors;  // empty: that format has no such elements
    std::uint32_t bits;
};

// By either name; null: there is none.
const element_type* find_type(std::string_view name);
const element_type* find_safetensors_type(std::string_view name);

// An array in C order, as a header has it.
struct array {
    std::string_view dtype;  // empty: raw bytes
    std::uint64_t element_bits = 0;
    std::vector<std::uint64_t> shape;
};

// Most dimensions that an array may have.
inline constexpr std::size_t most_dimensions = 64;

// The bits of all elements. False: more than 64 bits can count.
bool count_bits(const std::vector<std::uint64_t>& shape, std::uint64_t element_bits,
                std::uint64_t& bits);

// Takes the first dimension for the rows, and fills `out` but for its pieces, and `rows`. `subject`
// begins the message: "FILE: tensor 'x'". -EOPNOTSUPP, -ENODATA, -EBADMSG.
status rows_of(const array& whole, const std::string& subject, table_layout& out,
               std::uint64_t& rows);

// "2 x 3", "without dimensions".
std::string shape_text(const std::vector<std::uint64_t>& shape);

// A name that stands in a file, between single quotes, on one line and not too long for a message.
std::string in_quotes(std::string_view name);

}  // namespace penstock::formats
