// The host's side of the model test: makes the files of a world and changes them from version to
// version.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/shadow.hpp"

namespace penstock::model {

// Does the run of this seed read past the page cache where it can? Every third or so; of the first
// five the first and the last.
inline bool reads_directly(std::uint64_t seed) { return mix64(seed ^ 23) % 3 == 0; }

// One thread at a time changes a file; any number may read it through Penstock meanwhile. Ends the
// program if the operating system refuses, since a test that cannot change its files proves
// nothing.
class host_files {
public:
    // `states` has w.files() entries, zeroed, and outlives this.
    host_files(const world& w, const std::string& folder, file_state* states);

    // Brings the file to its next version: in place, by rename, or by removal, as the shadow says.
    void change(std::uint32_t file);

    // Called with path and new size before a file that exists is cut off.
    std::function<void(const std::string&, std::uint64_t)> before_shrink = [](const std::string&,
                                                                              std::uint64_t) {};

    // Can these files be read past the page cache, in pieces as small as a page of the world?
    [[nodiscard]] bool can_be_read_directly() const;

    [[nodiscard]] std::uint64_t changes() const { return changes_; }

private:
    [[nodiscard]] std::string path_of(std::uint32_t file) const;
    void write_range(int fd, std::uint32_t file, std::uint64_t version, std::uint64_t begin,
                     std::uint64_t end);
    void create_whole(const std::string& path, std::uint32_t file, std::uint64_t version);
    void create_big(std::uint32_t file);
    void rewrite(std::uint32_t file, std::uint64_t version);

    const world w_;
    const std::string folder_;
    file_state* const states_;
    std::vector<std::uint8_t> buffer_;
    std::uint64_t changes_ = 0;
};

}  // namespace penstock::model
