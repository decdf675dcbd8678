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

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "mount/patient_threads.hpp"

namespace penstock::mount {

// Gives the calling thread a table of descriptors of its own, with nothing in it, which the threads
// that it makes share. Where the system refuses that, all is as before.
void leave_descriptors();

// The threads of own_files that open a file of the mount just now: the mount must know whose opens
// these are. Thread-safe.
class own_openers {
public:
    // `thread` 0: a caller of another process namespace, which is none of ours.
    bool has(pid_t thread) const;

    // The calling thread is one of them as long as this lives.
    class entry {
    public:
        explicit entry(own_openers& all);
        ~entry();
        entry(const entry&) = delete;
        entry& operator=(const entry&) = delete;

    private:
        std::atomic<pid_t>* place_;
    };

private:
    std::array<std::atomic<pid_t>, patient_threads::most_at_once> places_{};  // 0: free
};

// Thread-safe, but for begin() and end().
class own_files {
public:
    // `device`: st_dev of the mount's files.
    own_files(own_openers& openers, std::uint64_t device) : openers_(openers), device_(device) {}
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
    int open(const std::string& path);
    std::optional<int> carry_out(const std::string& path, std::uint64_t inode);

    own_openers& openers_;
    const std::uint64_t device_;
    std::optional<patient_threads> threads_;  // from begin() on
};

}  // namespace penstock::mount
