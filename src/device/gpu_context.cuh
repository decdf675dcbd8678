// A device's primary context, and the guard that every CUDA call of the library is made under.
//
// The program has CUDA state of its own, and the library leaves it alone:
//  (1) Stream captures. A capture in mode "global" forbids other threads calls such as
//      cudaStreamQuery, and ends invalid if they are made. Under the guard the calling thread is
//      "relaxed": its calls disturb no capture. The library uses the legacy stream only where the
//      caller named it, and never synchronises the device or the context, which ends captures of
//      every mode: device/gpu_wait.cuh has what it does in place of that.
//  (2) Its pending error. Kernels are launched by calls that return their own code (launch_kernel),
//      and calls that may well fail go to the driver, whose codes never become the runtime's last
//      error.
//  (3) Its current device and context: the guard pushes ours and pops it again.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "os/process_owner.hpp"

namespace penstock::host {

// The driver's own calls. The library is not linked against it, so that programs start where there
// is none.
struct gpu_driver {
    std::string missing;  // empty: all are there

    decltype(&cuInit) init = nullptr;
    decltype(&cuGetErrorName) error_name = nullptr;
    decltype(&cuGetErrorString) error_string = nullptr;
    decltype(&cuDeviceGetCount) count_devices = nullptr;
    decltype(&cuDeviceGet) device_of = nullptr;
    decltype(&cuDeviceGetName) device_name = nullptr;
    decltype(&cuDeviceGetAttribute) attribute = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&cuDevicePrimaryCtxRelease) release_context = nullptr;
    decltype(&cuDevicePrimaryCtxGetState) context_state = nullptr;
    decltype(&cuCtxGetId) context_id = nullptr;
    decltype(&cuCtxPushCurrent) push = nullptr;
    decltype(&cuCtxPopCurrent) pop = nullptr;
    decltype(&cuCtxGetCurrent) current_context = nullptr;
    decltype(&cuStreamGetCtx) context_of = nullptr;
    decltype(&cuDeviceCanAccessPeer) can_access_peer = nullptr;
    decltype(&cuDeviceGetP2PAttribute) peer_attribute = nullptr;
    decltype(&cuCtxEnablePeerAccess) enable_peer_access = nullptr;
    decltype(&cuThreadExchangeStreamCaptureMode) exchange_mode = nullptr;
    decltype(&cuStreamIsCapturing) is_capturing = nullptr;
    decltype(&cuStreamBatchMemOp) batch_of_words = nullptr;
    decltype(&cuPointerGetAttribute) pointer_attribute = nullptr;
    decltype(&cuMemGetAddressRange) address_range = nullptr;
    decltype(&cuMemGetInfo) memory_info = nullptr;
    decltype(&cuMemAlloc) allocate = nullptr;
    decltype(&cuMemFree) free = nullptr;
    decltype(&cuMemAllocAsync) allocate_on_stream = nullptr;
    decltype(&cuMemFreeAsync) free_on_stream = nullptr;
    decltype(&cuMemHostRegister) register_host = nullptr;
    decltype(&cuMemHostUnregister) unregister_host = nullptr;
    decltype(&cuMemHostGetDevicePointer) device_pointer = nullptr;
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free_addresses = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
    decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
    decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
    decltype(&cuDeviceGetUuid) device_uuid = nullptr;

    gpu_driver();
};
const gpu_driver& driver();

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; likewise "cudaErrorMemoryAllocation (out of memory)".
std::string cuda_text(CUresult code);
std::string cuda_text(cudaError_t code);

// Does the code say that memory was short, of the device or of the host?
bool is_shortage(cudaError_t code);
// Is the device lost with it for good, so that every later call fails too? Not: an error of one
// call, or of a stream capture.
bool is_sticky(cudaError_t code);
// -ENOMEM, or -EIO for all others; 0.
int errno_of(cudaError_t code);

// A value. Good in the process that made it, until cudaDeviceReset.
struct gpu_context {
    int device = 0;
    CUcontext handle = nullptr;
    unsigned long long id = 0;
    process_owner owner{};

    // The device's primary context, made if there is none. Without a handle: `why` says the reason,
    // and `short_of_memory` whether that is memory.
    static gpu_context of(int device, std::string& why, bool& short_of_memory);
    static gpu_context of(int device);
    [[nodiscard]] bool is_alive() const;
    // Has the process ended its use of CUDA? Threads may still run while it ends.
    [[nodiscard]] bool is_over() const;
};

// Has this build code for the GPU, which is called `name`? Empty, or why it cannot be used. With
// intermediate code alone `slow_start` says so (cache_device::slow_start).
std::string look_for_code(const std::string& name, int device, std::string& slow_start);

// Makes the context current and the thread relaxed, for a scope. False: the context is gone, and
// nothing may be called.
class device_guard {
public:
    explicit device_guard(const gpu_context& context);
    ~device_guard();
    device_guard(const device_guard&) = delete;
    device_guard& operator=(const device_guard&) = delete;
    explicit operator bool() const { return entered_; }

private:
    bool entered_ = false;
    bool no_error_before_ = false;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// What calls return whose guard is false.
inline constexpr int context_is_gone = -ENODEV;

// Until all work has ended that was put on the device whose context is current; disturbs no capture
// (gpu_wait.cu). 0, also if it has ended by a fault. -ENOMEM or -EBUSY, after ten seconds: some may
// still run.
int wait_for_current_device();

// Free and all bytes of the device whose context is current; 0 if it does not say.
struct device_room {
    std::uint64_t free_bytes = 0, all_bytes = 0;
};
device_room room_now();
// "127 MiB of 81079 MiB are free"
std::string room_text();
std::string whole_mib(std::uint64_t bytes);

// May work be put on the caller's stream now? 0, or -EBUSY: it, or for the legacy stream any other,
// is being captured. Ends no capture.
int check_stream(cudaStream_t stream);

// Launches a kernel and returns the launch's own code.
template <typename... Wanted, typename... Given>
cudaError_t launch_kernel(void (*kernel)(Wanted...), std::uint32_t blocks, std::uint32_t threads,
                          cudaStream_t stream, const Given&... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(blocks);
    shape.blockDim = dim3(threads);
    shape.stream = stream;
    return cudaLaunchKernelEx(&shape, kernel, static_cast<Wanted>(arguments)...);
}

// Do kernels of the current context reach the memory, to read it or also to write it? A kernel that
// is handed other memory takes the whole device down with it.
bool is_reached(const void* memory, bool writes);
// Can it be memory that the graph which the stream records will have? It has no pages before the
// graph is launched, so the driver knows nothing of it, and the host cannot read it.
bool may_come_with_graph(const void* memory, cudaStream_t stream);
// Are all these bytes memory of that device, whose context is current, so that they stay on it?
// False, with the rest of a sentence about it and the cure in `why`.
bool is_device_memory(const void* memory, std::uint64_t bytes, int device, std::string& why);

// Blocks that are resident at once, for a grid that takes its work in pieces.
template <typename Kernel>
std::uint32_t resident_blocks(Kernel* kernel, std::uint32_t threads) {
    int device = 0, multiprocessors = 0, of_each = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, kernel, static_cast<int>(threads), 0);
    return static_cast<std::uint32_t>(std::max(1, multiprocessors * of_each));
}

template <typename Kernel>
std::uint32_t grid_of(Kernel* kernel, std::uint32_t threads, std::uint64_t work,
                      std::uint64_t work_per_block) {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        (work + work_per_block - 1) / work_per_block, 1, resident_blocks(kernel, threads)));
}

// Device memory that the driver sets aside for the stacks of a kernel's threads when it is first
// launched.
std::uint64_t stack_bytes(const void* kernel, int device);

// CUDA memory for the runtime: of the device, and of the host where the device reaches it.

// Owns device and pinned memory; frees all of it at the end, ignoring errors of a device that a
// kernel has broken. Allocation blocks while a kernel waits for the host, so all of it happens when
// the runtime is created.
class gpu_memory {
public:
    explicit gpu_memory(int device) : context_(gpu_context::of(device)) {}
    ~gpu_memory();
    gpu_memory(const gpu_memory&) = delete;
    gpu_memory& operator=(const gpu_memory&) = delete;

    void* device_bytes(std::uint64_t bytes);  // zeroed, or null
    // The same, of which other processes can map what handle_of gives.
    void* shareable_bytes(std::uint64_t bytes);
    // -EINVAL: shareable_bytes did not give it.
    int handle_of(const void* shareable, std::uint64_t& mapped_bytes) const;
    // Memory of another process, by its handle, for reading by kernels of this device. It needs no
    // context of the other device. Null, with the reason in `why`.
    const void* map_foreign(int handle, std::uint64_t bytes, std::string& why);
    void unmap_foreign(const void* mapped);
    // Pinned, at the same address on both sides, zeroed, or null. It is ordinary memory that was
    // registered: after cudaDeviceReset the host may still use it. A child of fork() does not have
    // it.
    void* shared_bytes(std::uint64_t bytes);
    // After a null: how much of what was refused, by which error, and how much is free.
    [[nodiscard]] const std::string& shortage() const { return shortage_; }
    // Device memory that is allocated now, in the bytes asked for. Thread-safe.
    [[nodiscard]] std::uint64_t allocated_bytes() const { return allocated_bytes_; }

private:
    friend class stream_memory;
    bool clear(CUdeviceptr address, std::uint64_t bytes);
    void* refused(std::uint64_t bytes, const char* kind, const std::string& error);

    struct mapped {
        void* address;
        std::uint64_t bytes;
    };
    // Addresses of the device with memory mapped there.
    struct placed {
        CUdeviceptr address = 0;
        std::uint64_t bytes = 0;
        CUmemGenericAllocationHandle memory = 0;  // kept only by its owner
    };
    CUresult place(placed& out, CUmemAccess_flags access) const;
    static void unplace(const placed& piece);
    const gpu_context context_;
    cudaStream_t stream_ = nullptr;  // for clearing; made when it is first needed
    std::vector<CUdeviceptr> device_pieces_;
    std::vector<mapped> shared_pieces_;
    std::vector<placed> shareable_pieces_, foreign_pieces_;
    std::string shortage_;
    std::atomic<std::uint64_t> allocated_bytes_{0};
};

// Device memory that comes and goes with the work on a stream, and counts as allocated by `owner`
// for the life of the object. Thread-safe beside other uses of the owner.
class stream_memory {
public:
    stream_memory(gpu_memory& owner, std::uint64_t bytes, cudaStream_t stream);
    ~stream_memory();
    stream_memory(const stream_memory&) = delete;
    stream_memory& operator=(const stream_memory&) = delete;
    [[nodiscard]] void* data() const { return reinterpret_cast<void*>(address_); }  // null: refused

private:
    gpu_memory& owner_;
    const std::uint64_t bytes_;
    const cudaStream_t stream_;
    CUdeviceptr address_ = 0;
};

}  // namespace penstock::host
