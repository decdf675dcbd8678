// The back end that is measured on: its choice, memory there, and the description of the machine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "bench.hpp"

namespace penstock::bench {

// Settles auto, and makes waiting for the GPU sleep, so that it is not taken for work. Fails with
// -ENODEV and the cure if a GPU is asked for and none can be used. `device`: its number, for this
// thread's calls from now on. Before any runtime is made.
backend choose_backend(backend asked, int device);

nlohmann::ordered_json machine_json(backend where, const std::string& directory,
                                    const std::string& commit);

// Zeroed memory where a back end computes, or pinned memory of the host that a GPU can reach.
class memory {
public:
    memory() = default;
    memory(backend where, std::uint64_t bytes);
    static memory pinned(std::uint64_t bytes);
    ~memory();
    memory(memory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), place_(other.place_) {}
    memory& operator=(memory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(place_, other.place_);
        return *this;
    }

    // Sets its first bytes.
    void fill(int byte, std::uint64_t bytes) const;
    void copy_out(void* to, std::uint64_t bytes) const;
    // The first number in it, such as one that a kernel counted up.
    [[nodiscard]] std::uint64_t number() const {
        std::uint64_t out = 0;
        copy_out(&out, sizeof out);
        return out;
    }
    template <typename T = std::uint64_t>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(data_);
    }

private:
    enum class place { host, device, pinned };
    void* data_ = nullptr;
    place place_ = place::host;
};

}  // namespace penstock::bench
