// Handles that no open can use any more: of files that were deleted while the cache remembers them,
// whose space the file system keeps with them, and of versions of files that changed since. Also
// those beyond a registry's share, from before there were more registries.
//
// The registry keeps handles of closed files, so that the next open and read need not open them
// again. A file that has no name any more has no next open. The monitor asks a few hundred handles
// a second, in turn, whether their file has a name. A file without one, or an older version, that
// no group has open loses its handle, and its pages count as old: the file system may give its
// inode to a new file.
//
// An answer to an open that no group has taken yet does not show in the file word. So a file is let
// go at the second visit that finds it so, if no open of it was answered in between. A
// group that takes its answer later still reads what the cache has, and gets -ESTALE for the rest.
//
// Not thread-safe; the monitor calls it. A thread of its own closes the handles, those too that the
// registry gives up just while they are looked at: the last close of a large file may take seconds,
// in which the monitor's heart must beat. Only local file systems are asked, which answer at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "files/file_registry.hpp"
#include "os/env.hpp"

namespace penstock::host {

class deleted_files {
public:
    // `is_closed`: does the device have this life of the slot, and no group the file open?
    deleted_files(environment& env, file_registry& files,
                  std::function<bool(const slot_life&)> is_closed,
                  std::chrono::nanoseconds between_visits = std::chrono::seconds(1))
        : env_(env),
          files_(files),
          is_closed_(std::move(is_closed)),
          between_visits_(between_visits) {}
    ~deleted_files();
    deleted_files(const deleted_files&) = delete;
    deleted_files& operator=(const deleted_files&) = delete;

    // With each beat; it looks only if it is time.
    void look();

    static constexpr std::size_t handles_of_a_visit = 512, most_found = 256;

private:
    void let_go();
    void find_more();

    environment& env_;
    file_registry& files_;
    const std::function<bool(const slot_life&)> is_closed_;
    const std::chrono::nanoseconds between_visits_;
    std::chrono::steady_clock::time_point next_visit_{};
    std::size_t place_ = 0;                          // in the round of the handles
    std::vector<file_registry::held_handle> found_;  // at the last visit: without a next open
    // Handles that the registry gave up while they were looked at.
    std::vector<std::shared_ptr<shared_handle>> given_up_;
    // Both of them, for the closer alone while it runs.
    std::vector<file_registry::held_handle> closing_;
    std::vector<std::shared_ptr<shared_handle>> closed_;
    std::atomic<bool> is_closing_{false};
    std::thread closer_;
};

}  // namespace penstock::host
