// A bar on standard error while long work runs; nothing at all unless standard error is a terminal.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace penstock::apps {

// Shows how much of `total` is done, asking `done` about four times a second from a thread of its
// own, until destroyed. `done` must be callable from that thread all that time.
class progress {
public:
    progress(std::string label, std::uint64_t total, std::function<std::uint64_t()> done,
             bool wanted = true);
    ~progress();
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

private:
    void loop();
    std::string label_;
    std::uint64_t total_;
    std::function<std::uint64_t()> done_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false;  // guarded by mutex_
    std::thread thread_;
};

// Wipes a bar off the line it stands on. Thread-safe.
void clear_progress();

}  // namespace penstock::apps
