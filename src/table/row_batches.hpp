// Copies rows of a table that are in memory of this machine: in the cache, or in a window onto the
// file (docs/protocol/through.md). Rows go in batches: look at all, copy all, look at all again.
//
// Nearly all of the time is spent waiting for memory, so nothing here waits twice. While the rows
// of a batch are copied, the rows of the next are found and their memory is asked for; by the time
// they are looked at, it is there. Fences, counts and looks at window words are paid for once in a
// batch.
#pragma once

#include <cstdint>

#include "device/device.hpp"
#include "penstock/engine/through_look.hpp"

namespace penstock::host {

class row_batches {
public:
    static constexpr std::uint32_t batch_rows = 32;

    // Rows [begin, end) of the job's list. The view has the words of windows, and the caller is on
    // a visit to them. In `left` each batch gets a word with a bit for each row that it did not
    // deliver.
    static void copy(const engine::cache_view& c, const table_job& job, std::uint64_t begin,
                     std::uint64_t end, std::uint32_t* left);
};

}  // namespace penstock::host
