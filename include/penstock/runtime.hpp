// The runtime owns everything: device memory, cache, rings, service threads. A program makes one,
// hands ref() to kernels, and destroys it after they ended. A runtime of several devices
// (options::devices) has a cache on each of them, and a ref for each. Several runtimes may live in
// one process, on the same or different devices. Each has caches of its own. They share one
// internal object with regions and mounts of the process, which knows which part uses which file
// (ARCHITECTURE.md, the hub).
//
// Thread safety: every member may be called from any thread at any time, except the destructor.
//
// A child of fork() may end, destroy or ignore the runtimes of its parent; their calls give -ECHILD
// there. On cpu it may make its own.
//
// A runtime leaves the CUDA state of the program alone: its stream captures, in any mode and of any
// thread; its last error; its current device. After cudaDeviceReset the runtime's calls give
// -ENODEV, and the program has to destroy it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/advise.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"
#include "penstock/gather.hpp"
#include "penstock/options.hpp"
#include "penstock/shared_file.hpp"
#include "penstock/statistics.hpp"

namespace penstock {

namespace host {
struct runtime_hooks;
struct runtime_state;
class links;
}  // namespace host

// The counts of one launch on a gpu: how many of its groups have begun, and how many drawers of
// numbers are done (penstock/launch.hpp).
struct launch_count {
    std::uint64_t begun;
    std::uint32_t done;
};

class runtime {
public:
    // Allocates the cache and starts the service threads. On failure `out` stays null and the
    // status names the option or resource and the cure: -EINVAL (an option), -ENOMEM (memory of the
    // host or the GPU; the message says how much of which memory was refused, and how much is
    // free), -ENODEV (gpu wanted, none usable), -EAGAIN (no thread could be made), -EIO. Takes 50
    // to 100 ms for each GPU, and 0.2 to 0.3 s more where it is the first to use CUDA; on cpu some
    // milliseconds. Call it before kernels run, for it allocates device
    // memory. Of several devices all are gpu or all are cpu, and if one cannot be had none is.
    static status make(const options& settings, std::unique_ptr<runtime>& out);
    static status make(const options& settings, const host::runtime_hooks& hooks,
                       std::unique_ptr<runtime>& out);

    // Ends every waiting kernel with -ECANCELED, waits for the runtime's own work, stops the
    // threads, frees the memory. The program must have synchronised with kernels that use ref(), or
    // these must end by themselves after the interrupt. Never throws. In a child of fork() it does
    // nothing, and the inherited memory stays until the child ends.
    ~runtime();
    runtime(const runtime&) = delete;
    runtime& operator=(const runtime&) = delete;

    // How many devices the runtime has: one, or as many as options::devices names. Calls below that
    // take the number of a device take its place in that list, less than device_count().
    [[nodiscard]] std::uint32_t device_count() const;
    // For kernels of that device.
    [[nodiscard]] runtime_ref ref(std::uint32_t device = 0) const;
    [[nodiscard]] backend where() const;  // gpu or cpu, as resolved
    // As resolved for that device: no automatic values left, and options::device is its number.
    [[nodiscard]] const options& settings(std::uint32_t device = 0) const;
    [[nodiscard]] std::string device_name(std::uint32_t device = 0) const;
    [[nodiscard]] const char* io_name() const;  // "io_uring" or "pread"
    // Do other processes find this cache (options::share)? If not, the log said why.
    [[nodiscard]] bool is_shared() const;
    // How many of them it is linked with now; of several devices: the cache of device 0.
    [[nodiscard]] std::size_t linked_processes() const;
    [[nodiscard]] int process_code() const;  // 0, or -ECHILD in a child of fork()

    // Host versions of the device calls, with the same meaning and the same results
    // (penstock/file.hpp). On gpu they run small kernels of the runtime beside the user's and take
    // tens of microseconds; pages are read through the device's cache. open also allows the file:
    // kernels may open it afterwards even if it lies outside the roots. A file of a mount that this
    // process serves gives -EDEADLK: name it in the source folder (docs/guide/mount.md).
    //
    // Of several devices, calls with a descriptor use device 0: open gives a descriptor of it,
    // which means another file or none to kernels of the other devices. For those open the file
    // everywhere. unlink, rename, allow and close_windows are for all devices.
    int open(const std::string& path, int flags = open_read);
    int close(int fd);
    // The same on every device (penstock/shared_file.hpp), in the order of the devices: the first
    // creates the file or cuts it, as the flags say, and the others open what is there then. If one
    // device cannot open it none has it open, and the code says why.
    shared_file open_everywhere(const std::string& path, int flags = open_read);
    // On every device. 0, or the first error.
    int close(const shared_file& file);
    std::int64_t read(int fd, void* buffer, std::int64_t bytes, std::int64_t offset);
    std::int64_t read(cursor& at, void* buffer, std::int64_t bytes);
    // Writes (penstock/write.hpp), with options::writable. open with open_create makes the file
    // wherever it lies.
    std::int64_t write(int fd, const void* buffer, std::int64_t bytes, std::int64_t offset);
    std::int64_t append(int fd, const void* buffer, std::int64_t bytes);
    int msync(int fd, std::int64_t offset, std::int64_t bytes);
    int fsync(int fd);
    int truncate(int fd, std::int64_t size_bytes);
    // unlink takes a name away; rename gives a file another name, and takes that name from a file
    // that has it, like rename(2). The files may lie anywhere, as with open. Open descriptors stay
    // with their files. Returns 0 or a negative errno; -EROFS without options::writable.
    int unlink(const std::string& path);
    int rename(const std::string& from, const std::string& to);
    int stat(int fd, file_stat* out);
    std::int64_t prefetch(int fd, std::int64_t offset, std::int64_t bytes);
    // Into the caches of all devices, and of linked devices over the bus once: each loads a share
    // and copies the other shares from its neighbours. Returns how many bytes of the range lie in
    // the file, or the first error of a device. Blocks until all of it is there, or on its way by
    // the call of another thread; one thread or two for each device meanwhile.
    std::int64_t prefetch(const shared_file& file, std::int64_t offset = 0,
                          std::int64_t bytes = INT64_MAX);
    std::int64_t advise(int fd, advice kind, std::int64_t offset = 0,
                        std::int64_t bytes = INT64_MAX);  // penstock/advise.hpp
    // Gather (penstock/gather.hpp) by the whole device: row indices[i] of an open file to out + i *
    // row_bytes. On gpu `indices` and `out` are memory that the device reaches (-EFAULT: it does
    // not). Their writers are done, or come before this call on the stream of `settings` (-EBUSY:
    // the stream is being captured). The call costs some tens of microseconds besides the rows. On
    // cpu the worker threads share the rows. `settings` says in which order the rows are fetched,
    // and on which stream. Returns `count`, or a negative errno, and view_status() then says which
    // row. Rows in an order by span need device memory, so on gpu call it between kernels: beside a
    // kernel that waits for the host, the call might wait for that kernel's end.
    std::int64_t gather(int fd, const row_shape& shape, const std::uint64_t* indices,
                        std::uint64_t count, void* out, const gather_options& settings = {});
    // cpu only; on gpu `data` would be device memory and `bytes` is -EOPNOTSUPP.
    mapping map(int fd, std::int64_t offset, std::int64_t bytes);
    int unmap(const mapping& mapped);

    // Lets the GPU fetch missing pages of an open file straight from the operating system's page
    // cache, with no request to the host and no copy by a CPU. Takes in the parts of the range that
    // are in memory now, in pieces of 2 MiB, up to options::window_bytes over all files. Other
    // pages still come by request, and a later call takes in the parts that have become resident
    // since. Returns how many bytes of the range lie in windows, or a negative errno: -EBADF;
    // -EINVAL; -ENOSPC, the budget is used up; -EMFILE, no descriptor is left to watch the file by
    // (docs/guide/limits.md; the log says so once); -EOPNOTSUPP on the cpu back end, where only
    // tables have windows, or if the driver refuses (the log says so once). Later loads see bytes
    // that are written to the file with write(2). A program that opens the file for writing or cuts
    // it waits some 20 ms, until the window is closed. Then the file's pages come by request, and
    // pages that were cut off give -ESTALE (src/service/windows.hpp says where this is not
    // possible). The window outlives close: a file that has not changed has it at its next open, a
    // changed file does not. Each file with windows keeps one of options::max_files to itself.
    // Costs 27 to 86 us a MiB (docs/guide/limits.md). Call it between kernels: beside a kernel that
    // waits for the host, the call would wait for that kernel's end.
    std::int64_t open_windows(int fd, std::int64_t offset = 0, std::int64_t bytes = INT64_MAX);
    // For every device, in memory that is mapped and registered once for all. Returns how many
    // bytes of the range lie in windows of all, or the first error.
    std::int64_t open_windows(const shared_file& file, std::int64_t offset = 0,
                              std::int64_t bytes = INT64_MAX);
    // The same for every regular file that the pattern matches, as a shell would (glob(7)), and for
    // every device. Returns the sum, or the first error if no file could be opened; -ENOENT if
    // nothing matches.
    std::int64_t open_windows(const std::string& pattern);
    // Takes into windows what was asked for since: of files that open_windows was called for and
    // that are open, the pieces of which pages came by request or were wished for, if all of a
    // piece is in memory now. Of a piece of which half is, it asks the operating system for the
    // rest, for a later call; that may take milliseconds. Looks at no other piece, so it may be
    // called often. Returns how many bytes it took in, or a negative errno as open_windows. Of
    // several devices each takes in what was asked for on it, in memory that they share; returns
    // the least of all, or the first error. Call it between kernels too. The runtime cannot do so
    // by itself: it does not know which kernels of the program use it.
    std::int64_t grow_windows();
    // Closes all windows. Call it only while no kernel uses the runtime. Cached pages stay.
    void close_windows();

    // Lets kernels open this file, wherever it lies. Returns 0 or a negative errno.
    int allow(const std::string& path);

    // Ends kernels: within some 50 milliseconds every waiting group gets -ECANCELED, and until
    // resume() every call that reads, writes, maps, gathers or opens gives it (penstock/file.hpp
    // says how often each call looks). Close, unmap, stat, fsync and msync do their work, unless
    // they have to wait; the runtime writes the rest when it ends. Async-signal-safe callers use
    // interrupt_on_signals() instead.
    void interrupt();
    void resume();

    // Returns 0, or the reason why the runtime no longer works: -EIO, a kernel fault on the device;
    // -ENODEV, the program reset the device; -ESHUTDOWN, a dead service thread. The error stays.
    // After the first two the log names the files that were being written. Of several devices the
    // message names the device; the others go on.
    [[nodiscard]] status health() const;
    [[nodiscard]] status health(std::uint32_t device) const;

    // Returns 0, or the first error of an element view or a gather since the last
    // clear_view_status, with file, offset or row, and cause (penstock/view.hpp,
    // penstock/gather.hpp). Call it between kernels.
    [[nodiscard]] status view_status() const;
    void clear_view_status();

    // Returns 0, or the first failure to write to any file (a write-back, an fsync) since the last
    // clear_write_status, with file, range of bytes, and cause. fsync, msync and close return only
    // its code. The log also has a line with the cure, one line for each file until the file could
    // be written again. Bytes that could not be written stay in the cache, and the next fsync tries
    // again. Where the message says that a file could not be brought to its storage, the next fsync
    // does not help: write its bytes once more (penstock/write.hpp, fsync).
    [[nodiscard]] status write_status() const;
    void clear_write_status();

    [[nodiscard]] statistics stats() const;  // of all devices together
    [[nodiscard]] statistics stats(std::uint32_t device) const;

    // cpu back end: runs body(worker, workers) once on each worker thread and waits. Programs
    // usually call launch() instead. If not all threads can be made, the caller runs the bodies of
    // the missing threads itself, one after the other. If bodies throw, the first exception is
    // thrown on once all have ended. Returns 0 or -ECHILD.
    int run_on_workers(const std::function<void(std::uint32_t, std::uint32_t)>& body);

    // For launch() on several gpus: runs body(device) for all devices at the same time and waits.
    // If no thread can be made for a device its body is left out, so a body also does what the
    // others leave. Returns the first error of a body in the order of the devices, or -ECHILD. A
    // body that throws has failed: -ENOMEM, or mostly -EIO.
    int run_on_devices(const std::function<int(std::uint32_t)>& body);

    // For launch() on a gpu: words in device memory, all zero, which belong to the caller until it
    // gives them back, all zero again. Null if all of them (a thousand) are in use by launches.
    // Thread-safe.
    [[nodiscard]] launch_count* take_launch_count(std::uint32_t device = 0);
    void give_back(launch_count* words, std::uint32_t device = 0);

    [[nodiscard]] host::runtime_state& state(std::uint32_t device = 0) const;

private:
    explicit runtime(std::vector<std::unique_ptr<host::runtime_state>> states);
    int forget(const std::string& path);
    // Lets kernels of every device open the file. The first makes it, if the flags say so.
    int allow_on_all(const std::string& path, int flags);
    // A file that was allowed with these flags a moment ago.
    int open_allowed(std::uint32_t device, const std::string& path, int flags);
    // Of a file that allow_on_all made and that no slot could be had for (`code`), takes the name
    // away.
    void take_back_new(const std::string& path, int flags, int code);
    std::int64_t open_windows_of(const shared_file& file, std::uint32_t devices,
                                 std::int64_t offset, std::int64_t bytes);

    std::vector<std::unique_ptr<host::runtime_state>> states_;  // one for each device
    std::unique_ptr<host::links> links_;  // between their caches; null: one, or none is linked
};

// Makes SIGINT and SIGTERM interrupt every runtime of the process; a second signal, of either kind,
// has its usual effect. For programs; a library should not call it. Returns 0 or a negative errno.
int interrupt_on_signals();

// True once such a signal came.
bool was_interrupted();

}  // namespace penstock
