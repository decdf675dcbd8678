// Pieces of a file at one plain pointer, brought before they are used: for kernels and libraries
// that know nothing of Penstock, and files that are larger than device and host memory together.
//
//   std::unique_ptr<penstock::file_pieces> file;
//   penstock::map_pieces(*rt, "points.bin", {.device_bytes = 32ull << 30}, file);
//   for (std::uint64_t at = 0; at < file->size_bytes(); at += step) {
//       const penstock::byte_range part{at, std::min(step, file->size_bytes() - at)};
//       if (std::int64_t n = file->expect(part, stream); n < 0) return fail(n);
//       any_kernel<<<blocks, threads, 0, stream>>>(file->data(), part...);
//       file->done(part, stream);
//   }
//
// data() is an address for the whole file. Only pieces that are resident may be touched; expect()
// makes them so, and keeps them until done(). A touch of a piece that is absent is a fault, which
// ends the context of the GPU with all that is in it (on cpu the process). So verify() tells before
// a launch what is missing, and with piece_options::poison_absent a touch reads poison instead.
//
// Unlike a region (penstock/region.hpp) pieces are only read, nothing is brought that was not
// expected, and the file may have any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "penstock/error.hpp"
#include "penstock/stream.hpp"

namespace penstock {

class runtime;

namespace region {
class piece_set;
}

struct byte_range {
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
};

struct piece_options {
    // A multiple of 2 MiB. Larger pieces cost less to map, smaller ones come sooner and fit better.
    std::uint64_t piece_bytes = std::uint64_t{64} << 20;
    // Most bytes of device memory (on cpu of memory) for pieces. Without a value all free device
    // memory, less 1 GiB; on cpu the whole file.
    std::optional<std::uint64_t> device_bytes = std::nullopt;
    // Host memory for pieces that leave the device: they come back from there if the file has not
    // changed. 0: they are read from the file again.
    std::uint64_t host_bytes = 0;
    // For finding errors: absent pieces read as bytes of poison_byte. Costs one piece of memory,
    // and for each piece that comes or leaves one mapping more.
    bool poison_absent = false;
    // Which device of the runtime has the memory: its place in options::devices.
    std::uint32_t device = 0;
};

inline constexpr std::uint8_t poison_byte = 0xdb;

struct piece_traffic {
    std::uint64_t pieces_read = 0;       // from the file
    std::uint64_t pieces_from_host = 0;  // from host memory
    std::uint64_t pieces_to_host = 0;
    std::uint64_t pieces_dropped = 0;  // left the device, to host memory or not
    std::uint64_t bytes_read = 0;      // from the file
    std::uint64_t bytes_resident = 0;  // on the device now
    std::uint64_t room_bytes = 0;      // for pieces on the device
};

// Thread-safe: one call does its work after the other. A null stream is the default stream
// (penstock/stream.hpp). All calls give -ECHILD in a child of fork(), and -EIO or -ENODEV after the
// device was lost.
class file_pieces {
public:
    explicit file_pieces(std::unique_ptr<region::piece_set> mapped);
    // Closes. Kernels that use the pieces must have ended. In a child of fork() it does nothing.
    ~file_pieces();
    file_pieces(const file_pieces&) = delete;
    file_pieces& operator=(const file_pieces&) = delete;

    // The address of byte 0 of the file; on gpu a device address. It stays until close().
    [[nodiscard]] const void* data() const;
    [[nodiscard]] std::uint64_t size_bytes() const;   // as the file was when it was mapped
    [[nodiscard]] std::uint64_t piece_bytes() const;  // no more than the file needs

    // Makes all pieces of the ranges resident, and begins a use of each: they stay until as many
    // calls of done(), which should have the same ranges, because ranges may share a piece. Kernels
    // that come after this call on the stream find them. A piece is read anew if the file was
    // changed since it came, unless it is in use: then it keeps its bytes. Returns how many pieces
    // had to come, or a negative errno, and then no use has begun: -EBADF, closed; -EINVAL, no such
    // range; -ENOSPC, the pieces and those that are in use exceed the room; -ESTALE, the file
    // became shorter; -EBUSY, the stream is being captured; an error of a read.
    //
    // Pieces leave that were expected longest ago and are in no use. The call waits for the work
    // that was on the streams of their done(), and for its reads, which several threads do. It
    // does not wait for the way of the last bytes to the device, nor by itself for other work, so
    // kernels that were launched before run meanwhile: expect the next pieces on a second stream,
    // or before the results of these kernels are looked at. (A driver may wait for the device when
    // a piece leaves, so no kernel should wait for what the host does after the call.)
    std::int64_t expect(std::span<const byte_range> ranges, device_stream stream = nullptr);
    std::int64_t expect(const byte_range& range, device_stream stream = nullptr) {
        return expect(std::span(&range, 1), stream);
    }

    // Ends a use of each piece of the ranges: it may leave once the work that is on the stream now
    // has ended. Returns 0, or a negative errno, and then no use has ended: -EBADF; -EINVAL, no
    // such range, or a piece that is in no use; -EBUSY. Waits for nothing.
    int done(std::span<const byte_range> ranges, device_stream stream = nullptr);
    int done(const byte_range& range, device_stream stream = nullptr) {
        return done(std::span(&range, 1), stream);
    }

    // Are all pieces of the ranges there? They may leave again unless they are in use.
    [[nodiscard]] bool is_resident(std::span<const byte_range> ranges) const;
    [[nodiscard]] bool is_resident(const byte_range& range) const {
        return is_resident(std::span(&range, 1));
    }
    // For a check before a launch: ok if all pieces of the ranges are in use. Otherwise the message
    // names the first that is not, and the cure: -EINVAL, no such range; -ENODATA, not expected, or
    // done already.
    [[nodiscard]] status verify(std::span<const byte_range> ranges) const;
    [[nodiscard]] status verify(const byte_range& range) const {
        return verify(std::span(&range, 1));
    }

    [[nodiscard]] piece_traffic traffic() const;

    // Waits for the work that uses pieces, by the streams of done(), and gives all memory back.
    // Returns 0, -EBADF: closed already, or -EBUSY: a piece is in use.
    int close();

private:
    std::unique_ptr<region::piece_set> mapped_;
};

// Maps all of a file, wherever it lies. Nothing is resident yet. May outlive the runtime, whose log
// gets the lines. Errors: -EINVAL, an option or an empty file; -ENOMEM, no memory or addresses;
// errors of opening the file. The message names the cure. Allocates device memory and pinned host
// memory, so call it between kernels.
status map_pieces(runtime& rt, const std::string& path, const piece_options& settings,
                  std::unique_ptr<file_pieces>& out);

}  // namespace penstock
