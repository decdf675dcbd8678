#include "mount/inode_table.hpp"

#include <unistd.h>

#include <new>
#include <utility>

namespace penstock::mount {

change_mark mark_of(const struct stat& facts) { return {facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec}; }

node::~node() {
    if (fd >= 0) ::close(fd);
}

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
