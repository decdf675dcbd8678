// A copy of a GPU's cache in host memory, so that engine::check_invariants can walk it. Take it
// while no kernel runs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "penstock/engine/invariants.hpp"
#include "penstock/penstock.hpp"

namespace penstock::test {

class cache_copy {
public:
    explicit cache_copy(const runtime_ref& fs) : view_(fs.view) {
        fetch(view_.words, view_.word_count);
        fetch(view_.frame_words, view_.frame_count);
        fetch(view_.file_words, view_.file_slots);
        fetch(view_.file_records, view_.file_slots);
        fetch(view_.clock_hands, std::uint64_t{view_.clock_shards} * engine::clock_hand_stride);
        fetch(view_.names, view_.name_slots);
        fetch(view_.paths, path_units_in_use());
        fetch(view_.name_locks, view_.name_lock_count);
        fetch(view_.rings, view_.ring_count);
        for (std::uint32_t i = 0; i < view_.ring_count; ++i) {
            fetch(view_.rings[i].free_ticket, view_.rings[i].slots);
            fetch(view_.rings[i].tail, 1);
        }
        if (view_.writes != nullptr) {
            fetch(view_.writes, view_.file_slots);
            fetch(view_.dirty_bits, view_.frame_count * engine::mark_words(view_));
            fetch(view_.write_locks, view_.frame_count);
            fetch(view_.pristine, view_.frame_count);
        }
        if (view_.tier.words == nullptr) return;
        fetch(view_.tier.words, view_.word_count);
        fetch(view_.tier.frame_words, view_.tier.frame_count);
        fetch(view_.tier.fill_marks, view_.tier.frame_count);
    }
    cache_copy(const cache_copy&) = delete;
    cache_copy& operator=(const cache_copy&) = delete;

    [[nodiscard]] const engine::cache_view& view() const { return view_; }

private:
    // How far the names that the copied slots have reach.
    [[nodiscard]] std::uint64_t path_units_in_use() const {
        std::uint64_t end = 1;
        for (std::uint32_t i = 0; i < view_.name_slots; ++i)
            end = std::max<std::uint64_t>(
                end, view_.names[i].path_at + (view_.names[i].path_bytes + 7) / 8);
        return end;
    }

    // Replaces a device pointer by one to its copy.
    template <typename T>
    void fetch(T*& pointer, std::uint64_t count) {
        pieces_.emplace_back(
            std::aligned_alloc(256, (count * sizeof(T) + 255) & ~std::uint64_t{255}), std::free);
        if (cudaMemcpy(pieces_.back().get(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost) !=
            cudaSuccess)
            std::abort();
        pointer = static_cast<T*>(pieces_.back().get());
    }

    engine::cache_view view_;
    std::vector<std::unique_ptr<void, void (*)(void*)>> pieces_;
};

}  // namespace penstock::test
