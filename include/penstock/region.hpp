// A region: a part of a file as a plain pointer, for kernels and libraries that know nothing of
// Penstock.
//
// The whole part lies at one range of addresses that the device may read and, if asked for, write.
// acquire() brings in changes from outside, and release() sends out the changes of kernels, both
// between kernels (docs/guide/regions.md). Any number of regions, of several runtimes of a process,
// may share a file; writers of different bytes do not disturb each other.
//
// As a rule a region is filled: it has a copy of the part. On gpu pages that do not fit in device
// memory lie in host memory, at the same range of addresses. A region that is written takes twice
// its size: it keeps a copy of the bytes that it was filled with, so that release finds the changed
// bytes by comparing. A region that is only read need not be filled (region_placement).
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
class region_body;
class request_end;
}  // namespace region

enum class protection : std::uint8_t { read, read_write };

// Where the bytes of a region lie. docs/guide/regions.md has a table of what each costs, and of
// what each sees of changes.
enum class region_placement : std::uint8_t {
    // In memory of the region, which gets a copy of the whole part when it is mapped.
    filled,
    // In the operating system's page cache, by one mapping of the file; only protection::read.
    // Nothing is copied, and a kernel brings over the bus the bytes that it touches, each time that
    // it touches them. On gpu mapping it registers the part with the driver: all of its pages come
    // into host memory and stay pinned until close(), as long as the part is. On cpu it is a plain
    // mapping, whose pages come when they are touched.
    in_place,
    // The same mapping without registering or pinning; only protection::read. On gpu for devices
    // that read pageable memory themselves (cudaDevAttrPageableMemoryAccess: HMM or ATS), whose
    // pages come by fault. On cpu it is the same as in_place.
    system,
    // filled, if the part is written or fits in device memory; else in_place, if host memory has
    // room for it; else system; else filled. Says its choice and the reason in one line of the log,
    // and by file_region::placement and placement_reason.
    automatic,
};

struct region_options {
    // True: programs may write the file at any time, by other ways than regions and mounts
    // (penstock/mount.hpp) of this process. Then an acquire after a release that wrote to the file
    // fetches all of it anew, because the writers can no longer be told apart. False: no program
    // does so, and an acquire fetches only changed pages.
    bool outside_writers = true;
    // gpu: most bytes of device memory; the rest lies in host memory. Without a value all free
    // device memory, less 1 GiB. On cpu only region_placement::automatic heeds it, and without a
    // value every part fits.
    std::optional<std::uint64_t> device_bytes = std::nullopt;
    // gpu, for a region that does not fit: acquire() moves pieces whose pages kernels or other
    // writers keep changing from host memory to device memory, in exchange for pieces without
    // changes. It cannot tell which pieces are only read: file_region::prefer is for those, and a
    // preferred piece stays. With this option kernels of other streams must not use the region
    // during an acquire, which waits for its stream and, at times, moves up to 512 MiB either way.
    bool promote_hot = false;
    // Which device of the runtime has the memory: its place in options::devices.
    std::uint32_t device = 0;
    // Not the default: automatic. What is in place cannot be preferred, and pins the page cache.
    region_placement placement = region_placement::filled;
};

struct region_traffic {
    std::uint64_t pages_fetched = 0;          // of 4 KiB, from the file or from other regions of it
    std::uint64_t pages_from_neighbours = 0;  // of these, from the memory of other regions
    std::uint64_t pages_from_caches = 0;      // and from caches of runtimes on the same device
    std::uint64_t pages_from_buffers = 0;     // and from frames of buffers of the process
    std::uint64_t pages_direct = 0;           // and by cuFile (options::direct_storage)
    std::uint64_t pages_released = 0;         // found changed
    std::uint64_t bytes_written = 0;          // to the file
    std::uint64_t bytes_on_device = 0;        // of the range of addresses
    std::uint64_t bytes_promoted = 0;         // to device memory, by region_options::promote_hot
    // region_placement::in_place on gpu: what was registered when the region was mapped and anew by
    // acquires, in whole pages, and how long that took, with bringing the pages into host memory.
    std::uint64_t bytes_registered = 0;
    std::uint64_t register_ns = 0;
};

// A part of a region: `bytes` from `offset` on, counted from the region's first byte; without a
// number of bytes all up to its end. Calls about a part treat each page of 4096 bytes that it
// touches as a whole.
struct region_part {
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> bytes = std::nullopt;
};

// A request that goes on by itself, of acquire_async or release_async. Copies are of one request,
// and may outlive the region. Thread-safe.
class region_request {
public:
    explicit region_request(std::shared_ptr<region::request_end> end);
    [[nodiscard]] bool is_done() const;
    // Waits until the request has ended, and with it for the work that its stream had before.
    // Returns what acquire or release would: a count of pages, or a negative errno.
    std::int64_t wait() const;

private:
    std::shared_ptr<region::request_end> end_;
};

// A region. A null stream is the default stream (penstock/stream.hpp). All calls give -ECHILD in a
// child of fork(), and -EIO or -ENODEV after the device was lost: then the log names once the bytes
// whose changes are lost.
class file_region {
public:
    explicit file_region(std::unique_ptr<region::region_body> body);
    // Closes the region and discards the error; call close() to see it. Kernels that use the region
    // must have ended. In a child of fork() it does nothing.
    ~file_region();
    file_region(const file_region&) = delete;
    file_region& operator=(const file_region&) = delete;

    // The address of the first of size_bytes() bytes; on gpu a device address. It stays until
    // close(). Of a region that is not filled the host may read the bytes there too, but a read of
    // a page that the file no longer has ends the process (SIGBUS).
    [[nodiscard]] void* data() const;
    [[nodiscard]] std::uint64_t size_bytes() const;

    // Brings in changes: bytes that other regions of the file released before, and bytes that
    // programs wrote to it. Kernels that come after this call on the stream, or that are launched
    // after it returned, see them. The region's own changes stay. Kernels on other streams may run
    // meanwhile and see some of its pages and not others; of what they store meanwhile the call may
    // undo bytes in those 16 (from a multiple of 16 on) of which another writer changed one.
    // Returns how many pages were fetched, or a negative errno: -EBADF, closed; -ESTALE, the file
    // is now shorter than the region; -EIO or another error of a read: the next acquire tries the
    // missing pages again. Waits for the work on the stream if there are pages to fetch, and for
    // nothing else. Costs some microseconds for each 2 MiB without changes; else copies of the
    // changed pages from other regions of the file, where these have them, or reads from the file,
    // by several threads, and their way to the device. Of a region that is not filled: fetches
    // nothing and returns 0, because kernels read what the file has as it is. In place on gpu it
    // registers anew, at the same addresses, the parts of which pages have left the file (it was
    // cut and is as long again, holes, writes past the page cache). For that it waits for the work
    // on the stream, and kernels of other streams must not use the region during the call; nor any
    // kernel after an error, until an acquire succeeded.
    std::int64_t acquire(device_stream stream = nullptr);

    // Writes the changes of kernels that come before this call on the stream to the file, where any
    // program can read them when the call returns (for storage: sync). It writes byte by byte:
    // bytes that the region did not change stay as other writers left them. Returns how many pages
    // had changed, or a negative errno: -EBADF; -ESTALE; -ENOSPC or another error of a write: bytes
    // that could not be written stay changed and go with the next release, or with the next acquire
    // of their pages by another region, which then also gets what kernels have changed there since.
    // Returns 0 for a region that is only read. Waits for the work on the stream. Costs reading the
    // region and its copy in device memory, and writing the changes.
    std::int64_t release(device_stream stream = nullptr);

    // The same for a part of the region. What is acquired or released may be more than the part,
    // never less. -EINVAL: the part is not in the region. Costs what its pages cost: nothing is
    // looked at or compared outside of them.
    std::int64_t acquire(const region_part& part, device_stream stream = nullptr);
    std::int64_t release(const region_part& part, device_stream stream = nullptr);

    // The same without a wait of the calling thread. The request comes after the work that the
    // stream has now, and work that comes to the stream later waits for its end. So kernels before
    // a release_async are released, and kernels after an acquire_async see what it brought; they
    // run also if it failed, and then see what was there. wait() tells. On cpu there is no stream:
    // wait() before the memory is used.
    // A stream waits for a request no longer than options::request_wait_ms from when it came to it,
    // and all requests before it have ended; then wait() gives -ETIMEDOUT, the log says so, the
    // request goes on beside the stream, and kernels behind it may see some of its pages and not
    // others; the region's next call waits for its end. A request needs calls of the driver, and
    // the driver holds these up for a program that waits for the stream inside of it: so load
    // kernels before (their first launch does, unless CUDA_MODULE_LOADING=EAGER), and free no
    // device memory behind a request. Requests of a region end in the order in which they were
    // made, and its other calls wait until all have ended. An acquire of another region sees a
    // release_async once that has ended. A region with promote_hot moves no pieces in a request,
    // and one that is in place is asked at once: nothing moves there, unless pages have left the
    // file, and then the call waits. Errors: as above, and -EBUSY for a stream that is being
    // captured, -EBADF once close() has begun, -EAGAIN if the system gives no thread or 4096
    // requests of the region are under way on a GPU, -EOPNOTSUPP if the driver lets no stream wait
    // for a word in memory. Costs the caller 4 to 60 microseconds (docs/guide/regions.md), and the
    // first request of a region two threads.
    region_request acquire_async(const region_part& part = {}, device_stream stream = nullptr);
    region_request release_async(const region_part& part = {}, device_stream stream = nullptr);

    // For a region that does not fit in device memory: moves `bytes` bytes from `offset` on to
    // device memory, from the first byte on, as far as there is room. It moves as much of the rest
    // to host memory, first the pieces that were preferred longest ago or never. Prefer the part
    // that the next kernels use most. Moves go in pieces of 64 MiB; addresses and contents stay.
    // Returns how many of the bytes lie in device memory then, or a negative errno: -EBADF;
    // -EINVAL, no such part; -ENOMEM, the host has no room for another piece; -EIO, the driver
    // failed, and the region has to be closed. Waits for the work on the stream; kernels of other
    // streams must not use the region meanwhile. Each piece that moves goes once over the bus in
    // either direction. On cpu nothing has to move. 0: a region that is not filled has no device
    // memory.
    std::int64_t prefer(std::uint64_t offset, std::uint64_t bytes, device_stream stream = nullptr);

    // Brings all released bytes to storage. Returns 0 or a negative errno. After an error the
    // operating system may have dropped bytes, and a later 0 says nothing about those: write and
    // release them once more.
    int sync();

    // Releases, and gives all memory back. Returns 0, or the error of the release: then the bytes
    // that it could not write are lost. -EBADF: closed already; -EBUSY, of the stream alone: the
    // region is open still, with its changes. A file that is busy is -ETXTBSY, here and above.
    int close(device_stream stream = nullptr);

    // As close(), but the memory stays at data() until the region is destroyed, for users that
    // still have its address. What they write there reaches no file and no other region. Returns as
    // close().
    int detach(device_stream stream = nullptr);

    [[nodiscard]] region_traffic traffic() const;

    // Where the bytes lie: never automatic. And why, as the rest of a sentence.
    [[nodiscard]] region_placement placement() const;
    [[nodiscard]] const std::string& placement_reason() const;

private:
    std::unique_ptr<region::region_body> body_;
};

// Makes a region of a part of a file, wherever the file lies: `bytes` from `offset` on, a multiple
// of 4096, which must be in the file; 0 bytes: all bytes up to its end. `rt` and the options say
// on which device, and its log gets the region's lines. The first acquire is done when this
// returns. The region may outlive the runtime. Errors: -EINVAL; -EROFS without options::writable;
// -ENOMEM; -EMFILE, more than 8 regions of one file; errors of opening and reading the file. The
// message names the cure. Costs the memory, and reading that part of the file, or copying it from
// regions that have it. Between kernels, also of GPUs with other regions of the file: it allocates
// device memory, and lets the regions copy from each other.
// Of other placements than filled also: -EINVAL, the region is to be written, or promote_hot is
// set; -EOPNOTSUPP, the device or the file system has no such way; -ENOMEM, host memory has no room
// to pin the part. They cost what region_placement says.
status map_region(runtime& rt, const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                  protection access, const region_options& settings,
                  std::unique_ptr<file_region>& out);

}  // namespace penstock
