// Memory of the device that computes: ordinary memory for CPU threads, device memory for a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/typed_memory.hpp"

namespace penstock::apps {

// Owns what it allocates until it is destroyed. Not thread-safe.
class device_memory : public apps::typed_memory<device_memory> {
public:
    using typed_memory::allocate;
    virtual ~device_memory() = default;
    // Zeroed and aligned to at least 64 bytes; null if there is not enough. 0 bytes give a pointer
    // too.
    virtual void* allocate(std::uint64_t bytes) = 0;
    virtual bool upload(void* to, const void* from, std::uint64_t bytes) = 0;
    virtual bool download(void* to, const void* from, std::uint64_t bytes) = 0;
    [[nodiscard]] virtual std::uint64_t free_bytes() const = 0;
};

std::unique_ptr<device_memory> make_host_memory();

// Null where the program was built without CUDA.
std::unique_ptr<device_memory> make_gpu_memory(int device);

}  // namespace penstock::apps
