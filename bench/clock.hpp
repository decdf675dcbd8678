// Time that passed, and processor time that this process used meanwhile.
#pragma once

#include <chrono>
#include <sys/resource.h>

namespace penstock::bench {

inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Of all threads of this process: user and system.
inline double cpu_s() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class stopwatch {
public:
    [[nodiscard]] double seconds() const { return now_s() - began_s_; }
    // Processors kept busy in the mean since the start, given how long that was.
    [[nodiscard]] double cores(double over_s) const {
        return over_s > 0 ? (cpu_s() - used_s_) / over_s : 0;
    }

private:
    double began_s_ = now_s(), used_s_ = cpu_s();
};

}  // namespace penstock::bench
