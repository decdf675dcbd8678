// A short while without the processor, in which others can come to an end.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace penstock::buffer {

inline void pause_between_looks(std::uint32_t round) {
    if (round < 16) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace penstock::buffer
