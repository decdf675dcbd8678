// Memory of a caller for the page frames of a runtime: full of bytes that belong to no file, and
// between guards that the runtime must not touch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::test {

class frame_memory {
public:
    static constexpr std::uint64_t alignment_bytes = 256;

    explicit frame_memory(std::uint64_t bytes)
        : bytes_(bytes), room_(bytes + 2 * guard_bytes + alignment_bytes, filler) {
        const auto end_of_guard = reinterpret_cast<std::uintptr_t>(room_.data()) + guard_bytes;
        first_ = guard_bytes + (alignment_bytes - end_of_guard % alignment_bytes);
    }

    [[nodiscard]] std::byte* data() { return room_.data() + first_; }
    [[nodiscard]] std::uint64_t size_bytes() const { return bytes_; }
    void refill() { std::fill(room_.begin(), room_.end(), filler); }
    [[nodiscard]] bool are_guards_whole() const {
        const auto is_filler = [](std::byte b) { return b == filler; };
        const auto begin = room_.begin() + static_cast<std::ptrdiff_t>(first_);
        return std::all_of(room_.begin(), begin, is_filler) &&
               std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), room_.end(), is_filler);
    }
    [[nodiscard]] bool is_touched() const {
        const auto begin = room_.begin() + static_cast<std::ptrdiff_t>(first_);
        return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(bytes_),
                           [](std::byte b) { return b != filler; });
    }

private:
    static constexpr std::byte filler{0xa5};
    static constexpr std::uint64_t guard_bytes = 4096;

    const std::uint64_t bytes_;
    std::vector<std::byte> room_;
    std::uint64_t first_;
};

}  // namespace penstock::test
