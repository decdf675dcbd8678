#include "host/gpu_memory.cuh"

#include <cstring>
#include <sys/mman.h>

namespace penstock::host {

gpu_memory::~gpu_memory() {
    const device_guard guard(device_);
    for (void* piece : device_pieces_) cudaFree(piece);
    for (void* piece : host_pieces_) cudaFreeHost(piece);
    for (const mapped& piece : registered_pieces_) {
        cudaHostUnregister(piece.address);
        ::munmap(piece.address, piece.bytes);
    }
}

void* gpu_memory::device_bytes(std::uint64_t bytes) {
    const device_guard guard(device_);
    void* address = nullptr;
    if (cudaMalloc(&address, bytes) != cudaSuccess) {
        cudaGetLastError();  // a refused allocation is not a broken device
        return nullptr;
    }
    device_pieces_.push_back(address);
    return cudaMemset(address, 0, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? address : nullptr;
}

// Huge pages, touched and then registered: many times faster to start with than cudaHostAlloc for large pieces.
void* gpu_memory::registered_bytes(std::uint64_t bytes) {
    constexpr std::uint64_t huge = 2u << 20;
    const std::uint64_t length = (bytes + huge - 1) & ~(huge - 1);
    void* const address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    ::madvise(address, length, MADV_HUGEPAGE);
    std::memset(address, 0, length);
    void* seen_by_device = nullptr;
    if (cudaHostRegister(address, length, cudaHostRegisterMapped | cudaHostRegisterPortable) == cudaSuccess) {
        if (cudaHostGetDevicePointer(&seen_by_device, address, 0) == cudaSuccess && seen_by_device == address) {
            registered_pieces_.push_back({address, length});
            return address;
        }
        cudaHostUnregister(address);
    }
    cudaGetLastError();
    ::munmap(address, length);
    return nullptr;
}

void* gpu_memory::shared_bytes(std::uint64_t bytes) {
    const device_guard guard(device_);
    if (bytes >= (8u << 20))
        if (void* const address = registered_bytes(bytes)) return address;
    void* address = nullptr;
    if (cudaHostAlloc(&address, bytes, cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
    }
    host_pieces_.push_back(address);
    std::memset(address, 0, bytes);
    return address;
}

}  // namespace penstock::host
