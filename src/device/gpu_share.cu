// Device memory that processes share: cuMemCreate, and POSIX descriptors as handles. The legacy
// handles of CUDA IPC do not work between containers, and leave it undefined what a reader finds
// once the owner has freed the memory; these keep it until all have unmapped it.
#include <unistd.h>

#include <cerrno>

#include "device/gpu_context.cuh"
#include "penstock/options.hpp"

namespace penstock::host {

// Reserves addresses and maps the memory there. What fails leaves nothing.
CUresult gpu_memory::place(placed& out, CUmemAccess_flags access) const {
    CUresult code = driver().reserve(&out.address, out.bytes, 0, 0, 0);
    if (code != CUDA_SUCCESS) return code;
    code = driver().map(out.address, out.bytes, 0, out.memory, 0);
    if (code != CUDA_SUCCESS) {
        driver().free_addresses(out.address, out.bytes);
        return code;
    }
    CUmemAccessDesc to_this_device{};
    to_this_device.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_.device};
    to_this_device.flags = access;
    code = driver().set_access(out.address, out.bytes, &to_this_device, 1);
    if (code == CUDA_SUCCESS) return code;
    driver().unmap(out.address, out.bytes);
    driver().free_addresses(out.address, out.bytes);
    return code;
}

void gpu_memory::unplace(const placed& piece) {
    driver().unmap(piece.address, piece.bytes);
    driver().free_addresses(piece.address, piece.bytes);
    if (piece.memory != 0) driver().release(piece.memory);
}

void* gpu_memory::shareable_bytes(std::uint64_t bytes) {
    constexpr const char* kind = "device memory that processes share";
    const device_guard guard(context_);
    if (!guard) return refused(bytes, kind, "the device was reset");
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_.device};
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::size_t grain = 0;
    CUresult code = driver().granularity(&grain, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    placed made;
    if (code == CUDA_SUCCESS) {
        made.bytes = (bytes + grain - 1) / grain * grain;
        code = driver().create(&made.memory, made.bytes, &wanted, 0);
    }
    if (code != CUDA_SUCCESS) return refused(bytes, kind, cuda_text(code));
    if (code = place(made, CU_MEM_ACCESS_FLAGS_PROT_READWRITE); code != CUDA_SUCCESS) {
        driver().release(made.memory);
        return refused(bytes, kind, cuda_text(code));
    }
    shareable_pieces_.push_back(made);
    allocated_bytes_ += bytes;
    if (clear(made.address, made.bytes)) return reinterpret_cast<void*>(made.address);
    return refused(bytes, kind, "they could not be cleared: " + cuda_text(cudaPeekAtLastError()));
}

int gpu_memory::handle_of(const void* shareable, std::uint64_t& mapped_bytes) const {
    const device_guard guard(context_);
    if (!guard) return context_is_gone;
    for (const placed& piece : shareable_pieces_) {
        if (reinterpret_cast<const void*>(piece.address) != shareable) continue;
        int handle = -1;
        mapped_bytes = piece.bytes;
        return driver().export_handle(&handle, piece.memory,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS
                   ? handle
                   : -EIO;
    }
    return -EINVAL;
}

const void* gpu_memory::map_foreign(int handle, std::uint64_t bytes, std::string& why) {
    const device_guard guard(context_);
    why = "the device was reset";
    if (!guard) return nullptr;
    placed made;
    made.bytes = bytes;
    CUresult code = driver().import_handle(
        &made.memory, reinterpret_cast<void*>(static_cast<std::uintptr_t>(handle)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    why = "cuMemImportFromShareableHandle: " + cuda_text(code);
    if (code != CUDA_SUCCESS) return nullptr;
    code = place(made, CU_MEM_ACCESS_FLAGS_PROT_READ);
    driver().release(made.memory);  // the mapping keeps it
    made.memory = 0;
    why = "its " + format_size(bytes) + " cannot be mapped: " + cuda_text(code);
    if (code != CUDA_SUCCESS) return nullptr;
    foreign_pieces_.push_back(made);
    return reinterpret_cast<const void*>(made.address);
}

void gpu_memory::unmap_foreign(const void* mapped) {
    const device_guard guard(context_);
    std::erase_if(foreign_pieces_, [&](const placed& piece) {
        const bool found = reinterpret_cast<const void*>(piece.address) == mapped;
        if (found && guard) unplace(piece);
        return found;
    });
}

}  // namespace penstock::host
