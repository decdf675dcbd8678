// Lists and rows in ordinary host memory, of a runtime on a GPU. They go through a piece of pinned
// memory, and the caller waits: for single rows and small lists of a program's host side.
#pragma once

#include <cstdint>
#include <functional>

#include "device/device.hpp"

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

// A call for a piece of a list, with memory that the device reaches. 0, or a negative errno.
using piece_call =
    std::function<int(const void* numbers, std::uint64_t count, void* rows, void* stream)>;

// Calls `call` for a piece of the list after the other, and waits for each. Its stream comes behind
// the legacy stream of the device, but while a stream that the legacy one waits for is captured.
// Returns 0 or the first negative errno; -ENOMEM, no pinned memory; -EIO, the device failed;
// -ENODEV, after a reset. The caller does not hold the GIL.
int run_through_pinned(host::cache_device& device, const host_list& list, const piece_call& call);

// Whether wait_for_stream() may be called, which would break a capture: 0; -EBUSY, the stream is
// being captured, or it is the legacy one and waits for one that is; or -ENODEV after a reset.
int can_wait_for_stream(host::cache_device& device, void* stream);

// Waits for the work on a stream of the device (null: its legacy stream), also while another thread
// captures one. 0, -EIO, or -ENODEV after a reset.
int wait_for_stream(host::cache_device& device, void* stream);

}  // namespace penstock::python
