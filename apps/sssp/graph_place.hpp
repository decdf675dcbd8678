// Where the bytes of a graph's file are during a search, and the reader of the whole file.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <string>
#include <utility>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "graph_file.hpp"
#include "penstock/error.hpp"

namespace penstock {

class runtime;
}  // namespace penstock

namespace penstock::sssp {

// Where the bytes of a graph's file are while it is searched, and how what others wrote to the file
// comes there: what the methods differ in.
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

// For these: opens a place, and hands it over.
template <typename Place, typename... Needed>
status open_place(std::unique_ptr<Place> made, std::unique_ptr<graph_place>& out,
                  Needed&&... needed) {
    if (status s = made->open(needed...); !s) return s;
    out = std::move(made);
    return {};
}

// The whole file in pieces by all threads, for the methods that bring it anew each time.

inline constexpr std::uint64_t read_piece_bytes = 2u << 20;

class whole_reader {
public:
    whole_reader(const graph_file& graph, std::uint32_t threads)
        : path_(graph.path),
          real_path_(graph.real_path()),
          bytes_(graph.shape.file_bytes()),
          threads_(static_cast<std::uint32_t>(
              std::min<std::uint64_t>(threads, apps::pieces_of(bytes_, read_piece_bytes)))) {}

    status open() {
        fd_ = apps::unique_fd(::open(real_path_.c_str(), O_RDONLY | O_CLOEXEC));
        return fd_ >= 0 ? status{}
                        : status{-errno, apps::shown(path_) + ": " + error_text(-errno) +
                                             "; name a graph that can be read"};
    }

    // take(thread, offset, bytes) for every piece, on all threads; gives a status.
    template <typename Take>
    status each_piece(const Take& take) const {
        return apps::on_pieces(threads_, bytes_, read_piece_bytes, take);
    }
    status read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
        return apps::read_exactly(path_, fd_, to, bytes, offset);
    }

    // Straight to where it belongs, in memory that the CPU reaches. Not inline: g++ and nvcc do not
    // agree on what a lambda in it that captures several things looks like, and the linker takes
    // either's.
    status read_all(std::byte* to) const;

    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t threads() const { return threads_; }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_, real_path_;
    std::uint64_t bytes_;
    std::uint32_t threads_;
    apps::unique_fd fd_;
};

}  // namespace penstock::sssp
