#include "device/gpu_context.cuh"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "device/gpu_code.hpp"
#include "penstock/error.hpp"
#include "penstock/launch.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

namespace {

#define PENSTOCK_TEXT(name) #name
// cuda.h gives some calls a newer name by a macro, which is the one to look for.
#define PENSTOCK_NAME(call) PENSTOCK_TEXT(call)

// The primary contexts that were asked for, one for each device.
struct known_contexts {
    std::mutex mutex;
    std::vector<gpu_context> all;
    process_owner owner;
};
known_contexts& known() {
    static auto* const instance = new known_contexts;
    return *instance;
}

// The context belongs to the CUDA runtime from now on, as that of any program does: a reference of
// ours would keep it from ending at cudaDeviceReset, with all that the program wanted gone.
CUresult leave_to_runtime(const gpu_context& made) {
    const bool no_error_before = cudaPeekAtLastError() == cudaSuccess;
    const cudaError_t code = cudaInitDevice(made.device, 0, 0);
    if (no_error_before) cudaGetLastError();
    driver().release_context(made.device);
    if (code != cudaSuccess)
        return code == cudaErrorMemoryAllocation ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    CUcontext again = nullptr;
    return made.is_alive() ? CUDA_SUCCESS : driver().retain(&again, made.device);
}

std::string failed(const char* call, CUresult code) {
    return std::string(call) + ": " + cuda_text(code);
}

}  // namespace

gpu_driver::gpu_driver() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        missing = "there is no NVIDIA driver (libcuda.so.1)";
        return;
    }
    const auto find = [&](const char* name, auto& out) {
        out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(::dlsym(library, name));
        if (out == nullptr && missing.empty())
            missing =
                std::string("the NVIDIA driver has no ") + name + "; it is older than CUDA 12";
    };
    find(PENSTOCK_NAME(cuInit), init);
    find(PENSTOCK_NAME(cuGetErrorName), error_name);
    find(PENSTOCK_NAME(cuGetErrorString), error_string);
    find(PENSTOCK_NAME(cuDeviceGetCount), count_devices);
    find(PENSTOCK_NAME(cuDeviceGet), device_of);
    find(PENSTOCK_NAME(cuDeviceGetName), device_name);
    find(PENSTOCK_NAME(cuDeviceGetAttribute), attribute);
    find(PENSTOCK_NAME(cuDevicePrimaryCtxRetain), retain);
    find(PENSTOCK_NAME(cuDevicePrimaryCtxRelease), release_context);
    find(PENSTOCK_NAME(cuDevicePrimaryCtxGetState), context_state);
    find(PENSTOCK_NAME(cuCtxGetId), context_id);
    find(PENSTOCK_NAME(cuCtxPushCurrent), push);
    find(PENSTOCK_NAME(cuCtxPopCurrent), pop);
    find(PENSTOCK_NAME(cuCtxGetCurrent), current_context);
    find(PENSTOCK_NAME(cuStreamGetCtx), context_of);
    find(PENSTOCK_NAME(cuDeviceCanAccessPeer), can_access_peer);
    find(PENSTOCK_NAME(cuDeviceGetP2PAttribute), peer_attribute);
    find(PENSTOCK_NAME(cuCtxEnablePeerAccess), enable_peer_access);
    find(PENSTOCK_NAME(cuThreadExchangeStreamCaptureMode), exchange_mode);
    find(PENSTOCK_NAME(cuStreamIsCapturing), is_capturing);
    find(PENSTOCK_NAME(cuStreamBatchMemOp), batch_of_words);
    find(PENSTOCK_NAME(cuPointerGetAttribute), pointer_attribute);
    find(PENSTOCK_NAME(cuMemGetAddressRange), address_range);
    find(PENSTOCK_NAME(cuMemGetInfo), memory_info);
    find(PENSTOCK_NAME(cuMemAlloc), allocate);
    find(PENSTOCK_NAME(cuMemFree), free);
    find(PENSTOCK_NAME(cuMemAllocAsync), allocate_on_stream);
    find(PENSTOCK_NAME(cuMemFreeAsync), free_on_stream);
    find(PENSTOCK_NAME(cuMemHostRegister), register_host);
    find(PENSTOCK_NAME(cuMemHostUnregister), unregister_host);
    find(PENSTOCK_NAME(cuMemHostGetDevicePointer), device_pointer);
    find(PENSTOCK_NAME(cuMemAddressReserve), reserve);
    find(PENSTOCK_NAME(cuMemAddressFree), free_addresses);
    find(PENSTOCK_NAME(cuMemCreate), create);
    find(PENSTOCK_NAME(cuMemRelease), release);
    find(PENSTOCK_NAME(cuMemMap), map);
    find(PENSTOCK_NAME(cuMemUnmap), unmap);
    find(PENSTOCK_NAME(cuMemSetAccess), set_access);
    find(PENSTOCK_NAME(cuMemGetAllocationGranularity), granularity);
    find(PENSTOCK_NAME(cuMemExportToShareableHandle), export_handle);
    find(PENSTOCK_NAME(cuMemImportFromShareableHandle), import_handle);
    find(PENSTOCK_NAME(cuDeviceGetUuid), device_uuid);
}

#undef PENSTOCK_NAME
#undef PENSTOCK_TEXT

const gpu_driver& driver() {
    static const auto* const instance = new gpu_driver;
    return *instance;
}

std::string cuda_text(CUresult code) {
    const char *name = nullptr, *text = nullptr;
    if (driver().error_name != nullptr) driver().error_name(code, &name);
    if (driver().error_string != nullptr) driver().error_string(code, &text);
    return (name != nullptr ? name : "CUDA error " + std::to_string(code)) +
           (text != nullptr ? " (" + std::string(text) + ")" : std::string());
}

std::string cuda_text(cudaError_t code) {
    return std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ")";
}

bool is_shortage(cudaError_t code) {
    return code == cudaErrorMemoryAllocation || code == cudaErrorLaunchOutOfResources;
}

bool is_sticky(cudaError_t code) {
    switch (code) {
        case cudaSuccess:
        case cudaErrorNotReady:
        case cudaErrorInvalidValue:
        case cudaErrorMemoryAllocation:
        case cudaErrorLaunchOutOfResources:
        case cudaErrorNotSupported:
        case cudaErrorNotPermitted: return false;
        default:
            return code < cudaErrorStreamCaptureUnsupported ||
                   code > cudaErrorStreamCaptureWrongThread;
    }
}

int errno_of(cudaError_t code) {
    return code == cudaSuccess ? 0 : is_shortage(code) ? -ENOMEM : -EIO;
}

gpu_context gpu_context::of(int device, std::string& why, bool& short_of_memory) {
    gpu_context none{device};
    short_of_memory = false;
    if (!known().owner.here()) {
        why =
            "the program used CUDA before fork(), and CUDA cannot be used in the child; make the "
            "child's "
            "runtime after an exec, or the parent's after the fork";
        return none;
    }
    if (why = driver().missing; !why.empty()) return none;
    if (const CUresult code = driver().init(0); code != CUDA_SUCCESS) {
        why = "CUDA finds no device: " + failed("cuInit", code);
        return none;
    }
    int count = 0;
    if (driver().count_devices(&count) == CUDA_SUCCESS && device >= count) {
        why = "there are " + std::to_string(count) + " devices, numbered from 0";
        return none;
    }
    const std::lock_guard lock(known().mutex);
    for (const gpu_context& context : known().all)
        if (context.device == device && context.is_alive()) return context;
    CUdevice number = 0;
    gpu_context made{device};
    CUresult code = driver().device_of(&number, device);
    if (code == CUDA_SUCCESS) code = driver().retain(&made.handle, number);
    if (code == CUDA_SUCCESS) {
        code = driver().context_id(made.handle, &made.id);
        if (code == CUDA_SUCCESS) code = leave_to_runtime(made);
        else driver().release_context(made.device);
    }
    if (code != CUDA_SUCCESS) {
        short_of_memory = code == CUDA_ERROR_OUT_OF_MEMORY;
        why = failed("no CUDA context", code);
        if (short_of_memory) why += "; other programs hold its memory (nvidia-smi shows which)";
        return none;
    }
    std::erase_if(known().all,
                  [&](const gpu_context& context) { return context.device == device; });
    known().all.push_back(made);
    return made;
}

gpu_context gpu_context::of(int device) {
    std::string why;
    bool short_of_memory = false;
    return of(device, why, short_of_memory);
}

std::string look_for_code(const std::string& name, int device, std::string& slow_start) {
    int major = 0, minor = 0;
    if (driver().attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
            CUDA_SUCCESS ||
        driver().attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
            CUDA_SUCCESS)
        return "the device cannot be asked for its compute capability";
    const int gpu = 10 * major + minor;
    const std::string here = name + " has compute capability " + capability_text(gpu),
                      cure = "-DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(gpu) + "-real";
    switch (code_for(PENSTOCK_CUDA_ARCHITECTURES, gpu)) {
        case gpu_code::none:
            return here + ", and this build of Penstock has code for " +
                   PENSTOCK_CUDA_ARCHITECTURES " alone; build it with " + cure;
        case gpu_code::intermediate:
            slow_start = here +
                         ", for which this build of Penstock has no machine code: the driver "
                         "translates its kernels now, which takes a minute or so, and keeps "
                         "them for later starts; a build with " +
                         cure + " starts at once";
            return {};
        default: return {};
    }
}

// After cudaDeviceReset there is no primary context until the next call that needs one, and then it
// is another one. A context whose kernels faulted is still there.
bool gpu_context::is_alive() const {
    if (handle == nullptr || !owner.here()) return false;
    unsigned int flags = 0;
    int active = 0;
    if (driver().context_state(device, &flags, &active) != CUDA_SUCCESS || active == 0)
        return false;
    unsigned long long now = 0;
    switch (driver().context_id(handle, &now)) {
        case CUDA_SUCCESS: return now == id;
        case CUDA_ERROR_INVALID_CONTEXT:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        case CUDA_ERROR_DEINITIALIZED:
        case CUDA_ERROR_NOT_INITIALIZED: return false;
        default: return true;
    }
}

bool gpu_context::is_over() const {
    unsigned int flags = 0;
    int active = 0;
    return driver().context_state(device, &flags, &active) == CUDA_ERROR_DEINITIALIZED;
}

device_guard::device_guard(const gpu_context& context) {
    if (!context.is_alive() || driver().push(context.handle) != CUDA_SUCCESS) return;
    entered_ = true;
    no_error_before_ = cudaPeekAtLastError() == cudaSuccess;
    if (driver().exchange_mode(&mode_) != CUDA_SUCCESS) mode_ = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

device_guard::~device_guard() {
    if (!entered_) return;
    driver().exchange_mode(&mode_);
    if (no_error_before_) cudaGetLastError();  // an error of a call of ours is not the program's
    CUcontext ours = nullptr;
    driver().pop(&ours);
}

device_room room_now() {
    std::size_t free_bytes = 0, all_bytes = 0;
    if (driver().memory_info(&free_bytes, &all_bytes) != CUDA_SUCCESS) return {};
    return {free_bytes, all_bytes};
}

std::string whole_mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string room_text() {
    const device_room room = room_now();
    return whole_mib(room.free_bytes) + " of " + whole_mib(room.all_bytes) + " are free";
}

namespace {

template <typename T>
T attribute_of(CUdeviceptr at, CUpointer_attribute kind, T unknown) {
    T out = unknown;
    return driver().pointer_attribute(&out, kind, at) == CUDA_SUCCESS ? out : unknown;
}

// Is it memory of some device, and neither of the host nor managed?
bool is_of_a_device(CUdeviceptr at) {
    return attribute_of(at, CU_POINTER_ATTRIBUTE_IS_MANAGED, 0u) == 0 &&
           attribute_of(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST) ==
               CU_MEMORYTYPE_DEVICE;
}

// What memory an address has that is not of the device; empty: it is.
std::string other_memory(CUdeviceptr at, int device) {
    if (attribute_of(at, CU_POINTER_ATTRIBUTE_IS_MANAGED, 0u) != 0) return "managed memory";
    if (attribute_of(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST) !=
        CU_MEMORYTYPE_DEVICE)
        return "host memory";
    const int of = attribute_of(at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, -1);
    return of == device ? std::string() : "memory of GPU " + std::to_string(of);
}

// Memory that is mapped into a range of addresses (cuMemMap) may lie there in many pieces, as that
// of frameworks does whose segments grow. Any other allocation is one piece, and its neighbour
// belongs to another owner.
bool is_mapped_in_pieces(CUdeviceptr at) {
    return attribute_of(at, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 1u) == 0 &&
           attribute_of(at, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CUmemoryPool{}) == nullptr;
}

// How many bytes of device memory there are from an address on, counted up to `wanted`.
std::uint64_t bytes_from(CUdeviceptr begin, std::uint64_t wanted, int device) {
    CUdeviceptr end = begin;
    while (end - begin < wanted && other_memory(end, device).empty() &&
           attribute_of(end, CU_POINTER_ATTRIBUTE_MAPPED, 1u) != 0) {
        CUdeviceptr piece = 0;
        std::size_t piece_bytes = 0;
        if (driver().address_range(&piece, &piece_bytes, end) != CUDA_SUCCESS ||
            piece + piece_bytes <= end)
            break;
        const bool may_go_on = is_mapped_in_pieces(end);
        end = piece + piece_bytes;
        if (!may_go_on) break;
    }
    return end - begin;
}

}  // namespace

bool is_device_memory(const void* memory, std::uint64_t bytes, int device, std::string& why) {
    const auto begin = reinterpret_cast<CUdeviceptr>(memory);
    const std::string gpu = "GPU " + std::to_string(device);
    if (why = other_memory(begin, device); !why.empty()) {
        why = "is " + why + ", not of " + gpu + "; give memory that cudaMalloc gives on " + gpu;
        return false;
    }
    const std::uint64_t there = bytes_from(begin, bytes, device);
    if (there >= bytes) return true;
    why = "has " + format_size(there) + " up to the end of its allocation, and " +
          format_size(bytes) + " are wanted; give a smaller cache_bytes, or a larger allocation";
    return false;
}

int check_stream(cudaStream_t stream) {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult code = driver().is_capturing(stream, &state);
    if (code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return -EBUSY;
    return code == CUDA_SUCCESS && state != CU_STREAM_CAPTURE_STATUS_NONE ? -EBUSY : 0;
}

// The driver gives a pointer for the current context to memory of cudaMalloc, of this device or of
// one whose memory this context was enabled to access, and to memory of the host that it knows.
// Memory of pools and of ranges (cuMemMap) has rights of its own for each device, whatever was
// enabled for the context. It is no memory that can be handed on by cudaIpcGetMemHandle.
bool is_reached(const void* memory, bool writes) {
    const auto at = reinterpret_cast<CUdeviceptr>(memory);
    CUdeviceptr here = 0;
    if (driver().pointer_attribute(&here, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at) !=
            CUDA_SUCCESS ||
        here != at)
        return false;
    if (attribute_of(at, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 0u) != 0 ||
        !is_of_a_device(at))
        return true;
    const unsigned needed =
        writes ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
    int device = -1;
    cudaGetDevice(&device);
    const bool is_own = attribute_of(at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, -1) == device;
    return (attribute_of(at, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, is_own ? needed : 0u) & needed) ==
           needed;
}

bool may_come_with_graph(const void* memory, cudaStream_t stream) {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    if (memory == nullptr || driver().is_capturing(stream, &state) != CUDA_SUCCESS ||
        state != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return false;
    unsigned kind = 0;
    if (driver().pointer_attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS)
        return false;
    char byte = 0;
    const ::iovec to{&byte, 1}, from{const_cast<void*>(memory), 1};
    return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) < 0 && errno == EFAULT;
}

std::uint64_t stack_bytes(const void* kernel, int device) {
    cudaFuncAttributes attributes{};
    int multiprocessors = 0, threads = 0;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return 0;
    driver().attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    driver().attribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
    return attributes.localSizeBytes * static_cast<std::uint64_t>(multiprocessors) *
           static_cast<std::uint64_t>(threads);
}

gpu_memory::~gpu_memory() {
    const device_guard guard(context_);
    for (const CUdeviceptr piece : device_pieces_)
        if (guard) driver().free(piece);
    if (guard)
        for (const auto* pieces : {&foreign_pieces_, &shareable_pieces_})
            for (const placed& piece : *pieces) unplace(piece);
    if (guard && stream_ != nullptr) cudaStreamDestroy(stream_);
    for (const mapped& piece : shared_pieces_) {
        if (guard) driver().unregister_host(piece.address);
        if (context_.owner.here()) ::munmap(piece.address, piece.bytes);
    }
}

void* gpu_memory::refused(std::uint64_t bytes, const char* kind, const std::string& error) {
    shortage_ = format_size(bytes) + " of " + kind + " were refused: " + error +
                "; of the device " + room_text();
    return nullptr;
}

// On a stream of its own: the legacy stream must not be used while any other one is captured.
bool gpu_memory::clear(CUdeviceptr address, std::uint64_t bytes) {
    if (stream_ == nullptr &&
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
        return false;
    return cudaMemsetAsync(reinterpret_cast<void*>(address), 0, bytes, stream_) == cudaSuccess &&
           cudaStreamSynchronize(stream_) == cudaSuccess;
}

void* gpu_memory::device_bytes(std::uint64_t bytes) {
    const device_guard guard(context_);
    CUdeviceptr address = 0;
    if (!guard) return refused(bytes, "device memory", "the device was reset");
    if (const CUresult code = driver().allocate(&address, bytes); code != CUDA_SUCCESS)
        return refused(bytes, "device memory", cuda_text(code));
    device_pieces_.push_back(address);
    allocated_bytes_ += bytes;
    if (clear(address, bytes)) return reinterpret_cast<void*>(address);
    return refused(bytes, "device memory",
                   "they could not be cleared: " + cuda_text(cudaPeekAtLastError()));
}

stream_memory::stream_memory(gpu_memory& owner, std::uint64_t bytes, cudaStream_t stream)
    : owner_(owner), bytes_(bytes), stream_(stream) {
    if (driver().allocate_on_stream(&address_, bytes, stream) != CUDA_SUCCESS) address_ = 0;
    else owner_.allocated_bytes_ += bytes_;
}

stream_memory::~stream_memory() {
    if (address_ == 0) return;
    driver().free_on_stream(address_, stream_);
    owner_.allocated_bytes_ -= bytes_;
}

// Touched and then registered: for large pieces, of huge pages, many times faster than
// cudaHostAlloc. Not shared with children of fork(): a page that parent and child share is copied
// when the parent writes to it, and the device would keep the old one.
void* gpu_memory::shared_bytes(std::uint64_t bytes) {
    constexpr std::uint64_t huge = 2u << 20, small = 4096;
    const std::uint64_t grain = bytes >= huge ? huge : small;
    const std::uint64_t length = (bytes + grain - 1) & ~(grain - 1);
    const device_guard guard(context_);
    if (!guard) return refused(bytes, "pinned memory", "the device was reset");
    void* const address =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
        return refused(bytes, "pinned memory",
                       "the host has no such memory: " + error_text(-errno));
    if (length >= huge) ::madvise(address, length, MADV_HUGEPAGE);
    ::madvise(address, length, MADV_DONTFORK);
    std::memset(address, 0, length);
    const CUresult code = driver().register_host(
        address, length, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
    if (code == CUDA_SUCCESS) {
        shared_pieces_.push_back({address, length});
        return address;
    }
    ::munmap(address, length);
    return refused(bytes, "pinned memory", cuda_text(code));
}

}  // namespace penstock::host

namespace penstock::detail {

bool enter_device(int device) {
    const host::gpu_context context = host::gpu_context::of(device);
    return context.is_alive() && host::driver().push(context.handle) == CUDA_SUCCESS;
}

void leave_device() {
    CUcontext ours = nullptr;
    host::driver().pop(&ours);
}

}  // namespace penstock::detail
