// What is known of file systems, in one table, and where files lie in them. Every part that treats
// one file system otherwise than another asks here, so that two parts never disagree about a file.
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

// A path or name as the table of mounts (mountinfo) has it, where blanks, line ends and backslashes
// stand as octal numbers: "\040".
std::string of_mount_table(const std::string& text);

// Where a file lies inside its file system, whatever directory that is mounted at. Nodes that mount
// one file system at different places get the same answer.
struct mounted_place {
    std::string path;         // inside the file system; empty: no mount of the list has the path
    std::string file_system;  // its type and source, as "nfs4 server:/export"
};

// `real_path` has no links in it; `mounts` is the text of /proc/thread-self/mountinfo.
mounted_place place_in_file_system(const std::string& real_path, const std::string& mounts);

// By the mounts of this process.
mounted_place place_in_file_system(const std::string& real_path);

// False: /proc is not mounted, as in some containers and below chroot().
bool is_proc_there();

// The name by which the kernel finds what an open descriptor leads to, also if that is O_PATH.
//
// By the calling thread and not by /proc/self, which stands for the program's first thread: once
// that has ended (pthread_exit in main), it has no descriptors there, no mounts and no memory,
// though the process goes on. And a thread may have descriptors of its own.
inline std::string path_of_descriptor(int fd) {
    return "/proc/thread-self/fd/" + std::to_string(fd);
}

}  // namespace penstock::host
