#include "index_library.hpp"

#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "library.hpp"

namespace penstock::collage {

namespace {

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> out;
    DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) return out;
    while (const dirent* const entry = ::readdir(open)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") out.push_back(name);
    }
    ::closedir(open);
    return out;
}

bool is_library_file(const std::string& name) {
    if (name == header_name || name == histograms_name || name == tiles_name || name == "features")
        return true;
    for (std::uint32_t t = 0; t < tables; ++t)
        if (name == table_name(t)) return true;
    return false;
}

// Removes a library, and only that: other files that lie in its folder stay, and then the folder
// too.
void remove_library(const std::string& folder) {
    for (const std::string& name : names_in(folder))
        if (is_library_file(name)) ::unlink((folder + "/" + name).c_str());
    ::rmdir(folder.c_str());
}

status named(const std::string& path, int code, const std::string& cure) {
    return {code, "library " + apps::shown(path) + ": " + error_text(code) + "; " + cure};
}

}  // namespace

staged_file::~staged_file() {
    if (fd_ >= 0) ::close(fd_);
}

staged_file& staged_file::operator=(staged_file&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
}

status staged_file::failed(int code) const {
    return {code, apps::shown(path_) + ": " + error_text(code) +
                      "; make room or give another place for the library"};
}

status staged_file::create(const std::string& path, std::uint64_t bytes) {
    path_ = path;
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) return failed(-errno);
    if (bytes == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
    // File systems that cannot set room aside find out while they write.
    return errno == EOPNOTSUPP || errno == ENOSYS ? status{} : failed(-errno);
}

status staged_file::write(const void* data, std::uint64_t bytes, std::uint64_t at) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t done = ::pwrite(fd_, from, bytes, static_cast<off_t>(at));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return failed(done < 0 ? -errno : -EIO);
        from += done;
        at += static_cast<std::uint64_t>(done);
        bytes -= static_cast<std::uint64_t>(done);
    }
    return {};
}

status staged_file::read(void* data, std::uint64_t bytes, std::uint64_t at) const {
    auto* to = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t done = ::pread(fd_, to, bytes, static_cast<off_t>(at));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return failed(done < 0 ? -errno : -EIO);
        to += done;
        at += static_cast<std::uint64_t>(done);
        bytes -= static_cast<std::uint64_t>(done);
    }
    return {};
}

status staged_file::close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0 ? status{} : failed(-errno);
}

staging_folder::~staging_folder() {
    if (!passing_.empty()) remove_library(passing_);
}

void staging_folder::remove(const std::string& name) const { ::unlink(file(name).c_str()); }

status staging_folder::create(const std::string& path) {
    target_ = path;
    while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
    struct stat there {};
    if (::lstat(target_.c_str(), &there) == 0) {
        if (!S_ISDIR(there.st_mode))
            return named(path, -EEXIST, "it is no folder; give another name");
        const std::vector<std::string> names = names_in(target_);
        if (!names.empty() && ::access((target_ + "/" + header_name).c_str(), F_OK) != 0)
            return named(path, -ENOTEMPTY,
                         "the folder holds other things than a library; give another name");
        for (const std::string& name : names)
            if (!is_library_file(name))
                return named(
                    path, -ENOTEMPTY,
                    "the folder also holds " + apps::shown(name) +
                        ", which is no part of a library; move that away, or give another name");
    }
    if (status s = make_passing(path); !s) return s;
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return ::chmod(passing_.c_str(), 0777 & ~mask) == 0 ? status{}
                                                        : named(path, -errno, "give another name");
}

status staging_folder::make_passing(const std::string& path) {
    const apps::signal_pause until_noted;
    std::string name = target_ + ".penstock-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
        return named(path, -errno, "name a folder below one that exists and can be written");
    passing_ = name;
    noted_.folder(name);
    return {};
}

status staging_folder::commit() {
    // An older library of that name changes places with the new one, so that there is one at every
    // moment.
    if (::renameat2(AT_FDCWD, passing_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
        remove_library(passing_);
        passing_.clear();
        noted_.forget();
        return {};
    }
    if (errno == ENOENT || errno == EINVAL || errno == ENOSYS)
        if (::rename(passing_.c_str(), target_.c_str()) == 0) {
            passing_.clear();
            noted_.forget();
            return {};
        }
    return named(target_, -errno, "remove what lies there, or give another name");
}

}  // namespace penstock::collage
