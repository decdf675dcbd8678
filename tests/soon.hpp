// Waits for what another thread does.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace penstock {

// False: it did not come in minutes, which no machine is too busy for.
inline bool soon(const std::function<bool()>& true_at_last) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (!true_at_last()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

}  // namespace penstock
