// What is read before a search begins: which files there are, and the dictionary, with the tables
// that the scanning code looks into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "os/env.hpp"
#include "penstock/error.hpp"
#include "search_view.hpp"

namespace penstock::grep {

struct input_file {
    std::string path;  // as printed
    std::uint64_t bytes = 0;
    host::file_identity version;  // which file it is, by whatever path, and since when
};

struct file_list {
    std::vector<input_file> files;   // sorted bytewise by path, each path once
    std::vector<std::string> roots;  // directories below which they lie, for the runtime's options
    std::vector<std::string> named;  // files named on the command line, for runtime::allow
    std::vector<std::string> complaints;  // what could not be looked at inside a directory
};

// Regular files as they are; directories with everything below them, links inside not followed,
// other kinds of file inside skipped. A path that is absent, unreadable or neither file nor
// directory is an error: a negative errno and a message with path and cure.
status find_files(const std::vector<std::string>& paths, file_list& out);

// The dictionary on the host: reading and checking the file of words, and the tables the scanning
// code looks into.

// Tables in ordinary memory. A dictionary_ref of them may be used on the host, or copied to a
// device array by array.
struct dictionary_tables {
    struct table {
        std::vector<std::uint64_t> slots;
        std::vector<key_entry> entries;
        [[nodiscard]] hash_table_ref ref() const {
            return {slots.data(), entries.data(), slots.size() - 1};
        }
    };
    table keys;
    table longer;
    std::vector<unsigned char> text;
    std::vector<std::uint8_t> lengths;
    dictionary_ref settings{};  // everything but the pointers

    [[nodiscard]] dictionary_ref ref() const;
};

// `words` may be in any order, without repetition; word i is reported as numbers[i]. -EFBIG without
// a message if the texts of the entries, or the lengths, are more than `most_bytes`: an entry says
// in 32 bits where its own begin. A word that begins with a run of constituents has that there
// twice.
status build_tables(const std::vector<std::string>& words,
                    const std::vector<std::uint32_t>& numbers, dictionary_tables& out,
                    std::uint64_t most_bytes = UINT32_MAX);

// True if two matches of the word could overlap, so that the left one rules out the right one.
bool can_overlap_itself(const std::string& word);

struct dictionary {
    std::vector<std::string>
        words;  // sorted bytewise, no repetition; a word's number is its place here
    std::vector<chained_word> chained;  // those that can overlap themselves
    dictionary_tables plain_tables;
    dictionary_tables chained_tables;  // reports places in `chained`
    std::string
        warning;  // about repeated words or carriage returns; empty if there is nothing to say
};

// Reads one word per line. -EINVAL and a message that names file, line, value and cure if a line is
// no word, or, with `strict`, if a word is repeated; -EFBIG if the tables cannot take all words;
// -errno if the file cannot be read.
status load_dictionary(const std::string& path, bool strict, dictionary& out);

}  // namespace penstock::grep
