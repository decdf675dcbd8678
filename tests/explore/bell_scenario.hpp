// A service thread that sleeps until it is rung, and threads that post requests and ring. The steps
// are those of os/bell_word.hpp, in the order of service::sleep_until_rung and engine::post. No
// wait here ends by time, so a wake-up that is lost is a fiber that waits for ever.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "explore/explorer.hpp"
#include "os/bell_word.hpp"

namespace penstock::explore_kit {

struct bell_memory {
    alignas(8) std::uint32_t bell;
    alignas(8) std::uint64_t published[3];
};
inline bell_memory bells;

struct bell_scenario {
    explicit bell_scenario(std::uint32_t posters) : posters_(posters) {}

    explore::outcome run(explore::limits bounds = {}) {
        explore::program program;
        program.fibers.push_back([this] { serve(); });
        for (std::uint32_t i = 0; i < posters_; ++i)
            program.fibers.push_back([i] {
                atomic_store<order::release>(&bells.published[i], std::uint64_t{1});
                host::ring_bell(&bells.bell);
            });
        program.reset = [] { std::memset(&bells, 0, sizeof bells); };
        program.check = [] {
            explore::require(bells.bell == host::bell_awake, "the sleeper did not end its sleep");
        };
        program.memory = reinterpret_cast<std::byte*>(&bells);
        program.memory_bytes = sizeof bells;
        return explore::explorer(program, bounds).run();
    }

private:
    [[nodiscard]] std::uint32_t posted() const {
        std::uint32_t out = 0;
        for (std::uint32_t i = 0; i < posters_; ++i)
            out += atomic_load<order::acquire>(&bells.published[i]) != 0 ? 1 : 0;
        return out;
    }

    // The futex: it returns once the word is not `asleep`, for the poster that changes the word
    // wakes the sleeper.
    static void wait() {
        while (!host::is_rung(&bells.bell)) explore::explorer::current()->pause();
    }

    void serve() const {
        for (std::uint32_t served = 0; served < posters_;) {
            if (const std::uint32_t all = posted(); all > served) {
                served = all;
                continue;
            }
            host::begin_bell_sleep(&bells.bell);
            if (posted() == served) wait();
            host::end_bell_sleep(&bells.bell);
        }
    }

    const std::uint32_t posters_;
};

}  // namespace penstock::explore_kit
