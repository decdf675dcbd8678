// Where grep stops printing matches of a file that holds a zero byte.
//
// grep reads a file in large pieces. It looks for zero bytes in each piece as it arrives; from the
// piece that holds the first one on, the file is binary and no match is printed any more. Matches
// in lines that were complete before that piece have been printed. So the sizes of grep's reads
// decide what `grep -o` counts; this is a model of them (GNU grep 3.8, src/grep.c: fillbuf, grep,
// file_must_have_nulls), with pages of 4096 bytes.
//
// The buffer holds 96 KiB behind an unfinished line that was carried over. How much of that is lost
// to alignment depends on the address that malloc gave, once the carried-over line is longer than
// the rest of the buffer's first page; see buffer_offset().
#include "search.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace penstock::grep {

namespace {

// Before its buffer, grep allocates for the word it is given, and how much depends on the word's
// length. In units of 16 bytes, by length - 1. Read off the result of malloc(102408) in runs of
// grep with words of each length; checked with 1,500 random words. Words with characters that are
// special in regular expressions ($ * . [ \\ ^) can differ.
constexpr std::array<std::uint8_t, max_word_bytes> by_length = {
    192, 185, 200, 205, 214, 223, 223, 84,  125, 132, 175, 241, 45,  89,  194, 14,  236, 27,  50,
    103, 131, 184, 15,  13,  61,  117, 104, 122, 147, 227, 5,   137, 162, 156, 186, 236, 205, 33,
    63,  113, 136, 155, 188, 235, 73,  120, 144, 168, 201, 236, 13,  47,  176, 87,  183, 65,  18,
    246, 246, 148, 180, 215, 247, 220, 171, 238, 233, 72,  115, 154, 182, 204, 14,  46,  24,  51,
    133, 160, 192, 225, 2,   57,  126, 97,  131, 216, 0,   36,  59,  98,  127, 188, 206, 237, 84,
    248, 84,  122, 212, 180, 248, 1,   29,  102, 156, 214, 243, 18,  48,  15,  89,  122, 30,  192,
    157, 251, 26,  60,  56,  61,  58,  63,  143, 98,  120, 97,  122, 85,  113, 143, 33,  131, 118,
    138, 179, 51,  97,  118, 146, 193, 221, 4,   82,  119, 147, 123, 205, 243, 165, 252, 24,  80,
    72,  107, 153, 164, 201, 34,  62,  99,  66,  87,  124, 153, 231, 14,  42,  110, 102, 123, 151,
    171, 11,  32,  69,  97,  125, 155, 183, 21,  15,  45,  64,  129, 130, 151, 188, 47,  66,  105,
    133, 166, 185, 206, 46,  75,  139, 11,  105, 164, 87,  120, 201, 233, 8,   32,  72,  95,  123,
    216, 232, 13,  41,  19,  47,  124, 98,  187, 215, 253, 16,  55,  74,  111, 198, 237, 6,   44,
    84,  58,  86,  148, 140, 173, 204, 236, 63,  101, 248, 152, 183, 150, 181, 213, 6,   48,  70,
    197, 169, 199, 236, 12,  235, 9,   93,
};

// The lengths for which it matters whether the first character occurs again.
struct exception {
    std::size_t length;
    std::uint8_t offset;
};
constexpr exception with_first_repeated[] = {{7, 217}, {9, 116}, {16, 15}, {20, 111}};

constexpr std::uint64_t page = 4096, word_bytes = 8, map_threshold = 128 << 10, mapped_offset = 16;

constexpr std::uint64_t aligned(std::uint64_t n) { return (n + page - 1) & ~(page - 1); }

// grep's buffer: positions are relative to its start, which lies `offset` bytes behind a page
// boundary.
struct buffer_state {
    std::uint64_t allocated = first_read_bytes + page + word_bytes;
    std::uint64_t offset = 0;
    std::uint64_t limit = 0;  // end of what was read

    // fillbuf: how many bytes it asks for, with `saved` carried over and `left` not yet read of the
    // file.
    std::uint64_t ask(std::uint64_t saved, std::uint64_t left) {
        std::uint64_t at = limit;
        if (allocated - word_bytes < limit + page) {
            grow(saved, left);
            at = aligned(offset + 1 + saved) - offset;
        }
        const std::uint64_t room = allocated - word_bytes - at;
        const std::uint64_t asked = room - room % page;
        limit = at + std::min(asked, left);
        return asked;
    }

    // By half, but no more than the rest of the file takes, and at least by what is needed.
    void grow(std::uint64_t saved, std::uint64_t left) {
        const std::uint64_t least = saved + 2 * page + word_bytes,
                            whole = saved + left + page + word_bytes;
        if (least <= allocated) return;
        allocated = std::max(least, std::min(allocated + allocated / 2, std::max(whole, least)));
        // Large pieces are mapped by malloc and begin behind its 16-byte header; a small one lies
        // behind the old one.
        offset = allocated >= map_threshold ? mapped_offset : (offset + mapped_offset) % page;
    }
};

// A file as grep reads it, page by page.
class binary_file {
public:
    // 0 or a negative errno; -ESTALE if its size is not the one that was found.
    int open(const input_file& file, std::uint64_t first_zero) {
        bytes_ = file.bytes;
        first_zero_ = first_zero;
        if (const int code = open_of_size(file.path.c_str(), bytes_, fd_); code != 0) return code;
        // After its first read grep asks for a hole behind it; a file with one is binary from the
        // start.
        const off_t hole =
            bytes_ > first_read_bytes ? ::lseek(fd_, first_read_bytes, SEEK_HOLE) : -1;
        has_holes_ = hole >= 0 && static_cast<std::uint64_t>(hole) < bytes_;
        return 0;
    }

    // `out`: matches below this offset are printed. 0 or a negative errno.
    int printed_below(std::uint32_t offset_of_buffer, std::uint64_t& out) {
        out = 0;
        if (has_holes_) return 0;
        buffer_state buffer;
        buffer.offset = offset_of_buffer;
        buffer.limit = aligned(buffer.offset + 1) - buffer.offset;
        for (std::uint64_t read = 0;;) {
            const std::uint64_t asked = buffer.ask(read - out, bytes_ - read);
            if (asked > first_zero_ - read) return 0;
            read += asked;
            if (const int code = behind_last_line_end(out, read, out); code != 0) return code;
        }
    }

private:
    // Behind the last line end of [from, to), or `from` if there is none.
    int behind_last_line_end(std::uint64_t from, std::uint64_t to, std::uint64_t& out) {
        const auto known = line_ends_.find(to);
        if (known != line_ends_.end() && known->second > from) {
            out = known->second;
            return 0;
        }
        char block[page];
        for (std::uint64_t end = to; end > from;) {
            const std::uint64_t begin = end - from > page ? end - page : from;
            if (const int code = apps::read_all(fd_, block, end - begin, begin); code != 0)
                return code;
            if (const void* const at = ::memrchr(block, '\n', end - begin)) {
                out = begin + static_cast<std::uint64_t>(static_cast<const char*>(at) - block) + 1;
                line_ends_[to] = out;
                return 0;
            }
            end = begin;
        }
        out = from;
        return 0;
    }

    apps::unique_fd fd_;
    std::uint64_t bytes_ = 0;
    std::uint64_t first_zero_ = 0;
    bool has_holes_ = false;
    std::map<std::uint64_t, std::uint64_t> line_ends_;  // answers of behind_last_line_end by `to`
};

}  // namespace

// Measured with grep 3.8 and glibc 2.36 on x86-64 in the C locale; other builds may differ. It
// matters only in binary files with a zero byte behind the first 96 KiB, and there only if a line
// of more than some hundred bytes crosses the end of a read.
std::uint32_t buffer_offset(const std::string& word) {
    const std::size_t length = std::clamp<std::size_t>(word.size(), 1, by_length.size());
    std::uint32_t units = by_length[length - 1];
    for (const exception& e : with_first_repeated)
        if (e.length == length && word.find(word[0], 1) != std::string::npos) units = e.offset;
    return units * 16;
}

int find_print_limits(const input_file& file, std::uint64_t first_zero,
                      std::map<std::uint32_t, std::uint64_t>& limits) {
    binary_file binary;
    int code = binary.open(file, first_zero);
    for (auto at = limits.begin(); at != limits.end() && code == 0; ++at)
        code = binary.printed_below(at->first, at->second);
    return code;
}

}  // namespace penstock::grep
