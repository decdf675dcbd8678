// The owner of everything: device memory, cache, rings, service threads. Make one, hand ref() to
// kernels, destroy it after they ended. Several may live in one process, on the same or different
// devices. Each has a cache of its own; what they share with regions and mounts of the process is
// one internal object, which knows which part uses which file (ARCHITECTURE.md, the hub).
//
// Thread safety: every member may be called from any thread at any time, except the destructor.
//
// A child of fork() may end, destroy or ignore the runtimes of its parent; their calls give -ECHILD
// there. On cpu it may make its own.
//
// The CUDA state of the program is left alone: its stream captures, in any mode and of any thread;
// its last error; its current device. After cudaDeviceReset the runtime's calls give -ENODEV, and
// it is to be destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/advise.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"
#include "penstock/gather.hpp"
#include "penstock/options.hpp"
#include "penstock/statistics.hpp"

namespace penstock {

namespace host {
struct runtime_hooks;
struct runtime_state;
}  // namespace host

// Of one launch on a gpu: how many of its groups have begun, and how many of those that draw
// numbers are done (penstock/launch.hpp).
struct launch_count {
    std::uint64_t begun;
    std::uint32_t done;
};

class runtime {
public:
    // Allocates the cache and starts the service threads. On failure `out` stays null and the
    // status names the option or resource and the cure: -EINVAL (an option), -ENOMEM (memory of the
    // host or the GPU: how much of what was refused, and how much is free), -ENODEV (gpu wanted,
    // none usable), -EAGAIN (no thread could be made), -EIO. Takes some tens of milliseconds; do it
    // before kernels run, for it allocates device memory.
    static status make(const options& settings, std::unique_ptr<runtime>& out);
    static status make(const options& settings, const host::runtime_hooks& hooks,
                       std::unique_ptr<runtime>& out);

    // Ends every waiting kernel with -ECANCELED, waits for the runtime's own work, stops the
    // threads, frees the memory. Kernels that use ref() must have been synchronised with, or end by
    // themselves after the interrupt. Never throws. In a child of fork() it does nothing, and what
    // the child inherited stays until it ends.
    ~runtime();
    runtime(const runtime&) = delete;
    runtime& operator=(const runtime&) = delete;

    [[nodiscard]] runtime_ref ref() const;
    [[nodiscard]] backend where() const;            // gpu or cpu, as resolved
    [[nodiscard]] const options& settings() const;  // as resolved: no automatic values left
    [[nodiscard]] std::string device_name() const;
    [[nodiscard]] const char* io_name() const;  // "io_uring" or "pread"
    [[nodiscard]] int process_code() const;     // 0, or -ECHILD in a child of fork()

    // Host versions of the device calls: same meaning, same results (penstock/file.hpp). On gpu
    // they run small kernels of the runtime beside the user's and take tens of microseconds; pages
    // are read through the device's cache. open also allows the file: kernels may open it
    // afterwards though it lies outside the roots.
    int open(const std::string& path, int flags = open_read);
    int close(int fd);
    std::int64_t read(int fd, void* buffer, std::int64_t bytes, std::int64_t offset);
    std::int64_t read(cursor& at, void* buffer, std::int64_t bytes);
    // Writing (penstock/write.hpp), with options::writable. open with open_create makes the file
    // wherever it lies.
    std::int64_t write(int fd, const void* buffer, std::int64_t bytes, std::int64_t offset);
    std::int64_t append(int fd, const void* buffer, std::int64_t bytes);
    int msync(int fd, std::int64_t offset, std::int64_t bytes);
    int fsync(int fd);
    int truncate(int fd, std::int64_t size_bytes);
    // Take a name away, or give a file another one (which it takes from a file that has it, as
    // rename(2)). Wherever the files lie, as with open. Descriptors that are open stay with their
    // files. 0 or a negative errno; -EROFS without options::writable.
    int unlink(const std::string& path);
    int rename(const std::string& from, const std::string& to);
    int stat(int fd, file_stat* out);
    std::int64_t prefetch(int fd, std::int64_t offset, std::int64_t bytes);
    std::int64_t advise(int fd, advice kind, std::int64_t offset = 0,
                        std::int64_t bytes = INT64_MAX);  // penstock/advise.hpp
    // Gather (penstock/gather.hpp) by the whole device: row indices[i] of an open file to out + i *
    // row_bytes. On gpu `indices` and `out` are memory that the device reaches (-EFAULT: it does
    // not), and their writers are done, or are before it on the stream of `settings` (-EBUSY: it is
    // being captured); it costs some tens of microseconds besides the rows. On cpu
    // the worker threads share the rows. `settings` says in which order they are fetched, and on
    // which stream. Returns `count`, or a negative errno, and view_status() then says which row.
    // Rows in an order by span need device memory, so on gpu call it between kernels: beside one
    // that waits for the host it might wait for that kernel's end.
    std::int64_t gather(int fd, const row_shape& shape, const std::uint64_t* indices,
                        std::uint64_t count, void* out, const gather_options& settings = {});
    // cpu only; on gpu `data` would be device memory and `bytes` is -EOPNOTSUPP.
    mapping map(int fd, std::int64_t offset, std::int64_t bytes);
    int unmap(const mapping& mapped);

    // Lets the GPU fetch missing pages of an open file straight from the operating system's page
    // cache, with no request to the host and no copy by a CPU. Takes in the parts of the range that
    // are in memory now, in pieces of 2 MiB, up to options::window_bytes over all files; pages
    // elsewhere come by request as ever, and a later call takes in what has become resident since.
    // Returns how many bytes of the range lie in windows, or a negative errno: -EBADF; -EINVAL;
    // -ENOSPC, the budget is used up; -EOPNOTSUPP on the cpu back end or where the driver refuses
    // (said once in the log). What is written to the file with write(2) is seen by loads that come
    // after. A program that opens the file for writing or cuts it waits some 20 ms, until the
    // window is closed: its pages come by request then, and what was cut off is -ESTALE
    // (src/service/windows.hpp: where that cannot be had). The window outlives close: a file that
    // has not changed has it at its next open, a changed one has none. Each file with windows keeps
    // one of options::max_files to itself. Costs 27 to 86 us a MiB (docs/guide/limits.md). Call it
    // between kernels: beside one that waits for the host it would wait for that kernel's end.
    std::int64_t open_windows(int fd, std::int64_t offset = 0, std::int64_t bytes = INT64_MAX);
    // The same for every regular file that the pattern matches, as a shell would (glob(7)). Returns
    // the sum, or the first error if no file could be opened; -ENOENT if nothing matches.
    std::int64_t open_windows(const std::string& pattern);
    // Closes all windows. Only while no kernel uses the runtime. Cached pages stay.
    void close_windows();

    // Lets kernels open this one file, wherever it lies. 0 or a negative errno.
    int allow(const std::string& path);

    // Ends kernels: within some 50 milliseconds every waiting group has -ECANCELED, and until
    // resume() every call that reads, writes, maps, gathers or opens gives it (penstock/file.hpp
    // says which of them look how often). Close, unmap, stat, fsync and msync do their work, unless
    // they have to wait; what they leave the runtime writes when it ends. Async-signal-safe callers
    // use interrupt_on_signals() instead.
    void interrupt();
    void resume();

    // 0, or why the runtime no longer works: -EIO, a kernel fault on the device; -ENODEV, the
    // program reset the device; -ESHUTDOWN, a dead service thread. Sticky. After the first two the
    // log names the files that were being written.
    [[nodiscard]] status health() const;

    // 0, or the first error of an element view or a gather since the last clear_view_status, with
    // file, offset or row, and cause (penstock/view.hpp, penstock/gather.hpp). Between kernels.
    [[nodiscard]] status view_status() const;
    void clear_view_status();

    // 0, or the first failure to write to any file (a write-back, an fsync) since the last
    // clear_write_status, with file, range of bytes, and cause: what fsync, msync and close tell as
    // a code only. The log has a line with the cure as well, one for each file until it could be
    // written again. Bytes that could not be written stay in the cache, and the next fsync tries
    // again.
    [[nodiscard]] status write_status() const;
    void clear_write_status();

    [[nodiscard]] statistics stats() const;

    // cpu back end: runs body(worker, workers) once on each worker thread and waits. launch() is
    // the usual way to it. Where fewer threads can be made, the caller runs the rest of them
    // itself, one after the other. 0 or -ECHILD.
    int run_on_workers(const std::function<void(std::uint32_t, std::uint32_t)>& body);

    // For launch() on a gpu: words in device memory, all zero, which are the caller's until it
    // gives them back, all zero again. Null if as many launches are under way as there are (a
    // thousand). Thread-safe.
    [[nodiscard]] launch_count* take_launch_count();
    void give_back(launch_count* words);

    [[nodiscard]] host::runtime_state& state() const { return *state_; }

private:
    std::int64_t open_windows_of(int fd, std::uint64_t offset, std::uint64_t bytes);
    explicit runtime(std::unique_ptr<host::runtime_state> state);
    std::unique_ptr<host::runtime_state> state_;
};

// Makes SIGINT and SIGTERM interrupt every runtime of the process; a second signal has its usual
// effect. For programs; a library should not call it. Returns 0 or a negative errno.
int interrupt_on_signals();

// True once such a signal came.
bool was_interrupted();

}  // namespace penstock
