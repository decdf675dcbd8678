// Rows of a table on the cpu back end: what is in the cache comes from there, and other rows are
// read from the file by the thread that wants them, past the cache. It is the cpu form of reading
// through a window (engine/through.hpp), with the same looks: a mapping of the file would do it
// without a system call, but a program that cuts the file would kill this process.
//
// A page enters the cache one time in so many, by a request: a service thread's answer takes as
// long as hundreds of rows that the operating system has in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "files/shared_handle.hpp"

namespace penstock::host {

class environment;
class file_registry;

// Of one gather; its workers share it.
class cpu_rows {
public:
    cpu_rows(const runtime_ref& fs, environment& env, file_registry& files, const table_job& job);

    // Rows [begin, end) of the list. Thread-safe.
    void deliver(std::uint64_t begin, std::uint64_t end);

private:
    // The descriptor of the run's file, or -1: the file has no handle now.
    int handle_of(std::uint64_t run);
    bool read_past(const engine::row_source& source, std::uint64_t run, std::byte* to,
                   std::uint64_t turn);

    const runtime_ref fs_;
    environment& env_;
    file_registry& files_;
    const table_job& job_;
    std::mutex mutex_;                                     // guards handles_ while it is filled in
    std::vector<std::shared_ptr<shared_handle>> handles_;  // of runs
    std::vector<std::atomic<int>> fds_;                    // unknown, -1, or a descriptor
};

}  // namespace penstock::host
