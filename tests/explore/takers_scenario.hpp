// A ring of two slots from which two service threads take, a poster that uses its slots again, and
// the steps of service/ring_head.hpp. Each request is answered once, by a thread that read the
// request of that ticket.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "explore/explorer.hpp"
#include "service/ring_head.hpp"

namespace penstock::explore_kit {

inline constexpr std::uint32_t taker_slots = 2;

struct taker_memory {
    std::uint64_t head;
    engine::ring_request requests[taker_slots];
    std::uint64_t answered[taker_slots];  // ticket + 1
};
inline taker_memory taken;

class takers_scenario {
public:
    takers_scenario(std::uint64_t tickets, std::uint32_t takers)
        : tickets_(tickets), takers_(takers) {}

    explore::outcome run(explore::limits bounds = {}) {
        explore::program program;
        program.fibers.push_back([this] { post_all(); });
        for (std::uint32_t i = 0; i < takers_; ++i)
            program.fibers.push_back([this] { take_all(); });
        program.reset = [this] {
            std::memset(static_cast<void*>(&taken), 0, sizeof taken);
            std::memset(served_, 0, sizeof served_);
        };
        program.check = [this] {
            for (std::uint64_t t = 0; t < tickets_; ++t)
                explore::require(served_[t] == 1, "a request was not served once");
        };
        program.memory = reinterpret_cast<std::byte*>(&taken);
        program.memory_bytes = sizeof taken;
        return explore::explorer(program, bounds).run();
    }

private:
    static host::host_ring ring() {
        return {taken.requests, nullptr, nullptr, 0, taker_slots, &taken.head};
    }

    void post_all() const {
        for (std::uint64_t t = 0; t < tickets_; ++t) {
            const std::uint64_t slot = t % taker_slots;
            // As claim does: the slot's last request has been answered.
            while (t >= taker_slots &&
                   atomic_load<order::acquire>(&taken.answered[slot]) != t - taker_slots + 1)
                explore::explorer::current()->pause();
            atomic_store<order::relaxed>(&taken.requests[slot].offset, t);
            atomic_store<order::release>(&taken.requests[slot].published, t + 1);
        }
    }

    void take_all() {
        const host::host_ring r = ring();
        while (atomic_load<order::relaxed>(&taken.head) < tickets_) {
            std::uint64_t ticket = 0;
            if (!host::take_next(r, ticket)) {
                explore::explorer::current()->pause();
                continue;
            }
            const std::uint64_t slot = ticket % taker_slots;
            explore::require(atomic_load<order::relaxed>(&taken.requests[slot].offset) == ticket,
                             "a thread served another request than it took");
            explore::require(++served_[ticket] == 1, "a request was taken twice");
            atomic_store<order::release>(&taken.answered[slot], ticket + 1);
        }
    }

    const std::uint64_t tickets_;
    const std::uint32_t takers_;
    std::uint32_t served_[8] = {};
};

}  // namespace penstock::explore_kit
