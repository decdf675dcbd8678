// Traces: which pages of which files were read, written and flushed, and when; and what these pages
// hold. docs/apps/traces.md has both formats to the letter. This is what programs that replay a
// trace need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::trace {

inline constexpr std::uint64_t ns_per_second = 1000000000;

enum class operation : std::uint8_t { read, write, flush };

// A flush is of a whole file: page and pages are 0. A write with a content number makes page i of
// its pages hold content + i; one without gives each page bytes that no other has.
struct record {
    std::uint64_t time_ns = 0, page = 0, content = 0;
    std::uint32_t file = 0, pages = 1;
    operation kind = operation::read;
    bool has_content = false;

    bool operator==(const record&) const = default;
};

struct operation_counts {
    std::uint64_t reads = 0, writes = 0, flushes = 0;

    void add(const record& r) {
        ++(r.kind == operation::read ? reads : r.kind == operation::write ? writes : flushes);
    }
};

struct file_entry {
    // As the trace has it; a relative one begins where the program that replays runs.
    std::string path;
    std::uint64_t pages = 0;
};

// What the files hold at first. Either each file draws from all contents, or (common_pages or
// own_distinct above 0) the first common_pages pages of every file are the same in all of them and
// hold contents below common_distinct, and the other pages of file f are its own: they hold the
// own_distinct contents from common_distinct + f * own_distinct on. Then distinct = common_distinct
// + files * own_distinct.
struct made_contents {
    std::uint64_t distinct = 0, seed = 0;
    std::uint64_t common_pages = 0, common_distinct = 0, own_distinct = 0;
};

// Pages of a trace without contents are all different.
struct trace_header {
    std::uint32_t page_bytes = 4096;
    std::vector<file_entry> files;
    std::optional<made_contents> contents;
};

// What any trace keeps to; a reader refuses others. Numbers from most_content on are free for
// contents that a program makes up while it replays.
inline constexpr std::uint32_t least_page_bytes = 512, most_page_bytes = 2u << 20;
inline constexpr std::uint64_t most_file_bytes = std::uint64_t{1} << 62,
                               most_content = std::uint64_t{1} << 62;
inline constexpr std::size_t most_files = 65536, most_path_bytes = 4095, most_line_bytes = 8192;

inline constexpr std::size_t usual_piece_bytes = std::size_t{1} << 20;

// Reads a trace of either format from front to back, from a file or a pipe, with memory that does
// not depend on its length. Every record it gives is right: its file is in the header, its pages
// are in the file, its time is not before the last one's.
class reader {
public:
    reader();
    ~reader();
    reader(const reader&) = delete;
    reader& operator=(const reader&) = delete;

    // Reads the header. The file is read in pieces of at most `piece_bytes`.
    status open(const std::string& path, std::size_t piece_bytes = usual_piece_bytes);
    [[nodiscard]] const trace_header& header() const;
    [[nodiscard]] bool is_binary() const;

    // The next records, at most `most`, in place of what `out` had. Empty: the end. A message with
    // file, line or record, reason, and what was expected; after it nothing more is read.
    status next(std::vector<record>& out, std::size_t most);

private:
    struct parts;
    std::unique_ptr<parts> parts_;
};

// The content number, below c.distinct, that page `page` of file `file` holds at first. Any
// c.distinct pages of a file that begin at a multiple of it hold every content once.
std::uint64_t made_content(const made_contents& c, std::uint32_t file, std::uint64_t page);

// The bytes of a content number. Pages of one content are equal; 64 bytes at a multiple of 64 are
// found in no other content and at no other place.
void fill_page(std::uint64_t content, std::byte* to, std::uint32_t page_bytes);

}  // namespace penstock::trace
