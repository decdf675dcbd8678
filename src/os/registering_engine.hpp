// Reads past the page cache into memory that the kernel knows already. For each such read it has to
// find and pin the pages that the disk will write to, and let go of them afterwards; of registered
// memory that was done once.
//
// Registering pins all of the memory, which costs about what reading that much without it has cost
// so far. So it waits until then: a program that reads little, or nothing past the page cache, pays
// nothing and starts no later, and no program pays twice what it had to. Other reads gain nothing:
// the kernel copies into plain memory and into registered memory alike.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "os/env.hpp"

namespace penstock::host {

// What one service thread may register: its staging areas, in pieces of at most 1 GiB. The tier
// too, but only where that is little: every thread has an io_uring of its own, so each would pin
// all of the tier, be charged for it again, and stand still meanwhile. `locked_limit_bytes` is
// RLIMIT_MEMLOCK.
std::vector<memory_area> areas_to_register(const std::vector<memory_area>& staging,
                                           const memory_area& tier, std::uint32_t threads,
                                           std::uint64_t locked_limit_bytes);

// Stands before an engine that can register. Owned and called by one thread.
class registering_engine final : public io_engine {
public:
    // `reads` counts those into registered memory. `refused` is told at most once: bytes and why;
    // reads go on without.
    using refusal = std::function<void(std::uint64_t, int)>;
    registering_engine(std::unique_ptr<io_engine> below, std::vector<memory_area> areas,
                       std::atomic<std::uint64_t>& reads, refusal refused);

    [[nodiscard]] const char* name() const override { return below_->name(); }
    [[nodiscard]] std::uint32_t capacity() const override { return below_->capacity(); }
    void start(const read_operation& operation) override;
    void submit() override { below_->submit(); }
    [[nodiscard]] bool reads_at_once() const override { return below_->reads_at_once(); }
    [[nodiscard]] bool has_finished() const override { return below_->has_finished(); }
    void reap(std::vector<read_result>& out, std::uint64_t wait_ns) override {
        below_->reap(out, wait_ns);
    }

private:
    [[nodiscard]] bool is_registered(std::uint32_t more_bytes);
    [[nodiscard]] std::int32_t area_of(const read_operation& operation) const;

    const std::unique_ptr<io_engine> below_;
    std::vector<memory_area> areas_;  // by address; empty: refused
    std::atomic<std::uint64_t>& reads_;
    const refusal refused_;
    std::uint64_t area_bytes_ = 0, direct_bytes_ = 0;  // to register; read without
    bool registered_ = false;
};

}  // namespace penstock::host
