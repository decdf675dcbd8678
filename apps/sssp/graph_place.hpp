// Where the bytes of a graph's file are while it is searched, and how what others wrote to the file
// comes there: what the methods differ in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "graph_file.hpp"
#include "penstock/error.hpp"

namespace penstock {
class runtime;
}

namespace penstock::sssp {

class graph_place {
public:
    virtual ~graph_place() = default;
    // Everything that programs wrote to the file before is there when it returns. `pages`: how many
    // were brought, changed or not.
    virtual status refresh(std::uint64_t& pages) = 0;
    [[nodiscard]] virtual const std::byte* data() const = 0;
    [[nodiscard]] virtual std::string note() const = 0;
};

// penstock: a region of the runtime's device. `outside_writers`: the file is written other than
// through this process's mount, so all of it is brought.
status make_region_place(runtime& rt, const graph_file& graph, bool outside_writers,
                         std::unique_ptr<graph_place>& out);

// copy: memory of its own, into which all threads read the whole file each time; on the cpu, or of
// a GPU.
status make_copy_place(const graph_file& graph, std::uint32_t threads,
                       std::unique_ptr<graph_place>& out);
status make_gpu_copy_place(const graph_file& graph, std::uint32_t threads, int device,
                           std::unique_ptr<graph_place>& out);

// managed: memory whose pages move to the processor that uses them, CPU or GPU. All threads read
// the whole file into it each time.
status make_managed_place(const graph_file& graph, std::uint32_t threads, int device,
                          std::unique_ptr<graph_place>& out);

// cpu: a memory map of the file, in which everything is at once.
status make_mapped_place(const graph_file& graph, std::unique_ptr<graph_place>& out);

}  // namespace penstock::sssp
