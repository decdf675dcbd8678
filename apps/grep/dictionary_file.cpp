// Reading the file of words. Every complaint names file, line, value and cure.
#include <algorithm>
#include <cerrno>
#include <numeric>

#include "common/input_file.hpp"
#include "common/message.hpp"
#include "dictionary.hpp"

namespace penstock::grep {

namespace {

status read_whole(const std::string& path, std::string& out) {
    constexpr std::size_t piece = 1 << 16;
    apps::input_stream from;
    int code = from.open(path);
    for (bool more = code == 0; more && code == 0;) {
        const std::size_t before = out.size();
        out.resize(before + piece);
        const ssize_t got = from.read(out.data() + before, piece);
        if (got < 0) code = static_cast<int>(got);
        out.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
        more = got > 0;
        if (out.size() > UINT32_MAX) code = -EFBIG;
    }
    if (code == 0) return {};
    return {code, "dictionary " + apps::shown(path) + ": " +
                      apps::about_stream(code, "give a readable file with one word per line")};
}

std::string place(const std::string& path, std::size_t line) {
    return path + ":" + std::to_string(line);
}

std::string shortened(const std::string& word) {
    return word.size() <= 40 ? word : word.substr(0, 40) + "...";
}

status check_word(const std::string& path, std::size_t line, const std::string& word) {
    const std::string start =
        place(path, line) + ": the word " + apps::shown(shortened(word)) + " ";
    if (word.empty()) return {-EINVAL, start + "is empty; remove the blank line"};
    if (word.size() > max_word_bytes)
        return {-EINVAL, start + "has " + std::to_string(word.size()) + " bytes; shorten it to " +
                             std::to_string(max_word_bytes) + " or remove it"};
    if (word.find('\0') != std::string::npos)
        return {-EINVAL,
                start + "holds a zero byte, which no text line can match; remove the byte"};
    return {};
}

status split_lines(const std::string& path, const std::string& text,
                   std::vector<std::string>& out) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        out.emplace_back(text, at, end - at);
        if (status s = check_word(path, out.size(), out.back()); !s) return s;
        at = end + 1;
    }
    if (out.empty())
        return {-EINVAL,
                "dictionary " + apps::shown(path) + ": holds no words; give one word per line"};
    return {};
}

// Says what is repeated, or nothing. `order` holds line numbers from 0, sorted by word and then by
// line.
std::string repetitions(const std::string& path, const std::vector<std::string>& lines,
                        const std::vector<std::uint32_t>& order) {
    std::size_t count = 0, first = lines.size(), original = 0;
    for (std::size_t i = 1, head = 0; i < order.size(); ++i) {
        if (lines[order[i]] != lines[order[head]]) {
            head = i;
            continue;
        }
        ++count;
        if (order[i] < first) {
            first = order[i];
            original = order[head];
        }
    }
    if (count == 0) return {};
    return place(path, first + 1) + ": the word " + apps::shown(shortened(lines[first])) +
           " is in line " + std::to_string(original + 1) + " already; " + std::to_string(count) +
           (count == 1 ? " repeated line" : " repeated lines") + " in all, remove " +
           (count == 1 ? "it" : "them");
}

void find_chained(dictionary& d) {
    std::vector<std::string> plain, chained;
    std::vector<std::uint32_t> plain_numbers, chained_numbers;
    for (std::uint32_t i = 0; i < d.words.size(); ++i) {
        if (can_overlap_itself(d.words[i])) {
            chained_numbers.push_back(static_cast<std::uint32_t>(d.chained.size()));
            d.chained.push_back({i, static_cast<std::uint32_t>(d.words[i].size())});
            chained.push_back(d.words[i]);
        } else {
            plain_numbers.push_back(i);
            plain.push_back(d.words[i]);
        }
    }
    d.plain_tables = build_tables(plain, plain_numbers);
    d.chained_tables = build_tables(chained, chained_numbers);
}

}  // namespace

status load_dictionary(const std::string& path, bool strict, dictionary& out) {
    std::string text;
    if (status s = read_whole(path, text); !s) return s;
    std::vector<std::string> lines;
    if (status s = split_lines(path, text, lines); !s) return s;
    std::vector<std::uint32_t> order(lines.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&lines](std::uint32_t a, std::uint32_t b) {
        const int by_word = lines[a].compare(lines[b]);
        return by_word != 0 ? by_word < 0 : a < b;
    });
    const std::string repeated = repetitions(path, lines, order);
    if (!repeated.empty() && strict) return {-EINVAL, repeated};
    if (!repeated.empty())
        out.warning = repeated + "; each word is counted once (--strict makes this an error)";
    else if (std::all_of(lines.begin(), lines.end(),
                         [](const std::string& l) { return l.back() == '\r'; }))
        out.warning = place(path, 1) + ": the word " + apps::shown(shortened(lines[0])) +
                      " ends in a carriage return, as all words here; if that is not meant, remove "
                      "them with tr -d '\\r'";
    for (const std::uint32_t line : order)
        if (out.words.empty() || out.words.back() != lines[line])
            out.words.push_back(std::move(lines[line]));
    find_chained(out);
    return {};
}

}  // namespace penstock::grep
