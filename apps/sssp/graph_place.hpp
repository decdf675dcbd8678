// Where the bytes of a graph's file are during a search: what the methods differ in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "graph_file.hpp"
#include "penstock/runtime.hpp"

namespace penstock::sssp {

// Where the bytes of a graph's file are while it is searched, and how what others wrote to the file
// comes there.
class graph_place {
public:
    virtual ~graph_place() = default;
    // Once, before all else.
    virtual status open() = 0;
    // Everything that programs wrote to the file before is there when it returns. `pages`: how many
    // were brought, changed or not.
    virtual status refresh(std::uint64_t& pages) = 0;
    [[nodiscard]] virtual const std::byte* data() const = 0;
    [[nodiscard]] virtual std::string note() const = 0;
};

// penstock: a region of the runtime's device. `outside_writers`: the file is written other than
// through this process's mount, so all of it is brought.
std::unique_ptr<graph_place> make_region_place(runtime& rt, const graph_file& graph,
                                               bool outside_writers);

struct place_settings {
    std::uint32_t threads = 1;
    bool on_gpu = false;
    int device = 0;
};

// The baselines.
// copy: memory of its own, into which all threads read the whole file each time; on the cpu, or of
// a GPU. managed: memory whose pages move to the processor that uses them, CPU or GPU; all threads
// read the whole file into it each time. cpu: a memory map of the file, in which everything is at
// once.
std::unique_ptr<graph_place> make_place(const std::string& method, const graph_file& graph,
                                        const place_settings& settings);

}  // namespace penstock::sssp
