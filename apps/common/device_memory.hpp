// Memory of the device that computes: ordinary memory for CPU threads, device memory for a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/options.hpp"

namespace penstock::apps {

// Owns what it allocates until it is destroyed. Not thread-safe.
class device_memory {
public:
    virtual ~device_memory() = default;
    // Zeroed and aligned to at least 64 bytes; null if there is not enough. 0 bytes give a pointer
    // too.
    virtual void* allocate(std::uint64_t bytes) = 0;
    virtual bool upload(void* to, const void* from, std::uint64_t bytes) = 0;
    virtual bool fill(void* to, int byte, std::uint64_t bytes) = 0;
    // Returns before the bytes are there if `from` is pinned. They are there after the next upload.
    virtual bool begin_upload(void* to, const void* from, std::uint64_t bytes) {
        return upload(to, from, bytes);
    }
    virtual bool download(void* to, const void* from, std::uint64_t bytes) = 0;
    // Makes copies to and from this piece of host memory as fast as the bus; where that is refused
    // they are only slower.
    virtual void pin(const void*, std::uint64_t) {}
    // Where kernels of the device find host memory that any device has pinned; null: they do not.
    virtual void* reach(void* pinned) { return pinned; }
    [[nodiscard]] virtual std::uint64_t free_bytes() const = 0;

    // An array; false if there is not enough.
    template <typename T>
    bool allocate(T*& out, std::uint64_t count) {
        out = static_cast<T*>(allocate(count * sizeof(T)));
        return out != nullptr;
    }
    // A copy of all of `from`; null where that failed.
    template <typename T>
    bool place(const T*& out, const std::vector<T>& from) {
        T* to = nullptr;
        out = nullptr;
        if (!allocate(to, from.size()) || !upload(to, from.data(), from.size() * sizeof(T)))
            return false;
        out = to;
        return true;
    }
};

std::unique_ptr<device_memory> make_host_memory();

// Null where the program was built without CUDA.
std::unique_ptr<device_memory> make_gpu_memory(int device);

// Will a runtime of these options be one of the gpu back end? For what is chosen before it is made.
bool will_use_gpu(const options& o);

}  // namespace penstock::apps
