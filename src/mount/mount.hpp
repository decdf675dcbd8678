// A directory served at another place through FUSE, so that programs that know nothing of Penstock
// use its files there: every operation of files and directories goes through to the source.
//
// Programs see at the mount point what they would see in the source, with its owners, permissions,
// times, links, holes and extended attributes; what is made belongs to its maker. Locks hold
// among the programs that use the mount. What others change in the source itself is seen when a
// file is opened, and names and attributes after a second at most. The kernel judges by the
// source's access control lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "buffer/pool/manager.hpp"
#include "penstock/error.hpp"
#include "penstock/mount.hpp"
#include "penstock/options.hpp"
#include "os/shared_memory.hpp"

namespace penstock::mount {

// Which buffer a mount reads files through, and the memory of one (docs/guide/buffer.md).
struct buffer_options {
    buffer::policy_kind policy = buffer::policy_kind::gram;
    std::uint64_t ram_bytes = 0, gpu_bytes = 0;  // whole pages of them are used
    std::uint32_t page_bytes = 4096;             // a power of two, 4 KiB to 1 MiB
    backend where = backend::automatic;          // of the device's part
    bool stands_back = true;                     // gram, where its device does not pay
};

struct serve_options : mount_options {
    std::string source, point;
    bool background = false;  // returns to the shell once the mount is there; the process goes on
    // Files are read through a buffer of the mount's own, in place of mount_options::buffer; not
    // with `background` on a GPU.
    std::optional<buffer_options> own_buffer = std::nullopt;
    // Regions and kernels of this process may use the files.
    bool beside_kernels = false;
};

// Of a buffer: what it did, and what it holds.
struct buffer_report {
    buffer::manager_counts counts;
    // That went to the source: files without a number, and where the buffer failed.
    std::uint64_t reads_outside = 0;
    bool on_gpu = false, past_the_cache = true;
    bool kernel_copies = false;  // the kernel keeps what is read, too
};
struct serve_report : mount_report {
    std::optional<buffer_report> buffer;
    std::string not_passing;  // why no file is passed through; empty: files are
};

// What the operating system says of mounts, without asking the mounts themselves.
struct mount_entry {
    std::string device, type;  // "0:52", "fuse.penstock"; empty: nothing is mounted there
};

// The table of this process's mounts. Open, it can be read also when no descriptor is free any
// more.
host::owned_fd open_mount_table();

// At this very path, which has no links in it; of several that on top.
mount_entry mounted_at(int mount_table, const std::string& path);
mount_entry mounted_at(const std::string& path);

// "0:52" as st_dev has it; 0: that is no such number.
std::uint64_t device_number(const std::string& device);

// st_dev of what the path leads to; 0: nothing. A link at its end is not followed. Asks no mount
// for attributes, and opens nothing.
std::uint64_t device_at(const std::string& path);

// Where a file system is mounted by now: it may have been moved, its folder renamed, and another
// one mounted over it.
struct mount_place {
    std::string point;       // empty: at no place that this process sees
    bool is_on_top = false;  // its path leads to it
};
// `usual` before other places, and such as lead to it before all. Where the table cannot be read
// it is taken to be at `usual` still.
mount_place place_of(int mount_table, const std::string& device, const std::string& usual);

// How far the kernel reads ahead for programs that read a file of the mount in order. Each request
// is 1 MiB at most, and is answered by a thread; with few processors more than one at a time is no
// gain.
constexpr std::uint64_t usual_read_ahead(unsigned processors) {
    return std::clamp<std::uint64_t>(processors * (256ull << 10), 1u << 20, 4u << 20);
}

// Up to so much, of the mount at `point`, which has no links in it, and which is not asked, since
// it is not served yet. The kernel allows a new mount 128 KiB; a user that may not write to /sys,
// which takes root, leaves it so.
void allow_read_ahead(const std::string& point, std::uint64_t bytes);

// The command for a shell that takes away what is mounted there.
std::string unmount_command(const std::string& point);

// Is this built with libfuse, and may this process use it? Else why not.
status can_mount();

// Are source and mount point what they must be? Nothing is changed. The message names the path and
// the cure.
status check(const serve_options& wanted);

// mount_options::threads, or one for each processor, at least 4.
unsigned serving_threads(std::optional<std::uint32_t> wanted);

// Pages, sessions and files of a buffer that so many threads use.
buffer::manager_settings settings_of(const buffer_options& wanted, unsigned threads);

// Pages of all files together that a mount tells its buffer of, at most. The buffer has four bytes
// of memory for each, also for those of holes.
constexpr std::uint64_t most_known_pages(std::uint64_t host_bytes) {
    constexpr std::uint64_t least_bytes = 16u << 20, word_bytes = 4;
    return (host_bytes / 8 > least_bytes ? host_bytes / 8 : least_bytes) / word_bytes;
}

// What cannot be, with the option that says so and the cure.
status check(const buffer_options& wanted, unsigned threads);

// After the check. A device that has less than was asked for is refused, with its size.
status make_frames(const buffer_options& wanted, const buffer::frames_shape& shape,
                   std::unique_ptr<buffer::device_frames>& out, bool& on_gpu);

struct serve_calls {
    // The mount is there.
    void (*ready)(const serve_options&, const serve_report&) = nullptr;
    // SIGUSR1 came; may be null: then that signal ends the process, as ever.
    void (*asked)(const serve_report& so_far) = nullptr;
};

// Serves until the mount is taken away (fusermount3 -u, umount) or the process gets SIGINT, SIGTERM
// or SIGHUP; then it is unmounted, and what was done is in `done`. For a program of one thread: it
// takes the signals. Raises the process's limit on open files. With serve_options::background it
// returns in a child alone, but for an error of making that; the process ends when the mount is
// there.
status serve(const serve_options& wanted, const serve_calls& calls, serve_report& done);

}  // namespace penstock::mount
