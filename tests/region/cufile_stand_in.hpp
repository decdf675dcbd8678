// What a test tells the library that stands for cuFile (cufile_stand_in.cpp), and what that counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace penstock::test {

enum class read_fault : int {
    none,
    error,         // -1 with EIO
    library_code,  // minus a code of the library
    end,           // 0 bytes
    too_many,      // more bytes than asked for
    // Canaries: no caller can find these, so a test that compares bytes has to.
    wrong_byte,  // one byte is another
    unread,      // claims all, and reads half
};

struct stand_in_controls {
    std::atomic<int> open_code{0}, file_code{0}, buffer_code{0}, properties_code{0};
    std::atomic<bool> holds_open{false};  // the call to open waits until this is false
    std::atomic<unsigned> major{0}, minor{0}, storage{0}, control{0}, features{0}, ways{0};
    std::atomic<std::uint64_t> longest_read{UINT64_MAX};
    std::atomic<std::uint64_t> faulty_read{0};  // which one, from 1; 0: none
    std::atomic<read_fault> fault{read_fault::none};
    std::atomic<std::uint64_t> opens{0}, reads{0}, bytes{0};
    std::atomic<int> files{0}, buffers{0};  // now

    void reset() {
        open_code = file_code = buffer_code = properties_code = 0;
        holds_open = false;
        major = minor = storage = control = features = ways = 0;
        longest_read = UINT64_MAX;
        faulty_read = 0;
        fault = read_fault::none;
        opens = reads = bytes = 0;
        files = buffers = 0;
    }
};

}  // namespace penstock::test
