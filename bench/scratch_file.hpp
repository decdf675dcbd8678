// The file that a case reads: made in the directory asked for, gone when the program ends, also by
// a signal.
#pragma once

#include <cstdint>
#include <string>

#include "bench.hpp"
#include "common/files.hpp"
#include "common/process.hpp"

namespace penstock::bench {

class scratch_file {
public:
    scratch_file() = default;
    ~scratch_file() { remove(); }
    scratch_file(const scratch_file&) = delete;
    scratch_file& operator=(const scratch_file&) = delete;

    // Makes a file whose i-th 8-byte word is mix64(i), in place of the one before; written pages
    // stay in the operating system's page cache as far as it has room. -ENOSPC before anything is
    // written if there is no room.
    void make(const std::string& directory, std::uint64_t bytes);
    // The same without content, for a file that will grow to about `bytes`.
    void make_empty(const std::string& directory, std::uint64_t bytes);
    void remove();

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    // Opened by the operating system.
    [[nodiscard]] apps::unique_fd open(int flags) const;
    [[noreturn]] void fail(std::int64_t code, const std::string& cure) const;

    // Puts the file on storage and drops it from the page cache. Returns the share that stayed
    // there all the same.
    [[nodiscard]] double drop_from_page_cache() const;
    // Reads it as a whole, so that it is in the page cache as far as that has room.
    void bring_into_page_cache() const;
    // The share of the file that is in the page cache now.
    [[nodiscard]] double resident_share() const;

private:
    std::string path_;
    std::uint64_t bytes_ = 0;
    apps::leftover noted_;  // for signals
};

// What mmap gave; of a file, or of none.
class mapped_memory {
public:
    mapped_memory(std::uint64_t bytes, int protection, int flags, int fd = -1);
    ~mapped_memory();
    mapped_memory(const mapped_memory&) = delete;
    mapped_memory& operator=(const mapped_memory&) = delete;

    template <typename T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(data_);
    }

private:
    std::uint64_t bytes_;
    void* data_;
};

// Any file that is measured, opened by the operating system.
apps::unique_fd open_measured(const std::string& path, int flags);

// Of this directory: "ext4", "tmpfs", ...; "unknown" if the system does not say.
std::string file_system_of(const std::string& directory);

}  // namespace penstock::bench
