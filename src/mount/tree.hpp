// What all operations of a mount share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "mount/fuse_api.hpp"
#include "mount/inode_table.hpp"

namespace penstock::mount {

// What was done, for the report at the end. Hints, relaxed.
struct counters {
    std::atomic<std::uint64_t> requests{0}, reads{0}, bytes_asked{0}, writes{0}, bytes_written{0}, errors{0};
};

struct tree {
    explicit tree(int root_fd) : nodes(root_fd) {}

    inode_table nodes;
    counters counted;
    double attribute_seconds = 1, entry_seconds = 1;  // how long the kernel believes attributes and names without asking again
};

inline tree& tree_of(fuse_req_t request) { return *static_cast<tree*>(fuse_req_userdata(request)); }

// Counts the request; the node it is about.
inline node& begin(fuse_req_t request, fuse_ino_t number) {
    tree& t = tree_of(request);
    t.counted.requests.fetch_add(1, std::memory_order_relaxed);
    return t.nodes.at(number);
}

// 0 or an errno.
inline void reply(fuse_req_t request, int code) {
    if (code != 0) tree_of(request).counted.errors.fetch_add(1, std::memory_order_relaxed);
    fuse_reply_err(request, code);
}

// A name by which the kernel finds what a descriptor leads to, also if that is O_PATH.
inline std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// Each fills its part of the table of operations.
void add_names(fuse_lowlevel_ops& table);
void add_attributes(fuse_lowlevel_ops& table);
void add_files(fuse_lowlevel_ops& table);
void add_directories(fuse_lowlevel_ops& table);

// Looks `name` up below `parent` and fills `out` with one lookup more. 0 or an errno.
int look_up(tree& t, node& parent, const char* name, fuse_entry_param& out);

// After an answer that told an entry: if the program was interrupted meanwhile, the kernel did not hear of it and will not forget it either.
void forget_unheard(tree& t, const fuse_entry_param& told, int answer);

}  // namespace penstock::mount
