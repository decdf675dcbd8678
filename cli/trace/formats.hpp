// The two formats of a trace, and the writer of either. Both have the same header lines; then text
// has a line for each record, and the binary format 32 bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "common/files.hpp"
#include "penstock/base/hash.hpp"
#include "trace.hpp"

namespace penstock::trace {

// Takes the lines of a trace's header, which both formats have, one by one.
class header_parser {
public:
    // What is wrong with the line and what was expected; empty if it was taken.
    std::string take(std::string_view line);
    // The same for the whole, after its last line.
    std::string finish(trace_header& out);

private:
    std::string take_page(std::string_view rest);
    std::string take_file(std::string_view rest);
    std::string take_contents(std::string_view rest);
    std::string take_common(std::string_view rest);
    [[nodiscard]] std::string check_common() const;

    trace_header header_;
    bool has_page_ = false, has_common_ = false;
};

// What is wrong with a path that a header is to name; empty if nothing is.
std::string check_path(std::string_view path);

// One record as a line of text: TIME_NS R|W|F FILE PAGE PAGES [CONTENT].

inline constexpr std::string_view text_first_line = "penstock-trace 1";
inline constexpr std::string_view letters = "RWF";  // by operation

// What is wrong with the line and what was expected, and `out` is as it was; empty if nothing is.
std::string parse_record(std::string_view line, record& out);

static_assert(std::endian::native == std::endian::little,
              "on another machine the words below have to be turned round");

// No text begins with its first byte.
inline constexpr unsigned char binary_magic[8] = {0x89, 'P', 'S', 'T', 'R', 'A', 'C', 'E'};
inline constexpr std::uint32_t binary_version = 1;
inline constexpr std::uint32_t most_header_bytes = 1u << 29;

struct binary_head {
    unsigned char magic[8];
    std::uint32_t version;
    // Of the lines, without the zeros that follow them up to a multiple of 8.
    std::uint32_t header_bytes;
};
static_assert(sizeof(binary_head) == 16);

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

struct binary_record {
    std::uint64_t time_ns, page_and_kind, content;  // of the end: records, kind end, the sum
    std::uint32_t file, pages;
};
static_assert(sizeof(binary_record) == 32);

// The word page_and_kind: the page below, the kind of record in two bits, and a bit for "has a
// content number".
inline constexpr unsigned kind_shift = 56, content_shift = 58;
inline constexpr std::uint64_t kind_end = 3;
static_assert(most_file_bytes / least_page_bytes <= std::uint64_t{1} << kind_shift);

// A sum in which the order of the words counts.
class word_sum {
public:
    void add(const void* words, std::size_t bytes) {
        for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
            std::uint64_t word;
            std::memcpy(&word, static_cast<const char*>(words) + at, sizeof word);
            sum_ = mix64(sum_ + word + 0x9e3779b97f4a7c15ull);
        }
    }
    [[nodiscard]] std::uint64_t value() const { return sum_; }

private:
    std::uint64_t sum_ = 0;
};

inline binary_record packed(const record& r) {
    return {r.time_ns,
            r.page | std::uint64_t{static_cast<std::uint8_t>(r.kind)} << kind_shift |
                std::uint64_t{r.has_content} << content_shift,
            r.content, r.file, r.pages};
}

// False if it has bits that no record has.
inline bool unpack(const binary_record& from, record& out) {
    const std::uint64_t kind = from.page_and_kind >> kind_shift & 3;
    out.time_ns = from.time_ns;
    out.page = from.page_and_kind & ((std::uint64_t{1} << kind_shift) - 1);
    out.content = from.content;
    out.file = from.file;
    out.pages = from.pages;
    out.kind = static_cast<operation>(kind);
    out.has_content = (from.page_and_kind >> content_shift & 1) != 0;
    return kind != kind_end && from.page_and_kind >> (content_shift + 1) == 0 &&
           (out.has_content || from.content == 0);
}

// Writes a trace in either format.
class writer {
public:
    // Checks that `path` can be written and is not the file `input` (may be empty), which is still
    // read. Writes the header, which must be right.
    status open(const std::string& path, const std::string& input, const trace_header& header,
                bool binary);
    // Records that a reader would take, in the order of their times.
    status add(std::span<const record> batch);
    // Writes the end and closes the file, so that what is left is its place. A caller that makes
    // other files too calls this before it commits one of them.
    status finish();
    // Finishes the file and puts it in its place.
    status commit();

    [[nodiscard]] std::uint64_t records() const { return records_; }

private:
    void append_binary(const void* words, std::size_t bytes);
    void append_text(const record& r);
    status flush();

    apps::output_file file_;
    std::string buffer_;
    word_sum sum_;
    std::uint64_t records_ = 0;
    bool binary_ = false, is_finished_ = false;
};

}  // namespace penstock::trace
