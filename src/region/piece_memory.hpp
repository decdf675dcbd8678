// The memory of a file's pieces: a range of addresses as long as the file, and as much memory as
// some of its pieces need, which is mapped where they belong.
//
// Bytes come by workers, threads that each have two buffers: one is being filled while the other is
// on its way. On cpu a buffer is the piece itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/error.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

struct piece_shape {
    std::uint64_t pieces = 0;
    std::uint64_t piece_bytes = 0;  // a multiple of 2 MiB
    std::uint64_t device_bytes = UINT64_MAX;
    std::uint64_t host_places = 0;  // for pieces that leave the device
    bool poison = false;
};

// How much of a piece a worker brings at a time.
inline constexpr std::uint64_t most_part_bytes = std::uint64_t{4} << 20;

inline constexpr unsigned most_piece_threads = 16;

// A moment in the work of a stream; null: it has passed.
using stream_mark = std::shared_ptr<void>;

struct placed_piece {
    std::uint64_t number;
    std::uint32_t slot;
};

class piece_memory {
public:
    virtual ~piece_memory() = default;
    [[nodiscard]] virtual std::byte* data() const = 0;
    // How many pieces may be there at a time, at least one.
    [[nodiscard]] virtual std::uint32_t slots() const = 0;
    [[nodiscard]] virtual unsigned workers() const = 0;
    // Are the workers' buffers the pieces themselves? Then bytes can come to placed pieces only.
    [[nodiscard]] virtual bool reads_in_place() const = 0;
    [[nodiscard]] helpers& threads() { return threads_; }

    // Maps the memory of slots at pieces, or takes it away from there; in the order of the pieces,
    // so that neighbours go together. No work uses the pieces. 0, -ENOMEM or -EIO: then all of them
    // are absent.
    virtual int place(const std::vector<placed_piece>& pieces) = 0;
    virtual int remove(const std::vector<placed_piece>& pieces) = 0;

    // Around the filling of a piece that is placed.
    virtual int begin_fill(std::uint64_t piece) = 0;
    virtual int end_fill(std::uint64_t piece) = 0;
    // Where a worker is to put bytes for `offset` of the file, in its buffer 0 or 1, when what it
    // held before is on the device. Null: the device failed.
    virtual std::byte* buffer(unsigned worker, unsigned which, std::uint64_t offset) = 0;
    // Sends the buffer's bytes there. May return before they are.
    virtual int send(unsigned worker, unsigned which, std::uint64_t offset,
                     std::uint64_t bytes) = 0;
    // Zeros behind the file's end.
    virtual int clear(unsigned worker, std::uint64_t offset, std::uint64_t bytes) = 0;
    // A piece to a place in host memory, and back. The first returns when that is done.
    virtual int to_host(std::uint64_t piece, std::uint64_t place) = 0;
    virtual int from_host(unsigned worker, std::uint64_t piece, std::uint64_t place) = 0;

    // Marks what all workers have begun, or what is on the caller's stream.
    virtual int mark_workers(stream_mark& out) = 0;
    virtual int mark(void* stream, stream_mark& out) = 0;
    // Waits for the mark, or lets the stream wait for it.
    virtual int wait(const stream_mark& until) = 0;
    [[nodiscard]] virtual bool has_passed(const stream_mark& mark) const = 0;
    virtual int order(void* stream, const stream_mark& behind) = 0;
    // 0, or -EBUSY: the stream is being captured.
    virtual int check(void* stream) = 0;

private:
    helpers threads_;
};

std::unique_ptr<piece_memory> make_cpu_pieces(const piece_shape& shape, status& why);
std::unique_ptr<piece_memory> make_gpu_pieces(int device, const piece_shape& shape, status& why);

}  // namespace penstock::region
