// Lists and rows in ordinary host memory, of a runtime on a GPU. They go through a piece of pinned
// memory, and the caller waits: for single rows and small lists of a program's host side.
#pragma once

#include <cstdint>
#include <functional>

namespace penstock::python {

// Rows between memory of the host and of a call, and the list of their numbers.
struct host_list {
    const std::byte* numbers;
    std::uint64_t number_bytes;  // 4 or 8
    std::uint64_t count;
    std::byte* rows;  // null: the call moves none
    std::uint64_t row_bytes;
    std::uint64_t stride_bytes;
    bool to_host;  // rows come from the call; else they go to it
};

// Calls `call(numbers, count, rows, stream)` for a piece of the list after the other, with memory
// that the device reaches, and waits for each. Returns 0 or the first negative errno; -ENOMEM, no
// pinned memory; -EIO, the device failed. The caller does not hold the GIL.
int run_through_pinned(int device, const host_list& list,
                       const std::function<int(const void* numbers, std::uint64_t count, void* rows,
                                               void* stream)>& call);

// Waits for the work on a stream, also while another thread captures one. 0, or -EIO.
int wait_for_stream(void* stream);

}  // namespace penstock::python
