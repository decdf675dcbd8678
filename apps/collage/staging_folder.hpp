// A folder that appears whole or not at all: filled under a passing name beside its place, and
// renamed at the end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "common/leftover.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

// A file of the folder that many threads write to at places of their own. Thread-safe.
class staged_file {
public:
    staged_file() = default;
    ~staged_file();
    staged_file(staged_file&& other) noexcept { *this = std::move(other); }
    staged_file& operator=(staged_file&& other) noexcept;

    // `bytes`: room to set aside at once, so that a full disk is found before the work. 0: none.
    status create(const std::string& path, std::uint64_t bytes);
    status write(const void* data, std::uint64_t bytes, std::uint64_t at) const;
    status read(void* data, std::uint64_t bytes, std::uint64_t at) const;
    // Network file systems report some failures only here.
    status close();

private:
    [[nodiscard]] status failed(int code) const;
    std::string path_;
    int fd_ = -1;
};

class staging_folder {
public:
    staging_folder() = default;
    ~staging_folder();  // removes what was not committed
    staging_folder(const staging_folder&) = delete;
    staging_folder& operator=(const staging_folder&) = delete;

    // `path` may name a library, which is replaced at the end, an empty folder, or nothing.
    status create(const std::string& path);
    [[nodiscard]] std::string file(const std::string& name) const { return passing_ + "/" + name; }
    void remove(const std::string& name) const;
    status commit();

private:
    status make_passing(const std::string& path);
    std::string target_;
    std::string passing_;   // empty: nothing to clean up
    apps::leftover noted_;  // the same, for signals
};

}  // namespace penstock::collage
