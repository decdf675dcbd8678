// Fresh pages of the operating system: zero, aligned for reads past the page cache, and no cost
// until they are touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace penstock::host {

class anonymous_memory {
public:
    anonymous_memory() = default;
    ~anonymous_memory() {
        if (begin_ != nullptr) ::munmap(begin_, bytes_);
    }
    anonymous_memory(const anonymous_memory&) = delete;
    anonymous_memory& operator=(const anonymous_memory&) = delete;

    // Once. False: there are no addresses left.
    bool take(std::uint64_t bytes) {
        void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return false;
        begin_ = static_cast<std::byte*>(at);
        bytes_ = bytes;
        return true;
    }
    // Null where nothing was taken.
    [[nodiscard]] std::byte* at(std::uint64_t offset) const {
        return begin_ == nullptr ? nullptr : begin_ + offset;
    }

private:
    std::byte* begin_ = nullptr;
    std::uint64_t bytes_ = 0;
};

}  // namespace penstock::host
