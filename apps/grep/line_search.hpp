// Lines that hold a word of the dictionary: kernels print them, and the host puts the output of all
// pieces of files in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "inputs.hpp"
#include "penstock/error.hpp"
#include "penstock/runtime.hpp"
#include "search.hpp"
#include "search_view.hpp"

namespace penstock::grep {

struct line_view;
struct line_result;

struct printed_lines {
    std::uint64_t lines = 0;
    std::uint64_t bytes = 0;
    std::vector<file_error> errors;  // files whose lines are left out
    std::uint64_t jobs = 0;
    std::uint64_t launches = 0;
    double launch_seconds = 0;  // while kernels ran, or the threads that stand for them
    double join_seconds = 0;    // copying the output in order
};

// Runs the groups of a launch over the view's jobs. 0 or a negative errno of launch().
int launch_lines(runtime& rt, const line_view& view, std::uint64_t groups);

// Prints FILE:LINE:TEXT for each line with a word, by file and line, as `grep -a -n -H -w -F` does.
// Not thread-safe.
class line_search {
public:
    // `by` is of the runtime, whose options are `writable`. All must outlive the search.
    line_search(runtime& rt, search_method& by, const dictionary& words, const file_list& files,
                bool null_ends);
    ~line_search();
    line_search(const line_search&) = delete;
    line_search& operator=(const line_search&) = delete;

    // Once, before print(): places what does not change.
    status prepare();

    // Once. Kernels append blocks of lines to a passing file in the directory for temporary files;
    // what they have written goes to `out` in order. Fails only if the search as a whole does.
    status print(std::uint64_t piece_bytes, apps::output_file& out, printed_lines& report);

    [[nodiscard]] std::uint64_t groups() const { return groups_; }

private:
    struct piece {
        job where;
        std::uint64_t lines_before;
        std::uint64_t newlines;
        std::uint64_t last_block;
        std::uint64_t lines;
    };

    status place();
    status run(bool counts, const std::vector<std::uint32_t>& places, printed_lines& report);
    status run_batch(bool counts, const std::vector<std::uint32_t>& places, std::uint64_t groups,
                     std::vector<std::int32_t>& codes, printed_lines& report);
    status count_lines_before(printed_lines& report);
    status copy_in_order(int blocks, apps::output_file& out, printed_lines& report) const;

    runtime& rt_;
    search_method& by_;
    const dictionary& words_;
    const std::vector<input_file>& files_;
    const bool null_ends_;
    std::unique_ptr<line_view> view_;
    std::uint64_t groups_ = 1;
    job* room_for_jobs_ = nullptr;
    std::uint64_t* room_for_lines_ = nullptr;
    std::vector<piece> pieces_;        // by file, then place
    std::vector<std::int32_t> codes_;  // per file: 0 or why it is left out
};

// The same lines by the host, one at a time: the reference that the kernels' output must equal.
status print_lines_by_host(const dictionary& words, const file_list& files, bool null_ends,
                           apps::output_file& out, printed_lines& report);

}  // namespace penstock::grep
