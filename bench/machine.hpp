// The back end that is measured on: its choice, memory that its groups write, and the description
// of the machine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

// Settles auto, and makes waiting for the GPU sleep, so that it is not taken for work. -ENODEV with
// the cure if a GPU is asked for and none can be used. `device`: its number, for this thread's
// calls from now on. Before any runtime is made.
status choose_backend(backend asked, int device, backend& out);

nlohmann::ordered_json machine_json(backend where, const std::string& directory,
                                    const std::string& commit);

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
