// Open directories.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "mount/tree.hpp"

namespace penstock::mount {

namespace {

struct open_directory {
    DIR* stream = nullptr;
    std::mutex lock;         // programs that share a descriptor may read at a time
    off_t at = 0;            // where the stream stands
    dirent* next = nullptr;  // read already, and did not fit any more

    ~open_directory() {
        if (stream != nullptr) ::closedir(stream);
    }
};

open_directory& directory_of(const fuse_file_info* open) {
    return *reinterpret_cast<open_directory*>(open->fh);
}

void open_dir(fuse_req_t request, fuse_ino_t number, fuse_file_info* open) {
    const node& folder = begin(request, number);
    std::unique_ptr<open_directory> made(new (std::nothrow) open_directory);
    if (!made) return reply(request, ENOMEM);
    const int fd = ::openat(folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return reply(request, errno);
    made->stream = ::fdopendir(fd);
    if (made->stream == nullptr) {
        const int code = errno;
        ::close(fd);
        return reply(request, code);
    }
    open->fh = reinterpret_cast<std::uint64_t>(made.get());
    if (fuse_reply_open(request, open) != -ENOENT) made.release();
}

bool is_dot(const char* name) {
    return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

// Writes one entry to `to`: with the facts of a look-up, or with number and type only. Returns the
// bytes that it takes, which may be more than there are. An entry whose look-up fails (a dead
// mount, a name in a folder that the user may list but not enter) is listed too, as in the source;
// a later call for its facts meets the error.
std::size_t put_entry(fuse_req_t request, node& parent, const dirent& record, off_t next,
                      bool with_look_up, char* to, std::size_t room) {
    fuse_entry_param entry{};
    entry.attr.st_ino = tree_of(request).nodes.shown(parent.device, record.d_ino);
    entry.attr.st_mode = static_cast<mode_t>(record.d_type) << 12;
    if (!with_look_up)
        return fuse_add_direntry(request, to, room, record.d_name, &entry.attr, next);
    const fuse_entry_param bare = entry;
    if (!is_dot(record.d_name) && look_up(tree_of(request), parent, record.d_name, entry) != 0)
        entry = bare;
    const std::size_t bytes =
        fuse_add_direntry_plus(request, to, room, record.d_name, &entry, next);
    if (bytes > room && entry.ino != 0)
        tree_of(request).nodes.forget(entry.ino, 1);  // it comes again
    return bytes;
}

// Fills `text` from `offset` on, as far as entries fit; how far that is. `code` is the error of
// reading the folder, or 0.
std::size_t read_entries(fuse_req_t request, node& folder, off_t offset, open_directory& dir,
                         bool with_look_ups, std::vector<char>& text, int& code) {
    const std::lock_guard hold(dir.lock);
    if (offset != dir.at) {
        ::seekdir(dir.stream, offset);
        dir.next = nullptr;
        dir.at = offset;
    }
    for (std::size_t filled = 0;;) {
        errno = 0;
        if (dir.next == nullptr) dir.next = ::readdir(dir.stream);
        if (dir.next == nullptr) {
            code = errno;
            return filled;
        }
        const off_t after = dir.next->d_off;
        const std::size_t bytes = put_entry(request, folder, *dir.next, after, with_look_ups,
                                            text.data() + filled, text.size() - filled);
        if (bytes > text.size() - filled) return filled;
        filled += bytes;
        dir.next = nullptr;
        dir.at = after;
    }
}

// The lock is given back before the answer: upon that the kernel may have the directory closed by
// another thread.
void reply_entries(fuse_req_t request, fuse_ino_t number, std::size_t room, off_t offset,
                   const fuse_file_info* open, bool with_look_ups) {
    std::vector<char> text(room);
    int code = 0;
    const std::size_t filled = read_entries(request, begin(request, number), offset,
                                            directory_of(open), with_look_ups, text, code);
    // What was looked up must be told, else the kernel would never forget it; the error comes with
    // the next call.
    if (code != 0 && filled == 0) return reply(request, code);
    fuse_reply_buf(request, text.data(), filled);
}

void read_dir(fuse_req_t request, fuse_ino_t number, std::size_t room, off_t offset,
              fuse_file_info* open) {
    reply_entries(request, number, room, offset, open, false);
}

void read_dir_plus(fuse_req_t request, fuse_ino_t number, std::size_t room, off_t offset,
                   fuse_file_info* open) {
    reply_entries(request, number, room, offset, open, true);
}

void release_dir(fuse_req_t request, fuse_ino_t number, fuse_file_info* open) {
    begin(request, number);
    delete &directory_of(open);
    reply(request, 0);
}

void sync_dir(fuse_req_t request, fuse_ino_t number, int data_only, fuse_file_info* open) {
    begin(request, number);
    const int fd = ::dirfd(directory_of(open).stream);
    reply(request, (data_only ? ::fdatasync(fd) : ::fsync(fd)) != 0 ? errno : 0);
}

}  // namespace

void add_directories(fuse_lowlevel_ops& table) {
    table.opendir = open_dir;
    table.readdir = read_dir;
    table.readdirplus = read_dir_plus;
    table.releasedir = release_dir;
    table.fsyncdir = sync_dir;
}

}  // namespace penstock::mount
