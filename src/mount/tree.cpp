#include "mount/tree.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "mount/file_buffer.hpp"
#include "mount/pooled_reads.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"

namespace penstock::mount {

node::~node() {
    if (fd >= 0) ::close(fd);
}

known_file::~known_file() {
    if (fd >= 0) ::close(fd);
}

known_file::known_file(known_file&& other) noexcept
    : number(other.number),
      fd(std::exchange(other.fd, -1)),
      shown_inode(other.shown_inode),
      may_be_stored_to(other.may_be_stored_to) {}

known_file& known_file::operator=(known_file&& other) noexcept {
    std::swap(fd, other.fd);
    number = other.number;
    shown_inode = other.shown_inode;
    may_be_stored_to = other.may_be_stored_to;
    return *this;
}

namespace {

// Of the mount that a descriptor leads through. Linux tells from 5.8 on, and from 6.8 on a number
// that is for ever, which some headers do not know.
mount_number mount_of(int path_fd) {
#if defined(STATX_MNT_ID)
    constexpr unsigned unique = 0x4000;  // STATX_MNT_ID_UNIQUE
    struct statx told {};
    if (::statx(path_fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
                STATX_MNT_ID | unique, &told) == 0 &&
        (told.stx_mask & (STATX_MNT_ID | unique)) != 0)
        return {told.stx_mnt_id, (told.stx_mask & unique) != 0};
#endif
    static_cast<void>(path_fd);
    return {};
}

const host::file_system_kind& file_system_at(int path_fd, const mount_number& mount) {
    return mount.is_for_ever ? host::file_system_of(path_fd, mount.number)
                             : host::file_system_of(path_fd);
}

dev_t device_of(int path_fd) {
    struct stat facts {};
    return ::fstatat(path_fd, "", &facts, AT_EMPTY_PATH) == 0 ? facts.st_dev : 0;
}

// What the mount that a descriptor leads through forbids: 1: writing, 2: running programs.
constexpr std::uint64_t all_limits = 3;
std::uint64_t limits_of(int path_fd) {
    struct statvfs facts {};
    if (::fstatvfs(path_fd, &facts) != 0) return 0;
    return ((facts.f_flag & ST_RDONLY) != 0 ? 1 : 0) | ((facts.f_flag & ST_NOEXEC) != 0 ? 2 : 0);
}

// Its lowest bits, which no address of a node has, make no number 0 or 1.
std::uint64_t make_key() {
    constexpr std::uint64_t in_no_address = alignof(node) - 1;
    static_assert(in_no_address >= 3);
    std::uint64_t key = 0;
    if (::getrandom(&key, sizeof key, 0) != sizeof key)
        key = static_cast<std::uint64_t>(
                  std::chrono::steady_clock::now().time_since_epoch().count()) *
              0x9e3779b97f4a7c15ull;
    return (key & ~in_no_address) | 2;
}

// The kernel goes by the size when it copies within itself (sendfile), so the file's claim is
// hidden meanwhile.
void show_told_bytes(const node& file_node, struct stat& facts) {
    if (facts.st_size == 0) facts.st_size = static_cast<off_t>(file_node.told_bytes.load());
}

}  // namespace

known_file inode_table::known(const node& file_node) {
    known_file out;
    out.number = number_of(file_node);
    out.shown_inode = shown(file_node.device, file_node.inode);
    out.may_be_stored_to = file_node.storers != 0;
    if (out.may_be_stored_to) out.fd = ::fcntl(file_node.fd, F_DUPFD_CLOEXEC, 0);
    return out;
}

inode_table::inode_table(int root_fd)
    : key_(make_key()),
      own_mount_(mount_of(root_fd)),
      own_limits_(limits_of(root_fd)),
      numbers_(device_of(root_fd)) {
    root_.fd = root_fd;
    root_.device = device_of(root_fd);
    root_.lookups = 1;
    root_.lies_on = &file_system_at(root_fd, own_mount_);
}

node& inode_table::at(std::uint64_t number) {
    return number == 1 ? root_ : *reinterpret_cast<node*>(number ^ key_);
}

std::uint64_t inode_table::number_of(const node& file_node) const {
    return &file_node == &root_ ? 1 : reinterpret_cast<std::uint64_t>(&file_node) ^ key_;
}

std::uint64_t inode_table::shown(dev_t device, ino_t inode) try {
    return numbers_.of({device, inode});
} catch (const std::bad_alloc&) {
    return 0;
}

int inode_table::facts_of(node& file_node, struct stat& out) {
    {
        const std::lock_guard hold(file_node.lock);
        if (::fstatat(file_node.fd, "", &out, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
            return errno;
        file_node.told = host::identity_of(out);
    }
    out.st_ino = shown(out.st_dev, out.st_ino);
    show_told_bytes(file_node, out);
    return out.st_ino != 0 ? 0 : ENOMEM;
}

// node_key::way, and the file system. Few files lie in another mount than the source, and only for
// those is the mount asked what it forbids: a network file system asks its server.
void inode_table::find_way(int path_fd, mode_t mode, node& out) const {
    const mount_number mount = mount_of(path_fd);
    const bool is_own = mount == own_mount_;
    out.way = S_ISDIR(mode) ? mount.number : is_own ? own_limits_ : limits_of(path_fd);
    out.lies_on = is_own && mount.number != 0 ? root_.lies_on : &file_system_at(path_fd, mount);
}

node* inode_table::remember(int path_fd, struct stat& facts, int& code) {
    std::unique_ptr<node> made(new (std::nothrow) node);
    if (!made) {
        ::close(path_fd);
        code = ENOMEM;
        return nullptr;
    }
    made->fd = path_fd;
    code = ::fstatat(path_fd, "", &facts, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 ? errno : 0;
    if (code != 0) return nullptr;
    made->device = facts.st_dev;
    made->inode = facts.st_ino;
    made->told = host::identity_of(facts);
    find_way(path_fd, facts.st_mode, *made);
    facts.st_ino = shown(made->device, made->inode);
    if (facts.st_ino == 0) code = ENOMEM;
    if (code != 0) return nullptr;
    node* found = nullptr;
    try {
        const std::lock_guard hold(lock_);
        std::unique_ptr<node>& place = nodes_[made->key()];
        if (!place) {  // else the descriptor goes with what was made
            made->generation = ++generation_;
            place = std::move(made);
        }
        ++place->lookups;
        found = place.get();
    } catch (const std::bad_alloc&) {
        code = ENOMEM;
        return nullptr;
    }
    // Programs may have opened a file that was known, after its facts were read above.
    if (made) code = facts_of(*found, facts);
    if (code == 0) return found;
    forget(number_of(*found), 1);
    return nullptr;
}

std::vector<known_file> inode_table::find(dev_t device, ino_t inode) {
    std::vector<known_file> out;
    const std::lock_guard hold(lock_);
    for (std::uint64_t way = 0; way <= all_limits; ++way)
        if (const auto found = nodes_.find({{device, inode}, way}); found != nodes_.end())
            out.push_back(known(*found->second));
    return out;
}

std::vector<known_file> inode_table::stored_to() {
    const std::lock_guard hold(lock_);
    std::vector<known_file> out;
    for (const auto& [key, file_node] : nodes_)
        if (file_node->storers != 0) out.push_back(known(*file_node));
    return out;
}

void inode_table::forget(std::uint64_t number, std::uint64_t lookups) {
    if (number == 1) return;
    std::unique_ptr<node> gone;  // closed without the lock
    const std::lock_guard hold(lock_);
    node& file_node = at(number);
    file_node.lookups -= lookups < file_node.lookups ? lookups : file_node.lookups;
    if (file_node.lookups != 0) return;
    end_passing({file_node.device, file_node.inode}, file_node.passing);
    const auto found = nodes_.find(file_node.key());
    gone = std::move(found->second);
    nodes_.erase(found);
}

tree::tree(int root_fd) : nodes(root_fd) {}
tree::~tree() = default;

tree& tree_of(fuse_req_t request) { return *static_cast<tree*>(fuse_req_userdata(request)); }

node& begin(fuse_req_t request, fuse_ino_t number) {
    tree& t = tree_of(request);
    t.counted.requests.fetch_add(1, std::memory_order_relaxed);
    return t.nodes.at(number);
}

void tell_buffer(fuse_req_t request, node& file_node, std::uint64_t offset, std::uint64_t bytes) {
    if (file_buffer* const buffer = tree_of(request).buffer.get(); buffer != nullptr)
        buffer->changed(file_node, offset, bytes);
}

region::client_file file_of(fuse_req_t request, const node& file_node) {
    return {*tree_of(request).shared, {file_node.device, file_node.inode}};
}

void reply(fuse_req_t request, int code) {
    if (code != 0) tree_of(request).counted.errors.fetch_add(1, std::memory_order_relaxed);
    fuse_reply_err(request, code);
}

namespace {

// Files that are made up have no server to be asked, and reads of them may wait.
bool is_of_server(const host::file_system_kind& lies_on) {
    return lies_on.times != host::file_times::local && !lies_on.is_made_up;
}

}  // namespace

int look_at_source(const node& file_node, int fd, bool judges_size, source_version& out) {
    if (is_of_server(*file_node.lies_on)) {
        host::file_facts facts;
        if (const int code = host::linux_environment().facts(fd, facts); code != 0) return code;
        out = {facts.identity, !host::may_change_unseen(facts), facts.is_regular, facts.false_size};
        return 0;
    }
    struct stat facts {};
    if (::fstat(fd, &facts) != 0) return -errno;
    out = {host::identity_of(facts), file_node.lies_on->times == host::file_times::local,
           S_ISREG(facts.st_mode),
           judges_size && host::kind_of(fd, facts) == host::file_kind::false_size};
    return 0;
}

}  // namespace penstock::mount
