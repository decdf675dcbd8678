// Room in which each CPU thread keeps what it works on.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::apps {

class thread_scratch {
public:
    // So many numbers for each thread, aligned to 64 bytes. -ENOMEM and a message if there is not
    // enough memory.
    status allocate(std::uint32_t threads, std::uint64_t floats) {
        const std::uint64_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
        for (std::uint32_t i = 0; i < threads; ++i) {
            void* const room = std::aligned_alloc(64, bytes);
            if (room == nullptr)
                return {-ENOMEM, std::to_string(threads) + " threads need " + format_size(bytes) +
                                     " each, which is not free; use fewer --workers"};
            owned_.emplace_back(room);
            pointers_.push_back(static_cast<float*>(room));
        }
        return {};
    }
    [[nodiscard]] float* const* pointers() const { return pointers_.data(); }

private:
    struct free_it {
        void operator()(void* room) const { std::free(room); }
    };
    std::vector<std::unique_ptr<void, free_it>> owned_;
    std::vector<float*> pointers_;
};

}  // namespace penstock::apps
