// Memory that the groups of a back end can write and the host can fetch.
#pragma once

#include <cstdint>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

class memory {
public:
    memory() = default;
    ~memory();
    memory(const memory&) = delete;
    memory& operator=(const memory&) = delete;

    // Zeroed. Once for each object.
    status make(backend where, std::uint64_t bytes);
    status copy_out(void* to, std::uint64_t bytes) const;
    template <typename T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(data_);
    }

private:
    void* data_ = nullptr;
    backend where_ = backend::cpu;
};

}  // namespace penstock::bench
