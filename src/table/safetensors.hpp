// The header of a .safetensors file: which tensors it has, and where their bytes lie.
//
// The format: 8 bytes with the length of the header, lowest byte first; the header, a JSON object
// that begins with '{' and may end in spaces; the bytes of the tensors. An entry has a dtype, a
// shape and two offsets, which count from the end of the header. The key __metadata__ has texts.
// Tensors lie one behind the other up to the end of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/table_layout.hpp"

namespace penstock::formats {

// As the reference implementation has it.
inline constexpr std::uint64_t most_header_bytes = 100'000'000;

struct tensor_entry {
    std::string name;
    std::string dtype;  // the format's name for it, which may be one that is not known here
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes of the file
};

struct safetensors_header {
    std::vector<tensor_entry> tensors;  // by name

    [[nodiscard]] const tensor_entry* find(const std::string& name) const;
};

// Reads and checks the header, all tensors of it: the bytes of each lie in the file. -EBADMSG, or
// an error of the file.
status read_safetensors_header(const std::string& path, safetensors_header& out);

// The rows of one tensor as one piece.
status rows_of_tensor(const std::string& path, const tensor_entry& tensor, table_layout& out);

// For the message that a tensor is missing: "3 tensors: 'a', 'b', 'c'".
std::string list_of_names(const std::vector<std::string>& names);

// Names of tensors in a checkpoint: patterns that match them, and their order.
inline bool is_pattern(std::string_view text) { return text.find('*') != text.npos; }

// Each `*` stands for any characters or none, all else for itself. Takes at most the product of
// both lengths in steps, and no memory.
bool matches(std::string_view pattern, std::string_view name);

// True if `a` comes before `b` in natural order: runs of digits compare as the numbers that they
// are, of any length, and all else by bytes. A total order: names of equal numbers with different
// zeros before them (shard_2, shard_02) compare by bytes.
bool comes_before(std::string_view a, std::string_view b);

}  // namespace penstock::formats
