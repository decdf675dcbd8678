// How a device reads a mapping of a file: for a region in the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/error.hpp"

namespace penstock::region {

class mapping_reader {
public:
    virtual ~mapping_reader() = default;
    // Has each part of a mapping to be registered before the device reads it?
    [[nodiscard]] virtual bool registers() const { return false; }
    // Registers a part, for reading at its own address: a kernel goes from one part to the next by
    // one pointer. Between kernels. Thread-safe.
    virtual status add(std::byte*, std::uint64_t) { return {}; }
    // Takes that back. Once no kernel uses the part.
    virtual void remove(std::byte*) {}
    // Waits for the work on the caller's stream, so that a part can be taken back. 0, or a negative
    // errno: -EBUSY, the stream is being captured, or it is the legacy stream and another one is.
    virtual int wait(void*) { return 0; }
    // Ok, or the reason why the device is lost.
    [[nodiscard]] virtual status lost() const { return {}; }
};

// What a device says of itself.
struct reading_device {
    bool is_gpu = false;
    std::uint64_t free_bytes = UINT64_MAX;  // device memory for a region, before device_bytes
    bool reads_pageable = true;             // its kernels read memory that is not registered
    bool registers = true;                  // the driver registers memory for reading only
};

// Cpu threads read a mapping as it is.
std::unique_ptr<mapping_reader> make_cpu_reader();
// `registered` false: for mappings that are read as pageable memory. Null, with the reason in
// `why`.
std::unique_ptr<mapping_reader> make_gpu_reader(int device, bool registered, status& why);
status look_at_gpu(int device, reading_device& out);

}  // namespace penstock::region
