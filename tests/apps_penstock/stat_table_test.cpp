// The table of `penstock stat`: names and numbers of caches that this machine does not have.
#include "stat_table.hpp"

#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

cache_report report_of(const std::string& program, std::uint64_t gpu) {
    cache_report out;
    out.pid = 4194304;  // the largest that Linux gives
    out.program = program;
    out.now.is_gpu = 1;
    out.now.device_number = gpu;
    return out;
}

// Without the end of the line.
std::string line_of(const cache_report& report) {
    const std::string line = table_line(report, nullptr);
    return line.substr(0, line.size() - 1);
}

std::size_t letters_in(const std::string& text) {
    std::size_t out = 0;
    for (const char c : text) out += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    return out;
}

}  // namespace

TEST(stat_table, number_of_a_device_is_whole) {
    const std::string line = line_of(report_of("train", 10));
    EXPECT_EQ(line.substr(0, 24), "4194304 train     gpu10 ");
    EXPECT_EQ(line.size(), 79u);
    EXPECT_EQ(table_head().size(), 80u);
    EXPECT_NE(line_of(report_of("train", 100)).find(" gpu100 "), std::string::npos);
    EXPECT_NE(line_of(report_of("train", 1000)).find(" gpu1000 "), std::string::npos);
}

TEST(stat_table, name_that_is_cut_says_so) {
    EXPECT_EQ(line_of(report_of("penstock-grep", 0)).substr(8, 16), "penstock+ gpu0  ");
    EXPECT_EQ(line_of(report_of("penstocks", 0)).substr(8, 16), "penstocks gpu0  ");
}

TEST(stat_table, letters_in_names_stay_whole) {
    EXPECT_NE(line_of(report_of("日本語のプログラム名", 3)).find(" 日本語のプログラ+ gpu3  "),
              std::string::npos);
    for (const char* name : {"p\xc3\xa4rchen", "cut in \xe6\x97", "\xff", "\xed\xa0\x80x", ""}) {
        const std::string line = line_of(report_of(name, 3));
        EXPECT_EQ(letters_in(line), 79u) << line;
        EXPECT_EQ(line.find('\xff'), std::string::npos);
    }
}

TEST(stat_table, columns_hold_the_largest_counts) {
    cache_report report = report_of("train", 3);
    statistics& counted = report.now.counted;
    for (std::uint64_t* const count :
         {&counted.hits, &counted.window_loads, &counted.tier_loads, &counted.neighbour_loads,
          &counted.request_loads, &counted.bytes_read, &counted.load_waits, &counted.errors,
          &counted.resident_pages, &report.now.cache_pages})
        *count = UINT64_MAX;
    EXPECT_EQ(line_of(report).size(), 79u) << line_of(report);
    for (const double value : {0., 0.4, 9.94, 9.96, 999.4, 999.5, 9949., 9951., 999499., 1.8e19})
        EXPECT_LE(short_number(value).size(), 4u) << value;
}

TEST(stat_table, each_cache_of_a_process_has_a_number_of_its_own) {
    std::vector<cache_report> all;
    // Two copies of the library in one process, and another process.
    const std::pair<int, std::uint64_t> found[] = {{7, 0}, {7, 1}, {9, 0}, {7, 0}, {7, 1}, {7, 5}};
    for (const auto& [pid, number] : found) {
        all.push_back(report_of(std::to_string(all.size()), 0));
        all.back().pid = pid;
        all.back().now.cache_number = number;
    }
    number_caches(all);
    std::string seen;
    for (const cache_report& each : all)
        seen += each.program + ":" + std::to_string(each.now.cache_number) + " ";
    EXPECT_EQ(seen, "0:0 3:1 1:2 4:3 5:5 2:0 ");
}

}  // namespace penstock::cli
