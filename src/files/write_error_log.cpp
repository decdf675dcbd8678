#include "files/write_error_log.hpp"

#include <cerrno>
#include <sys/stat.h>

namespace penstock::host {

namespace {

// Where the file system of a file is mounted: the furthest folder above it on the same device.
// Empty if that cannot be told.
std::string mount_of(const std::string& path) {
    struct stat file {
    }, folder{};
    if (path.empty() || path[0] != '/' || ::lstat(path.c_str(), &file) != 0) return {};
    std::string found;
    for (std::size_t end = path.rfind('/'); end != std::string::npos;
         end = end == 0 ? std::string::npos : path.rfind('/', end - 1)) {
        const std::string above = end == 0 ? "/" : path.substr(0, end);
        if (::lstat(above.c_str(), &folder) != 0 || folder.st_dev != file.st_dev) break;
        found = above;
    }
    return found;
}

std::string its_file_system(const std::string& path) {
    const std::string where = mount_of(path);
    return where.empty() ? "its file system" : "the file system at " + where;
}

std::string cure_of(std::int64_t code, const std::string& path) {
    switch (code) {
        case -ENOSPC: return "free space on " + its_file_system(path) + ", then call fsync again";
        case -EDQUOT:
            return "free space within the quota on " + its_file_system(path) +
                   ", then call fsync again";
        case -EFBIG: return "raise the limit on file sizes (ulimit -f), then call fsync again";
        default: return "remove the cause, then call fsync again";
    }
}

}  // namespace

void write_error_log::note(const file_key& file, std::int64_t code, const std::string& message,
                           const std::string& cure) {
    bool is_new = false;
    {
        std::lock_guard lock(mutex_);
        if (first_.ok()) first_ = {static_cast<int>(code), message};
        is_new = files_.insert_or_assign(file, true).second;
    }
    if (is_new) say_(message + "; " + cure);
}

void write_error_log::write_failed(const file_key& file, const std::string& path,
                                   std::uint64_t begin, std::uint64_t end, std::int64_t code) {
    note(file, code,
         path + ": bytes " + std::to_string(begin) + " to " + std::to_string(end - 1) +
             " could not be written: " + error_text(code),
         "they stay in the cache; " + cure_of(code, path));
}

void write_error_log::sync_failed(const file_key& file, const std::string& path,
                                  std::int64_t code) {
    note(file, code, path + ": could not be brought to its storage: " + error_text(code),
         "what was written since the last fsync may be lost there; write it once more");
}

void write_error_log::synced(const file_key& file) {
    std::lock_guard lock(mutex_);
    const auto known = files_.find(file);
    if (known != files_.end() && !std::exchange(known->second, false)) files_.erase(known);
}

void write_error_log::forget(const file_key& file) {
    std::lock_guard lock(mutex_);
    files_.erase(file);
}

status write_error_log::first() const {
    std::lock_guard lock(mutex_);
    return first_;
}

void write_error_log::clear() {
    std::lock_guard lock(mutex_);
    first_ = {};
}

}  // namespace penstock::host
