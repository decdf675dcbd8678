// Rows of a table on the cpu back end. A row comes, in this order,
//   from the cache, if its page is there
//   from a window: a mapping of the file, where the operating system has it in memory
//   from a linked cache, if that has its pages
//   by a system call of the thread that wants it, past the cache
//   through the cache, by a request, as every read does
//
// Windows and system calls are the two forms of reading through (docs/protocol/through.md), with
// the same looks. The first two are for batches of rows (table/row_batches.hpp).
//
// A row of a window never lets its page enter the cache: both lie in the same memory. By system
// call one row in so many does, by a request: a service thread's answer takes as long as hundreds
// of rows that the operating system has in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "files/shared_handle.hpp"
#include "penstock/engine/through_look.hpp"

namespace penstock::host {

struct runtime_state;
class table_windows;

// Of one gather; its workers share it.
class cpu_rows {
public:
    // `windows` may be null: this table has none.
    cpu_rows(runtime_state& state, table_windows* windows, const table_job& job);

    // Rows [begin, end) of the list. Thread-safe.
    void deliver(std::uint64_t begin, std::uint64_t end);

private:
    static constexpr std::uint64_t most_rows = 256;  // of one visit to windows

    void deliver_some(std::uint64_t begin, std::uint64_t end);
    // The descriptor of the run's file, or -1: the file has no handle now.
    int handle_of(std::uint64_t run);
    bool read_past(const engine::row_source& source, std::uint64_t run, std::byte* to);
    // Does a linked cache have the pages of the row?
    [[nodiscard]] bool is_row_next_door(const engine::row_source& source) const;
    // True: it took a system call.
    bool deliver_one(std::uint64_t i, bool may_read_past);

    runtime_state& state_;
    table_windows* const windows_;
    const engine::cache_view view_;  // the runtime's, with the words of windows of rows
    const table_job& job_;
    std::mutex mutex_;                                     // guards handles_ while it is filled in
    std::vector<std::shared_ptr<shared_handle>> handles_;  // of runs
    std::vector<std::atomic<int>> fds_;                    // unknown, -1, or a descriptor
};

}  // namespace penstock::host
