// The handles that one service thread used last, so that a request of a file that it knows takes no
// lock.
//
// Each is held through a count of its own: the threads that read one file would otherwise hand the
// count of its handle to and fro. All are let go of as soon as the registry has parked or closed
// any (file_registry::handle_changes).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "files/file_registry.hpp"

namespace penstock::host {

class handle_cache {
public:
    explicit handle_cache(file_registry& files) : files_(files) {}

    // As file_registry::handle_of.
    int find(std::uint32_t slot, std::uint32_t generation, std::shared_ptr<shared_handle>& out,
             std::uint64_t& size_bytes) {
        forget_stale();
        place& p = places_[slot % places_.size()];
        if (p.handle == nullptr || p.slot != slot || p.generation != generation) {
            std::shared_ptr<shared_handle> found;
            if (const int code = files_.handle_of(slot, generation, found, size_bytes); code != 0)
                return code;
            const auto holder = std::make_shared<std::shared_ptr<shared_handle>>(found);
            p = {slot, generation, size_bytes, std::shared_ptr<shared_handle>(holder, found.get())};
        }
        out = p.handle;
        size_bytes = p.size_bytes;
        return 0;
    }

    void forget_stale() {
        const std::uint64_t changes = files_.handle_changes();
        if (changes == seen_changes_) return;
        places_ = {};
        seen_changes_ = changes;
    }

private:
    struct place {
        std::uint32_t slot = 0, generation = 0;
        std::uint64_t size_bytes = 0;
        std::shared_ptr<shared_handle> handle;
    };
    file_registry& files_;
    std::uint64_t seen_changes_ = 0;
    std::array<place, 16> places_{};
};

}  // namespace penstock::host
