#include "mount/mounted_views.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

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

// A descriptor of the file by its name below the mount point, opened so that the mount knows that
// it is ours; or a negative errno.
int mounted_views::open_own(const known_file& file) {
    const std::string root = name_of(files_.nodes.at(1).fd), name = name_of(file.fd);
    const std::string top = root == "/" ? "" : root;
    if (name.size() <= top.size() + 1 || name.compare(0, top.size() + 1, top + "/") != 0)
        return -ENOENT;
    int fd = -1;
    int code = 0;
    {
        const std::lock_guard hold(opening_);
        files_.own_opener = ::gettid();
        fd = ::open((point_ + name.substr(top.size())).c_str(),
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        code = fd < 0 ? -errno : 0;
        files_.own_opener = 0;
    }
    struct stat facts {};
    if (code == 0 && ::fstat(fd, &facts) != 0) code = -errno;
    if (code == 0 && facts.st_ino != file.shown_inode) code = -ENOENT;  // the name is another's now
    if (code == 0) return fd;
    if (fd >= 0) ::close(fd);
    return code;
}

int mounted_views::write_back(const known_file& file) {
    const int fd = open_own(file);
    // A file without a name: the kernel writes pages back before it gives them up.
    if (fd < 0) return invalidate(file.number, 0, 0);
    const int code = ::fsync(fd) != 0 ? -errno : 0;
    ::close(fd);
    return code;
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
}

}  // namespace penstock::mount
