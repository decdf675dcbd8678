// Doubly linked lists over numbers below a limit, each number in at most one of them. The links may
// lie inside whatever has the numbers, so that one look into memory finds both.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::buffer {

inline constexpr std::uint32_t nothing = ~std::uint32_t{0};

struct neighbours {
    std::uint32_t newer = nothing, older = nothing;
};

struct list_ends {
    std::uint32_t newest = nothing, oldest = nothing;
    std::uint32_t size = 0;
};

// links(n) is a reference to the neighbours of number n.
template <typename Links>
void push_newest(list_ends& ends, std::uint32_t one, const Links& links) {
    links(one) = {nothing, ends.newest};
    (ends.newest == nothing ? ends.oldest : links(ends.newest).newer) = one;
    ends.newest = one;
    ++ends.size;
}
template <typename Links>
void take_out(list_ends& ends, std::uint32_t one, const Links& links) {
    const neighbours at = links(one);
    (at.newer == nothing ? ends.newest : links(at.newer).older) = at.older;
    (at.older == nothing ? ends.oldest : links(at.older).newer) = at.newer;
    --ends.size;
}

// The same with links of their own.
class linked {
public:
    explicit linked(std::uint32_t limit) : links_(limit) {}

    [[nodiscard]] std::uint32_t newer(std::uint32_t one) const { return links_[one].newer; }
    void push_newest(list_ends& ends, std::uint32_t one) {
        buffer::push_newest(ends, one, [&](std::uint32_t n) -> neighbours& { return links_[n]; });
    }
    void remove(list_ends& ends, std::uint32_t one) {
        take_out(ends, one, [&](std::uint32_t n) -> neighbours& { return links_[n]; });
    }

private:
    std::vector<neighbours> links_;
};

}  // namespace penstock::buffer
