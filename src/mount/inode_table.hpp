// What the kernel knows of the source directory: one node for each inode, as long as the kernel refers to it.
//
// A node holds its inode open (O_PATH), so that it is found again whatever its name becomes, and its number is not given to another meanwhile.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace penstock::mount {

// When a file's bytes changed, as far as the file system says.
struct change_mark {
    std::int64_t size_bytes = -1, seconds = 0, nanoseconds = 0;
    bool operator==(const change_mark& other) const {
        return size_bytes == other.size_bytes && seconds == other.seconds && nanoseconds == other.nanoseconds;
    }
};
change_mark mark_of(const struct stat& facts);

// What a file is, whatever it is called.
struct inode_key {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const inode_key&) const = default;
};
struct inode_key_hash {
    std::size_t operator()(const inode_key& k) const { return (k.device * 0x9e3779b97f4a7c15ull) ^ (k.inode * 0xff51afd7ed558ccdull); }
};

struct buffered_file;

struct node {
    int fd = -1;
    dev_t device = 0;
    ino_t inode = 0;
    std::uint64_t lookups = 0;  // that the kernel has not forgotten; guarded by the table's lock
    std::mutex lock;
    change_mark cached;  // what the kernel's pages of it are; guarded by lock
    std::shared_ptr<buffered_file> buffered;  // while it is open in a mount with a buffer (file_buffer.hpp); guarded by lock
    std::atomic<std::uint64_t> storers{0};  // that have it open to read and write, so may have mapped it to store

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
    ino_t inode = 0;
    bool may_be_stored_to = false;
};

// Thread-safe.
class inode_table {
public:
    // Takes `root_fd`, whose node is never forgotten.
    explicit inode_table(int root_fd);

    // The kernel's number for a node, which is its address; 1 is the root.
    [[nodiscard]] node& at(std::uint64_t number);
    [[nodiscard]] std::uint64_t number_of(const node& one) const;

    // The node of the inode that `path_fd` (O_PATH) leads to, with one lookup more; takes the descriptor in any case. Null: no memory.
    node* remember(int path_fd, const struct stat& facts);
    void forget(std::uint64_t number, std::uint64_t lookups);

    // Does the kernel know the file?
    bool find(dev_t device, ino_t inode, known_file& out);
    // Those that somebody may store to.
    std::vector<known_file> stored_to();

private:
    node root_;
    std::mutex lock_;
    std::unordered_map<inode_key, std::unique_ptr<node>, inode_key_hash> nodes_;
};

}  // namespace penstock::mount
