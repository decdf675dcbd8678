// What all operations of a mount share.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "mount/file_buffer.hpp"
#include "mount/fuse_api.hpp"
#include "mount/inode_table.hpp"
#include "mount/late_answers.hpp"
#include "mount/kernel_cache.hpp"
#include "region/programs.hpp"

namespace penstock::mount {

// What was done, for the report at the end. Hints, relaxed.
struct counters {
    std::atomic<std::uint64_t> requests{0}, reads{0}, bytes_asked{0}, bytes_from_devices{0},
        writes{0}, bytes_written{0}, errors{0};
};

struct tree {
    explicit tree(int root_fd) : nodes(root_fd) {}

    inode_table nodes;
    region::shared_files* shared = nullptr;  // from when it is served
    counters counted;
    std::string point;  // without links in it
    std::uint64_t read_ahead_bytes = 0;
    std::unique_ptr<file_buffer> buffer;  // or null
    uncached_agreement uncached;          // with a buffer
    std::unique_ptr<late_answers> late;
    // The thread of ours that opens a file of the mount now (mounted_views); 0: none.
    std::atomic<pid_t> own_opener{0};
    double attribute_seconds = 1,
           // How long the kernel believes attributes and names without asking again.
        entry_seconds = 1;
};

inline tree& tree_of(fuse_req_t request) { return *static_cast<tree*>(fuse_req_userdata(request)); }

// Counts the request; the node it is about.
inline node& begin(fuse_req_t request, fuse_ino_t number) {
    tree& t = tree_of(request);
    t.counted.requests.fetch_add(1, std::memory_order_relaxed);
    return t.nodes.at(number);
}

// After an operation that changed these bytes of a file or its size, and before it is answered.
inline void tell_buffer(fuse_req_t request, node& file_node, std::uint64_t offset,
                        std::uint64_t bytes) {
    if (file_buffer* const buffer = tree_of(request).buffer.get(); buffer != nullptr)
        buffer->changed(file_node, offset, bytes);
}

// Does the work, which answers the request, after the stores of programs that may have mapped the
// file have come to it.
template <typename Work>
void after_stores_to(fuse_req_t request, const node& file_node, const Work& work) {
    tree& t = tree_of(request);
    if (file_node.storers == 0 || !t.late->after_stores(t.nodes.number_of(file_node), work)) work();
}

inline region::client_file file_of(fuse_req_t request, const node& file_node) {
    return {*tree_of(request).shared, {file_node.device, file_node.inode}};
}

// 0 or an errno.
inline void reply(fuse_req_t request, int code) {
    if (code != 0) tree_of(request).counted.errors.fetch_add(1, std::memory_order_relaxed);
    fuse_reply_err(request, code);
}

// In the handle of an open file, beside the descriptor: opened by this process to bring stores
// home, which is all that its fsync is to do.
constexpr std::uint64_t is_ours = 1ull << 32;
constexpr std::uint64_t has_false_size = 1ull << 33;  // read until no bytes come (host::file_kind)
constexpr std::uint64_t only_appends = 1ull << 34;    // append-only in the source (chattr +a)
constexpr std::uint64_t judges_reader = 1ull << 35;   // bytes depend on the reader (is_made_up)
inline int handle_of(const fuse_file_info* open) {
    return static_cast<int>(open->fh & (is_ours - 1));
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

// After an answer that told an entry: if the program was interrupted meanwhile, the kernel did not
// hear of it and will not forget it either.
void forget_unheard(tree& t, const fuse_entry_param& told, int answer);

}  // namespace penstock::mount
