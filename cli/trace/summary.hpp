// What a trace has: counts, and how its accesses spread over the pages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace.hpp"

namespace penstock::trace {

// How often each page of a trace's files was accessed. Memory is taken only where pages are
// accessed.
class page_counts {
public:
    page_counts() = default;
    ~page_counts();
    page_counts(const page_counts&) = delete;
    page_counts& operator=(const page_counts&) = delete;

    // False: the files are too large to count their pages.
    bool open(const std::vector<file_entry>& files);
    // False: more pages than the memory that so many records may take; nothing is counted any more.
    bool add(const record& r);

    // How often the pages were accessed that were accessed at all, the most accessed first: so many
    // pages, so often each.
    struct group {
        std::uint64_t times, pages;
    };
    [[nodiscard]] std::vector<group> groups() const;

private:
    static constexpr std::uint64_t most_pages = std::uint64_t{1} << 34, block_pages = 1024;
    // A record of 32 bytes may name billions of pages, so memory for counters goes by the number of
    // records.
    static constexpr std::uint64_t first_blocks = 1u << 16, blocks_of_a_record = 64;
    std::uint64_t records_ = 0, touched_blocks_ = 0;
    std::vector<std::uint64_t> first_;  // of each file, among the pages of all
    std::uint32_t* counts_ = nullptr;
    std::uint64_t pages_ = 0;
    std::vector<bool> touched_;  // by block of counters: whether one was raised
};

struct summary {
    trace_header header;
    bool binary = false;
    std::uint64_t records = 0, reads = 0, writes = 0, flushes = 0, with_content = 0;
    std::uint64_t pages_read = 0, pages_written = 0;
    std::uint64_t first_ns = 0, last_ns = 0;
    bool counted = false;  // whether the rest is known
    std::uint64_t distinct_pages = 0;
    double hottest_1 = 0,
           // Share of the accesses that the hottest 1 % and 10 % of these pages take.
        hottest_10 = 0;
};

status summarise(const std::string& path, summary& out);

// Writes what one trace has as another.
status convert(const std::string& from, const std::string& to, bool binary, std::uint64_t& records);

}  // namespace penstock::trace
