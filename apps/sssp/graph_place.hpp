// Where the bytes of a graph's file are during a search: what the methods differ in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <string>

#include "common/files.hpp"
#include "common/threads.hpp"
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

// copy: memory of its own, into which all threads read the whole file each time; on the cpu, or of
// a GPU.
std::unique_ptr<graph_place> make_copy_place(const graph_file& graph, std::uint32_t threads);
std::unique_ptr<graph_place> make_gpu_copy_place(const graph_file& graph, std::uint32_t threads,
                                                 int device);

// managed: memory whose pages move to the processor that uses them, CPU or GPU. All threads read
// the whole file into it each time.
std::unique_ptr<graph_place> make_managed_place(const graph_file& graph, std::uint32_t threads,
                                                int device);

// cpu: a memory map of the file, in which everything is at once.
std::unique_ptr<graph_place> make_mapped_place(const graph_file& graph);

inline constexpr std::uint64_t read_piece_bytes = 2u << 20;

// A place that gets the whole file anew each time, in pieces by all threads.
class whole_place : public graph_place {
public:
    whole_place(const graph_file& graph, std::uint32_t threads)
        : graph_(graph),
          threads_(static_cast<std::uint32_t>(
              std::min<std::uint64_t>(threads, apps::pieces_of(bytes(), read_piece_bytes)))) {}

    status open() final {
        if (status s = graph_.open(O_RDONLY, fd_); !s) return s;
        return allocate();
    }
    status refresh(std::uint64_t& pages) final {
        pages = bytes() / page_bytes;
        return bring();
    }

protected:
    virtual status allocate() = 0;
    virtual status bring() = 0;

    // take(thread, offset, bytes) for every piece, on all threads; gives a status.
    template <typename Take>
    status each_piece(const Take& take) const {
        return apps::on_pieces(threads_, bytes(), read_piece_bytes, take);
    }
    status read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
        return apps::read_exactly(graph_.path, fd_, to, bytes, offset);
    }
    // Straight to where it belongs, in memory that the CPU reaches. Not inline: g++ and nvcc do not
    // agree on what a lambda in it that captures several things looks like, and the linker takes
    // either's.
    status read_all(std::byte* to) const;

    [[nodiscard]] std::uint64_t bytes() const { return graph_.shape.file_bytes(); }
    [[nodiscard]] std::uint32_t threads() const { return threads_; }

private:
    const graph_file& graph_;
    std::uint32_t threads_;
    apps::unique_fd fd_;
};

}  // namespace penstock::sssp
