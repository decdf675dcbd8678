#include "find_pictures.hpp"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "common/long_path.hpp"
#include "common/message.hpp"
#include "penstock/runtime.hpp"
#include "picture_reader.hpp"
#include "tile.hpp"

namespace penstock::collage {

namespace {

struct close_directory {
    void operator()(DIR* d) const { ::closedir(d); }
};

void complain(found_pictures& out, const std::string& path, int error, const char* end) {
    out.complaints.push_back(apps::shown(path) + ": " + error_text(-error) + "; " + end);
}

// Regular files of one folder, and its folders for later. Everything is named from the folder's own
// descriptor, so that paths may be longer than one call takes.
void list_one(const std::string& folder, std::vector<std::string>& folders,
              std::vector<std::string>& files, found_pictures& out) {
    const int fd = apps::open_long(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, close_directory> directory(fd >= 0 ? ::fdopendir(fd) : nullptr);
    if (directory == nullptr) {
        complain(out, folder, errno, "the pictures in it are left out");
        if (fd >= 0) ::close(fd);
        return;
    }
    const std::string start = folder.back() == '/' ? folder : folder + "/";
    errno = 0;
    while (const dirent* const entry = ::readdir(directory.get())) {
        const std::string name = entry->d_name;
        struct stat info {};
        if (name != "." && name != "..") {
            if (::fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
                complain(out, start + name, errno, "left out");
            else if (S_ISDIR(info.st_mode)) folders.push_back(start + name);
            else if (S_ISREG(info.st_mode)) files.push_back(start + name);
        }
        errno = 0;
    }
    if (errno != 0) complain(out, folder, errno, "some of the pictures in it are left out");
}

status list(const std::string& top, std::vector<std::string>& files, found_pictures& out) {
    std::vector<std::string> folders{top};
    while (!folders.empty()) {
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        const std::string folder = std::move(folders.back());
        folders.pop_back();
        list_one(folder, folders, files, out);
    }
    std::sort(files.begin(), files.end());
    return {};
}

// -ECANCELED after an interrupt; else 0, and what is wrong becomes a complaint.
status look_at(const std::string& path, found_pictures& out) {
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    int error = 0;
    if (kind_of_file(path, error) == picture_kind::other && error == 0) {
        ++out.other_files;
        return {};
    }
    std::unique_ptr<picture_reader> reader;
    status opened = open_picture(path, reader);
    if (opened.ok() && reader->needs_proof()) {
        opened = read_to_the_end(*reader);
        if (!opened.ok()) opened.message = apps::shown(path) + ": " + opened.message;
    }
    if (!opened.ok()) out.complaints.push_back(opened.message + "; left out");
    else if (reader->width() < tile_side || reader->height() < tile_side) ++out.too_small;
    else out.pictures.push_back({path, reader->width(), reader->height()});
    return {};
}

}  // namespace

status find_pictures(const std::string& folder, found_pictures& out) {
    struct stat info {};
    const int fd = apps::open_long(folder, O_PATH | O_CLOEXEC);
    const int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno
                     : S_ISDIR(info.st_mode)           ? 0
                                                       : -ENOTDIR;
    if (fd >= 0) ::close(fd);
    if (code != 0)
        return {code,
                apps::shown(folder) + ": " + error_text(code) + "; name a folder of pictures"};
    std::vector<std::string> files;
    if (status s = list(folder, files, out); !s) return s;
    for (const std::string& path : files)
        if (status s = look_at(path, out); !s) return s;
    if (!out.pictures.empty()) return {};
    return {-ENOENT, apps::shown(folder) + ": no picture in it that can be used (" +
                         std::to_string(out.other_files) + " other files, " +
                         std::to_string(out.too_small) + " too small, " +
                         std::to_string(out.complaints.size()) +
                         " unreadable); name a folder with JPEG, PNG or PPM pictures of 32 by 32 "
                         "pixels or more"};
}

}  // namespace penstock::collage
