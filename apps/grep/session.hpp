// A run of penstock-grep: what was asked for, what it read and found, and how long each part took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "common/program.hpp"
#include "common/report_text.hpp"
#include "search.hpp"
#include "inputs.hpp"

namespace penstock::grep {

// What one method did. It starts by making the runtime and placing the dictionary.
struct method_run : apps::method_report {
    double search_seconds = 0;
    std::uint64_t groups = 0;
    std::uint64_t piece_bytes = 0;
    counted_files found;
};

struct session final : apps::command {
    session();
    void add_options(apps::option_list& add) override;
    status open() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;
    [[nodiscard]] bool complete() const override;

    // What was asked for.
    std::string dictionary_path, out;
    std::vector<std::string> paths;
    std::string method = "penstock";
    bool compare = false, strict = false, null_ends = false;
    std::uint64_t record_bytes = 0, piece_bytes = 0;  // 0: automatic

    dictionary words;
    file_list files;
    std::uint64_t total_bytes = 0;
    apps::output_file lines;
    std::vector<method_run> runs;  // the last one is the one whose lines are printed
    double dictionary_seconds = 0, find_seconds = 0, output_seconds = 0;
};

// word<TAB>path<TAB>count, one line per count, with field_of() the path; a word may have tabs, so
// lines are taken apart from their end. With --null the path as it is, and a zero byte behind every
// field in place of tabs and line ends.
status write_lines(const session& s, apps::output_file& to);

// What was left out, one line each.
void say_left_out(const session& s);

}  // namespace penstock::grep
