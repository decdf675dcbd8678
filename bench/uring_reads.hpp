// Rows of a file read with io_uring by hand, without Penstock: what tables are measured against
// where rows come from the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace penstock::bench {

// Why rows cannot be read with io_uring here; empty: they can.
std::string why_no_uring();

// Where rows lie in a file, and how they are read.
struct row_file {
    std::string path;
    std::uint64_t row_bytes = 0;  // row n begins at n * row_bytes
    bool direct = false;          // past the page cache (O_DIRECT)
};

// One ring, which one thread at a time uses. It is filled again as soon as a read has finished, its
// file is registered, and so is its memory where the kernel permits that.
class uring_reader {
public:
    // `to`: where the rows of all calls go; it holds `bytes`, from a multiple of 4096 on.
    uring_reader(const row_file& from, std::uint32_t depth, std::byte* to, std::uint64_t bytes);
    ~uring_reader();
    uring_reader(const uring_reader&) = delete;
    uring_reader& operator=(const uring_reader&) = delete;

    // Row numbers[i] to `to` + i * row_bytes, and waits for all. At most `depth` reads in flight.
    void read(const std::int64_t* numbers, std::uint64_t count);
    [[nodiscard]] bool is_registered() const;

private:
    struct ring;
    std::unique_ptr<ring> ring_;
};

// What it took to read a list of rows.
struct uring_run {
    double seconds = 0, cores = 0;
    bool registered = true;  // the memory of all rings
};

// The same by `threads` threads with a ring each, a part of the list each, and `depth` reads in
// flight in all. Threads and rings are made before the time.
uring_run read_by_rings(const row_file& from, std::uint64_t threads, std::uint64_t depth,
                        const std::int64_t* numbers, std::uint64_t count, std::byte* to);

}  // namespace penstock::bench
