// What one GPU of a runtime has to do with another: how its kernels reach the other's memory, and
// which of them a stream of the caller is of.
//
// Peer access goes from one context to another, and once it is there it is so for all memory of the
// other, also for what is allocated later. It is the program's as much as ours, so that it is there
// already is no failure, and it is not taken back: the program may use it by then.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "device/device.hpp"
#include "device/gpu_context.cuh"

namespace penstock::host {

// How kernels of one device would reach memory of the other; the numbers are CUDA's. Asks the
// driver, and changes nothing.
device_link link_between(int from, int to);

// "gpu-" and the device's number in the whole machine, which hides no devices; empty: it has none.
std::string identity_of(int device);
// How kernels of this device would reach one with that identity, which this process may not see.
device_link link_to_identity(int from, const std::string& identity);

// Lets kernels of the first context, which is current, read memory of the second. False, with the
// reason in `why`. Blocks while a kernel waits for the host, like an allocation.
bool enable_peer(const gpu_context& from, const gpu_context& to, std::string& why);

// Is it a stream of this context? A default stream is one of the calling thread's current context.
// Asks the driver and nothing of the device, so it is no error in a stream capture, and ends none.
bool is_stream_of(cudaStream_t stream, const gpu_context& context);

}  // namespace penstock::host
