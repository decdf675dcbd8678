// Files of a mount that its own process has to open, in threads of their own (mounted_views).
//
// A call to such a file waits for the threads that serve the mount. If the process is killed
// meanwhile, those end, and nothing answers any more. The kernel gives an error to all that wait
// when the last descriptor of /dev/fuse is closed. A thread that waits keeps its table of
// descriptors: with a thread of the program that would be the table with /dev/fuse, so the process
// would never be gone. The threads here share a table that has files of the mount, and nothing
// else.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace penstock::mount {

// Gives the calling thread a table of descriptors of its own, with nothing in it, which the threads
// that it makes share. Where the system refuses that, all is as before.
void leave_descriptors();

// Thread-safe, but for begin() and end().
class own_files {
public:
    // `opener`: the thread that opens a file of the mount just now, or 0. `device`: st_dev of the
    // mount's files.
    own_files(std::atomic<pid_t>& opener, std::uint64_t device)
        : opener_(opener), device_(device) {}
    ~own_files() { end(); }
    own_files(const own_files&) = delete;
    own_files& operator=(const own_files&) = delete;

    // Once, by a thread that has the rights of the process and not those of a program: the threads
    // take them from it. Throws what std::thread throws.
    void begin();
    // After all calls have returned; later ones give nothing.
    void end();

    // Opens the file that the mount shows by this path, with this inode, and has the kernel write
    // back what was stored to it: 0 or a negative errno. Nothing: it cannot be opened so, and the
    // name may be another's by now, or another mount lies there. Waits as long as the source does.
    std::optional<int> write_back(const std::string& path, std::uint64_t inode);

private:
    struct order {
        const std::string& path;
        std::uint64_t inode = 0;
        std::optional<int> code = std::nullopt;
        bool is_done = false;
    };

    void serve();
    void add_thread();
    int open(const std::string& path);
    std::optional<int> carry_out(const order& wanted);

    std::atomic<pid_t>& opener_;
    const std::uint64_t device_;
    std::mutex opening_;  // one at a time is known to be ours
    std::mutex lock_;     // guards what follows
    std::condition_variable wanted_, done_;
    std::deque<order*> orders_;
    std::vector<std::thread> threads_;
    unsigned idle_ = 0;
    bool is_ending_ = true;
};

}  // namespace penstock::mount
