// A regular file that is open for reading, by its size: what readers of headers use. Pipes, devices
// and files of /proc are refused, and no open waits for one; it waits for a lease on the file.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/error.hpp"

namespace penstock::host {

class regular_file {
public:
    regular_file() = default;
    ~regular_file();
    regular_file(const regular_file&) = delete;
    regular_file& operator=(const regular_file&) = delete;

    // Once. Follows links. The message of a failure names the path and the cure.
    status open(const std::string& path);

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }  // when it was opened

    // `bytes` bytes from `offset` on, which must lie inside size_bytes: `out` takes that much
    // memory. -ESTALE: the file is shorter by now.
    status read(std::uint64_t offset, std::uint64_t bytes, std::string& out) const;

private:
    std::string path_;
    int fd_ = -1;
    std::uint64_t size_bytes_ = 0;
};

// The path from the root, so that it names the same file whatever directory the process or a
// runtime works in. Links and ".." stay as they are. The path itself, if there is no working
// directory.
std::string absolute_path(const std::string& path);

// True for a folder; false for all else, and for what cannot be looked at.
bool is_folder(const std::string& path);

// True if anything has this name, even what cannot be opened.
bool is_there(const std::string& path);

}  // namespace penstock::host
