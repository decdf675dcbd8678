#include "device/gpu_links.cuh"

#include <utility>

namespace penstock::host {

// Links with atomic updates of their own are NVLink: over PCIe there are none.
device_link link_between(int from, int to) {
    if (from == to) return {link_kind::same_memory, "both are on one GPU"};
    const std::string pair = "GPU " + std::to_string(from) + " to GPU " + std::to_string(to);
    int can = 0, atomics = 0, rank = 0;
    if (const CUresult code = driver().can_access_peer(&can, from, to); code != CUDA_SUCCESS)
        return {link_kind::none, "cuDeviceCanAccessPeer: " + cuda_text(code)};
    if (can == 0)
        return {link_kind::none,
                "the driver gives no access from " + pair + " (nvidia-smi topo -p2p r says more)"};
    const bool known =
        driver().peer_attribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from,
                                to) == CUDA_SUCCESS;
    std::string reason =
        known && atomics != 0 ? "atomic updates go over it" : "no atomic updates go over it";
    if (driver().peer_attribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to) ==
        CUDA_SUCCESS)
        reason += ", performance rank " + std::to_string(rank);
    return {known && atomics != 0 ? link_kind::nvlink : link_kind::pcie, reason};
}

std::string identity_of(int device) {
    CUuuid uuid{};
    if (driver().device_uuid(&uuid, device) != CUDA_SUCCESS) return {};
    std::string out = "gpu-";
    for (const char byte : uuid.bytes) {
        constexpr const char* digits = "0123456789abcdef";
        out += digits[static_cast<unsigned char>(byte) >> 4];
        out += digits[static_cast<unsigned char>(byte) & 15];
    }
    return out;
}

// Of a device that this process does not see (CUDA_VISIBLE_DEVICES) the driver tells nothing, but
// it maps its memory or does not. NVLink is assumed, where that is the common case.
device_link link_to_identity(int from, const std::string& identity) {
    if (!identity.starts_with("gpu-")) return {link_kind::none, "its cache is not on a GPU"};
    if (identity == identity_of(from)) return {link_kind::same_memory, "both are on one GPU"};
    int count = 0;
    if (driver().count_devices(&count) != CUDA_SUCCESS) count = 0;
    for (int to = 0; to < count; ++to)
        if (identity == identity_of(to)) return link_between(from, to);
    return {link_kind::nvlink, "its GPU is hidden from this process, so NVLink is assumed"};
}

bool enable_peer(const gpu_context& from, const gpu_context& to, std::string& why) {
    device_link link = link_between(from.device, to.device);
    why = std::move(link.reason);
    if (link.kind == link_kind::none) return false;
    if (from.device == to.device) return true;
    const CUresult code = driver().enable_peer_access(to.handle, 0);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return true;
    why = "cuCtxEnablePeerAccess: " + cuda_text(code) + ", from GPU " +
          std::to_string(from.device) + " to GPU " + std::to_string(to.device);
    return false;
}

bool is_stream_of(cudaStream_t stream, const gpu_context& context) {
    const bool is_default =
        stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
    CUcontext of = nullptr;
    const CUresult code =
        is_default ? driver().current_context(&of) : driver().context_of(stream, &of);
    if (code != CUDA_SUCCESS) return false;
    // Nothing is current in a thread that made no call yet which needs a context: then it will be
    // that of device 0.
    return of != nullptr ? of == context.handle : context.device == 0;
}

}  // namespace penstock::host
