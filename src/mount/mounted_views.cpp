#include "mount/mounted_views.hpp"

#include <unistd.h>

#include <cerrno>
#include <optional>

namespace penstock::mount {

namespace {

// What a descriptor leads to is called so now; nothing if it has no name any more.
std::string name_of(int fd) {
    std::string out(4096, '\0');
    const ssize_t length = ::readlink(path_of(fd).c_str(), out.data(), out.size());
    out.resize(length < 0 || static_cast<std::size_t>(length) == out.size()
                   ? 0
                   : static_cast<std::size_t>(length));
    return out;
}

}  // namespace

int mounted_views::invalidate(std::uint64_t number, std::uint64_t offset,
                              std::uint64_t bytes) const {
    const int code = fuse_lowlevel_notify_inval_inode(session_, number, static_cast<off_t>(offset),
                                                      static_cast<off_t>(bytes));
    return code == -ENOENT ? 0 : code;  // the kernel has nothing of it
}

// The file's name below the mount point; empty: it has none.
std::string mounted_views::own_path(const known_file& file) const {
    const std::string root = name_of(files_.nodes.at(1).fd), name = name_of(file.fd);
    const std::string top = root == "/" ? "" : root;
    if (name.size() <= top.size() + 1 || name.compare(0, top.size() + 1, top + "/") != 0) return {};
    return point_ + name.substr(top.size());
}

int mounted_views::write_back(const known_file& file) {
    const std::string path = own_path(file);
    const std::optional<int> code =
        path.empty() ? std::nullopt : own_.write_back(path, file.shown_inode);
    // A file without a name: the kernel writes pages back before it gives them up.
    return code ? *code : invalidate(file.number, 0, 0);
}

int mounted_views::collect(const region::file_key& key) {
    const std::shared_lock hold(alive_);
    if (session_ == nullptr) return 0;
    int first = 0;
    for (const known_file& file : files_.nodes.find(key.device, key.inode))
        if (const int code = file.may_be_stored_to ? write_back(file) : 0; first == 0) first = code;
    return first;
}

int mounted_views::take_away(const region::file_key& key, std::uint64_t offset,
                             std::uint64_t bytes) {
    const std::shared_lock hold(alive_);
    if (session_ == nullptr) return 0;
    int first = 0;
    for (const known_file& file : files_.nodes.find(key.device, key.inode)) {
        int code = invalidate(file.number, offset, bytes);
        if (code == 0 && file.may_be_stored_to) code = write_back(file);
        if (first == 0) first = code;
    }
    return first;
}

int mounted_views::collect_all() {
    const std::shared_lock hold(alive_);
    if (session_ == nullptr) return 0;
    int first = 0;
    for (const known_file& file : files_.nodes.stored_to())
        if (const int code = write_back(file); first == 0) first = code;
    return first;
}

void mounted_views::end() {
    const std::unique_lock hold(alive_);
    session_ = nullptr;
    own_.end();
}

}  // namespace penstock::mount
