// A file that appears whole or not at all: written without a name, or under a passing one, and put
// in place at the end.
#pragma once

#include <cstdint>
#include <string>

#include "common/leftover.hpp"
#include "penstock/error.hpp"

namespace penstock::apps {

class output_file {
public:
    output_file() = default;
    ~output_file();
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;

    // Checks that `path` can be written, before the work is done. An empty path is standard output.
    // A device or pipe is written to directly, a pipe only if a program reads it or begins to
    // within seconds; a link is followed; an existing file stays as it is until commit().
    status open(const std::string& path);

    // The same for what is written by its name, as by a kernel: until commit() it stands beside its
    // place under passing_path(). Only a regular file can be.
    status open_named(const std::string& path);
    [[nodiscard]] const std::string& passing_path() const { return passing_; }

    status write(const char* data, std::size_t bytes);

    // Of a regular file: bytes that lie at `offset`. Thread-safe.
    status write_at(const void* data, std::uint64_t bytes, std::uint64_t offset) const;

    // Puts the file in its place. Without it, nothing is left behind.
    status commit();

private:
    status failed(int code, const std::string& cure) const;
    status open_special(const std::string& path);
    status open_new(const std::string& directory, unsigned mode);
    status open_regular(bool exists, unsigned mode);
    status name_it();

    std::string path_;     // as given, for messages
    std::string target_;   // where it goes, links followed
    std::string passing_;  // name it has meanwhile; empty: none
    leftover noted_;       // that name, for signals
    int fd_ = -1;
    bool replaces_ = false;  // a regular file, put in place at the end
    bool unnamed_ = false;
    bool wants_name_ = false;
};

}  // namespace penstock::apps
