// Leases on files, which prove that nothing but a runtime wrote them, and for which opens wait.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "os/env.hpp"
#include "unit/support.hpp"

namespace penstock::test {

// Can it be proved of files of a folder that nothing but a runtime wrote them? That is asked of the
// system itself, not of the runtime: a test that skips because a runtime kept no file cannot fail.
// False: a file system where nothing can be proved, or an old kernel, keeps nothing
// (docs/protocol/closed_files.md).
inline bool can_prove_writes(const temporary_folder& folder,
                             host::environment& env = host::linux_environment()) {
    const std::string path = folder / "probe";
    write_file(path, {1});
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    host::file_facts facts;
    const int code = env.take_sole_lease(fd);
    env.end_lease(fd);
    const bool known = env.facts(fd, facts) == 0 && facts.exact_times;
    ::close(fd);
    std::filesystem::remove(path);
    return code == 0 && known;
}

// A write lease on a file, as a runtime has one: given back shortly after another open wants it.
class held_lease {
public:
    explicit held_lease(const std::string& path)
        : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)),
          is_there_(::fcntl(fd_, F_SETSIG, SIGURG) == 0 && ::fcntl(fd_, F_SETLEASE, F_WRLCK) == 0) {
        if (is_there_) holder_ = std::thread([this] { hold(); });
    }
    ~held_lease() {
        is_over_ = true;
        if (holder_.joinable()) holder_.join();
        ::close(fd_);
    }
    held_lease(const held_lease&) = delete;
    held_lease& operator=(const held_lease&) = delete;

    // False: the file system or the user's rights have no leases.
    [[nodiscard]] bool is_there() const { return is_there_; }
    [[nodiscard]] bool was_wanted_back() const { return was_wanted_; }

private:
    void hold() {
        while (!is_over_ && ::fcntl(fd_, F_GETLEASE) == F_WRLCK)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        was_wanted_ = !is_over_;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ::fcntl(fd_, F_SETLEASE, F_UNLCK);
    }

    const int fd_;
    const bool is_there_;
    std::atomic<bool> is_over_{false}, was_wanted_{false};
    std::thread holder_;
};

}  // namespace penstock::test
