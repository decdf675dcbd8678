#include "mount/inode_table.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace penstock::mount {

change_mark mark_of(const struct stat& facts) { return {facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec}; }

node::~node() {
    if (fd >= 0) ::close(fd);
}

known_file::~known_file() {
    if (fd >= 0) ::close(fd);
}

known_file::known_file(known_file&& other) noexcept
    : number(other.number), fd(std::exchange(other.fd, -1)), inode(other.inode), may_be_stored_to(other.may_be_stored_to) {}

known_file& known_file::operator=(known_file&& other) noexcept {
    std::swap(fd, other.fd);
    number = other.number;
    inode = other.inode;
    may_be_stored_to = other.may_be_stored_to;
    return *this;
}

namespace {

known_file known(std::uint64_t number, const node& one) {
    known_file out;
    out.number = number;
    out.inode = one.inode;
    out.may_be_stored_to = one.storers != 0;
    if (out.may_be_stored_to) out.fd = ::fcntl(one.fd, F_DUPFD_CLOEXEC, 0);
    return out;
}

}  // namespace

inode_table::inode_table(int root_fd) {
    root_.fd = root_fd;
    root_.lookups = 1;
}

node& inode_table::at(std::uint64_t number) { return number == 1 ? root_ : *reinterpret_cast<node*>(number); }

std::uint64_t inode_table::number_of(const node& one) const { return &one == &root_ ? 1 : reinterpret_cast<std::uint64_t>(&one); }

node* inode_table::remember(int path_fd, const struct stat& facts) {
    std::unique_ptr<node> made;
    try {
        made = std::make_unique<node>();
        made->fd = path_fd;
        made->device = facts.st_dev;
        made->inode = facts.st_ino;
        const std::lock_guard hold(lock_);
        std::unique_ptr<node>& place = nodes_[{facts.st_dev, facts.st_ino}];
        if (!place) place = std::move(made);  // else the descriptor goes with what was made
        ++place->lookups;
        return place.get();
    } catch (const std::bad_alloc&) {
        if (!made) ::close(path_fd);
        return nullptr;
    }
}

bool inode_table::find(dev_t device, ino_t inode, known_file& out) {
    const std::lock_guard hold(lock_);
    const auto found = nodes_.find({device, inode});
    if (found == nodes_.end()) return false;
    out = known(number_of(*found->second), *found->second);
    return true;
}

std::vector<known_file> inode_table::stored_to() {
    const std::lock_guard hold(lock_);
    std::vector<known_file> out;
    for (const auto& [key, one] : nodes_)
        if (one->storers != 0) out.push_back(known(number_of(*one), *one));
    return out;
}

void inode_table::forget(std::uint64_t number, std::uint64_t lookups) {
    if (number == 1) return;
    std::unique_ptr<node> gone;  // closed without the lock
    const std::lock_guard hold(lock_);
    node& one = at(number);
    one.lookups -= lookups < one.lookups ? lookups : one.lookups;
    if (one.lookups != 0) return;
    const auto found = nodes_.find({one.device, one.inode});
    gone = std::move(found->second);
    nodes_.erase(found);
}

}  // namespace penstock::mount
