// Room in which each CPU thread packs the images of a tile.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "lane_compare.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::match {

class lane_scratch {
public:
    // False if there is not enough memory.
    bool allocate(std::uint32_t threads, std::uint32_t floats) {
        for (std::uint32_t i = 0; i < threads; ++i) {
            void* const room = std::aligned_alloc(64, lane_scratch_floats(floats) * sizeof(float));
            if (room == nullptr) return false;
            owned_.emplace_back(room);
            pointers_.push_back(static_cast<float*>(room));
        }
        return true;
    }
    [[nodiscard]] float* const* pointers() const { return pointers_.data(); }

private:
    struct free_it {
        void operator()(void* room) const { std::free(room); }
    };
    std::vector<std::unique_ptr<void, free_it>> owned_;
    std::vector<float*> pointers_;
};

inline status no_scratch(std::uint32_t threads, std::uint32_t floats) {
    return {-ENOMEM, std::to_string(threads) + " threads need " + format_size(lane_scratch_floats(floats) * sizeof(float)) +
                         " each, which is not free; use fewer --workers"};
}

}  // namespace penstock::match
