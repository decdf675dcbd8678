// Loans: copies of pages that a runtime has, on their way to a reader on the host. This is the
// lender's side; cached_reads.hpp has the reader's.
#pragma once

#include <cstdint>
#include <memory>

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
    virtual bool begin_loan(const runtime_ref& fs, loan& what) = 0;
    // The caller is done with it, or waits no longer.
    virtual void end_loan(loan& what) = 0;
    // From time to time: what loans held that were not waited for, and that are over, goes.
    virtual void end_late_loans() {}
};

}  // namespace penstock::host
