// Reads files piece by piece on several threads and hands the pieces out in order, so that several
// reads are in flight while the pieces before them are written.
//
// Thread safety: one thread makes the reader, calls next() and destroys it; the reader has threads
// of its own. They hold at most `readers * 2` pieces in memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "penstock/runtime.hpp"

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
