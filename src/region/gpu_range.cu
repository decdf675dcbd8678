#include "region/gpu_range.cuh"

#include <algorithm>

#include <cuda_runtime.h>

#include "region/region_memory.hpp"

namespace penstock::region {

namespace {

// The driver's own calls, by name: the library is not linked against it, so that programs start where there is none.
struct driver {
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free_addresses = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    bool complete = true;

    driver() {
        find("cuMemAddressReserve", reserve);
        find("cuMemAddressFree", free_addresses);
        find("cuMemCreate", create);
        find("cuMemRelease", release);
        find("cuMemMap", map);
        find("cuMemUnmap", unmap);
        find("cuMemSetAccess", set_access);
    }

private:
    template <typename Function>
    void find(const char* name, Function& out) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 12050
        const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
#else
        const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
        if (code != cudaSuccess || found == nullptr) complete = false;
        out = reinterpret_cast<Function>(found);
    }
};

const driver& calls() {
    static const driver one;
    return one;
}

// Pieces of this size at most, so that what does not fit whole goes as far as there is memory.
constexpr std::uint64_t piece_bytes = 1ull << 30;

}  // namespace

gpu_range::~gpu_range() {
    for (const piece& one : pieces_) {
        calls().unmap(address_ + one.at, one.bytes);
        calls().release(one.memory);
    }
    if (address_ != 0) calls().free_addresses(address_, bytes_);
}

bool gpu_range::back(std::uint64_t at, std::uint64_t bytes, bool on_device) {
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
    what.location.id = on_device ? device_ : 0;
    CUmemGenericAllocationHandle memory{};
    if (calls().create(&memory, bytes, &what, 0) != CUDA_SUCCESS) return false;
    if (calls().map(address_ + at, bytes, 0, memory, 0) != CUDA_SUCCESS) {
        calls().release(memory);
        return false;
    }
    pieces_.push_back({memory, at, bytes});
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return calls().set_access(address_ + at, bytes, &access, 1) == CUDA_SUCCESS;
}

bool gpu_range::take(std::uint64_t bytes, std::uint64_t on_device, std::string& why) {
    bytes_ = (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
    const std::uint64_t most_on_device = std::min(bytes_, on_device / chunk_bytes * chunk_bytes);
    if (!calls().complete) {
        why = "the driver has no calls for ranges of addresses; a newer driver is needed";
        return false;
    }
    if (calls().reserve(&address_, bytes_, chunk_bytes, 0, 0) != CUDA_SUCCESS) {
        address_ = 0;
        why = "the device gives no range of " + std::to_string(bytes_) + " addresses";
        return false;
    }
    bool device_has_room = true;
    for (std::uint64_t at = 0; at < bytes_;) {
        const std::uint64_t limit = device_has_room && at < most_on_device ? most_on_device : bytes_;
        const std::uint64_t size = std::min(piece_bytes, limit - at);
        const bool here = device_has_room && at < most_on_device;
        if (here && !back(at, size, true)) {
            device_has_room = false;
            continue;
        }
        if (!here && !back(at, size, false)) {
            why = "neither device nor host has " + std::to_string(bytes_) + " bytes left for it";
            return false;
        }
        if (here) on_device_ += size;
        at += size;
    }
    return cudaMemset(data(), 0, bytes_) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
}

}  // namespace penstock::region
