// Finds the files to search, reads and checks the file of words, and builds the tables.
#include "inputs.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <dirent.h>
#include <map>
#include <memory>
#include <numeric>
#include <sys/stat.h>

#include "common/files.hpp"
#include "common/message.hpp"
#include "os/file_kind.hpp"

namespace penstock::grep {

namespace {

struct close_directory {
    void operator()(DIR* d) const { ::closedir(d); }
};

std::string joined(const std::string& directory, const char* name) {
    return directory.back() == '/' ? directory + name : directory + "/" + name;
}

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

void look_at(const std::string& path, std::vector<std::string>& directories, file_list& out) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) complain(out, path, errno, "left out");
    else if (S_ISDIR(info.st_mode)) directories.push_back(path);
    else if (S_ISREG(info.st_mode) && is_readable(path, info, out))
        out.files.push_back({path, static_cast<std::uint64_t>(info.st_size)});
}

// 0 or an errno for `top` itself; what goes wrong further down becomes a complaint. Directories
// wait in a list and not on the call stack, so depth costs memory only.
int walk(const std::string& top, file_list& out) {
    std::vector<std::string> directories{top};
    for (bool first = true; !directories.empty(); first = false) {
        const std::string path = std::move(directories.back());
        directories.pop_back();
        const std::unique_ptr<DIR, close_directory> directory(::opendir(path.c_str()));
        if (directory == nullptr) {
            if (first) return errno;
            complain(out, path, errno, "what is below it is left out");
            continue;
        }
        errno = 0;
        while (const dirent* entry = ::readdir(directory.get())) {
            const std::string name = entry->d_name;
            if (name != "." && name != "..") look_at(joined(path, entry->d_name), directories, out);
            errno = 0;
        }
        if (errno != 0) complain(out, path, errno, "some of what is in it is left out");
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
    out.files.push_back({path, static_cast<std::uint64_t>(info.st_size)});
    out.named.push_back(path);
    return {};
}

}  // namespace

status find_files(const std::vector<std::string>& paths, file_list& out) {
    out.roots.push_back(".");  // relative names are looked up in the first root
    for (const std::string& path : paths)
        if (status s = add_path(path, out); !s) return s;
    const auto by_path = [](const input_file& a, const input_file& b) { return a.path < b.path; };
    std::sort(out.files.begin(), out.files.end(), by_path);
    const auto same = [](const input_file& a, const input_file& b) { return a.path == b.path; };
    out.files.erase(std::unique(out.files.begin(), out.files.end(), same), out.files.end());
    if (out.files.size() > UINT32_MAX)
        return {-EFBIG, std::to_string(out.files.size()) +
                            " files are more than one run can number; search them in parts"};
    return {};
}

namespace {

struct pending_key {
    std::uint32_t word = no_word;
    std::vector<std::uint8_t> lengths;
};

text_hash hash_of(const std::string& text) {
    return hash_text(reinterpret_cast<const unsigned char*>(text.data()),
                     static_cast<std::uint32_t>(text.size()), text.size());
}

std::size_t run_length(const std::string& word) {
    std::size_t n = 0;
    while (n < word.size() && is_constituent(static_cast<unsigned char>(word[n]))) ++n;
    return n;
}

std::uint32_t add_text(dictionary_tables& d, const std::string& text) {
    const auto at = static_cast<std::uint32_t>(d.text.size());
    d.text.insert(d.text.end(), text.begin(), text.end());
    return at;
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
               std::vector<std::uint64_t>& hashes, const std::string& text, std::uint32_t word,
               const std::vector<std::uint8_t>& lengths) {
    const text_hash hash = hash_of(text);
    key_entry entry{};
    entry.head = hash.head;
    entry.text_at = add_text(d, text);
    entry.word = word;
    entry.lengths_at = static_cast<std::uint32_t>(d.lengths.size());
    entry.bytes = static_cast<std::uint16_t>(text.size());
    entry.length_count = static_cast<std::uint16_t>(lengths.size());
    d.lengths.insert(d.lengths.end(), lengths.begin(), lengths.end());
    t.entries.push_back(entry);
    hashes.push_back(hash.value);
}

// Reading the file of words. Every complaint names file, line, value and cure.

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

dictionary_ref dictionary_tables::ref() const {
    dictionary_ref out = settings;
    out.keys = keys.ref();
    out.longer = longer.ref();
    out.text = text.data();
    out.lengths = lengths.data();
    return out;
}

dictionary_tables build_tables(const std::vector<std::string>& words,
                               const std::vector<std::uint32_t>& numbers) {
    dictionary_tables d;
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
            key.lengths.push_back(static_cast<std::uint8_t>(word.size()));
            add_entry(d, d.longer, longer_hashes, word, numbers[i], {});
        }
    }
    std::vector<std::uint64_t> key_hashes;
    for (auto& [text, key] : keys) {
        std::sort(key.lengths.begin(), key.lengths.end());
        key.lengths.erase(std::unique(key.lengths.begin(), key.lengths.end()), key.lengths.end());
        add_entry(d, d.keys, key_hashes, text, key.word, key.lengths);
        if (is_constituent(static_cast<unsigned char>(text[0])))
            d.settings.max_run_bytes =
                std::max(d.settings.max_run_bytes, static_cast<std::uint32_t>(text.size()));
    }
    fill_slots(d.keys, key_hashes);
    fill_slots(d.longer, longer_hashes);
    d.settings.word_count = static_cast<std::uint32_t>(words.size());
    return d;
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
