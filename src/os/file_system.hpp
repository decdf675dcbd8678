// What is known of file systems, in one table. Every part that treats one file system otherwise
// than another asks here, so that two parts never disagree about one file.
//
// Of a file system that is not in the table nothing is believed: neither its times, nor leases.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::host {

// By which clock a file system dates its changes.
enum class file_times {
    // That of this machine, by ticks of a few ms, or without two equal times (file_facts).
    local,
    // Those of a server or of other clients, by up to 2 s. They may be ahead of ours, or behind.
    // What a writer closed has its time: an open that asks the server is told.
    server,
    // A change may leave the times as they were, for a while or for ever; or nothing is known.
    unreliable,
};

struct file_system_kind {
    std::uint32_t magic = 0;  // as statfs has it
    // Of a FUSE mount, what its server calls itself: "daos" for fuse.daos. Null: any.
    const char* server = nullptr;
    const char* name = nullptr;
    // Does every change of a file go through this kernel? Only then its leases tell of all writers.
    bool is_local = false;
    file_times times = file_times::unreliable;
    // With multigrain timestamps (Linux 6.13), no two changes leave equal times if these were asked
    // for in between.
    bool has_exact_times = false;
    // A change of the bytes always changes the change time, whichever way it comes. Not so on
    // tmpfs: a store to a mapping that was read before leaves the time of its file.
    bool notes_stores = false;
    // Makes its files up when they are read, some of them anew for each reader.
    bool is_made_up = false;
    // Its files may lie on another file system.
    bool is_layered = false;
    // The number of an inode is that of the server or the disk, and every machine sees the same.
    bool has_numbers_for_all = false;
};

// Of an open file, which may be open for asking only (O_PATH). Never fails: what cannot be told is
// the row of unknown file systems.
const file_system_kind& file_system_of(int fd) noexcept;

// The same of a file on the mount with this number (STATX_MNT_ID_UNIQUE, not 0): the file system
// and the table of mounts are asked once.
const file_system_kind& file_system_of(int fd, std::uint64_t mount) noexcept;

// The row for what statfs and the mount table say; `server` is empty if it is no FUSE mount.
const file_system_kind& file_system_row(std::uint32_t magic, const std::string& server);

// The mount that a file lies on, for people; empty where /proc does not tell.
struct mount_facts {
    std::string point;
    std::string type;  // "ext4", "nfs4", "fuse.sshfs"
    std::string source;
};
mount_facts mount_of_device(std::uint64_t device);

// False: /proc is not mounted, as in some containers and below chroot().
bool is_proc_there();

}  // namespace penstock::host
