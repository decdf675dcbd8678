// Tensors of one .safetensors file, or of the many files of a checkpoint, as one table.
//
// An index is a JSON object whose member weight_map says for each tensor in which file it lies, by
// a name below the folder of the index.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <utility>

#include "os/exceptions.hpp"
#include "os/regular_file.hpp"
#include "penstock/table_layout.hpp"
#include "table/elements.hpp"
#include "table/safetensors.hpp"
#include "table/strict_json.hpp"

namespace penstock {

namespace formats {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits that `text` begins with, without zeros before them, away from it.
std::string_view take_number(std::string_view& text) {
    const auto* const end = std::find_if_not(text.begin(), text.end(), is_digit);
    std::string_view digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
    text.remove_prefix(digits.size());
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
}

int compared(std::size_t a, std::size_t b) { return a < b ? -1 : static_cast<int>(a > b); }

int compared_as_numbers(std::string_view a, std::string_view b) {
    return a.size() != b.size() ? compared(a.size(), b.size()) : a.compare(b);
}

}  // namespace

// Where a `*` was met, the last one may take more characters if the rest does not match; those
// before it never need to.
bool matches(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0, after_star = 0, taken_to = 0;
    bool has_star = false;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            has_star = true;
            after_star = ++p;
            taken_to = n;
        } else if (p < pattern.size() && pattern[p] == name[n]) {
            ++p;
            ++n;
        } else if (has_star) {
            p = after_star;
            n = ++taken_to;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == pattern.npos;
}

bool comes_before(std::string_view a, std::string_view b) {
    std::string_view rest_a = a, rest_b = b;
    while (!rest_a.empty() && !rest_b.empty()) {
        if (is_digit(rest_a[0]) && is_digit(rest_b[0])) {
            const std::string_view number_a = take_number(rest_a), number_b = take_number(rest_b);
            if (const int order = compared_as_numbers(number_a, number_b); order != 0)
                return order < 0;
        } else {
            if (rest_a[0] != rest_b[0])
                return static_cast<unsigned char>(rest_a[0]) <
                       static_cast<unsigned char>(rest_b[0]);
            rest_a.remove_prefix(1);
            rest_b.remove_prefix(1);
        }
    }
    return rest_a.empty() != rest_b.empty() ? rest_a.empty() : a < b;
}

namespace {

constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* single_name = "model.safetensors";

// A tensor that was asked for, and its rows once the header of its file was read.
struct chosen_tensor {
    std::string name, path;
    table_layout rows;
};

std::string described(const chosen_tensor& tensor) {
    return in_quotes(tensor.name) + " (" + tensor.path + ")";
}

// As one table, in the order of the names.
status join_tensors(std::vector<chosen_tensor>& tensors, table_layout& out) {
    std::sort(tensors.begin(), tensors.end(),
              [](const auto& a, const auto& b) { return comes_before(a.name, b.name); });
    const chosen_tensor& first = tensors.front();
    table_layout made = first.rows;
    std::uint64_t rows = 0;
    made.pieces.clear();
    for (const chosen_tensor& tensor : tensors) {
        const std::string pair = "tensors " + described(first) + " and " + described(tensor);
        if (tensor.rows.dtype != made.dtype)
            return {-EINVAL, pair + " differ in their dtype, " + made.dtype + " and " +
                                 tensor.rows.dtype + "; name tensors of one kind"};
        if (tensor.rows.row_shape != made.row_shape)
            return {-EINVAL, pair + " differ in the shape of a row, " + shape_text(made.row_shape) +
                                 " and " + shape_text(tensor.rows.row_shape) +
                                 "; name tensors of one kind"};
        if (__builtin_add_overflow(rows, tensor.rows.rows(), &rows))
            return {-EINVAL, pair + " have more rows than 64 bits can count; name fewer"};
        made.pieces.push_back(tensor.rows.pieces.front());
    }
    out = std::move(made);
    return {};
}

bool is_chosen(const std::string& pattern, const std::string& name) {
    return is_pattern(pattern) ? matches(pattern, name) : pattern == name;
}

status no_match(const std::string& path, const std::string& pattern,
                const std::vector<std::string>& names) {
    const std::string there = "it has " + list_of_names(names);
    if (pattern.empty()) return {-EINVAL, path + ": which tensor is meant? Name one; " + there};
    return {-ENOENT, path + ": no tensor " + (is_pattern(pattern) ? "matches " : "is called ") +
                         in_quotes(pattern) + "; " + there};
}

status tensors_of_file(const std::string& path, const std::string& pattern, table_layout& out) {
    safetensors_header header;
    if (status s = read_safetensors_header(path, header); !s) return s;
    std::vector<chosen_tensor> chosen;
    std::vector<std::string> names;
    const bool is_only = pattern.empty() && header.tensors.size() == 1;
    for (const tensor_entry& tensor : header.tensors) {
        names.push_back(tensor.name);
        if (!is_only && !is_chosen(pattern, tensor.name)) continue;
        chosen.push_back({tensor.name, path, {}});
        if (status s = rows_of_tensor(path, tensor, chosen.back().rows); !s) return s;
    }
    return chosen.empty() ? no_match(path, pattern, names) : join_tensors(chosen, out);
}

// A file of a checkpoint lies in the folder of the index or below it.
status check_file_name(const std::string& index, const std::string& tensor,
                       const std::string& name) {
    const auto refused = [&](const std::string& problem) -> status {
        return {-EBADMSG, index + ": tensor " + in_quotes(tensor) + " lies in file " +
                              in_quotes(name) + ", " + problem + "; correct the index"};
    };
    if (name.empty()) return refused("which is no name");
    if (name.front() == '/') return refused("an absolute path; names begin at the index's folder");
    const bool has_control = std::any_of(name.begin(), name.end(),
                                         [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (has_control) return refused("whose name has control characters");
    for (std::size_t begin = 0; begin <= name.size();) {
        const std::size_t end = std::min(name.find('/', begin), name.size());
        if (name.compare(begin, end - begin, "..") == 0)
            return refused("which leaves the folder of the index");
        begin = end + 1;
    }
    return {};
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// `map` lies in `document`.
status read_weight_map(const std::string& index, json_object& document, const json_object*& map) {
    host::regular_file file;
    if (status s = file.open(index); !s) return s;
    if (file.size_bytes() > most_header_bytes)
        return {-EBADMSG, index + ": has " + std::to_string(file.size_bytes()) +
                              " bytes, more than the " + std::to_string(most_header_bytes) +
                              " of an index; name the index of a checkpoint"};
    std::string text;
    if (status s = file.read(0, file.size_bytes(), text); !s) return s;
    if (status s = parse_object(text, index + ": the index", document); !s) return s;
    const json_value* const found = find_member(document, "weight_map");
    if (found == nullptr)
        return {-EBADMSG, index +
                              ": the index has no 'weight_map'; name the index of a checkpoint "
                              "in .safetensors files"};
    map = found->as<json_object>();
    if (map == nullptr)
        return {-EBADMSG, index + ": 'weight_map' is " + shown(*found) +
                              ", no object that names a file for each tensor; copy the index from "
                              "its source"};
    return {};
}

// Which tensors are meant, with the paths of their files.
status choose(const std::string& index, const std::string& pattern, const json_object& weight_map,
              std::vector<chosen_tensor>& out) {
    std::vector<std::string> names;
    for (const auto& [name, file] : weight_map) {
        names.push_back(name);
        if (!is_chosen(pattern, name)) continue;
        const auto* const file_name = file.as<std::string>();
        if (file_name == nullptr)
            return {-EBADMSG, index + ": 'weight_map' has " + shown(file) + " for tensor " +
                                  in_quotes(name) + ", no file; copy the index from its source"};
        if (status s = check_file_name(index, name, *file_name); !s) return s;
        out.push_back({name, folder_of(index) + *file_name, {}});
    }
    return out.empty() ? no_match(index, pattern, names) : status{};
}

status tensors_of_index(const std::string& index, const std::string& pattern, table_layout& out) {
    json_object document;
    const json_object* weight_map = nullptr;
    if (status s = read_weight_map(index, document, weight_map); !s) return s;
    std::vector<chosen_tensor> chosen;
    if (status s = choose(index, pattern, *weight_map, chosen); !s) return s;
    std::map<std::string, std::vector<chosen_tensor*>> by_file;
    for (chosen_tensor& tensor : chosen) by_file[tensor.path].push_back(&tensor);
    for (const auto& [path, tensors] : by_file) {
        safetensors_header header;
        const std::string asked =
            " (" + index + " has tensor " + in_quotes(tensors.front()->name) + " in it)";
        if (status s = read_safetensors_header(path, header); !s)
            return {s.code, s.message + asked};
        for (chosen_tensor* const tensor : tensors) {
            const tensor_entry* const found = header.find(tensor->name);
            if (found == nullptr)
                return {-EBADMSG, path + ": has no tensor " + in_quotes(tensor->name) + ", which " +
                                      index + " says lies in it; copy both from their source"};
            if (status s = rows_of_tensor(path, *found, tensor->rows); !s) return s;
        }
    }
    return join_tensors(chosen, out);
}

status tensors_of_folder(const std::string& folder, const std::string& pattern, table_layout& out) {
    const std::string below = folder.ends_with('/') ? folder : folder + "/";
    if (host::is_there(below + index_name))
        return tensors_of_index(below + index_name, pattern, out);
    if (host::is_there(below + single_name))
        return tensors_of_file(below + single_name, pattern, out);
    return {-ENOENT, folder + ": has neither " + index_name + " nor " + single_name +
                         "; name the index or a .safetensors file"};
}

}  // namespace

}  // namespace formats

status describe_safetensors(const std::string& path, const std::string& tensor,
                            table_layout& out) try {
    using namespace formats;
    safetensors_header header;
    if (status s = read_safetensors_header(path, header); !s) return s;
    const bool is_only = tensor.empty() && header.tensors.size() == 1;
    const tensor_entry* const found = is_only ? header.tensors.data() : header.find(tensor);
    if (found != nullptr) return rows_of_tensor(path, *found, out);
    std::vector<std::string> names;
    for (const tensor_entry& entry : header.tensors) names.push_back(entry.name);
    return no_match(path, tensor, names);
} catch (...) {
    return host::status_of_exception_about(path);
}

status describe_checkpoint(const std::string& index_or_folder, const std::string& pattern,
                           table_layout& out) try {
    if (host::is_folder(index_or_folder))
        return formats::tensors_of_folder(index_or_folder, pattern, out);
    return index_or_folder.ends_with(".safetensors")
               ? formats::tensors_of_file(index_or_folder, pattern, out)
               : formats::tensors_of_index(index_or_folder, pattern, out);
} catch (...) {
    return host::status_of_exception_about(index_or_folder);
}

}  // namespace penstock
