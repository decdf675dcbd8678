// The statistics of a runtime since it was created: sums over all groups. Counters are relaxed, so
// a snapshot taken while kernels run may miss operations that are in flight.
#pragma once

#include "penstock/base/language.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace penstock {

struct statistics {
    std::uint64_t hits = 0;          // page accesses served from the cache
    std::uint64_t misses = 0;        // pages loaded, by request or through a window
    std::uint64_t window_loads = 0;  // of these, pages through a window: no request, no CPU
    // Absent pages of which bytes went from a window straight to a caller, without entering the
    // cache.
    std::uint64_t through_reads = 0;
    // The same from a linked cache (docs/guide/several-gpus.md), and the misses whose pages were
    // copied from one.
    std::uint64_t neighbour_reads = 0;
    std::uint64_t neighbour_loads = 0;
    std::uint64_t neighbour_waits = 0;  // loads that waited first for one of a linked cache
    std::uint64_t window_bytes = 0;  // open in windows now; for all devices, memory they share once
    // Device memory that the runtime has allocated and not freed: all that it asked for, and
    // nothing that lies in options::cache_memory. docs/guide/limits.md says what else takes memory
    // of a GPU. On cpu: the memory that stands for device memory.
    std::uint64_t device_bytes = 0;
    std::uint64_t tier_loads = 0;  // misses that the host tier served
    // Of the misses, pages that service threads were asked for. It never goes back, although it is
    // what the other counts of loads leave of the misses.
    std::uint64_t request_loads = 0;
    // Frames of the cache that have, or had, a page. No more than the cache has, and it only grows.
    std::uint64_t resident_pages = 0;
    std::uint64_t tier_saves = 0;  // pages that went to the tier when the cache dropped them
    std::uint64_t tier_evictions = 0;
    std::uint64_t read_ahead_pages = 0;  // pages asked for ahead of their use
    // Of these, pages whose read was found to have failed; they were then requested anew.
    std::uint64_t read_ahead_failures = 0;
    std::uint64_t load_waits = 0;  // page accesses that waited for another group's load
    std::uint64_t evictions = 0;
    std::uint64_t clock_steps = 0;   // frames looked at to find victims
    std::uint64_t frame_waits = 0;   // times a group found no frame at once
    std::uint64_t ring_waits = 0;    // times a group found its ring full
    std::uint64_t copy_retries = 0;  // copies repeated because the frame changed hands
    std::uint64_t requests = 0;
    std::uint64_t opens = 0;
    std::uint64_t open_requests = 0;  // opens that asked the host
    std::uint64_t errors = 0;         // calls that returned a negative errno
    std::uint64_t bytes_loaded = 0;   // host to device
    std::uint64_t bytes_read = 0;     // delivered by read
    std::uint64_t bytes_written = 0;  // taken by write and append
    std::uint64_t write_backs = 0;    // pages of which written bytes were sent to the host
    // Of these, pages that were not written to the file; they stay dirty.
    std::uint64_t write_back_errors = 0;
    std::uint64_t dirty_victims = 0;  // of these, pages written because their frame was needed
    // Of these, pages that were written because much of their file was dirty, or by a close before
    // the last.
    std::uint64_t written_behind = 0;
    std::uint64_t file_writes = 0;  // write operations of the operating system
    std::uint64_t file_write_bytes = 0;
    std::uint64_t file_write_errors = 0;
    std::uint64_t file_syncs = 0;
    // Last closes of written files after which the cached pages stayed valid.
    std::uint64_t kept_files = 0;
    // Misses for which bytes came from frames of a buffer of the process: from the host's, and from
    // a device's.
    std::uint64_t buffer_loads = 0;
    std::uint64_t buffer_device_loads = 0;
    std::uint64_t file_reads = 0;  // read operations given to the operating system
    std::uint64_t file_read_bytes = 0;
    std::uint64_t file_read_errors = 0;
    std::uint64_t direct_reads = 0;  // of file_reads, reads past the page cache
    // Of file_reads, reads past the page cache into memory registered with io_uring.
    std::uint64_t registered_reads = 0;
    // Ranges that the operating system was asked to read into its page cache because rows of them
    // will be wanted (table::will_need), and ranges for which the host had no room.
    std::uint64_t wishes = 0;
    std::uint64_t wishes_dropped = 0;
    // The store of blocks between nodes (options::block_store): blocks that came from it, that it
    // did not have, calls that failed, blocks whose bytes were not whole (they are among the
    // failures), bytes of the blocks that came, blocks that were put, and times it was left alone.
    std::uint64_t store_hits = 0;
    std::uint64_t store_misses = 0;
    std::uint64_t store_errors = 0;
    std::uint64_t store_bad_blocks = 0;
    std::uint64_t store_bytes = 0;
    std::uint64_t store_puts = 0;
    std::uint64_t store_pauses = 0;
    std::uint64_t store_is_paused = 0;  // 1: it is left alone now
    std::uint64_t bad_requests = 0;     // requests the host refused as malformed
    // Service threads that were made, helpers too. They sleep when no request is there.
    std::uint64_t service_threads = 0;
    // How often a helper was made or woken: because requests kept coming faster than the threads
    // that were awake could serve them, and because a system call held a thread up while requests
    // waited behind it (options::most_service_threads).
    std::uint64_t helpers_for_backlog = 0;
    std::uint64_t helpers_for_stalls = 0;
    std::uint64_t batches = 0;  // rounds in which a service thread found requests
    std::array<std::uint64_t, 16>
        batch_size{};  // bucket i: 2^i to 2^(i+1)-1 requests taken together
    std::array<std::uint64_t, 32>
        latency_ns{};  // bucket i: 2^i to 2^(i+1)-1 ns from request to answer

    // One JSON object, keys as above; the histograms are arrays.
    [[nodiscard]] std::string to_json() const;
};

}  // namespace penstock
