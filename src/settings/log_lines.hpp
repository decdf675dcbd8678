// Lines for the log of a program: one at a time, by whichever thread and part of the library.
#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace penstock::settings {

class log_lines {
public:
    // `log`: options::log or buffer_options::log; empty: standard error.
    explicit log_lines(std::function<void(const std::string&)> log) : log_(std::move(log)) {}

    // A line goes to standard error too if the program's function throws, or if it is the function
    // that gives rise to the line: then this thread holds the lock already.
    void say(const std::string& line) noexcept {
        static thread_local bool is_in_function = false;
        if (is_in_function || !log_) return print(line);
        const std::lock_guard one_at_a_time(mutex_);
        is_in_function = true;
        try {
            log_(line);
        } catch (...) {
            print(line);
        }
        is_in_function = false;
    }

private:
    // One call: lines of several threads do not mix.
    static void print(const std::string& line) {
        std::fprintf(stderr, "penstock: %s\n", line.c_str());
    }

    const std::function<void(const std::string&)> log_;
    std::mutex mutex_;
};

}  // namespace penstock::settings
