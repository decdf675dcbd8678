// Files that cat and cp are told to read: which can be, what their errors mean to the user, and a
// reader of many that hands out their pieces in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

// What can be done about an error of reading a file; `instead` is the program for files that are no
// regular ones.
std::string cure_of_reading(std::int64_t code, const char* instead);

// "'name': text of the error; cure".
status about_source(const std::string& name, std::int64_t code, const char* instead);

// Looks at a file before there is a runtime, so that a wrong name costs no time and one line.
//
// Files of /proc and the like say that they have another size than they have. Through a cache of
// what the size promises they would look empty or cut, so they are refused.
status look_at_source(const std::string& name, const char* instead, struct stat& facts);

}  // namespace penstock::apps

namespace penstock::cat {

struct open_file {
    int fd = -1;
    std::uint64_t size_bytes = 0;  // how much of it is read
};

// A piece of files[file]. Error: a negative errno, and no bytes.
struct piece {
    std::size_t file = 0;
    std::vector<char> bytes;
    std::int64_t error = 0;
};

class ordered_reader {
public:
    ordered_reader(runtime& rt, const std::vector<open_file>& files, std::uint64_t piece_bytes,
                   std::uint32_t readers);
    ~ordered_reader();  // waits for the reads in flight
    ordered_reader(const ordered_reader&) = delete;
    ordered_reader& operator=(const ordered_reader&) = delete;

    // The next piece, or false after the last. Waits for it to be read. `out` is exchanged for the
    // piece, so passing the same one again saves the memory from being made anew.
    bool next(piece& out);

private:
    struct slot {
        piece content;
        bool ready = false;
    };

    void stop();
    void read_pieces();
    std::uint64_t pieces_of(const open_file& file) const;
    void fill(piece& out, std::uint64_t number_in_file);

    runtime& rt_;
    const std::vector<open_file>& files_;
    const std::uint64_t piece_bytes_;
    std::mutex
        mutex_;  // guards everything below, but not the content of a slot that is being read into
    std::condition_variable room_;
    std::condition_variable arrived_;
    std::vector<slot> slots_;
    std::uint64_t started_ = 0;     // pieces given to threads
    std::uint64_t handed_out_ = 0;  // pieces given to next()
    std::uint64_t total_ = 0;
    std::size_t file_ = 0;  // where piece number `started_` lies
    std::uint64_t number_in_file_ = 0;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace penstock::cat
