// The text of statistics for Prometheus. tests/apps_penstock/stat_test.py has a parser judge it.
#include <map>
#include <set>
#include <sstream>

#include "penstock/prometheus.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

statistics some_statistics() {
    statistics s;
    s.hits = 10;
    s.window_loads = 1;
    s.through_reads = 2;
    s.tier_loads = 3;
    s.neighbour_loads = 4;
    s.neighbour_reads = 5;
    s.request_loads = 6;
    s.service_threads = 7;
    s.helpers_for_stalls = 8;
    s.latency_ns[10] = 2;
    s.latency_ns[31] = 1;
    return s;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> out;
    for (std::string line; std::getline(stream, line);) out.push_back(line);
    return out;
}

}  // namespace

TEST(prometheus, numbers_stand_behind_their_sources) {
    const std::string text = prometheus_text(some_statistics());
    for (const char* line :
         {"\npenstock_hits_total 10\n", "\npenstock_misses_total{source=\"window\"} 3\n",
          "\npenstock_misses_total{source=\"tier\"} 3\n",
          "\npenstock_misses_total{source=\"neighbour\"} 9\n",
          "\npenstock_misses_total{source=\"request\"} 6\n", "\npenstock_service_threads 7\n",
          "\npenstock_helpers_total{cause=\"backlog\"} 0\n",
          "\npenstock_helpers_total{cause=\"stall\"} 8\n",
          "\npenstock_request_seconds_bucket{le=\"1.024e-06\"} 0\n",
          "\npenstock_request_seconds_bucket{le=\"2.048e-06\"} 2\n",
          "\npenstock_request_seconds_bucket{le=\"2.14748365\"} 2\n",
          "\npenstock_request_seconds_bucket{le=\"+Inf\"} 3\n",
          "\npenstock_request_seconds_count 3\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(prometheus, each_metric_is_told_once_with_a_line_for_each_runtime) {
    const std::vector<labelled_statistics> two = {{some_statistics(), {{"pid", "1"}}},
                                                  {some_statistics(), {{"pid", "2"}}}};
    std::map<std::string, int> types;
    std::set<std::string> samples;
    for (const std::string& line : lines_of(prometheus_text(two))) {
        if (line.rfind("# TYPE ", 0) == 0) ++types[line];
        if (line.front() == '#') continue;
        EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
    for (const auto& [line, times] : types) EXPECT_EQ(times, 1) << line;
    EXPECT_TRUE(samples.count("penstock_hits_total{pid=\"1\"}"));
    EXPECT_TRUE(samples.count("penstock_misses_total{pid=\"2\",source=\"tier\"}"));
    EXPECT_TRUE(prometheus_text(std::span<const labelled_statistics>()).empty());
}

TEST(prometheus, values_of_labels_are_escaped) {
    const std::string text = prometheus_text({}, {{"program", "a\"b\\c\nd"}});
    EXPECT_NE(text.find("penstock_hits_total{program=\"a\\\"b\\\\c\\nd\"} 0\n"), std::string::npos);
}

// A program's name may be cut in the middle of a letter; a reader of the text takes UTF-8 alone.
TEST(prometheus, values_of_labels_are_utf8) {
    const std::string text = prometheus_text({}, {{"program", "\xc3\xa4 \xff \xe6\x97"}});
    EXPECT_NE(text.find("program=\"\xc3\xa4 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\""),
              std::string::npos);
    for (const char* wrong :
         {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80"})
        EXPECT_EQ(prometheus_text({}, {{"program", wrong}}).find(wrong), std::string::npos);
    for (const char* right :
         {"\xf4\x8f\xbf\xbf", "\xf0\x9f\x98\x80", "\xef\xbf\xbf", "\xe0\xa0\x80"})
        EXPECT_NE(prometheus_text({}, {{"program", right}}).find(right), std::string::npos);
}

}  // namespace penstock::test
