// What a test may put in place of the real thing. Not installed.
#pragma once

#include "hub/hub.hpp"
#include "os/env.hpp"

namespace penstock::host {

class page_lender;

struct runtime_hooks {
    environment* env = nullptr;          // null: the operating system
    hub* shared = nullptr;               // null: the one of the process
    page_lender* lender = nullptr;       // of pages to reads of programs; null: the device
    std::size_t max_handles = 0;         // 0: from the process's limit
    std::uint32_t ring_slots = 0;        // a power of two; 0: from staging_bytes
    std::uint32_t rings_per_thread = 0;  // 0: one on CPU threads, several on a GPU
    // The host would be killed by a file that shrinks under a window; tests know theirs.
    bool windows_on_cpu = false;
    bool no_doorbells = false;  // service threads find requests by looking, as they must on a GPU
    std::uint64_t beat_ns = 20'000'000;
};

}  // namespace penstock::host
