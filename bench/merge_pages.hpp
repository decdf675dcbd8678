// What the merge case merges: pages with a pristine copy and two changed ones. Every eighth byte of
// a page was changed by the first writer, every eighth by the second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "penstock/base/hash.hpp"

namespace penstock::bench {

inline constexpr std::uint64_t merge_page_bytes = 4096;

class merge_input {
public:
    explicit merge_input(std::uint64_t pages)
        : pages_(pages), memory_(5 * pages * merge_page_bytes / sizeof(block)) {
        for (std::uint64_t i = 0; i < pages * merge_page_bytes; ++i) {
            const auto old = static_cast<std::uint8_t>(mix64(i) >> 7);
            at(0)[i] = at(1)[i] = at(2)[i] = old;
            if (i % 8 == 1) at(1)[i] = static_cast<std::uint8_t>(old + 1);
            if (i % 8 == 5) at(2)[i] = static_cast<std::uint8_t>(old + 2);
        }
    }
    // The pages as they were.
    void begin() { std::memcpy(at(3), at(0), pages_ * merge_page_bytes); }
    [[nodiscard]] bool is_merged() { return is_merged(at(3)); }
    [[nodiscard]] bool is_merged(const std::uint8_t* into) {
        for (std::uint64_t i = 0; i < pages_ * merge_page_bytes; ++i)
            if (into[i] != (i % 8 == 1 ? at(1)[i] : i % 8 == 5 ? at(2)[i] : at(0)[i])) return false;
        return true;
    }

    std::uint8_t* pristine(std::uint64_t page) { return at(0) + page * merge_page_bytes; }
    std::uint8_t* first(std::uint64_t page) { return at(1) + page * merge_page_bytes; }
    std::uint8_t* second(std::uint64_t page) { return at(2) + page * merge_page_bytes; }
    std::uint8_t* into(std::uint64_t page) { return at(3) + page * merge_page_bytes; }
    std::uint8_t* spare(std::uint64_t page) { return at(4) + page * merge_page_bytes; }

private:
    struct alignas(64) block {
        std::uint8_t bytes[64];
    };
    std::uint8_t* at(std::uint64_t which) {
        return memory_[0].bytes + which * pages_ * merge_page_bytes;
    }

    std::uint64_t pages_;
    std::vector<block> memory_;
};

}  // namespace penstock::bench
