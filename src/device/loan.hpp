// Loans: copies of pages that a runtime has, on their way to a reader on the host. This is the
// lender's side; cached_reads.hpp has the reader's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "penstock/engine/lend.hpp"
#include "penstock/file.hpp"

namespace penstock::host {

// The kernel asks a mount for no more at a time, unless it is told to.
inline constexpr std::uint64_t most_loan_bytes = 1 << 20;
inline constexpr std::uint64_t least_part_bytes = 512;   // no page is smaller
inline constexpr std::uint64_t usual_part_bytes = 4096;  // so that many warps share a large page

struct loan {
    engine::lend_order order{};  // `to` and `states` are the lender's, from begin_loan to end_loan
    std::shared_ptr<const void> hold;  // the file keeps its words as long as this is there; the
                                       // lender has a copy while groups may look at them
    void* desk = nullptr;              // the lender's
};

// Thread-safe.
class page_lender {
public:
    virtual ~page_lender() = default;
    // Has groups copy what is there of the range, each part by itself; waits for no kernel.
    // False: not just now.
    virtual bool begin_loan(const runtime_ref& fs, loan& peer_read) = 0;
    // The caller is done with it, or waits no longer.
    virtual void end_loan(loan& peer_read) = 0;
    // From time to time: what loans held that were not waited for, and that are over, goes.
    virtual void end_late_loans() {}
};

// Room for the loans of a device that may be late with them: pinned memory, cut into desks, one for
// each loan that is under way.
//
// A GPU that is full of kernels which do not end begins no other. A reader waits for it no longer
// than loan_wait_ns; then its desk stays taken until all parts are settled after all, since the
// kernel that comes late still writes there. After a late loan there are no others for a while, and
// none at all while all desks are taken. So a program loses no more than 2 ms in 100, and once
// there are eight late ones nothing.

// A GPU with room answers within some 10 to 100 us, and a disk within some ms: a reader that has
// waited as long as this has lost about as much as the disk would have cost.
inline constexpr std::uint64_t loan_wait_ns = 2'000'000;
inline constexpr std::uint64_t quiet_after_late_ns = 100'000'000;

struct loan_desk {
    std::byte* to = nullptr;
    std::uint32_t* states = nullptr;
    std::uint32_t number = 0;
    // Guarded by the lock of all desks:
    bool taken = false, late = false;
    std::uint32_t parts = 0;
    std::shared_ptr<const void> hold;
};

// Thread-safe.
class loan_desks {
public:
    static constexpr std::uint32_t count = 8;
    static constexpr std::uint64_t desk_states = most_loan_bytes / least_part_bytes,
                                   desk_bytes =
                                       most_loan_bytes + desk_states * sizeof(std::uint32_t);

    // `memory`: count * desk_bytes, aligned to 16 bytes, which stays until the device is done with
    // all.
    void place(std::byte* memory) {
        for (std::uint32_t i = 0; i < count; ++i) {
            desks_[i].number = i;
            desks_[i].to = memory + i * desk_bytes;
            desks_[i].states = reinterpret_cast<std::uint32_t*>(desks_[i].to + most_loan_bytes);
        }
    }

    // A desk whose states are cleared for the loan, or null: there is none, or it is too soon after
    // a late one.
    loan_desk* take(loan& peer_read, std::uint64_t now_ns) {
        std::lock_guard lock(mutex_);
        if (now_ns < quiet_until_ns_) return nullptr;
        loan_desk* out = nullptr;
        for (loan_desk& desk : desks_)
            if (!desk.taken) out = &desk;
        if (out == nullptr) return nullptr;
        out->taken = true;
        out->parts = peer_read.order.parts();
        out->hold = peer_read.hold;
        for (std::uint32_t i = 0; i < out->parts; ++i) engine::clear_part(&out->states[i]);
        peer_read.order.to = out->to;
        peer_read.order.states = out->states;
        return out;
    }

    // By the thread that took it. `begun`: groups may be at it.
    void give_back(loan_desk& desk, bool begun, std::uint64_t now_ns) {
        std::shared_ptr<const void> ended;
        std::lock_guard lock(mutex_);
        if (begun && !all_settled(desk)) {
            desk.late = true;
            quiet_until_ns_ = now_ns + quiet_after_late_ns;
            return;
        }
        ended = std::move(desk.hold);
        desk.taken = false;
    }

    // Desks of late loans that have come to their end after all are free again.
    void end_late() {
        std::array<std::shared_ptr<const void>, count>
            ended;  // what they hold goes without the lock
        std::lock_guard lock(mutex_);
        for (loan_desk& desk : desks_) {
            if (!desk.late || !all_settled(desk)) continue;
            ended[desk.number] = std::move(desk.hold);
            desk.taken = desk.late = false;
        }
    }

private:
    static bool all_settled(const loan_desk& desk) {
        for (std::uint32_t i = 0; i < desk.parts; ++i)
            if (!engine::is_settled(engine::look_at_part(&desk.states[i]))) return false;
        return true;
    }

    std::mutex mutex_;
    std::array<loan_desk, count> desks_;  // guarded, but for what place() set
    std::uint64_t quiet_until_ns_ = 0;    // guarded
};

}  // namespace penstock::host
