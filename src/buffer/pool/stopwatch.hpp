#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::buffer {

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
