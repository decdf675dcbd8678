// Mounts: this process serves a directory at another place through FUSE, so that programs that know
// nothing of Penstock share its files with the regions of this process, page by page
// (docs/guide/mount.md). The next acquire of a region sees the bytes that programs wrote, also by
// stores to a mapping. The next read of a program sees the bytes that a region released.
//
// Mounts are in a library of their own, which needs libfuse 3: find_package(Penstock COMPONENTS
// mount) and Penstock::mount in CMake, penstock-mount in pkg-config. A program that is linked
// without it has undefined references which name it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "penstock/error.hpp"

namespace penstock {

class buffer_pool;
class runtime;

namespace mount {
class background_session;
}

struct mount_options {
    bool read_only = false;
    // Other users may use the mount too; for a user that is not root this needs user_allow_other in
    // /etc/fuse.conf.
    bool allow_other = false;
    // How far the kernel reads ahead for a program that reads a file in order. Root may have more
    // than the kernel's 128 KiB; other users have at most that. Without a value 256 KiB for each
    // processor, at least 1 MiB and at most 4 MiB; 0: no read-ahead.
    std::optional<std::uint64_t> read_ahead_bytes = std::nullopt;
    // Files that no region and no kernel uses are passed through where that is possible: as root,
    // with Linux 6.9 or newer. Then programs read, write and map them at the file's own speed. What
    // programs write so is no longer known by page: a region that begins to use such a file treats
    // it as one with outside writers until they have closed it (docs/guide/mount.md).
    bool pass_through = true;
    // How many threads serve requests. Without a value as many as there is work for: 128 while all
    // wait for the source, of which 16 stay, or one for each processor, if that is more.
    std::optional<std::uint32_t> threads = std::nullopt;
    // Programs read files through this pool (docs/guide/mount.md). The mount takes one of its
    // sessions, and for files at most half of buffer_options::max_files. The program goes on using
    // the pool, and may end it first. Null: no buffer.
    buffer_pool* buffer = nullptr;
    // Told, once each, what people should know of how files are read here. It is called by threads
    // of the mount, and must not throw.
    std::function<void(const std::string&)> note = {};
};

struct mount_report {
    std::uint64_t requests = 0, errors = 0, reads = 0, bytes_asked = 0, writes = 0,
                  bytes_written = 0;
    // Bytes that came from regions or the caches of runtimes (device memory and host tier), and
    // that the operating system did not have.
    std::uint64_t bytes_from_devices = 0;
    // Opens of files, and those of them that the operating system passes through: their reads and
    // writes are in no count above. And how many of all are open still.
    std::uint64_t opens = 0, passed_opens = 0, open_now = 0;
    bool passes_through = false;  // it can, and no option forbids it
    // With a buffer: bytes of reads that came from its frames; reads of which it did not have all,
    // and which the source answered; whether files are read past the operating system's page cache
    // to it; and whether the kernel keeps copies of what is read (before Linux 6.6). What the pool
    // loaded is in buffer_pool::counts().
    std::uint64_t bytes_from_buffer = 0, reads_outside = 0;
    bool past_the_page_cache = false, kernel_copies = false;
};

// Part of the names in the linker's message, for a program that calls mount_directory and lacks
// the library.
inline namespace link_with_penstock_mount {

// A directory that this process serves until unmount() or the destructor. Thread-safe, except that
// unmount() and the destructor are for one thread at a time, while no other thread is in a call.
class file_mount {
public:
    explicit file_mount(std::unique_ptr<mount::background_session> session);
    // Does the same as unmount(). In a child of fork() it does nothing, and the mount stays the
    // parent's: in the child its calls give -ECHILD, false and an empty report.
    ~file_mount();
    file_mount(const file_mount&) = delete;
    file_mount& operator=(const file_mount&) = delete;

    // Writes the bytes that programs have stored to mapped pages to their files, and takes the
    // mount away, wherever it lies by now. Programs that still use it get ENOTCONN. Returns 0 or a
    // negative errno; also 0 if the mount was taken away before; -EBUSY if another file system lies
    // over it, under which it stays and answers nothing, or if threads of the mount still wait: for
    // the source, or for programs that have files of a mount open which was taken away before.
    // Regions stay.
    int unmount();

    [[nodiscard]] bool is_mounted() const;
    [[nodiscard]] mount_report report() const;

private:
    std::unique_ptr<mount::background_session> session_;
};

// Serves the directory `source` at the empty directory `point` by FUSE, with threads of its own,
// until `out` goes. Programs that use files there, and regions of the same files (named in the
// source) of runtimes of this process, see each other's changes by page. The process must not exit
// without taking the mount away, else the mount point answers ENOTCONN until fusermount3 -u. Raises
// the process's limit on open files.
//
// This process names files in the source: it must not map or keep open files of the mount, and
// calls of the library refuse them (-EDEADLK; docs/guide/mount.md).
//
// Errors: -ENOENT, -ENOTDIR, -ENOTEMPTY, -EBUSY (mounted already), -EINVAL (the point lies in the
// source), -EDEADLK (the source lies in a mount of this process), -EACCES and other errors of
// /dev/fuse, -ENOSYS if the library was built without libfuse. With a buffer also -EINVAL (it has
// no session to give), -ECHILD (it is that of the parent of this process) and -ENOMEM. The message
// names the path or the option, and the cure.
status mount_directory(runtime& rt, const std::string& source, const std::string& point,
                       const mount_options& settings, std::unique_ptr<file_mount>& out);

}  // namespace link_with_penstock_mount

}  // namespace penstock
