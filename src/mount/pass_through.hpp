// Files that are passed through: the kernel reads, writes and maps the file of the source itself,
// and the mount hears of it when the file is opened and closed (docs/protocol/mount_pass.md).
//
// A file that a region, a kernel or a buffer uses is served instead: then the mount hears of each
// access. The kernel has one way for all opens of a node at a time and refuses an open that is
// answered with the other (EIO). So the way of a node is chosen by its first open, and stays until
// the last close.
//
// A mapping of a passed-through file is one of the file in the source: it may outlive the last
// close, and the mount does not hear of its end.
#pragma once

#include <fuse_lowlevel.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "hub/hub.hpp"

namespace penstock::mount {

struct tree;
struct node;

// How a file is open.
enum class file_way : std::uint8_t {
    served,
    served_uncached,  // past the kernel's cache: programs may have pages of the source mapped
    passed,
    refused,  // it is passed through, and the source does not allow what the program wants: EINVAL
};

// Of a node; guarded by its lock.
struct pass_state {
    std::uint32_t served = 0, passed = 0;  // opens; never both
    std::int32_t backing = 0;              // the kernel's number for the file, while it is passed
    // A program may have mapped it to store while it was passed, and nothing proved since that no
    // such mapping is left.
    bool stores_past = false;
    std::uint64_t stored_opens = 0;  // passed opens of programs that could map it so
    // That were told to the hub as writers (host::passed_files) and are so still.
    std::uint32_t told_writers = 0;
    host::passed_files* told = nullptr;
};

// The kernel's side of it. Thread-safe, but for begin().
class passing_files {
public:
    // Once, before the session is served, if the kernel agreed. `careful`: regions and kernels may
    // use files of the source, so a file of which the file system does not tell if it is being
    // written is served. False: the kernel does not allow it to this process.
    bool begin(int device, int root, bool careful);

    [[nodiscard]] bool is_on() const { return device_ >= 0; }
    [[nodiscard]] bool is_careful() const { return careful_; }

    // The kernel's number for what a descriptor (O_PATH) leads to, or a negative errno.
    [[nodiscard]] std::int32_t open_backing(int path_fd);
    void close_backing(std::int32_t number) const;

private:
    int device_ = -1;
    bool careful_ = false;
    std::atomic<bool> takes_paths_{true};  // the kernel takes O_PATH descriptors for numbers
};

// Asks whether programs may still have the file mapped past the mount and store to it
// (pass_state::stores_past). The mount's own descriptor of an open that writes counts as such, so
// this comes before it is made. Costs something only where it was so once, and regions or kernels
// may use the file.
void look_for_stores_past(const tree& t, node& file_node);

// Chooses how the file is open and counts it in.
file_way begin_way(tree& t, node& file_node, const fuse_file_info& open);
// Counts it out, after our own descriptor of it is closed.
void end_way(tree& t, node& file_node, const fuse_file_info& open);
// The kernel knows the node no more, so programs have nothing of it mapped.
void end_passing(const host::file_key& key, pass_state& state);

// Answers an open of a passed-through file. 0, or -ENOENT: the program was interrupted.
int reply_passed(fuse_req_t request, const node& file_node, const fuse_file_info& open);
int reply_passed(fuse_req_t request, const node& file_node, const fuse_entry_param& entry,
                 const fuse_file_info& open);

}  // namespace penstock::mount
