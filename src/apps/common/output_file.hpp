// A file that appears whole or not at all: written without a name, or under a passing one, and put in place at the end.
#pragma once

#include <string>

#include "penstock/error.hpp"

namespace penstock::apps {

class output_file {
public:
    output_file() = default;
    ~output_file();
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;

    // Checks that `path` can be written, before the work is done. An empty path is standard output. A device or pipe is
    // written to directly; a link is followed; an existing file stays as it is until commit().
    status open(const std::string& path);

    status write(const char* data, std::size_t bytes);

    // Puts the file in its place. Without it, nothing is left behind.
    status commit();

private:
    status failed(int code, const std::string& cure) const;
    status open_new(const std::string& directory, unsigned mode);
    status name_it();

    std::string path_;       // as given, for messages
    std::string target_;     // where it goes, links followed
    std::string passing_;    // name it has meanwhile; empty: none
    int fd_ = -1;
    bool replaces_ = false;  // a regular file, put in place at the end
    bool unnamed_ = false;
};

}  // namespace penstock::apps
