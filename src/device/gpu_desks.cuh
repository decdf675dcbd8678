// Desks: what a call of the host on the device needs for itself, a stream, a sheet with the call's
// arguments and results, and a bounce buffer for bytes of files.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <cuda_runtime.h>

#include "device/gpu_context.cuh"
#include "device/gpu_gather.cuh"
#include "penstock/file.hpp"

namespace penstock::host {

inline constexpr std::uint64_t bounce_bytes = 16u << 20;
inline constexpr std::uint32_t max_pieces = 4096;
inline constexpr std::uint32_t desk_count = 4;

enum class call : std::uint32_t {
    nothing,
    open,
    close,
    duplicate,
    stat,
    read,
    prefetch,
    advise,
    write,
    append,
    msync,
    fsync,
    truncate,
    forget,
    flush
};

// Pinned: written by the host before the launch and by the kernel before it ends.
struct call_sheet {
    call operation;
    int fd;
    int flags;
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t piece_bytes;
    std::uint64_t range_bytes;
    file_stat facts;
    char path[4096 + 8];
    std::int64_t results[max_pieces];
};

struct desk {
    cudaStream_t stream = nullptr;
    call_sheet* sheet = nullptr;
    std::byte* bounce = nullptr;
    gather_control* gather = nullptr;
    bool taken = false;
};

// Thread-safe but for init and end, for which the caller has made the device current.
class desk_pool {
public:
    // cudaErrorMemoryAllocation also if `memory` has none.
    cudaError_t init(gpu_memory& memory) {
        for (desk& d : desks_) {
            const cudaError_t code = cudaStreamCreateWithFlags(&d.stream, cudaStreamNonBlocking);
            if (code != cudaSuccess) return code;
            d.sheet = static_cast<call_sheet*>(memory.shared_bytes(sizeof(call_sheet)));
            if (d.sheet != nullptr)
                d.bounce = static_cast<std::byte*>(memory.shared_bytes(bounce_bytes));
            if (d.bounce != nullptr)
                d.gather =
                    static_cast<gather_control*>(memory.device_bytes(sizeof(gather_control)));
            if (d.gather == nullptr) return cudaErrorMemoryAllocation;
        }
        return cudaSuccess;
    }
    // To be called before it is destroyed.
    void end() {
        for (desk& d : desks_)
            if (d.stream != nullptr) cudaStreamDestroy(d.stream);
    }
    // For what is done to each before the first call.
    [[nodiscard]] std::array<desk, desk_count>& all() { return desks_; }

    // A desk for the time of one call; waits while all are in use.
    class borrowed {
    public:
        explicit borrowed(desk_pool& owner) : owner_(owner) {
            std::unique_lock lock(owner.mutex_);
            owner.returned_.wait(lock, [this] {
                for (desk& d : owner_.desks_)
                    if (!d.taken) desk_ = &d;
                return desk_ != nullptr;
            });
            desk_->taken = true;
        }
        ~borrowed() {
            {
                std::lock_guard lock(owner_.mutex_);
                desk_->taken = false;
            }
            owner_.returned_.notify_one();
        }
        borrowed(const borrowed&) = delete;
        borrowed& operator=(const borrowed&) = delete;
        desk* operator->() const { return desk_; }
        desk& operator*() const { return *desk_; }

    private:
        desk_pool& owner_;
        desk* desk_ = nullptr;
    };

private:
    std::mutex mutex_;
    std::condition_variable returned_;
    std::array<desk, desk_count> desks_;  // `taken` is guarded by mutex_
};

}  // namespace penstock::host
