// All settings of a runtime in one struct. Each has a range, an environment variable and a price:
// docs/guide/settings.md lists them, from the same table that reads the variables and checks the
// ranges. `penstock info` prints the values in force.
//
// An empty std::optional means automatic: the runtime chooses, and runtime::settings() tells the
// choice. 0 means 0: none, or off.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock {

enum class backend { automatic, gpu, cpu };
enum class io_method { automatic, uring, pread };
enum class direct_mode { automatic, off, on };
enum class trust_mode { automatic, off, on };

struct options {
    // Where the cache lives and what runs the kernels. automatic: gpu if there is a usable GPU,
    // else cpu; one log line tells the choice.
    backend where = backend::automatic;

    // CUDA device number.
    int device = 0;

    // The devices of a runtime that has several: CUDA device numbers, at most 8, each once. Empty:
    // the one in `device`; else `device` has no meaning. Each device has a cache, page tables,
    // rings and service threads of its own, so cache_bytes, table_bytes, staging_bytes, tier_bytes
    // and service_threads are for each of them; window_bytes and worker_threads are for all. On cpu
    // the numbers are only names, and each entry is one more cache in ordinary memory.
    std::vector<int> devices;

    // Whether groups of one device read pages that another device of the runtime holds. Off: each
    // device reads its misses from the files.
    bool links = true;

    // A name under which this runtime shares its cache with other processes of the same user: each
    // runtime of that name reads pages from the caches of the others instead of from files.
    // Letters, digits, '.', '_' and '-', at most 64 of them. It opens all frames of the runtime, to
    // reading, to every process of that user that uses the name. Of several devices each cache is
    // found by the name. Not with cache_memory. What stands in the way of a link costs a line in
    // the log, and the runtime goes on without. Empty: it is shared with no other process.
    std::string share;

    // Whether other programs of the same user can read the statistics of this runtime while it
    // runs (`penstock stat`). It costs 8 KiB and a descriptor for each device; a thread counts
    // only when another program asks. Off: no program sees them.
    bool publish_statistics = true;

    // Bytes of page frames. More means fewer misses.
    std::optional<std::uint64_t> cache_bytes = std::nullopt;

    // Memory of the caller in which the page frames lie, cache_bytes of it: part of a framework's
    // budget, such as a tensor. Null: the runtime allocates them. With it cache_bytes has a value,
    // and `where` is gpu or cpu; the runtime has one device. On gpu it is device memory of that
    // device, and not managed memory; on cpu it is memory of the process. It begins at a multiple
    // of 256.
    //
    // The caller promises: its own work on the memory has ended when runtime::make is called; until
    // the runtime is destroyed the memory stays, and nothing else reads or writes it. Its contents
    // do not matter, for no byte of a frame is read that the runtime did not write. The runtime
    // does not free it, and leaves bytes of files in it.
    void* cache_memory = nullptr;

    // Bytes of a page, a power of two. Small pages suit scattered small reads, large pages suit
    // streaming; each page costs 8 bytes of table.
    std::uint64_t page_bytes = 65536;

    // Bytes for the page tables of all open and remembered files, in device memory: 8 per page of a
    // file. A file whose table takes more than half of it gets a two-level table.
    std::uint64_t table_bytes = std::uint64_t{256} << 20;

    // How many files can be open or remembered at once.
    std::uint32_t max_files = 65536;

    // Threads that serve requests of the device, each with its own ring. A number is exact, unless
    // most_service_threads is larger.
    std::optional<std::uint32_t> service_threads = std::nullopt;

    // How many service threads there may be while requests wait: helpers are made when a system
    // call holds a thread up (a slow disk), or when requests keep coming faster than they are
    // served. They sleep otherwise. Automatic: service_threads if that is given, so none.
    std::optional<std::uint32_t> most_service_threads = std::nullopt;

    // Bytes of host memory (pinned, on gpu) through which requested pages pass, divided over the
    // rings; it bounds the requests in flight.
    std::optional<std::uint64_t> staging_bytes = std::nullopt;

    // Most bytes of host memory for windows and host tier together: the part of the operating
    // system's page cache that runtime::open_windows keeps open for the GPU at a time, plus
    // tier_bytes of each device. A part that several devices have open counts once if the process
    // has a lease on the file (service/windows.hpp). Such memory cannot be reclaimed meanwhile. 0:
    // no windows, and no tier.
    std::optional<std::uint64_t> window_bytes = std::nullopt;

    // How seldom a page that is read through a window enters the cache. At 4 one read in so many
    // draws it that its entry costs a sixteenth of what is read through (every read of whole pages
    // of 8 KiB, one in 156 of 64 bytes in a page of 512), and the second draw lets it enter. Twice
    // the number, half as many draws. While the cache has frames that were never used, pages enter
    // more often. 1: at the first draw.
    std::uint32_t admit_one_in = 4;

    // Bytes of the host tier: host memory (pinned, on gpu) for pages that the cache dropped, and
    // for pages that are read ahead or requested in advance. Part of window_bytes. 0: no tier, and
    // no read-ahead; else at least 8 pages.
    std::uint64_t tier_bytes = 0;

    // Whether kernels may write files: open with open_write, open_read_write, open_create. If off,
    // such an open gives -EROFS. If on, it costs device memory besides the cache: an eighth of
    // cache_bytes, for the marks of written bytes.
    bool writable = false;

    // How many bytes of a file may be dirty in the cache before its writers begin to write back the
    // pages that lie as far behind. The rest is written back when it is synced, when the file is
    // closed, or when a frame is needed. 0: write-behind begins with the first page. At least
    // cache_bytes: no write-behind.
    std::optional<std::uint64_t> write_behind_bytes = std::nullopt;

    // cpu back end: threads that run kernels.
    std::optional<std::uint32_t> worker_threads = std::nullopt;

    // How requested pages are read. automatic: io_uring, or pread if the kernel refuses io_uring;
    // the log says so once.
    io_method io = io_method::automatic;

    // Whether requested pages are read past the operating system's page cache (O_DIRECT).
    // automatic: reads of up to 64 KiB that come at random and for the first time, of pages that
    // are not in the page cache. This needs a kernel that tells which pages are (Linux 6.5; newer
    // kernels tell it only for files that the user owns or may write), and reads by io_uring. on:
    // all aligned reads. If a file system has no such reads, they go through the page cache, and
    // the log says so once.
    direct_mode direct_io = direct_mode::automatic;

    // Whether the memory that such reads fill is registered with io_uring, once as many bytes have
    // been read past the page cache: the reads then cost less processor time. It counts as locked
    // memory (RLIMIT_MEMLOCK) for users without CAP_IPC_LOCK. If the kernel refuses, reads go on
    // without it.
    bool registered_buffers = true;

    // Whether large cold reads go from storage straight to device memory, by NVIDIA's cuFile, which
    // is loaded when the first of them comes: the fill of a region from 64 MiB on, of what is not
    // in the page cache. automatic: where cuFile reports a direct path from the file's storage. on:
    // every fill in runs of 512 KiB and more, also in cuFile's compatibility mode, through host
    // memory; for tests and measurements. One line of the log says which way it was, or why not.
    // Only on gpu. cuFile writes a log of its own, cufile.log in the working directory, unless
    // CUFILE_LOGFILE_PATH or cufile.json names another place.
    direct_mode direct_storage = direct_mode::automatic;

    // The file of the cuFile library. Empty: libcufile.so.0 or libcufile.so, as the system finds
    // them.
    std::string cufile_library;

    // Whether the times of files on other file systems than local ones prove that a file is the
    // same, so that its pages are used again after a close, and by other caches. automatic: those
    // of NFS, SMB, Ceph, Lustre, GPFS, GFS2, OCFS2 and AFS do. Those of FUSE do not, since some
    // servers tell of a change only some time after the writer's close; nor do those of unknown
    // file systems. on: all do. off: none do, and each open reads anew. Local file systems are
    // always trusted.
    trust_mode trust_times = trust_mode::automatic;
    // The socket of an agent (`penstock-agent`) through which this machine has a share in a store
    // of blocks between nodes (docs/guide/block-store.md): what kernels miss, and what is not in
    // the memory of the operating system, is asked of the store in blocks of 2 MiB before a network
    // file system is read; blocks that the store does not have are read whole and put there. Empty:
    // there is no store.
    std::string block_store;

    // How long a miss waits for a block of the store, half of it for another node that reads the
    // block, before its file is read.
    std::uint32_t block_store_wait_ms = 50;

    // Part of the key of each block: runtimes with different texts share none.
    std::string block_store_namespace;

    // Whether files of local file systems have blocks in the store, too. Off: only files of file
    // systems that other machines change as well (NFS, FUSE, cluster file systems).
    bool block_store_local = false;

    // How long a group looks for a frame while all are pinned or loading, before -ENOBUFS, and for
    // a file slot while all files are open, before -ENFILE.
    std::uint32_t frame_wait_ms = 400;

    // How long a group waits for one answer of the host, before -ETIMEDOUT. Covers the slowest
    // disk.
    std::uint32_t request_wait_ms = 30000;

    // How long the host's heartbeat may stand still before waiting groups give up with -ETIMEDOUT.
    // A value below about five times the 20 ms beat would mistake a busy machine for a dead one.
    // Of time in which the waiting thread was stopped itself (SIGSTOP, Ctrl-Z) at most a quarter of
    // this counts.
    std::uint32_t host_wait_ms = 900;

    // Directories below which kernels may open files. Empty: the working directory at creation.
    // Relative names are looked up in the first. Kernels may also open files that the host opened
    // or allowed.
    std::vector<std::string> roots;

    // Receives log lines; called from any thread, one call at a time, also for regions and pieces
    // that outlive the runtime. It should return soon and use nothing of this library, for a thread
    // that calls it may hold what other calls wait for. A line goes to standard error where the
    // function throws, or while it calls the library itself. Empty: lines go to standard error,
    // each after "penstock: ".
    std::function<void(const std::string&)> log;

    // Reads the PENSTOCK_* variables. A value that cannot be used gives -EINVAL and a message with
    // variable, value and cure.
    static status from_environment(options& out);

    // Checks ranges that do not depend on the device. 0, or -EINVAL and a message with option,
    // value and cure.
    [[nodiscard]] status check() const;
};

// "0", "4096", "64KiB", "3 GiB", "1.5GiB", "10MB" (powers of 1000), "2M" (power of 1024) to bytes.
// Error: -EINVAL and a message that names `label`, the text and the accepted form.
status parse_size(const std::string& label, const std::string& text, std::uint64_t& bytes);

// 65536 -> "64 KiB": the largest unit that divides evenly, else one decimal.
std::string format_size(std::uint64_t bytes);

// "auto", "gpu", "cpu"; error as above.
status parse_backend(const std::string& label, const std::string& text, backend& out);
status parse_io_method(const std::string& label, const std::string& text, io_method& out);
status parse_direct_mode(const std::string& label, const std::string& text, direct_mode& out);
status parse_trust_mode(const std::string& label, const std::string& text, trust_mode& out);
status parse_switch(const std::string& label, const std::string& text, bool& out);
const char* name_of(backend where);
const char* name_of(io_method io);
const char* name_of(direct_mode direct);
const char* name_of(trust_mode trust);

}  // namespace penstock
