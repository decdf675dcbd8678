// Finds the files to search, reads and checks the file of words, and builds the tables.
#include "inputs.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <sys/stat.h>

#include "common/files.hpp"
#include "common/message.hpp"
#include "os/file_kind.hpp"

namespace penstock::grep {

namespace {

void complain(file_list& out, const std::string& path, int error, const char* cure) {
    out.complaints.push_back(apps::shown(path) + ": " + error_text(-error) + "; " + cure);
}

// Only a file that occupies no blocks may lie about its size; it is opened to find out.
bool is_readable(const std::string& path, struct stat& info, file_list& out) {
    host::file_kind kind = host::file_kind::regular;
    if (info.st_blocks != 0 || host::look_at_file(path, info, kind) != 0) return true;
    const std::string why = host::why_not_by_size(kind);
    if (!why.empty()) out.complaints.push_back(apps::shown(path) + ": " + why + "; left out");
    return why.empty();
}

input_file found(const std::string& path, const struct stat& info) {
    return {path, static_cast<std::uint64_t>(info.st_size), host::identity_of(info)};
}

void look_at(const std::string& path, std::vector<std::string>& directories, file_list& out) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) complain(out, path, errno, "left out");
    else if (S_ISDIR(info.st_mode)) directories.push_back(path);
    else if (S_ISREG(info.st_mode) && is_readable(path, info, out))
        out.files.push_back(found(path, info));
}

// 0 or an errno for `top` itself; what goes wrong further down becomes a complaint. Directories
// wait in a list and not on the call stack, so depth costs memory only.
int walk(const std::string& top, file_list& out) {
    std::vector<std::string> directories{top};
    for (bool first = true; !directories.empty(); first = false) {
        const std::string path = std::move(directories.back());
        directories.pop_back();
        std::error_code error;
        std::filesystem::directory_iterator entry(path, error);
        if (error && first) return error.value();
        if (error) {
            complain(out, path, error.value(), "what is below it is left out");
            continue;
        }
        for (; entry != std::filesystem::directory_iterator(); entry.increment(error))
            look_at(entry->path().native(), directories, out);
        if (error) complain(out, path, error.value(), "some of what is in it is left out");
    }
    return 0;
}

status add_path(const std::string& path, file_list& out) {
    const auto failed = [&path](int error, const char* cure) {
        return status{-error, apps::shown(path) + ": " + error_text(-error) + "; " + cure};
    };
    struct stat info {};
    if (path.empty()) return failed(ENOENT, "name a file or directory");
    if (::stat(path.c_str(), &info) != 0)
        return failed(errno, "name a file or directory that exists");
    if (S_ISDIR(info.st_mode)) {
        if (const int error = walk(path, out); error != 0)
            return failed(error, "name a directory that can be read");
        out.roots.push_back(path);
        return {};
    }
    if (!S_ISREG(info.st_mode))
        return {-EOPNOTSUPP,
                apps::shown(path) +
                    ": neither a regular file nor a directory; copy what it gives to a file first"};
    if (status s = apps::look_at_input(path, "name a file that can be read", info); !s) return s;
    out.files.push_back(found(path, info));
    out.named.push_back(path);
    return {};
}

}  // namespace

status find_files(const std::vector<std::string>& paths, file_list& out) {
    out.roots.push_back(".");  // relative names are looked up in the first root
    for (const std::string& path : paths)
        if (status s = add_path(path, out); !s) return s;
    std::ranges::sort(out.files, {}, &input_file::path);
    const auto repeated = std::ranges::unique(out.files, {}, &input_file::path);
    out.files.erase(repeated.begin(), repeated.end());
    if (out.files.size() <= UINT32_MAX) return {};
    return {-EFBIG, std::to_string(out.files.size()) +
                        " files are more than one run can number; search them in parts"};
}

namespace {

struct pending_key {
    std::uint32_t word = no_word;
    std::set<std::uint8_t> lengths;
};

std::size_t run_length(const std::string& word) {
    std::size_t n = 0;
    while (n < word.size() && is_constituent(static_cast<unsigned char>(word[n]))) ++n;
    return n;
}

// At most half full, so that a search ends soon.
void fill_slots(dictionary_tables::table& t, const std::vector<std::uint64_t>& hashes) {
    t.slots.assign(std::bit_ceil(std::max<std::size_t>(2 * hashes.size(), 8)), 0);
    const std::uint64_t mask = t.slots.size() - 1;
    for (std::uint32_t i = 0; i < hashes.size(); ++i) {
        std::uint64_t at = hashes[i] & mask;
        while (t.slots[at] != 0) at = (at + 1) & mask;
        t.slots[at] = (hashes[i] & ~std::uint64_t{0xffffffff}) | (i + 1);
    }
}

void add_entry(dictionary_tables& d, dictionary_tables::table& t,
               std::vector<std::uint64_t>& hashes, const std::string& text,
               const pending_key& key) {
    const auto bytes = static_cast<std::uint16_t>(text.size());
    const text_hash hash =
        hash_text(reinterpret_cast<const unsigned char*>(text.data()), bytes, text.size());
    t.entries.push_back({.head = hash.head,
                         .text_at = static_cast<std::uint32_t>(d.text.size()),
                         .word = key.word,
                         .lengths_at = static_cast<std::uint32_t>(d.lengths.size()),
                         .bytes = bytes,
                         .length_count = static_cast<std::uint16_t>(key.lengths.size())});
    d.text.insert(d.text.end(), text.begin(), text.end());
    d.lengths.insert(d.lengths.end(), key.lengths.begin(), key.lengths.end());
    hashes.push_back(hash.value);
}

// Reading the file of words. Every complaint names file, line, value and cure.

status read_whole(const std::string& path, std::string& out) {
    std::vector<char> piece(1 << 16);
    apps::input_stream from;
    ssize_t got = from.open(path);
    for (bool more = got == 0; more; more = got > 0) {
        got = from.read(piece.data(), piece.size());
        if (got > 0) out.append(piece.data(), static_cast<std::size_t>(got));
        if (out.size() > UINT32_MAX) got = -EFBIG;
    }
    if (got == 0) return {};
    const int code = static_cast<int>(got);
    return {code, "dictionary " + apps::shown(path) + ": " +
                      apps::about_stream(code, "give a readable file with one word per line")};
}

// The beginning of a message about a word; lines are numbered from 0 here.
std::string word_at(const std::string& path, std::size_t line, const std::string& word) {
    return path + ":" + std::to_string(line + 1) + ": the word " +
           apps::shown(word.size() <= 40 ? word : word.substr(0, 40) + "...");
}

status split_lines(const std::string& path, const std::string& text,
                   std::vector<std::string>& out) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string& word = out.emplace_back(text, at, end - at);
        at = end + 1;
        std::string defect;
        if (word.empty()) defect = " is empty; remove the blank line";
        else if (word.size() > max_word_bytes)
            defect = " has " + std::to_string(word.size()) + " bytes; shorten it to " +
                     std::to_string(max_word_bytes) + " or remove it";
        else if (word.find('\0') != std::string::npos)
            defect = " holds a zero byte, which no text line can match; remove the byte";
        if (!defect.empty()) return {-EINVAL, word_at(path, out.size() - 1, word) + defect};
    }
    if (!out.empty()) return {};
    return {-EINVAL,
            "dictionary " + apps::shown(path) + ": holds no words; give one word per line"};
}

status build_both_tables(dictionary& d) {
    for (const bool chains : {false, true}) {
        std::vector<std::string> words;
        std::vector<std::uint32_t> numbers;
        for (std::uint32_t i = 0; i < d.words.size(); ++i) {
            const std::string& word = d.words[i];
            if (can_overlap_itself(word) != chains) continue;
            words.push_back(word);
            numbers.push_back(chains ? static_cast<std::uint32_t>(d.chained.size()) : i);
            if (chains) d.chained.push_back({i, static_cast<std::uint32_t>(word.size())});
        }
        if (status s = build_tables(words, numbers, chains ? d.chained_tables : d.plain_tables); !s)
            return s;
    }
    return {};
}

}  // namespace

dictionary_ref dictionary_tables::ref() const {
    dictionary_ref out = settings;
    out.keys = keys.ref();
    out.longer = longer.ref();
    out.text = text.data();
    out.lengths = lengths.data();
    return out;
}

status build_tables(const std::vector<std::string>& words,
                    const std::vector<std::uint32_t>& numbers, dictionary_tables& out,
                    std::uint64_t most_bytes) {
    dictionary_tables d;
    const auto is_too_large = [&] {
        return d.text.size() > most_bytes || d.lengths.size() > most_bytes;
    };
    std::map<std::string, pending_key> keys;  // in order, so that equal input gives equal tables
    std::vector<std::uint64_t> longer_hashes;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        const std::size_t run = run_length(word);
        const auto first = static_cast<unsigned char>(word[0]);
        if (run == 0) d.settings.lead_bits[first >> 6] |= std::uint64_t{1} << (first & 63);
        pending_key& key = keys[word.substr(0, std::max<std::size_t>(run, 1))];
        if (run == word.size()) {
            key.word = numbers[i];
        } else {
            key.lengths.insert(static_cast<std::uint8_t>(word.size()));
            add_entry(d, d.longer, longer_hashes, word, {numbers[i], {}});
            if (is_too_large()) return {-EFBIG, ""};
        }
    }
    std::vector<std::uint64_t> key_hashes;
    for (const auto& [text, key] : keys) {
        add_entry(d, d.keys, key_hashes, text, key);
        if (is_too_large()) return {-EFBIG, ""};
        if (is_constituent(static_cast<unsigned char>(text[0])))
            d.settings.max_run_bytes =
                std::max(d.settings.max_run_bytes, static_cast<std::uint32_t>(text.size()));
    }
    fill_slots(d.keys, key_hashes);
    fill_slots(d.longer, longer_hashes);
    d.settings.word_count = static_cast<std::uint32_t>(words.size());
    out = std::move(d);
    return {};
}

// A second match may begin `shift` bytes into a first one if the rest of the word equals its
// beginning, the byte before it (inside the first) is no constituent, and the byte behind the first
// (inside the second) is none either.
bool can_overlap_itself(const std::string& word) {
    for (std::size_t shift = 1; shift < word.size(); ++shift) {
        const std::size_t shared = word.size() - shift;
        if (word.compare(shift, shared, word, 0, shared) == 0 &&
            !is_constituent(static_cast<unsigned char>(word[shift - 1])) &&
            !is_constituent(static_cast<unsigned char>(word[shared])))
            return true;
    }
    return false;
}

status load_dictionary(const std::string& path, bool strict, dictionary& out) {
    std::string text;
    if (status s = read_whole(path, text); !s) return s;
    std::vector<std::string> lines;
    if (status s = split_lines(path, text, lines); !s) return s;
    std::map<std::string_view, std::size_t> first_line;  // of each word
    std::size_t repetitions = 0, repeated = 0;           // their number, and the first of them
    for (std::size_t line = 0; line < lines.size(); ++line)
        if (!first_line.emplace(lines[line], line).second && repetitions++ == 0) repeated = line;
    if (repetitions != 0) {
        const bool single = repetitions == 1;
        out.warning =
            word_at(path, repeated, lines[repeated]) + " is in line " +
            std::to_string(first_line[lines[repeated]] + 1) + " already; " +
            std::to_string(repetitions) +
            (single ? " repeated line in all, remove it" : " repeated lines in all, remove them");
        if (strict) return {-EINVAL, out.warning};
        out.warning += "; each word is counted once (--strict makes this an error)";
    } else if (std::ranges::all_of(lines, [](const auto& l) { return l.back() == '\r'; })) {
        out.warning = word_at(path, 0, lines[0]) +
                      " ends in a carriage return, as all words here; if that is not meant, remove "
                      "them with tr -d '\\r'";
    }
    for (const auto& [word, line] : first_line) out.words.emplace_back(word);
    if (const status s = build_both_tables(out); !s)
        return {s.code, "dictionary " + apps::shown(path) +
                            ": its words are more than tables of 4 GiB take; search with parts of "
                            "it, one after the other"};
    return {};
}

}  // namespace penstock::grep
