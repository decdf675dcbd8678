#include "core/log_queue.hpp"

#include <algorithm>
#include <chrono>

namespace penstock::python {

void log_queue::put(const std::string& line) {
    {
        const std::lock_guard lock(mutex_);
        if (lines_.size() < most_lines) lines_.push_back(line);
        else ++dropped_;
    }
    changed_.notify_one();
}

std::vector<std::string> log_queue::take(double seconds) {
    std::unique_lock lock(mutex_);
    const std::chrono::duration<double> limit(std::clamp(seconds, 0.0, 60.0));
    changed_.wait_for(lock, limit, [&] { return !lines_.empty() || closed_; });
    std::vector<std::string> taken(lines_.begin(), lines_.end());
    lines_.clear();
    if (dropped_ > 0) taken.push_back(std::to_string(dropped_) + " more lines were dropped here");
    dropped_ = 0;
    return taken;
}

void log_queue::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    changed_.notify_all();
}

bool log_queue::is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
}

}  // namespace penstock::python
