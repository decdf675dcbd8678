// Memory of the device that computes, and the arrays in it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::apps {

// Arrays in memory of a device, for a class that allocates and uploads bytes: what the memories of
// the programs have in common.

// `Memory` derives from this, and has `void* allocate(std::uint64_t)`, null if there is not enough,
// and `bool upload(to, from, bytes)`.
template <typename Memory>
class typed_memory {
public:
    template <typename T>
    bool allocate(T*& out, std::uint64_t count) {
        out = static_cast<T*>(own().allocate(count * sizeof(T)));
        return out != nullptr;
    }
    // A copy of all of `from`; null where that failed.
    template <typename T>
    bool place(const T*& out, const std::vector<T>& from) {
        T* to = nullptr;
        out = nullptr;
        if (!allocate(to, from.size()) || !own().upload(to, from.data(), from.size() * sizeof(T)))
            return false;
        out = to;
        return true;
    }

private:
    Memory& own() { return static_cast<Memory&>(*this); }
};

// Memory of the device that computes: ordinary memory for CPU threads, device memory for a GPU.

// Owns what it allocates until it is destroyed. Not thread-safe.
class device_memory : public apps::typed_memory<device_memory> {
public:
    using typed_memory::allocate;
    virtual ~device_memory() = default;
    // Zeroed and aligned to at least 64 bytes; null if there is not enough. 0 bytes give a pointer
    // too.
    virtual void* allocate(std::uint64_t bytes) = 0;
    virtual bool upload(void* to, const void* from, std::uint64_t bytes) = 0;
    virtual bool fill(void* to, int byte, std::uint64_t bytes) = 0;
    virtual bool download(void* to, const void* from, std::uint64_t bytes) = 0;
    [[nodiscard]] virtual std::uint64_t free_bytes() const = 0;
};

std::unique_ptr<device_memory> make_host_memory();

// Null where the program was built without CUDA.
std::unique_ptr<device_memory> make_gpu_memory(int device);

}  // namespace penstock::apps
