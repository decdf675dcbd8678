// Tells whether pages have left their file since they were watched: the file was cut, a hole was
// punched, or a program wrote past the page cache (O_DIRECT), which gives the place another page.
// Memory that was registered with a device before that is no longer the file's, and nothing else
// tells: the file may be as long as before by now, and its times change with every write.
//
// The watch maps the pages once more, for itself. When a page leaves the file the system takes it
// out of all mappings, and /proc/thread-self/pagemap, which any process may read of its own memory,
// shows that. Only the watch touches this mapping, so a page that left is not replaced there
// unseen. Where memory is short the system takes pages out of mappings too, so a page may be said
// to have left that has not.
#pragma once

#include <cstdint>

#include "os/env.hpp"

namespace penstock::host {

class page_watch {
public:
    explicit page_watch(environment& env) : env_(env) {}
    ~page_watch();
    page_watch(const page_watch&) = delete;
    page_watch& operator=(const page_watch&) = delete;

    // Once. A part of an open file, both multiples of the page size; nothing is watched yet. 0, or
    // a negative errno: -ENOENT, /proc is not there; an error of mapping the file.
    int begin(int fd, std::uint64_t offset, std::uint64_t bytes);
    // From now on: bytes of the part. Brings their pages into memory. An error as of
    // environment::populate. Thread-safe for different bytes, as the call below is.
    [[nodiscard]] int watch(std::uint64_t at, std::uint64_t bytes);
    // Has any page of these bytes left, or was it not watched? Costs a look at eight bytes a page.
    [[nodiscard]] bool has_left(std::uint64_t at, std::uint64_t bytes) const;

private:
    environment& env_;
    std::byte* pages_ = nullptr;
    std::uint64_t bytes_ = 0;
    int map_of_pages_ = -1;
};

}  // namespace penstock::host
