// The mounts that this process serves, and the files of them, which it must not open for itself.
//
// A thread that uses such a file waits for an answer of other threads of its own process. If the
// process is killed meanwhile, or closes such files as it ends, no thread is left that could
// answer, and the kernel waits for as long as the waiting thread keeps the device open: for ever.
// Where the thread waits with a lock on the process's memory, the threads that serve wait for it,
// too.
//
// So each part that opens files for a caller asks here first. The source has the same files.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock::host {

// Thread-safe. A child of fork() serves none.
class own_mounts {
public:
    static own_mounts& of_process();

    // From before the mount is served until it is served no more: files of this device (st_dev) are
    // its files, whatever file system of the source they lie on. The number is for leave().
    std::uint64_t enter(std::uint64_t device, std::string source);
    void leave(std::uint64_t number);
    // Relaxed: a file of a mount can be named only after the mount was entered and is served.
    [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
    // A load where there are none.
    [[nodiscard]] std::optional<std::string> source_of(std::uint64_t device) const;

private:
    struct entry {
        std::uint64_t number = 0, device = 0;
        std::string source;
    };
    std::atomic<std::size_t> count_{0};
    mutable std::mutex mutex_;  // guards the next two
    std::vector<entry> all_;
    std::uint64_t last_ = 0;
};

// 0, or -EDEADLK: files of this device are those of a mount that this process serves.
int check_not_own(std::uint64_t device);
// The same of what a descriptor leads to; O_PATH is enough. A load where there are no mounts.
int check_handle_not_own(int handle);

// For people, after the file's name: that it is such a file, and the cure.
std::string why_own(const std::string& path);

}  // namespace penstock::host
