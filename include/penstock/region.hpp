// A part of a file as a plain pointer, for kernels and libraries that know nothing of Penstock.
//
// The whole part lies at one range of addresses that the device may read and, if asked for, write.
// What others changed comes in by acquire(), what kernels changed goes out by release(), both
// between kernels (docs/guide/regions.md). Any number of regions, of several runtimes of a process,
// may share a file; writers of different bytes do not disturb each other.
//
// On gpu pages that do not fit in device memory lie in host memory, at the same range of addresses.
// A region that is written has twice its size: what it was filled with is kept, so that release
// finds by comparing which bytes changed.
//
// (Lazy release consistency: Keleher, Cox and Zwaenepoel, ISCA 1992; for files mapped by GPUs:
// Brokhman, Lifshits and Silberstein, GAIA, 2019.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "penstock/error.hpp"
#include "penstock/stream.hpp"

namespace penstock {

class runtime;

namespace region {
class mapped_region;
}

enum class protection : std::uint8_t { read, read_write };

struct region_options {
    // Programs may write the file, other than through regions and mounts (penstock/mount.hpp) of
    // this process, at any time. Then an acquire after a release that wrote to the file fetches all
    // of it anew, because the writers can no longer be told apart. False: no other program does,
    // and only pages that were changed are fetched.
    bool outside_writers = true;
    // gpu: at most so much device memory; the rest lies in host memory. Without a value what is
    // free, less 1 GiB.
    std::optional<std::uint64_t> device_bytes = std::nullopt;
    // gpu, of a region that does not fit: acquire() brings pieces in host memory to device memory
    // in which kernels or others keep changing pages, for pieces in which none do. What is only
    // read cannot be told: file_region::prefer is for that, and what was preferred stays. Then
    // kernels of other streams must not use the region during an acquire, which waits for its
    // stream and, at times, moves up to 512 MiB either way.
    bool promote_hot = false;
};

struct region_traffic {
    std::uint64_t pages_fetched = 0;    // of 4 KiB, from the file
    std::uint64_t pages_released = 0;   // found changed
    std::uint64_t bytes_written = 0;    // to the file
    std::uint64_t bytes_on_device = 0;  // of the range of addresses
    std::uint64_t bytes_promoted = 0;   // to device memory, by region_options::promote_hot
};

// A null stream is the default stream (penstock/stream.hpp). All calls give -ECHILD in a child of
// fork(), and -EIO or -ENODEV after the device was lost: then the log names once the bytes whose
// changes are lost.
class file_region {
public:
    explicit file_region(std::unique_ptr<region::mapped_region> mapped);
    // As close(), without its error. Kernels that use the region must have ended. In a child of
    // fork() it does nothing.
    ~file_region();
    file_region(const file_region&) = delete;
    file_region& operator=(const file_region&) = delete;

    // The first byte; size_bytes() follow each other. On gpu device addresses. Stays until close().
    [[nodiscard]] void* data() const;
    [[nodiscard]] std::uint64_t size_bytes() const;

    // What was released before, by other regions of the file, and what programs wrote to it, is
    // there for kernels that come after this on the stream, or that are launched after it returned.
    // Own changes stay. Returns how many pages were fetched, or a negative errno: -EBADF, closed;
    // -ESTALE, the file is now shorter than the region; -EIO and such, of a read: the pages that
    // are missing are tried again by the next acquire. Waits for what is on the stream if there are
    // pages to fetch, and for nothing else. Costs some microseconds for each 2 MiB where nothing
    // changed; else reads of the changed pages from the file, by several threads, and their way to
    // the device.
    std::int64_t acquire(device_stream stream = nullptr);

    // What kernels before this on the stream changed is in the file when it returns, for any
    // program that reads it (on storage: sync), and byte by byte: bytes that the region did not
    // change stay as others wrote them. Returns how many pages had changed, or a negative errno:
    // -EBADF; -ESTALE; -ENOSPC and such, of a write: what could not be written stays changed and
    // goes with the next release. 0 for a region that is only read. Waits for what is on the
    // stream. Costs the reading of the region and of its copy in device memory, and the writing of
    // what changed.
    std::int64_t release(device_stream stream = nullptr);

    // Of a region that does not fit in device memory: brings `bytes` from `offset` on there, from
    // the first on, as far as there is room, and as much of the rest to host memory, first what was
    // preferred longest ago or never. For what the next kernels use most. Addresses and contents
    // stay, in pieces of 64 MiB. Returns how many of the bytes lie in device memory then, or a
    // negative errno: -EBADF; -EINVAL, no such part; -ENOMEM, the host has no room for a piece
    // more; -EIO, the driver failed, and the region is to be closed. Waits for what is on the
    // stream; kernels of other streams must not use the region meanwhile. Each piece that moves
    // goes once over the bus in either direction. On cpu all of it is where it should be.
    std::int64_t prefer(std::uint64_t offset, std::uint64_t bytes, device_stream stream = nullptr);

    // What was released is on storage. 0 or a negative errno.
    int sync();

    // Releases, and gives all memory back. 0, or why the release failed: then what it could not
    // write is lost. -EBADF: closed already.
    int close(device_stream stream = nullptr);

    [[nodiscard]] region_traffic traffic() const;

private:
    std::unique_ptr<region::mapped_region> mapped_;
};

// Makes a region of a part of a file, wherever the file lies: `bytes` from `offset` on, a multiple
// of 4096, which must be in the file; 0 bytes: all up to its end. `rt` says on which device, and
// its log gets the region's lines. The first acquire is done when this returns. The region may
// outlive the runtime. -EINVAL; -EROFS without options::writable; -ENOMEM; -EMFILE, more than 6
// regions of one file; those of opening and reading the file. The message names the cure. Costs the
// memory, and reading that part of the file. Between kernels: it allocates device memory.
status map_region(runtime& rt, const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                  protection access, const region_options& settings,
                  std::unique_ptr<file_region>& out);

}  // namespace penstock
