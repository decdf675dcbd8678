// Doubly linked lists over numbers below a limit, each number in at most one of them.
#pragma once

#include <cstdint>
#include <vector>

#include "fifo.hpp"

namespace penstock::bench::policy {

struct list_ends {
    std::uint32_t newest = nothing, oldest = nothing;
    std::uint32_t size = 0;
};

class linked {
public:
    explicit linked(std::uint32_t limit) : newer_(limit, nothing), older_(limit, nothing) {}

    [[nodiscard]] std::uint32_t newer(std::uint32_t one) const { return newer_[one]; }

    void push_newest(list_ends& ends, std::uint32_t one) {
        older_[one] = ends.newest;
        newer_[one] = nothing;
        (ends.newest == nothing ? ends.oldest : newer_[ends.newest]) = one;
        ends.newest = one;
        ++ends.size;
    }
    void remove(list_ends& ends, std::uint32_t one) {
        (newer_[one] == nothing ? ends.newest : older_[newer_[one]]) = older_[one];
        (older_[one] == nothing ? ends.oldest : newer_[older_[one]]) = newer_[one];
        --ends.size;
    }

private:
    std::vector<std::uint32_t> newer_, older_;
};

}  // namespace penstock::bench::policy
