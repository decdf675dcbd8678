// From the records that groups wrote, in any order, to counts sorted by file and word.
#pragma once

#include <cstdint>
#include <vector>

#include "common/big_vector.hpp"
#include "search_view.hpp"

namespace penstock::grep {

struct word_count {
    std::uint32_t file;
    std::uint32_t word;
    std::uint64_t count;

    friend bool operator==(const word_count&, const word_count&) = default;
};

// Records of one file that lie one after the other. They must outlive the call they are given to.
struct record_run {
    std::uint32_t file;
    const record* first;
    std::uint64_t count;
};

// Adds the runs of `records` to `runs`: a job's records lie together. `file_of(record)` is a file,
// or `no_file` to leave the record out.
inline constexpr std::uint32_t no_file = ~std::uint32_t{0};
template <typename FileOf>
void find_runs(const apps::big_vector<record>& records, std::vector<record_run>& runs,
               const FileOf& file_of) {
    std::uint64_t end = 0;
    for (std::uint64_t begin = 0; begin < records.size(); begin = end) {
        const std::uint32_t file = file_of(records[begin]);
        for (end = begin + 1; end < records.size() && file_of(records[end]) == file;) ++end;
        if (file != no_file) runs.push_back({file, records.data() + begin, end - begin});
    }
}

// Sorted by file, then word; counts of the same word in the same file are added up. Done by up to
// `threads` threads, because at millions of records one thread would take longer than all of them
// took to count.
apps::big_vector<word_count> join_records(std::vector<record_run> runs, unsigned threads);

}  // namespace penstock::grep
