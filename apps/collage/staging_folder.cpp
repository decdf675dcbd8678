// The folder of a library while it is made, and the files in it.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "common/message.hpp"
#include "index_library.hpp"
#include "os/patient_open.hpp"

namespace penstock::collage {

namespace {

std::vector<std::string> file_names() {
    std::vector<std::string> out{header_name, histograms_name, tiles_name, features_name};
    for (std::uint32_t t = 0; t < tables; ++t) out.push_back(table_name(t));
    return out;
}

// Removes a library, and only that: other files that lie in its folder stay, and then the folder
// too.
void remove_library(const std::string& folder) {
    for (const std::string& name : file_names()) ::unlink((folder + "/" + name).c_str());
    ::rmdir(folder.c_str());
}

status named(const std::string& path, int code, const std::string& cure) {
    return {code, "library " + apps::shown(path) + ": " + error_text(code) + "; " + cure};
}

bool is_file(const std::string& path, struct stat& there) {
    return ::lstat(path.c_str(), &there) == 0 && S_ISREG(there.st_mode);
}

// What makes a folder a library is the beginning of its header, not that there is a file of that
// name: many a folder has one.
bool has_header(const std::string& folder) {
    const std::string path = folder + "/" + header_name;
    struct stat there {};
    if (!is_file(path, there) || there.st_size != sizeof(library_header)) return false;
    const apps::unique_fd fd(host::open_past_leases(path, O_RDONLY | O_NOFOLLOW));
    std::uint64_t magic = 0;
    return fd >= 0 && apps::read_all(fd, &magic, sizeof magic, 0) == 0 && magic == library_magic;
}

// Nothing, an empty folder, or a library and nothing else lies at `folder`. `path`: its name for
// messages.
status check_replaceable(const std::string& path, const std::string& folder) {
    struct stat there {};
    if (::lstat(folder.c_str(), &there) != 0)
        return errno == ENOENT ? status{} : named(path, -errno, "give another name");
    if (!S_ISDIR(there.st_mode)) return named(path, -EEXIST, "it is no folder; give another name");
    const std::vector<std::string> known = file_names();
    const bool is_library = has_header(folder);
    std::error_code unreadable;
    std::filesystem::directory_iterator entry(folder, unreadable);
    for (; !unreadable && entry != std::filesystem::directory_iterator();
         entry.increment(unreadable)) {
        const std::string name = entry->path().filename();
        if (!is_library)
            return named(path, -ENOTEMPTY,
                         "the folder holds other things than a library; give another name");
        if (std::find(known.begin(), known.end(), name) == known.end() ||
            !is_file(folder + "/" + name, there))
            return named(
                path, -ENOTEMPTY,
                "the folder also holds " + apps::shown(name) +
                    ", which is no part of a library; move that away, or give another name");
    }
    if (!unreadable) return {};
    return named(path, -unreadable.value(), "give the right to list this folder, or another name");
}

}  // namespace

status staged_file::failed(int code) const {
    if (code == 0) return {};
    return {code, apps::shown(path_) + ": " + error_text(code) +
                      "; make room or give another place for the library"};
}

status staged_file::create(const std::string& path, std::uint64_t bytes) {
    path_ = path;
    fd_ = apps::unique_fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd_ < 0) return failed(-errno);
    if (bytes == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
    // File systems that cannot set room aside find out while they write.
    return errno == EOPNOTSUPP || errno == ENOSYS ? status{} : failed(-errno);
}

status staged_file::write(const void* data, std::uint64_t bytes, std::uint64_t at) const {
    return failed(apps::write_all(fd_, data, bytes, at));
}

status staged_file::read(void* data, std::uint64_t bytes, std::uint64_t at) const {
    return failed(apps::read_all(fd_, data, bytes, at));
}

status staged_file::close() {
    return fd_ < 0 || ::close(fd_.release()) == 0 ? status{} : failed(-errno);
}

staging_folder::~staging_folder() {
    if (!passing_.empty()) remove_library(passing_);
}

void staging_folder::remove(const std::string& name) const { ::unlink(file(name).c_str()); }

status staging_folder::create(const std::string& path) {
    target_ = path;
    while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
    // A new folder takes the place of the old one, beside which it is made: for that, the old one's
    // name and the folder with it must be known. And a shell that works in it would lose it.
    const std::string last = target_.substr(target_.rfind('/') + 1);  // npos + 1: from the start
    if (last == "." || last == "..")
        return named(path, -EINVAL, "the folder is replaced as a whole, so give its own name");
    if (status s = check_replaceable(path, target_); !s) return s;
    {
        const apps::signal_pause until_noted;
        std::string name = target_ + ".penstock-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr)
            return named(path, -errno, "name a folder below one that exists and can be written");
        passing_ = name;
        noted_.folder(name);
    }
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode_if_new_ = 0777 & ~mask;
    return {};
}

// Each file has the rights of the one that it replaces, and the folder those of the older library:
// last, since they may keep this process out.
int staging_folder::set_rights() const {
    std::vector<std::string> ends;
    for (const std::string& name : file_names()) ends.push_back("/" + name);
    ends.emplace_back();
    for (const std::string& end : ends) {
        const apps::unique_fd made(
            ::open((passing_ + end).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (made < 0 && errno == ENOENT) continue;
        int code = made < 0 ? -errno : apps::take_rights(made, target_ + end);
        if (code == -ENOENT) code = !end.empty() || ::fchmod(made, mode_if_new_) == 0 ? 0 : -errno;
        if (code != 0) return code;
    }
    return 0;
}

// An older library of that name changes places with the new one, so that there is one at every
// moment. Another program may have put something else there since create() looked: that changes
// places once more, and is not this object's to remove.
status staging_folder::commit() {
    if (status s = check_replaceable(target_, target_); !s) return s;
    if (const int code = set_rights(); code != 0) return named(target_, code, "give another name");
    bool replaced = false;
    status found;
    {
        const apps::signal_pause until_known;  // a signal would remove what lies at passing_
        replaced = exchange();
        const int code = errno;
        if (replaced) found = check_replaceable(target_, passing_);
        if (!found.ok() && !exchange()) {
            found.message += "; what was there lies at " + apps::shown(passing_);
            noted_.forget();
            passing_.clear();
        }
        errno = code;
    }
    if (!found.ok()) return found;
    const bool is_new = !replaced && (errno == ENOENT || errno == EINVAL || errno == ENOSYS) &&
                        ::rename(passing_.c_str(), target_.c_str()) == 0;
    if (!replaced && !is_new)
        return named(target_, -errno, "remove what lies there, or give another name");
    if (replaced) remove_library(passing_);
    passing_.clear();
    noted_.forget();
    return {};
}

bool staging_folder::exchange() const {
    return ::renameat2(AT_FDCWD, passing_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace penstock::collage
