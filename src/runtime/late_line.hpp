// A line for a log that is written only if its owner is still there after a while: it says what a
// program waits for, and only if the wait is long.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace penstock::host {

class late_line {
public:
    // `say` is called at most once, by another thread, and not after the destructor. An empty line
    // is never said.
    late_line(std::string line, std::chrono::milliseconds patience,
              std::function<void(const std::string&)> say) {
        if (line.empty()) return;
        thread_ = std::jthread(
            [line = std::move(line), patience, say = std::move(say)](const std::stop_token& over) {
                pthread_setname_np(pthread_self(), "penstock-late");
                try {
                    say_late(line, patience, say, over);
                } catch (...) {  // without memory for it the line is not said
                }
            });
    }

private:
    static void say_late(const std::string& line, std::chrono::milliseconds patience,
                         const std::function<void(const std::string&)>& say,
                         const std::stop_token& over) {
        std::mutex mutex;
        std::condition_variable_any wait;
        std::unique_lock lock(mutex);
        wait.wait_for(lock, over, patience, [] { return false; });
        if (!over.stop_requested()) say(line);
    }

    std::jthread thread_;  // its destructor asks it to end, and waits
};

}  // namespace penstock::host
