// Log lines on their way from threads of the library to a thread of Python.
//
// A service thread that took the GIL could wait for a thread that holds it and waits for the
// service thread, and would be ended in the middle of a call when the interpreter ends. So service
// threads put lines here, and a thread of Python takes them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::python {

class log_queue {
public:
    // Never waits for Python. Drops the line if `most_lines` wait already.
    void put(const std::string& line);
    // All lines that wait; waits up to `seconds` for the first. The caller does not hold the GIL.
    std::vector<std::string> take(double seconds);
    // No line comes any more: take() waits no longer.
    void close();
    [[nodiscard]] bool is_closed();

private:
    static constexpr std::size_t most_lines = 10000;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::string> lines_;
    std::uint64_t dropped_ = 0;
    bool closed_ = false;
};

}  // namespace penstock::python
