// Reading, writing and mapping parts of files, with messages that name the file.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/error.hpp"

namespace penstock::apps {

// pread of all of it. -ESTALE and a message if the file is shorter.
status read_exactly(const std::string& path, int fd, void* to, std::uint64_t bytes,
                    std::uint64_t offset);

// pwrite of all of it.
status write_exactly(const std::string& path, int fd, const void* from, std::uint64_t bytes,
                     std::uint64_t offset);

// A file in this process's address space: a plain memory map of the operating system's page cache,
// for the baselines. A file that is cut short while it is mapped ends the program by SIGBUS, as
// with every memory map.
class mapped_file {
public:
    mapped_file() = default;
    ~mapped_file();
    mapped_file(mapped_file&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
        other.data_ = nullptr;
    }
    mapped_file(const mapped_file&) = delete;
    mapped_file& operator=(const mapped_file&) = delete;

    // The first `bytes` bytes, which the file has; more than 0.
    status open(const std::string& path, std::uint64_t bytes);
    [[nodiscard]] const char* data() const { return data_; }

private:
    char* data_ = nullptr;
    std::uint64_t bytes_ = 0;
};

}  // namespace penstock::apps
