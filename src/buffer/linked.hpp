// Doubly linked lists over numbers below a limit, each number in at most one of them.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::buffer {

inline constexpr std::uint32_t nothing = ~std::uint32_t{0};

struct list_ends {
    std::uint32_t newest = nothing, oldest = nothing;
    std::uint32_t size = 0;
};

class linked {
public:
    explicit linked(std::uint32_t limit = 0) : of_(limit) {}

    [[nodiscard]] std::uint32_t newer(std::uint32_t one) const { return of_[one].newer; }
    [[nodiscard]] std::uint32_t older(std::uint32_t one) const { return of_[one].older; }

    void push_newest(list_ends& ends, std::uint32_t one) {
        of_[one] = {nothing, ends.newest};
        (ends.newest == nothing ? ends.oldest : of_[ends.newest].newer) = one;
        ends.newest = one;
        ++ends.size;
    }
    void remove(list_ends& ends, std::uint32_t one) {
        const neighbours at = of_[one];
        (at.newer == nothing ? ends.newest : of_[at.newer].older) = at.older;
        (at.older == nothing ? ends.oldest : of_[at.older].newer) = at.newer;
        --ends.size;
    }

private:
    struct neighbours {
        std::uint32_t newer = nothing, older = nothing;
    };
    std::vector<neighbours> of_;
};

}  // namespace penstock::buffer
