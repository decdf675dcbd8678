// A write lease on a file, as a runtime has one: given back shortly after another open wants it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace penstock::test {

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
