// Tells whether a page has left its file since the watch began: the file was cut before the page,
// or its place was given another page. Memory that was registered with a device before that is no
// longer the file's, and nothing else tells: the file may be as long as before by now, and its
// times change with every write.
//
// The watch maps the page once more, for itself, and locks it in memory. So the system takes the
// page out of this mapping only when the page leaves the file. Whether it is there is a bit of
// /proc/self/pagemap, which any process may read of its own memory.
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

    // Once. The page of an open file that begins at `offset`, and in which the file has bytes. 0,
    // or a negative errno: -ENOMEM, RLIMIT_MEMLOCK leaves no page to lock; -ENOENT, /proc is not
    // there; an error of mapping the file.
    int begin(int fd, std::uint64_t offset);
    // False too where nothing is watched. Costs a system call.
    [[nodiscard]] bool has_left() const;

private:
    [[nodiscard]] bool is_mapped() const;

    environment& env_;
    void* page_ = nullptr;
    int map_of_pages_ = -1;
    bool locked_ = false;
};

}  // namespace penstock::host
