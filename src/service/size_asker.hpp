// Asks how large files are that may change elsewhere, in a thread of its own: their server answers
// when it likes, and the heart of a runtime must beat meanwhile. The thread also closes the
// handles, since that may wait for the server too.
//
// Without a question to the server (AT_STATX_DONT_SYNC) a machine would never learn of a cut by
// another one: NFS and FUSE then tell what they were told last.
//
// Files are asked for one after the other. So a server that does not answer delays the looks at
// files of other servers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "os/env.hpp"

namespace penstock::host {

// Thread-safe, and no call waits for a server; only the end does.
class size_asker {
public:
    explicit size_asker(environment& env) : env_(env) {}
    ~size_asker();
    size_asker(const size_asker&) = delete;
    size_asker& operator=(const size_asker&) = delete;

    // Takes over the handle of a file that had so many bytes. Throws where no thread can be made or
    // there is no memory; then the caller still has the handle.
    void add(int fd, std::uint64_t size_bytes);
    // Asks for each file once more, unless that is under way. By the beat of a monitor.
    void ask();
    // By the last answer.
    [[nodiscard]] bool is_shorter(int fd);
    // The handle is given up, and closed soon.
    void close(int fd);

private:
    struct file {
        int fd;
        std::uint64_t size_bytes;
        bool is_shorter = false, ends = false;
    };
    void run();
    file& find(int fd);  // lock held

    environment& env_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable wake_;
    std::vector<file> files_;  // the thread alone takes any away
    bool asked_ = false, stop_ = false;
    std::thread thread_;
};

}  // namespace penstock::host
