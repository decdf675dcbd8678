#include "table/safetensors.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/regular_file.hpp"
#include "table/elements.hpp"
#include "table/strict_json.hpp"

namespace penstock::formats {

namespace {

constexpr const char* copy_again = "; the file is damaged, copy it from its source";
constexpr std::uint64_t length_bytes = 8;

status damaged_header(const std::string& subject, const std::string& problem) {
    return {-EBADMSG, subject + ": " + problem + copy_again};
}

// The text of the header, and where the tensors begin.
status read_header_text(const host::regular_file& file, std::string& text, std::uint64_t& begin) {
    const std::string size = std::to_string(file.size_bytes());
    if (file.size_bytes() < length_bytes)
        return damaged_header(file.path(), "has " + size +
                                               " bytes, too few for a .safetensors file, which "
                                               "begins with 8 bytes of length");
    std::string head;
    if (status s = file.read(0, length_bytes, head); !s) return s;
    std::uint64_t bytes = 0;
    for (std::size_t i = length_bytes; i-- > 0;)
        bytes = bytes << 8 | static_cast<unsigned char>(head[i]);
    if (bytes > most_header_bytes)
        return damaged_header(
            file.path(), "claims a header of " + std::to_string(bytes) + " bytes, more than the " +
                             std::to_string(most_header_bytes) + " that the format allows");
    if (bytes > file.size_bytes() - length_bytes)
        return damaged_header(file.path(), "claims a header of " + std::to_string(bytes) +
                                               " bytes and has " + size + " bytes in all");
    if (status s = file.read(length_bytes, bytes, text); !s) return s;
    if (text.empty() || text[0] != '{')
        return damaged_header(file.path(), "the header does not begin with '{'");
    begin = length_bytes + bytes;
    return {};
}

// `noun`: whose value it is, for the message.
status read_numbers(const json_value& value, const std::string& subject, const std::string& noun,
                    std::size_t most, std::vector<std::uint64_t>& out) {
    const auto* const list = value.as<json_list>();
    if (list == nullptr)
        return damaged_header(subject, noun + " is " + shown(value) + ", no list of numbers");
    if (list->size() > most)
        return damaged_header(subject, noun + " has " + std::to_string(list->size()) +
                                           " numbers, more than " + std::to_string(most));
    for (const json_value& element : *list) {
        const auto* const number = element.as<std::uint64_t>();
        if (number == nullptr)
            return damaged_header(
                subject, noun + " has " + shown(element) + ", no whole number from 0 to 2^64 - 1");
        out.push_back(*number);
    }
    return {};
}

status check_metadata(const std::string& path, const json_value& metadata) {
    const auto* const texts = metadata.as<json_object>();
    if (texts == nullptr)
        return damaged_header(path,
                              "'__metadata__' is " + shown(metadata) + ", no object of texts");
    for (const auto& [key, value] : *texts)
        if (value.as<std::string>() == nullptr)
            return damaged_header(path, "'__metadata__' has " + shown(value) + " for " +
                                            in_quotes(key) + ", no text");
    return {};
}

// `begin`: where the tensors begin in the file.
status read_place(const json_value& offsets, const std::string& subject, std::uint64_t begin,
                  std::uint64_t file_bytes, tensor_entry& out) {
    std::vector<std::uint64_t> ends;
    if (status s = read_numbers(offsets, subject, "data_offsets", 2, ends); !s) return s;
    if (ends.size() != 2)
        return damaged_header(subject, "data_offsets is a list of " + std::to_string(ends.size()) +
                                           ", not of a begin and an end");
    if (ends[0] > ends[1])
        return damaged_header(subject, "data_offsets end at " + std::to_string(ends[1]) +
                                           ", before their begin " + std::to_string(ends[0]));
    const std::uint64_t data_bytes = file_bytes - begin;
    if (ends[1] > data_bytes)
        return damaged_header(subject, "data_offsets end at " + std::to_string(ends[1]) + ", and " +
                                           std::to_string(data_bytes) + " bytes follow the header");
    out.begin = begin + ends[0];
    out.end = begin + ends[1];
    return {};
}

status read_entry(const json_value& entry, const std::string& subject, std::uint64_t begin,
                  std::uint64_t file_bytes, tensor_entry& out) {
    const auto* const members = entry.as<json_object>();
    if (members == nullptr) return damaged_header(subject, "is " + shown(entry) + ", no object");
    for (const char* const key : {"dtype", "shape", "data_offsets"})
        if (find_member(*members, key) == nullptr)
            return damaged_header(subject, std::string("the key '") + key + "' is missing");
    const json_value& dtype = *find_member(*members, "dtype");
    if (dtype.as<std::string>() == nullptr)
        return damaged_header(subject, "the dtype is " + shown(dtype) + ", no text");
    out.dtype = *dtype.as<std::string>();
    if (status s = read_numbers(*find_member(*members, "shape"), subject, "the shape",
                                most_dimensions, out.shape);
        !s)
        return s;
    return read_place(*find_member(*members, "data_offsets"), subject, begin, file_bytes, out);
}

// A dtype that is not known here is no damage: a later version of the format may have it.
status check_size(const std::string& subject, const tensor_entry& tensor) {
    const element_type* const type = find_safetensors_type(tensor.dtype);
    if (type == nullptr) return {};
    std::uint64_t bits = 0;
    if (!count_bits(tensor.shape, type->bits, bits))
        return damaged_header(subject, "the shape " + shape_text(tensor.shape) +
                                           " has more bytes than 64 bits can count");
    const std::uint64_t bytes = tensor.end - tensor.begin;
    if (bits % 8 != 0 || bits / 8 != bytes)
        return damaged_header(subject, "data_offsets span " + std::to_string(bytes) +
                                           " bytes, and " + shape_text(tensor.shape) + " of " +
                                           tensor.dtype + " take " + std::to_string(bits / 8) +
                                           (bits % 8 != 0 ? " and a part of one" : ""));
    return {};
}

// One behind the other, from the end of the header to the end of the file.
status check_order(const std::string& path, const std::vector<tensor_entry>& tensors,
                   std::uint64_t begin, std::uint64_t file_bytes) {
    std::vector<const tensor_entry*> by_place;
    by_place.reserve(tensors.size());
    for (const tensor_entry& tensor : tensors) by_place.push_back(&tensor);
    std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) {
        return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    const tensor_entry* before = nullptr;
    for (const tensor_entry* const tensor : by_place) {
        const std::uint64_t expected = before == nullptr ? begin : before->end;
        const std::string behind = before == nullptr ? "the header" : in_quotes(before->name);
        if (tensor->begin < expected)
            return damaged_header(path, "tensors " + in_quotes(before->name) + " and " +
                                            in_quotes(tensor->name) + " overlap at byte " +
                                            std::to_string(tensor->begin));
        if (tensor->begin > expected)
            return damaged_header(path, "bytes " + std::to_string(expected) + " to " +
                                            std::to_string(tensor->begin) + " between " + behind +
                                            " and tensor " + in_quotes(tensor->name) +
                                            " belong to no tensor");
        before = tensor;
    }
    const std::uint64_t end = before == nullptr ? begin : before->end;
    if (end != file_bytes)
        return damaged_header(path, "the last tensor ends at byte " + std::to_string(end) +
                                        ", and the file has " + std::to_string(file_bytes) +
                                        " bytes");
    return {};
}

}  // namespace

const tensor_entry* safetensors_header::find(const std::string& name) const {
    const auto at = std::lower_bound(
        tensors.begin(), tensors.end(), name,
        [](const tensor_entry& tensor, const std::string& text) { return tensor.name < text; });
    return at != tensors.end() && at->name == name ? &*at : nullptr;
}

status read_safetensors_header(const std::string& path, safetensors_header& out) {
    host::regular_file file;
    if (status s = file.open(path); !s) return s;
    std::string text;
    std::uint64_t begin = 0;
    if (status s = read_header_text(file, text, begin); !s) return s;
    json_object document;
    if (status s = parse_object(text, path + ": the header", document); !s) return s;
    safetensors_header made;
    for (const auto& [name, entry] : document) {
        if (name == "__metadata__") {
            if (status s = check_metadata(path, entry); !s) return s;
            continue;
        }
        const std::string subject = path + ": tensor " + in_quotes(name);
        tensor_entry tensor{.name = name, .dtype = {}, .shape = {}};
        if (status s = read_entry(entry, subject, begin, file.size_bytes(), tensor); !s) return s;
        if (status s = check_size(subject, tensor); !s) return s;
        made.tensors.push_back(std::move(tensor));
    }
    if (status s = check_order(path, made.tensors, begin, file.size_bytes()); !s) return s;
    out = std::move(made);
    return {};
}

status rows_of_tensor(const std::string& path, const tensor_entry& tensor, table_layout& out) {
    const std::string subject = path + ": tensor " + in_quotes(tensor.name);
    const element_type* const type = find_safetensors_type(tensor.dtype);
    if (type == nullptr)
        return {-EOPNOTSUPP, subject + ": the dtype " + in_quotes(tensor.dtype) +
                                 " is not known here; save it as one of the format's, or describe "
                                 "its rows as raw bytes"};
    table_layout made;
    std::uint64_t rows = 0;
    const array whole{.dtype = type->name, .element_bits = type->bits, .shape = tensor.shape};
    if (status s = rows_of(whole, subject, made, rows); !s) return s;
    made.pieces.push_back({host::absolute_path(path), tensor.begin, rows});
    out = std::move(made);
    return {};
}

std::string list_of_names(const std::vector<std::string>& names) {
    constexpr std::size_t most = 3;
    std::string out = std::to_string(names.size()) + (names.size() == 1 ? " tensor" : " tensors");
    for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
        out += (i == 0 ? ": " : ", ") + in_quotes(names[i]);
    return out + (names.size() > most ? " ..." : "");
}

}  // namespace penstock::formats
