// Traces: both formats, what they refuse, contents and patterns.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "cli/trace/patterns.hpp"
#include "cli/trace/trace.hpp"
#include "cli/trace/formats.hpp"

namespace penstock::trace::test {

namespace {

const std::string header_lines =
    "penstock-trace 1\n# made by hand\npage 4096\nfile 0 100 some where/a\nfile 1 8  b\ncontents "
    "60 7\ncommon 4 10 25\n\n";

const std::string records_lines =
    "0 R 0 12 4\n# a comment\n\n5 W 1\t3 1 77\n5 F 1 0 0\n  18446744073709551615  W 0 99  1 \n";

const std::vector<record> records = {{0, 12, 0, 0, 4, operation::read, false},
                                     {5, 3, 77, 1, 1, operation::write, true},
                                     {5, 0, 0, 1, 0, operation::flush, false},
                                     {UINT64_MAX, 99, 0, 0, 1, operation::write, false}};

class traces : public testing::Test {
protected:
    void TearDown() override { std::remove(path_.c_str()); }

    const std::string& made(const std::string& bytes) {
        std::ofstream(path_, std::ios::binary) << bytes;
        return path_;
    }
    [[nodiscard]] std::string bytes() const {
        std::ostringstream out;
        out << std::ifstream(path_, std::ios::binary).rdbuf();
        return out.str();
    }
    // The message of the first error, or nothing; what came before it goes to `out`.
    std::string read(std::size_t piece, std::size_t most, std::vector<record>& out) {
        reader from;
        if (status s = from.open(path_, piece); !s) return s.message;
        header_ = from.header();
        std::vector<record> some;
        do {
            if (status s = from.next(some, most); !s) {
                EXPECT_TRUE(some.empty());
                EXPECT_EQ(from.next(some, most).message, s.message);
                EXPECT_TRUE(some.empty());
                return s.message;
            }
            out.insert(out.end(), some.begin(), some.end());
        } while (!some.empty());
        return {};
    }
    // Why a trace of these bytes is refused.
    std::string refusal(const std::string& text) {
        made(text);
        std::vector<record> out;
        return read(usual_piece_bytes, 100, out);
    }
    void write(const trace_header& header, const std::vector<record>& all, bool binary) {
        writer to;
        ASSERT_TRUE(to.open(path_, {}, header, binary).ok());
        ASSERT_TRUE(to.add(all).ok());
        ASSERT_TRUE(to.commit().ok());
    }

    std::string path_ = testing::TempDir() + "penstock_trace_" + std::to_string(::getpid()) +
                        testing::UnitTest::GetInstance()->current_test_info()->name();
    trace_header header_;
};

// A text, and a part of the message that refuses it.
struct bad_line {
    std::string line, part;
};

}  // namespace

TEST_F(traces, text_gives_header_and_records) {
    made(header_lines + records_lines);
    std::vector<record> out;
    EXPECT_EQ(read(usual_piece_bytes, 100, out), "");
    EXPECT_EQ(out, records);
    ASSERT_EQ(header_.files.size(), 2u);
    EXPECT_EQ(header_.files[0].path, "some where/a");
    EXPECT_EQ(header_.files[1].path, " b");
    EXPECT_EQ(header_.files[1].pages, 8u);
    EXPECT_EQ(header_.contents->distinct, 60u);
    EXPECT_EQ(header_.contents->own_distinct, 25u);
}

TEST_F(traces, small_pieces_give_the_same_records) {
    std::string text = header_lines;
    for (int i = 0; i < 300; ++i)
        text += std::to_string(i * 1000) + " W 0 " + std::to_string(i % 100) + " 1 " +
                std::to_string(i) + "\n";
    for (const bool binary : {false, true}) {
        made(text);
        std::vector<record> all;
        ASSERT_EQ(read(usual_piece_bytes, 1000, all), "");
        ASSERT_EQ(all.size(), 300u);
        write(header_, all, binary);
        for (const std::size_t piece : {1, 2, 7, 31, 33, 4096})
            for (const std::size_t most : {1, 3, 1000}) {
                std::vector<record> out;
                EXPECT_EQ(read(piece, most, out), "");
                EXPECT_EQ(out, all) << piece << " bytes, " << most << " records";
            }
    }
}

TEST_F(traces, what_is_written_reads_the_same_in_both_formats) {
    for (const bool binary : {false, true}) {
        trace_header header;
        header.page_bytes = 512;
        header.files = {{"a b ", 100}, {"c", 8}};
        header.contents = made_contents{60, UINT64_MAX, 4, 10, 25};
        write(header, records, binary);
        std::vector<record> out;
        EXPECT_EQ(read(usual_piece_bytes, 100, out), "");
        EXPECT_EQ(out, records);
        EXPECT_EQ(header_.page_bytes, 512u);
        EXPECT_EQ(header_.files[0].path, "a b ");
        EXPECT_EQ(header_.contents->seed, UINT64_MAX);
        EXPECT_EQ(header_.contents->common_pages, 4u);
    }
}

TEST_F(traces, malformed_records_name_line_and_reason) {
    const bad_line all[] = {
        {"x R 0 1 1", "TIME_NS 'x' is no whole number"},
        {"-1 R 0 1 1", "TIME_NS '-1' is no whole number"},
        {"18446744073709551616 R 0 1 1", "too large"},
        {"4 R 0 1 1", "time 4 lies before 5"},
        {"6 X 0 1 1", "'X' is no operation; expected R, W or F"},
        {"6 RW 0 1 1", "'RW' is no operation"},
        {"6 R 2 1 1", "file 2 is not in the header; expected 0 to 1"},
        {"6 R 4294967296 1 1", "FILE '4294967296' is too large"},
        {"6 R 0 100 1", "beyond the end of file 0, which has 100"},
        {"6 R 0 99 2", "2 pages from page 99 on lie beyond"},
        {"6 R 0 18446744073709551615 2", "beyond the end"},
        {"6 R 0 1 0", "PAGES is 0"},
        {"6 R 0 1 1 5", "only a write has one"},
        {"6 W 0 1 1 4611686018427387904", "content number 4611686018427387904 is too large"},
        {"6 W 0 1 1 5 6", "'6' is one field too many"},
        {"6 F 0 1 1", "a flush is of a whole file"},
        {"6 F 0 0 0 1", "only a write has one"},
        {"6 R 0 1", "4 fields; expected TIME_NS R|W|F FILE PAGE PAGES [CONTENT]"},
        {"6 R 0 1 1x", "PAGES '1x' is no whole number"},
        {"6 R 0 1 1\r", "PAGES '1\\x0d' is no whole number"},
        {std::string("6 R 0 1 1\0", 10), "NUL byte"},
        {std::string(9000, '1'), "more than 8,192 bytes"},
    };
    for (const bad_line& bad : all) {
        const std::string message =
            refusal(header_lines + records_lines.substr(0, records_lines.find("  184")) + bad.line +
                    "\n9 R 0 1 1\n");
        EXPECT_NE(message.find(bad.part), std::string::npos) << bad.line.substr(0, 80) << "\n"
                                                             << message;
        EXPECT_NE(message.find("' line 14: "), std::string::npos) << message;
    }
}

TEST_F(traces, malformed_headers_name_line_and_reason) {
    const std::string begin = "penstock-trace 1\npage 4096\nfile 0 100 a\n";
    const bad_line all[] = {
        {"", "line 1: the file is empty"},
        {"penstock-trace 2\n", "line 1: 'penstock-trace 2' is not how a trace of version 1 begins"},
        {"penstock-trace 1\npage 4096\nfile 0 100 a\n", "line 4: the file ends in its header"},
        {"penstock-trace 1\npage 4096\n\n", "line 3: the header has no line 'file'"},
        {"penstock-trace 1\nfile 0 1 a\n\n", "line 3: the header has no line 'page'"},
        {"penstock-trace 1\npage 1000\n", "a power of two"},
        {"penstock-trace 1\npage 256\n", "from 512"},
        {begin + "page 4096\n", "a second line 'page'"},
        {begin + "file 2 100 b\n", "expected file 1"},
        {begin + "file 1 0 b\n", "at least 1"},
        {begin + "file 1 5\n", "without a path"},
        {begin + "file 1 5 a\n\n", "two files are called 'a'"},
        {begin + "file 1 1125899906842625 b\n\n", "at most 1,125,899,906,842,624 fit"},
        {begin + "contents 0 1\n", "DISTINCT is 0"},
        {begin + "contents 5\n", "expected contents DISTINCT SEED"},
        {begin + "common 1 1 1\n", "without 'contents' before it"},
        {begin + "contents 5 1\ncommon 10 2 2\n\n", "add up to"},
        {begin + "contents 5 1\ncommon 10 5 0\n\n", "has pages of its own"},
        {begin + "contents 5 1\ncommon 0 0 0\n\n", "add up to"},
        {begin + "colour red\n", "'colour red' is no line of a header"},
        {begin + "\n0 R 0 1 1", "line 5: has no line end"},
    };
    for (const bad_line& bad : all) {
        const std::string message = refusal(bad.line);
        EXPECT_NE(message.find(bad.part), std::string::npos) << bad.line << "\n" << message;
    }
}

TEST_F(traces, every_cut_and_every_changed_byte_of_a_binary_trace_is_noticed) {
    trace_header header;
    header.files = {{"a", 100}, {"b", 8}};
    write(header, records, true);
    const std::string whole = bytes();
    std::vector<record> out;
    EXPECT_EQ(read(usual_piece_bytes, 100, out), "");
    for (std::size_t end = 1; end < whole.size(); ++end)
        EXPECT_NE(refusal(whole.substr(0, end)).find("cut short"), std::string::npos) << end;
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string other = whole;
        other[at] = static_cast<char>(other[at] ^ 1);
        EXPECT_NE(refusal(other), "") << at;
    }
    EXPECT_NE(refusal(whole + "x").find("goes on behind its end"), std::string::npos);
    std::string next = whole;
    next[8] = 2;
    EXPECT_NE(refusal(next).find("of version 2; expected version 1"), std::string::npos);
}

TEST(trace_contents, stretches_hold_every_content_once) {
    const made_contents plain{37, 5}, shared{30, 5, 10, 6, 8};
    std::map<std::uint64_t, int> times;
    for (std::uint64_t page = 0; page < 370; ++page) ++times[made_content(plain, 3, page)];
    EXPECT_EQ(times.size(), 37u);
    for (const auto& [content, count] : times) EXPECT_EQ(count, 10) << content;
    std::vector<std::set<std::uint64_t>> own(3);
    std::set<std::uint64_t> common;
    for (std::uint32_t file = 0; file < 3; ++file)
        for (std::uint64_t page = 0; page < 26; ++page) {
            const std::uint64_t content = made_content(shared, file, page);
            if (page < 10) {
                EXPECT_EQ(content, made_content(shared, 0, page));
            }
            (page < 10 ? common : own[file]).insert(content);
        }
    EXPECT_EQ(common.size(), 6u);
    for (std::uint32_t file = 0; file < 3; ++file) {
        EXPECT_EQ(own[file].size(), 8u);
        EXPECT_EQ(*own[file].begin(), 6u + 8 * file);
    }
    EXPECT_NE(made_content({1000, 1}, 0, 0), made_content({1000, 2}, 0, 0));
}

TEST(trace_contents, no_64_bytes_are_the_same_twice) {
    std::set<std::string> seen;
    std::vector<std::byte> page(4096), again(4096);
    for (std::uint64_t content = 0; content < 200; ++content) {
        fill_page(content, page.data(), 4096);
        fill_page(content, again.data(), 4096);
        EXPECT_EQ(page, again);
        for (std::size_t at = 0; at < page.size(); at += 64)
            seen.emplace(reinterpret_cast<const char*>(page.data()) + at, 64);
    }
    EXPECT_EQ(seen.size(), 200u * 64);
}

TEST(trace_patterns, zipf_has_the_probabilities_of_its_definition) {
    for (const double skew : {0.2, 0.9, 1.0, 1.3, 3.0}) {
        constexpr std::uint64_t ranks = 50, draws = 200000;
        apps::dice from(11);
        const zipf of(ranks, skew);
        std::vector<double> times(ranks + 1);
        for (std::uint64_t i = 0; i < draws; ++i) ++times.at(of.draw([&] { return from.share(); }));
        double sum = 0, chi = 0;
        for (std::uint64_t k = 1; k <= ranks; ++k) sum += std::pow(static_cast<double>(k), -skew);
        for (std::uint64_t k = 1; k <= ranks; ++k) {
            const double expected = draws * std::pow(static_cast<double>(k), -skew) / sum;
            chi += (times[k] - expected) * (times[k] - expected) / expected;
        }
        EXPECT_EQ(times[0], 0);
        EXPECT_LT(chi, 85.4)
            << skew;  // of 49 degrees of freedom: one in a thousand is above, and the seed is fixed
    }
}

TEST(trace_patterns, places_are_a_shuffle) {
    for (const std::uint64_t count : {1ull, 2ull, 3ull, 10ull, 15ull, 997ull, 4096ull}) {
        const scattered places(count, 3);
        std::set<std::uint64_t> seen;
        for (std::uint64_t rank = 0; rank < count; ++rank) seen.insert(places(rank));
        EXPECT_EQ(seen.size(), count);
        EXPECT_EQ(*seen.rbegin(), count - 1);
    }
    const std::uint64_t many = (std::uint64_t{1} << 40) - 7;
    EXPECT_LT(scattered(many, 3)(many - 1), many);
}

}  // namespace penstock::trace::test
