#include "table/elements.hpp"

#include <algorithm>
#include <cerrno>

namespace penstock::formats {

namespace {

constexpr element_type types[] = {
    {"bool", "BOOL", 8},
    {"uint8", "U8", 8},
    {"int8", "I8", 8},
    {"uint16", "U16", 16},
    {"int16", "I16", 16},
    {"uint32", "U32", 32},
    {"int32", "I32", 32},
    {"uint64", "U64", 64},
    {"int64", "I64", 64},
    {"float16", "F16", 16},
    {"bfloat16", "BF16", 16},
    {"float32", "F32", 32},
    {"float64", "F64", 64},
    {"complex64", "C64", 64},
    {"complex128", "", 128},
    {"float8_e5m2", "F8_E5M2", 8},
    {"float8_e4m3fn", "F8_E4M3", 8},
    {"float8_e8m0fnu", "F8_E8M0", 8},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ", 8},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ", 8},
    {"float6_e2m3fn", "F6_E2M3", 6},
    {"float6_e3m2fn", "F6_E3M2", 6},
    {"float4_e2m1fn", "F4", 4},
};

const element_type* type_with(std::string_view element_type::*which, std::string_view name) {
    const auto* const found =
        std::find_if(std::begin(types), std::end(types),
                     [&](const element_type& type) { return type.*which == name; });
    return name.empty() || found == std::end(types) ? nullptr : found;
}

}  // namespace

const element_type* find_type(std::string_view name) {
    return type_with(&element_type::name, name);
}

const element_type* find_safetensors_type(std::string_view name) {
    return type_with(&element_type::safetensors, name);
}

bool count_bits(const std::vector<std::uint64_t>& shape, std::uint64_t element_bits,
                std::uint64_t& bits) {
    bits = element_bits;
    if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) bits = 0;
    return std::all_of(shape.begin(), shape.end(), [&](std::uint64_t extent) {
        return !__builtin_mul_overflow(bits, extent, &bits);
    });
}

status rows_of(const array& whole, const std::string& subject, table_layout& out,
               std::uint64_t& rows) {
    if (whole.shape.empty())
        return {-EOPNOTSUPP, subject +
                                 ": is one scalar, without dimensions, and has no rows; save "
                                 "it with a first dimension that counts rows"};
    const std::vector<std::uint64_t> row_shape(whole.shape.begin() + 1, whole.shape.end());
    std::uint64_t row_bits = 0, all_bits = 0;
    if (!count_bits(row_shape, whole.element_bits, row_bits) ||
        !count_bits(whole.shape, whole.element_bits, all_bits))
        return {-EBADMSG, subject + ": the shape " + shape_text(whole.shape) +
                              " has more bytes than 64 bits can count; the file is damaged, copy "
                              "it from its source"};
    if (whole.shape[0] == 0)
        return {-ENODATA, subject + ": has 0 rows (shape " + shape_text(whole.shape) +
                              "); leave it out, or save it with rows"};
    if (row_bits == 0)
        return {-ENODATA, subject + ": has rows of 0 bytes (shape " + shape_text(whole.shape) +
                              "); leave it out, or save it with elements"};
    if (row_bits % 8 != 0)
        return {-EOPNOTSUPP, subject + ": a row has " + std::to_string(row_bits) + " bits (shape " +
                                 shape_text(whole.shape) + " of " + std::string(whole.dtype) +
                                 "), no whole number of bytes; save it with padded rows"};
    rows = whole.shape[0];
    out.row_bytes = out.stride_bytes = row_bits / 8;
    out.dtype = whole.dtype;
    out.row_shape = whole.dtype.empty() ? std::vector<std::uint64_t>{} : row_shape;
    return {};
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
    if (shape.empty()) return "without dimensions";
    std::string out;
    for (const std::uint64_t extent : shape)
        out += (out.empty() ? "" : " x ") + std::to_string(extent);
    return out;
}

std::string in_quotes(std::string_view name) {
    constexpr std::size_t most = 120;
    std::string out = "'";
    for (const char c : name.substr(0, most))
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    return out + (name.size() > most ? "...'" : "'");
}

}  // namespace penstock::formats
