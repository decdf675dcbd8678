// The windows of one table on CPU threads: mappings of its files, opened when that pays, and closed
// with the table.
//
// A program that reads rows through a memory map opens it and is done, and so is the owner of a
// table: nothing has to be called. But a look at what the operating system has of a file takes time
// for each of its pages, and a table may be large and its rows few. So the rows that are read by
// system calls pay for it: once they have cost as much as a look, the files are looked at. A look
// that gains nothing makes the next one dearer. In between, rows that are read by system calls pay
// for looks at the chunks that were asked for (service/asked_chunks.hpp), which are few.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/runtime_state.hpp"

namespace penstock::host {

class table_windows {
public:
    struct part {
        int fd;  // open as long as the table lives
        std::uint64_t offset, bytes;
    };

    // The runtime has windows of rows.
    table_windows(runtime_state& state, std::vector<part> parts);
    ~table_windows();
    table_windows(const table_windows&) = delete;
    table_windows& operator=(const table_windows&) = delete;

    // Opens what is in memory now. As table::open_windows.
    std::int64_t open();
    // Opens of what was asked for since what is in memory now. As table::grow_windows.
    std::int64_t grow();
    // So many rows were read by system calls. Thread-safe.
    void spend(std::uint64_t rows);
    // True: at the last look all rows lay in windows.
    [[nodiscard]] bool are_whole() const { return is_whole_; }
    // False: these rows may come from windows soon. True: the caller sees what the look opened.
    [[nodiscard]] bool have_looked() const { return looks_ != 0; }

private:
    std::int64_t open_locked();
    std::int64_t grow_locked(std::size_t most_chunks, bool completes);

    runtime_state& state_;
    const std::vector<part> parts_;
    std::uint64_t price_rows_ = 0;         // of a look
    std::atomic<std::uint64_t> spent_{0};  // since the last look
    std::atomic<std::uint64_t> due_{0};    // when the next one comes
    std::atomic<std::uint64_t> looks_{0};
    std::atomic<bool> is_whole_{false};
    std::atomic<std::uint64_t> spent_on_growth_{0};  // since the last look at chunks asked for
    std::atomic<std::uint64_t> growth_due_;
    std::mutex mutex_;                 // guards those below
    std::uint64_t factor_ = 1;         // the next look costs so many times the price
    std::uint64_t growth_factor_ = 1;  // and so does the next one at chunks asked for
    std::int64_t inside_ = 0;          // bytes in windows after the last look
};

}  // namespace penstock::host
