#include "device/gpu_memory.cuh"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

gpu_memory::~gpu_memory() {
    const device_guard guard(context_);
    for (const CUdeviceptr piece : device_pieces_)
        if (guard) driver().free(piece);
    if (guard && stream_ != nullptr) cudaStreamDestroy(stream_);
    for (const mapped& piece : shared_pieces_) {
        if (guard) driver().unregister_host(piece.address);
        if (context_.owner.here()) ::munmap(piece.address, piece.bytes);
    }
}

void* gpu_memory::refused(std::uint64_t bytes, const char* what, const std::string& error) {
    shortage_ = format_size(bytes) + " of " + what + " were refused: " + error +
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
    if (clear(address, bytes)) return reinterpret_cast<void*>(address);
    return refused(bytes, "device memory",
                   "they could not be cleared: " + cuda_text(cudaPeekAtLastError()));
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
