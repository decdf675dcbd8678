// What Linux tells about changes of a file by others: inotify, write leases, and a way to write
// that leaves no event. docs/protocol/closed_files.md says which of its promises are relied on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "os/env.hpp"

namespace penstock::host {

// environment::open_watch, watch_file, end_watch, read_watch, by inotify.
int open_change_watch();
int add_to_watch(int watch, int fd);
void remove_from_watch(int watch, int number);
void read_change_watch(int watch, std::vector<int>& out);

// environment::take_sole_lease, by fcntl: a write lease.
int take_sole_lease(int fd);

// environment::write_unwatched, by the kernel's own asynchronous I/O (io_submit), which writes a
// file and tells inotify nothing. A kernel that tells inotify after all makes the watcher see
// writes of its own as changes by others; nothing worse. Each thread that calls it has a queue of
// one write in the kernel until the thread ends.
std::int64_t write_without_event(int fd, const memory_piece* pieces, std::size_t count,
                                 std::uint64_t offset);

}  // namespace penstock::host
