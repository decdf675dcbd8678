// How long threads of the buffer wait: until when, with which pauses, and how long it took.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace penstock::buffer {

using deadline = std::chrono::steady_clock::time_point;

// A short while without the processor, in which others can come to an end.
inline void pause_between_looks(std::uint32_t round) {
    if (round < 16) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// How long something took.
class stopwatch {
public:
    // Since it was made.
    [[nodiscard]] std::uint64_t ns() const {
        return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                              std::chrono::steady_clock::now() - begun_)
                                              .count());
    }

private:
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace penstock::buffer
