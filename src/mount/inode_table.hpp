// What the kernel knows of the source directory: one node for each inode, as long as the kernel
// refers to it.
//
// A node holds its inode open (O_PATH), so that it is found again whatever its name becomes, and
// its number is not given to another meanwhile. A folder that is mounted at two places of the
// source is two nodes, because the kernel wants one parent for each. A file that is reached through
// two mounts of which one forbids more (writing, running programs) is two nodes, because it is
// opened the way it was found.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "os/file_kind.hpp"
#include "mount/file_numbers.hpp"

namespace penstock::mount {

// A file of the source, and how it was found.
struct node_key {
    inode_key file;
    std::uint64_t way = 0;  // of a folder: the id of its mount; of a file: what that mount forbids
    bool operator==(const node_key&) const = default;
};
struct node_key_hash {
    std::size_t operator()(const node_key& k) const {
        return inode_key_hash{}(k.file) + k.way * 0xc2b2ae3d27d4eb4full;
    }
};

struct buffered_file;

struct node {
    int fd = -1;
    dev_t device = 0;
    ino_t inode = 0;
    std::uint64_t way = 0;      // node_key
    std::uint64_t lookups = 0;  // that the kernel has not forgotten; guarded by the table's lock
    std::mutex lock;
    host::file_identity cached;  // version of the kernel's pages; device 0: none; guarded by lock
    std::shared_ptr<buffered_file>
        buffered;  // while it is open in a mount with a buffer (file_buffer.hpp); guarded by lock
    // While it is open: the size that is shown for a file that claims to be empty; 0: what it
    // claims.
    std::atomic<std::uint64_t> told_bytes{0};
    std::atomic<signed char> made_up{-1};  // host::is_made_up; -1: not asked yet
    std::uint64_t told_opens = 0;          // opens of a false size; guarded by lock
    // That have it open to read and write, so may have mapped it to store.
    std::atomic<std::uint64_t> storers{0};

    [[nodiscard]] node_key key() const { return {{device, inode}, way}; }
    ~node();
};

// Found by what it is, and kept by its descriptor while the kernel may forget it.
struct known_file {
    known_file() = default;
    ~known_file();
    known_file(known_file&& other) noexcept;
    known_file& operator=(known_file&& other) noexcept;

    std::uint64_t number = 0;
    int fd = -1;
    std::uint64_t shown_inode = 0;
    bool may_be_stored_to = false;
};

// Thread-safe.
class inode_table {
public:
    // Takes `root_fd`, whose node is never forgotten.
    explicit inode_table(int root_fd);

    // The kernel's number for a node, which is its address; 1 is the root.
    [[nodiscard]] node& at(std::uint64_t number);
    [[nodiscard]] std::uint64_t number_of(const node& file_node) const;

    // The facts of a node, as the mount shows them. 0 or an errno.
    int facts_of(const node& file_node, struct stat& out);
    // The number that the mount shows for a file of the source; 0: no memory.
    std::uint64_t shown(dev_t device, ino_t inode);

    // The node of the inode that `path_fd` leads to, with one lookup more, and its facts
    // as the mount shows them; takes the descriptor in any case. Null: `code` says why.
    node* remember(int path_fd, struct stat& facts, int& code);
    void forget(std::uint64_t number, std::uint64_t lookups);

    // Nodes of the file that the kernel knows: none, one, or one for each way to it.
    std::vector<known_file> find(dev_t device, ino_t inode);
    // Those that programs may store to.
    std::vector<known_file> stored_to();

private:
    known_file known(const node& file_node);
    [[nodiscard]] std::uint64_t way_to(int path_fd, mode_t mode) const;

    node root_;
    const std::uint64_t own_mount_;
    const std::uint64_t own_limits_;
    file_numbers numbers_;
    std::mutex lock_;
    std::unordered_map<node_key, std::unique_ptr<node>, node_key_hash> nodes_;
};

}  // namespace penstock::mount
