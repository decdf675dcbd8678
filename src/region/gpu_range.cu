#include "region/gpu_range.cuh"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "penstock/options.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

namespace {

using host::driver;

// Pieces of this size at most, so that what does not fit whole goes as far as there is memory;
// where some lie in host memory, of a size that changes places.
constexpr std::uint64_t piece_bytes = 1ull << 30, exchanged_bytes = 64u << 20;

}  // namespace

gpu_range::~gpu_range() {
    const host::device_guard guard(context_);
    if (!guard) return;  // the range went with its context
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    for (const piece& part : pieces_) {
        driver().unmap(address_ + part.at, part.bytes);
        driver().release(part.memory);
    }
    if (spare_ != 0) {
        driver().unmap(spare_address_, exchanged_bytes);
        driver().release(spare_);
    }
    if (spare_address_ != 0) driver().free_addresses(spare_address_, exchanged_bytes);
    if (address_ != 0) driver().free_addresses(address_, bytes_);
}

bool gpu_range::create(std::uint64_t bytes, bool on_device, CUmemGenericAllocationHandle& out) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type =
        on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
    properties.location.id = on_device ? context_.device : 0;
    return (refusal_ = driver().create(&out, bytes, &properties, 0)) == CUDA_SUCCESS;
}

bool gpu_range::map(CUdeviceptr where, std::uint64_t bytes, CUmemGenericAllocationHandle memory) {
    if (refusal_ = driver().map(where, bytes, 0, memory, 0); refusal_ != CUDA_SUCCESS) return false;
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_.device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (refusal_ = driver().set_access(where, bytes, &access, 1); refusal_ == CUDA_SUCCESS)
        return true;
    driver().unmap(where, bytes);
    return false;
}

CUresult gpu_range::show_to(int device) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    return driver().set_access(address_, bytes_, &access, 1);
}

bool gpu_range::back(std::uint64_t at, std::uint64_t bytes, bool on_device) {
    CUmemGenericAllocationHandle memory{};
    if (!create(bytes, on_device, memory)) return false;
    if (!map(address_ + at, bytes, memory)) {
        driver().release(memory);
        return false;
    }
    pieces_.push_back({memory, at, bytes, on_device, 0});
    return true;
}

bool gpu_range::make_spare() {
    if (spare_ != 0) return true;
    if (spare_address_ == 0 &&
        driver().reserve(&spare_address_, exchanged_bytes, chunk_bytes, 0, 0) != CUDA_SUCCESS) {
        spare_address_ = 0;
        return false;
    }
    CUmemGenericAllocationHandle memory{};
    if (!create(exchanged_bytes, false, memory)) return false;
    if (!map(spare_address_, exchanged_bytes, memory)) {
        driver().release(memory);
        return false;
    }
    spare_ = memory;
    return true;
}

// What is near goes to the spare, what is far to where that was; then addresses follow, and the far
// one's memory is the spare.
bool gpu_range::exchange(piece& near, piece& far) {
    const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    const CUdeviceptr near_at = address_ + near.at, far_at = address_ + far.at;
    const auto copy = [&](CUdeviceptr to, CUdeviceptr from) {
        return cudaMemcpyAsync(at(to), at(from), exchanged_bytes, cudaMemcpyDefault, stream_);
    };
    const bool moved = copy(spare_address_, near_at) == cudaSuccess &&
                       copy(near_at, far_at) == cudaSuccess &&
                       cudaStreamSynchronize(stream_) == cudaSuccess;
    if (!moved) return false;
    is_whole_ = false;
    for (const CUdeviceptr address : {near_at, far_at, spare_address_})
        if (driver().unmap(address, exchanged_bytes) != CUDA_SUCCESS) return false;
    std::swap(near.memory, spare_);
    std::swap(far.memory, spare_);
    std::swap(near.on_device, far.on_device);
    is_whole_ = map(near_at, exchanged_bytes, near.memory) &&
                map(far_at, exchanged_bytes, far.memory) &&
                map(spare_address_, exchanged_bytes, spare_);
    return is_whole_;
}

std::int64_t gpu_range::prefer(std::uint64_t begin, std::uint64_t end) {
    ++preferences_;
    std::vector<piece*> wanted, others;
    for (piece& part : pieces_) {
        const bool inside = part.at < end && part.at + part.bytes > begin;
        if (inside) part.preferred = preferences_;
        if (part.bytes != exchanged_bytes || part.on_device == inside) continue;
        (inside ? wanted : others).push_back(&part);
    }
    std::stable_sort(others.begin(), others.end(),
                     [](const piece* a, const piece* b) { return a->preferred < b->preferred; });
    for (std::size_t i = 0; i < std::min(wanted.size(), others.size()); ++i) {
        if (!make_spare()) return -ENOMEM;
        if (!exchange(*others[i], *wanted[i])) return -EIO;
    }
    std::uint64_t out = 0;
    for (const piece& part : pieces_)
        if (part.on_device && part.at < end && part.at + part.bytes > begin)
            out += std::min(end, part.at + part.bytes) - std::max(begin, part.at);
    return static_cast<std::int64_t>(out);
}

void gpu_range::used(const std::vector<std::uint64_t>& numbers) {
    std::size_t which = 0;
    for (const std::uint64_t page : numbers) {
        while (which + 1 < heat_.size() &&
               page * page_bytes >= pieces_[which].at + pieces_[which].bytes)
            ++which;
        if (which < heat_.size()) heat_.used(which, 1);
    }
}

std::int64_t gpu_range::promote() {
    for (std::size_t i = 0; i < heat_.size(); ++i) {
        heat_.at(i).on_device = pieces_[i].on_device;
        heat_.at(i).may_move = pieces_[i].bytes == exchanged_bytes &&
                               !(pieces_[i].on_device && pieces_[i].preferred != 0);
    }
    std::int64_t came = 0;
    for (const auto& [near, far] : heat_.next_exchanges()) {
        if (!make_spare()) return came != 0 ? came : -ENOMEM;
        if (!exchange(pieces_[near], pieces_[far])) return -EIO;
        came += static_cast<std::int64_t>(exchanged_bytes);
    }
    return came;
}

bool gpu_range::take(std::uint64_t bytes, std::uint64_t on_device, std::string& why) {
    bytes_ = (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
    const std::uint64_t most_on_device = std::min(bytes_, on_device / chunk_bytes * chunk_bytes);
    if (const cudaError_t code = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        code != cudaSuccess) {
        why = "a stream was refused: " + host::cuda_text(code) + "; of the device " +
              host::room_text();
        return false;
    }
    if (const CUresult code = driver().reserve(&address_, bytes_, chunk_bytes, 0, 0);
        code != CUDA_SUCCESS) {
        address_ = 0;
        why = "the device gives no range of " + format_size(bytes_) +
              " of addresses: " + host::cuda_text(code);
        return false;
    }
    bool device_has_room = true;
    for (std::uint64_t at = 0; at < bytes_;) {
        const std::uint64_t limit =
            device_has_room && at < most_on_device ? most_on_device : bytes_;
        const std::uint64_t size =
            std::min(most_on_device == bytes_ ? piece_bytes : exchanged_bytes, limit - at);
        const bool here = device_has_room && at < most_on_device;
        if (here && !back(at, size, true)) {
            device_has_room = false;
            continue;
        }
        if (!here && !back(at, size, false)) {
            why = "neither device nor host has " + format_size(bytes_) +
                  " left for it: " + host::cuda_text(refusal_) + "; of the device " +
                  host::room_text();
            return false;
        }
        if (here) on_device_ += size;
        at += size;
    }
    if (is_split())
        for (const piece& part : pieces_) heat_.add({.pages = part.bytes / page_bytes});
    cudaError_t code = cudaMemsetAsync(data(), 0, bytes_, stream_);
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
    if (code != cudaSuccess) why = "its memory could not be cleared: " + host::cuda_text(code);
    return code == cudaSuccess;
}

}  // namespace penstock::region
