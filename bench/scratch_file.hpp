// The file that a case reads: made in the directory asked for, gone when the program ends, also by
// a signal.
#pragma once

#include <cstdint>
#include <string>

#include "common/process.hpp"
#include "penstock/error.hpp"

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
    status make(const std::string& directory, std::uint64_t bytes);
    // The same without content, for a file that will grow to about `bytes`.
    status make_empty(const std::string& directory, std::uint64_t bytes);
    void remove();

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    // Puts the file on storage and drops it from the page cache. `left`: the share that stayed
    // there all the same.
    status drop_from_page_cache(double& left) const;
    // Reads it as a whole, so that it is in the page cache as far as that has room.
    status bring_into_page_cache() const;
    // The share of the file that is in the page cache now.
    status resident_share(double& share) const;

private:
    status make_empty(const std::string& directory, std::uint64_t bytes, int& fd);
    status failed(int code, const std::string& cure) const;
    status write_words(int fd) const;
    std::string path_;
    std::uint64_t bytes_ = 0;
    apps::leftover noted_;  // for signals
};

// Of this directory: "ext4", "tmpfs", ...; "unknown" if the system does not say.
std::string file_system_of(const std::string& directory);

}  // namespace penstock::bench
