// The header of an .npy file, as numpy saves it.
//
// The format: the six bytes \x93NUMPY; two bytes with the version; the length of the header, lowest
// byte first, in two bytes (version 1) or four (2 and 3); the header; the elements. The header is a
// dictionary as Python writes it, with the keys descr, fortran_order and shape.
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <optional>

#include "os/exceptions.hpp"
#include "os/regular_file.hpp"
#include "penstock/table_layout.hpp"
#include "table/elements.hpp"
#include "table/safetensors.hpp"

namespace penstock {

namespace formats {

namespace {

static_assert(std::endian::native == std::endian::little, "headers say '<' for what memory has");

constexpr std::string_view magic = "\x93NUMPY";
constexpr const char* as_raw_bytes =
    "; save array.view(f'V{array.itemsize}'), which is taken as raw bytes";

// What the dictionary of the header says.
struct npy_header {
    bool has_records = false;  // or arrays of elements: not read further
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::uint64_t>> shape;
};

status bad_npy(const std::string& path, const std::string& problem) {
    return {-EBADMSG, path + ": " + problem + "; save it again with numpy.save"};
}

// Reads the dictionary from front to back; a call that finds something else says so in `problem`.
class dictionary_reader {
public:
    explicit dictionary_reader(std::string_view text) : text_(text) {}

    bool read(npy_header& out) {
        if (!take('{')) return expected("'{'");
        while (!take('}')) {
            std::string key;
            if (!read_text(key) || !read_value(key, out)) return false;
            if (out.has_records) return true;
            if (take(',')) continue;
            if (!take('}')) return expected("',' or '}'");
            break;
        }
        skip_space();
        return at_ == text_.size() || expected("the end");
    }

    std::string problem;

private:
    bool expected(const std::string& wanted) {
        problem = "byte " + std::to_string(at_) + " of the header should be " + wanted +
                  (at_ < text_.size() ? " and is " + in_quotes(text_.substr(at_, 1)) : "");
        return false;
    }
    void skip_space() { at_ = std::min(text_.find_first_not_of(" \n\r\t\f", at_), text_.size()); }
    bool take(char wanted) {
        skip_space();
        if (at_ == text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    // Names of keys and elements: no escapes.
    bool read_text(std::string& out) {
        skip_space();
        const char quote = at_ < text_.size() ? text_[at_] : ' ';
        if (quote != '\'' && quote != '"') return expected("a text in quotes");
        const std::size_t end = text_.find_first_of(std::string("\\\n") + quote, at_ + 1);
        if (end == text_.npos || text_[end] != quote) return expected("a text that ends");
        out = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        return true;
    }

    bool read_word(std::string_view& out) {
        skip_space();
        const std::size_t begin = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                      text_[at_] == '-' || text_[at_] == '_'))
            ++at_;
        out = text_.substr(begin, at_ - begin);
        return !out.empty() || expected("a value");
    }

    bool read_value(const std::string& key, npy_header& out) {
        if (!take(':')) return expected("':'");
        if ((key == "descr" && out.descr) || (key == "fortran_order" && out.fortran_order) ||
            (key == "shape" && out.shape)) {
            problem = "the header has the key '" + key + "' twice";
            return false;
        }
        if (key == "descr") return read_descr(out);
        if (key == "shape") return read_shape(out.shape.emplace());
        if (key == "fortran_order") {
            std::string_view word;
            if (!read_word(word)) return false;
            out.fortran_order = word == "True";
            if (word == "True" || word == "False") return true;
            problem = "fortran_order is " + in_quotes(word) + ", neither True nor False";
            return false;
        }
        problem = "the header has the key " + in_quotes(key) + ", which the format does not have";
        return false;
    }

    // Records are a list, and arrays of elements a pair. Both are refused, so the reader ends here.
    bool read_descr(npy_header& out) {
        skip_space();
        out.has_records = at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(');
        return out.has_records || read_text(out.descr.emplace());
    }

    bool read_shape(std::vector<std::uint64_t>& out) {
        if (!take('(')) return expected("'(' of the shape");
        bool has_comma = false;
        while (!take(')')) {
            std::string_view word;
            if (!read_word(word) || !add_extent(word, out)) return false;
            if (take(',')) {
                has_comma = true;
            } else if (take(')')) {
                break;
            } else {
                return expected("',' or ')'");
            }
        }
        if (out.size() == 1 && !has_comma) return expected("',' of a shape of one dimension");
        return true;
    }

    bool add_extent(std::string_view word, std::vector<std::uint64_t>& out) {
        std::string_view digits = word;
        if (digits.ends_with('L')) digits.remove_suffix(1);  // as Python 2 wrote long numbers
        std::uint64_t extent = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), extent);
        if (error != std::errc{} || end != digits.data() + digits.size()) {
            problem = "the shape has " + in_quotes(word) + ", no whole number from 0 to 2^64 - 1";
            return false;
        }
        if (out.size() == most_dimensions) {
            problem = "the shape has more than " + std::to_string(most_dimensions) + " dimensions";
            return false;
        }
        out.push_back(extent);
        return true;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

// The text of the header, and where the elements begin.
status read_npy_text(const host::regular_file& file, std::string& text, std::uint64_t& begin) {
    std::string head;
    const std::uint64_t head_bytes = magic.size() + 2;
    const std::string size = std::to_string(file.size_bytes());
    if (file.size_bytes() < head_bytes)
        return bad_npy(file.path(), "has " + size + " bytes, too few for an .npy file");
    if (status s = file.read(0, head_bytes, head); !s) return s;
    if (!head.starts_with(magic))
        return bad_npy(file.path(), "does not begin with \\x93NUMPY, as an .npy file does");
    const int major = static_cast<unsigned char>(head[magic.size()]);
    const int minor = static_cast<unsigned char>(head[magic.size() + 1]);
    if (major < 1 || major > 3 || minor != 0)
        return bad_npy(file.path(), "has version " + std::to_string(major) + "." +
                                        std::to_string(minor) +
                                        " of the format; 1.0, 2.0 and 3.0 are known here");
    const std::uint64_t length_bytes = major == 1 ? 2 : 4;
    const std::uint64_t rest = file.size_bytes() - head_bytes;
    if (rest < length_bytes)
        return bad_npy(file.path(), "ends at byte " + size + ", in the length of its header");
    std::string length;
    if (status s = file.read(head_bytes, length_bytes, length); !s) return s;
    std::uint64_t bytes = 0;
    for (std::size_t i = length.size(); i-- > 0;)
        bytes = bytes << 8 | static_cast<unsigned char>(length[i]);
    if (bytes > rest - length_bytes)
        return bad_npy(file.path(), "claims a header of " + std::to_string(bytes) +
                                        " bytes and has " + size + " bytes in all");
    if (bytes > most_header_bytes)
        return bad_npy(file.path(), "claims a header of " + std::to_string(bytes) +
                                        " bytes, more than the " +
                                        std::to_string(most_header_bytes) + " that are read here");
    begin = head_bytes + length_bytes + bytes;
    return file.read(head_bytes + length_bytes, bytes, text);
}

status read_npy_header(const std::string& path, const std::string& text, npy_header& out) {
    dictionary_reader reader(text);
    if (!reader.read(out)) return bad_npy(path, reader.problem);
    if (out.has_records)
        return {-EOPNOTSUPP, path + ": the elements are records of several fields (or arrays)" +
                                 as_raw_bytes + ", or each field in a file of its own"};
    const char* const missing = !out.descr           ? "descr"
                                : !out.fortran_order ? "fortran_order"
                                : !out.shape         ? "shape"
                                                     : nullptr;
    if (missing != nullptr)
        return bad_npy(path, std::string("the key '") + missing + "' is missing in the header");
    return {};
}

struct npy_kind {
    char kind;
    std::uint64_t size_bytes;
    std::string_view name;
};
constexpr npy_kind npy_kinds[] = {
    {'b', 1, "bool"},      {'i', 1, "int8"},        {'i', 2, "int16"},   {'i', 4, "int32"},
    {'i', 8, "int64"},     {'u', 1, "uint8"},       {'u', 2, "uint16"},  {'u', 4, "uint32"},
    {'u', 8, "uint64"},    {'f', 2, "float16"},     {'f', 4, "float32"}, {'f', 8, "float64"},
    {'c', 8, "complex64"}, {'c', 16, "complex128"},
};

// '<f4': the order of bytes ('<', '>', or '|' and '=' for none and that of the machine), the kind,
// and the bytes of an element.
status read_element(const std::string& path, const std::string& descr, array& out) {
    if (descr == "|O")  // which cannot be seen as raw bytes either
        return {-EOPNOTSUPP, path +
                                 ": the elements are objects of Python, pickled; save an array "
                                 "of numbers (array.astype(...))"};
    const status refused = {-EOPNOTSUPP, path + ": the elements are " + in_quotes(descr) +
                                             ", which have no name here" + as_raw_bytes};
    if (descr.empty()) return refused;
    std::string_view rest = descr;
    const bool has_order = std::string_view("<>|=").find(rest[0]) != std::string_view::npos;
    const char order = has_order ? rest[0] : '=';
    if (has_order) rest.remove_prefix(1);
    if (rest.empty()) return refused;
    const char kind = rest[0];
    rest.remove_prefix(1);
    std::uint64_t size_bytes = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size_bytes);
    if (error != std::errc{} || end != rest.data() + rest.size()) return refused;
    if (kind == 'V' || kind == 'S') {
        if (__builtin_mul_overflow(size_bytes, 8u, &out.element_bits))
            return bad_npy(path, "the elements are " + in_quotes(descr) + ", too large for a file");
        return {};
    }
    const auto* const known = std::find_if(
        std::begin(npy_kinds), std::end(npy_kinds),
        [&](const npy_kind& row) { return row.kind == kind && row.size_bytes == size_bytes; });
    if (known == std::end(npy_kinds)) return refused;
    if (order == '>' && size_bytes > 1)
        return {-EOPNOTSUPP, path + ": the elements are " + in_quotes(descr) +
                                 ", whose highest byte comes first; save "
                                 "array.astype(array.dtype.newbyteorder('<'))"};
    out.dtype = known->name;
    out.element_bits = size_bytes * 8;
    return {};
}

status rows_of_npy(const std::string& path, table_layout& out) {
    host::regular_file file;
    if (status s = file.open(path); !s) return s;
    std::string text;
    std::uint64_t begin = 0;
    if (status s = read_npy_text(file, text, begin); !s) return s;
    npy_header header;
    if (status s = read_npy_header(path, text, header); !s) return s;
    array whole;
    whole.shape = *header.shape;
    if (status s = read_element(path, *header.descr, whole); !s) return s;
    if (*header.fortran_order && whole.shape.size() > 1)
        return {-EOPNOTSUPP, path + ": the array of shape " + shape_text(whole.shape) +
                                 " lies in Fortran order, where rows are no runs of bytes; save "
                                 "numpy.ascontiguousarray(array)"};
    table_layout made;
    std::uint64_t rows = 0;
    if (status s = rows_of(whole, path, made, rows); !s) return s;
    const std::uint64_t there_bytes = file.size_bytes() - begin;
    if (there_bytes / made.row_bytes < rows)
        return bad_npy(path, "has " + std::to_string(there_bytes) +
                                 " bytes behind its header, and the shape " +
                                 shape_text(whole.shape) + " of " + in_quotes(*header.descr) +
                                 " takes " + std::to_string(rows) + " rows of " +
                                 std::to_string(made.row_bytes));
    made.pieces.push_back({host::absolute_path(path), begin, rows});
    out = std::move(made);
    return {};
}

}  // namespace

}  // namespace formats

status describe_npy(const std::string& path, table_layout& out) try {
    return formats::rows_of_npy(path, out);
} catch (...) {
    return host::status_of_exception_about(path);
}

}  // namespace penstock
