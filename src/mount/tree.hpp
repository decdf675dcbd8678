// The tree of a mount: what the kernel knows of the source directory, one node for each inode as
// long as the kernel refers to it; and what all operations of a mount share.
//
// A node holds its inode open (O_PATH), so that it is found again whatever its name becomes, and
// its number is not given to another meanwhile. A folder that is mounted at two places of the
// source is two nodes, because the kernel wants one parent for each. A file that is reached through
// two mounts of which one forbids more (writing, running programs) is two nodes, because it is
// opened the way it was found.
#pragma once

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "mount/file_numbers.hpp"
#include "mount/first_exchange.hpp"
#include "mount/kept_pages.hpp"
#include "mount/own_files.hpp"
#include "mount/pass_through.hpp"
#include "mount/patient_threads.hpp"
#include "mount/waiting_requests.hpp"
#include "os/shared_memory.hpp"
#include "region/programs.hpp"

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
    std::uint64_t way = 0;         // node_key
    std::uint64_t generation = 0;  // of no other node, which may get the same number later
    const host::file_system_kind* lies_on = nullptr;
    std::uint64_t lookups = 0;  // that the kernel has not forgotten; guarded by the table's lock
    std::mutex lock;
    kept_pages pages;  // guarded by lock
    // Version of the attributes that the kernel may go by: those that it was told last; guarded by
    // lock, with which they are read, so that no answer brings older ones after an open.
    host::file_identity told;
    std::shared_ptr<buffered_file>
        buffered;  // while it is open in a mount with a buffer (file_buffer.hpp); guarded by lock
    // While it is open: the size that is shown for a file that claims to be empty; 0: what it
    // claims.
    std::atomic<std::uint64_t> told_bytes{0};
    std::uint64_t told_opens = 0;  // opens of a false size; guarded by lock
    // That have it open to read and write, and not passed through, so may have mapped it to store.
    std::atomic<std::uint64_t> storers{0};
    std::atomic<std::uint64_t> writers{0};  // that have it open to write
    pass_state passing;                     // guarded by lock

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

// The number of a mount; 0: the kernel does not tell.
struct mount_number {
    std::uint64_t number = 0;
    bool is_for_ever = false;  // never given to another mount

    bool operator==(const mount_number&) const = default;
};

// Thread-safe.
class inode_table {
public:
    // Takes `root_fd`, whose node is never forgotten.
    explicit inode_table(int root_fd);

    // The kernel's number for a node; 1 is the root. Of the others it is the address, which
    // programs are not to learn from a file handle, under a key.
    [[nodiscard]] node& at(std::uint64_t number);
    [[nodiscard]] std::uint64_t number_of(const node& file_node) const;

    // The facts of a node, as the mount shows them, to be told to the kernel. 0 or an errno.
    int facts_of(node& file_node, struct stat& out);
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
    void find_way(int path_fd, mode_t mode, node& out) const;

    node root_;
    const std::uint64_t key_;
    const mount_number own_mount_;
    const std::uint64_t own_limits_;
    file_numbers numbers_;
    std::mutex lock_;
    // Guarded by lock_:
    std::unordered_map<node_key, std::unique_ptr<node>, node_key_hash> nodes_;
    std::uint64_t generation_ = 0;
};

// What was done, for the report at the end. Hints, relaxed.
struct counters {
    std::atomic<std::uint64_t> requests{0}, opens{0}, passed_opens{0}, closes{0}, reads{0},
        bytes_asked{0}, bytes_from_devices{0}, bytes_from_buffers{0}, writes{0}, bytes_written{0},
        stores_written{0}, errors{0};
};

class file_buffer;
class pooled_reads;

struct tree {
    explicit tree(int root_fd);
    ~tree();

    inode_table nodes;
    fuse_session* session = nullptr;         // from when it is mounted
    region::shared_files* shared = nullptr;  // from when it is served
    counters counted;
    std::string point;  // without links in it
    std::uint64_t read_ahead_bytes = 0;
    std::unique_ptr<file_buffer> buffer;   // or null
    std::unique_ptr<pooled_reads> pooled;  // or null; not with a buffer of the mount's own
    agreements agreed;                     // before it is served
    passing_files passing;
    std::string not_passing;  // why it passes no file through; empty: it does
    // Answers to requests for which the kernel must first do something with its pages of a file.
    // Meanwhile it may send requests of its own, or wait for pages that other programs asked for.
    // The serving threads must be free to answer those.
    patient_threads late;
    waiting_requests waiting;
    own_openers openers;
    double attribute_seconds = 1,
           // How long the kernel believes attributes and names without asking again.
        entry_seconds = 1;
};

tree& tree_of(fuse_req_t request);

// 0 or an errno.
void reply(fuse_req_t request, int code);

// Counts the request; the node it is about.
node& begin(fuse_req_t request, fuse_ino_t number);

// After an operation that changed these bytes of a file or its size, and before it is answered.
void tell_buffer(fuse_req_t request, node& file_node, std::uint64_t offset, std::uint64_t bytes);

// Does the work, which answers the request, after the stores of programs that may have mapped the
// file have come to it: the kernel writes changed pages back and gives all pages up, and later
// stores get new ones. A program sets a time stamp after it stored; a page that is written back
// later would set the time anew. fsync is no help: it takes the lock that the request holds. An
// error does not change the answer, since msync or close tells the program that its stores failed.
template <typename Work>
void after_stores_to(fuse_req_t request, const node& file_node, const Work& work) {
    if (file_node.storers == 0) return work();
    tree& t = tree_of(request);
    const auto after = [session = t.session, number = t.nodes.number_of(file_node), work] {
        fuse_lowlevel_notify_inval_inode(session, number, 0, 0);
        work();
    };
    if (!t.late.put(after)) work();
}

// Attempts to do what the request wants, until it is answered: an attempt that would have to wait
// gives false (waiting_requests).
template <typename Attempt>
void answer_without_waiting(fuse_req_t request, int fd, const Attempt& attempt) {
    if (attempt()) return;
    if (!tree_of(request).waiting.add(request, fd, attempt)) reply(request, EAGAIN);
}

region::client_file file_of(fuse_req_t request, const node& file_node);

// In the handle of an open file, beside the descriptor: opened by this process to bring stores
// home, which is all that its fsync is to do.
constexpr std::uint64_t is_ours = 1ull << 32;
constexpr std::uint64_t has_false_size = 1ull << 33;  // read until no bytes come (host::file_kind)
constexpr std::uint64_t only_appends = 1ull << 34;    // append-only in the source (chattr +a)
constexpr std::uint64_t judges_reader = 1ull << 35;   // bytes depend on the reader (is_made_up)
constexpr std::uint64_t is_passed = 1ull << 36;       // the kernel reads and writes it itself
// Above these bits: kept_pages::answer::dropping.
constexpr unsigned dropping_shift = 40;
inline int handle_of(const fuse_file_info* open) {
    return static_cast<int>(open->fh & (is_ours - 1));
}

inline std::string path_of(int fd) { return host::path_of_descriptor(fd); }

// Which version of a file of the source an open finds, and whether it is known by its times.
struct source_version {
    host::file_identity identity;
    // Bytes that are read from now on are of this version as long as later looks give the same.
    // Always so on a local file system, but for changes within one tick of its times; elsewhere by
    // the table of network file systems (os/file_system.hpp), so never through FUSE.
    bool is_proof = false;
    bool is_regular = false;
    bool has_false_size = false;  // host::file_kind
};

// After an open: `fd` has the file open, since some servers look for changes only then. Asks the
// server of a network file system, past the attributes that the kernel keeps. A local file system
// costs one system call, and one or two more for a file that claims to occupy no blocks
// (host::kind_of) if `judges_size` says so. 0 or a negative errno.
int look_at_source(const node& file_node, int fd, bool judges_size, source_version& out);

// Each fills its part of the table of operations.
void add_names(fuse_lowlevel_ops& table);
void add_attributes(fuse_lowlevel_ops& table);
void add_files(fuse_lowlevel_ops& table);
void add_directories(fuse_lowlevel_ops& table);

// Fills `out` for what a descriptor (O_PATH) leads to, with one lookup more, and takes the
// descriptor. 0 or an errno; of a negative descriptor the errno of the call before.
int entry_of(tree& t, int path_fd, fuse_entry_param& out);

// The same of what has the name `name` below `parent` now.
int look_up(tree& t, node& parent, const char* name, fuse_entry_param& out);

// Before a name is made: a descriptor, taken for the node of what is made, and given just before
// that is looked up. Without it a name would be made at the limit on open files, and then be told
// as an error.
class place_for_node {
public:
    explicit place_for_node(const node& parent)
        : taken_(::fcntl(parent.fd, F_DUPFD_CLOEXEC, 0)), code_(taken_ ? 0 : errno) {}
    // 0 or an errno, with which nothing is to be made.
    [[nodiscard]] int code() const { return code_; }
    void give() { taken_.reset(); }

private:
    host::owned_fd taken_;
    const int code_;
};

// After an answer that told an entry: if the program was interrupted meanwhile, the kernel did not
// hear of it and will not forget it either.
void forget_unheard(tree& t, const fuse_entry_param& told, int answer);

}  // namespace penstock::mount
