#include "files.hpp"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <memory>
#include <sys/stat.h>

#include "common/files.hpp"
#include "common/message.hpp"
#include "os/file_kind.hpp"

namespace penstock::grep {

namespace {

struct close_directory {
    void operator()(DIR* d) const { ::closedir(d); }
};

std::string joined(const std::string& directory, const char* name) {
    return directory.back() == '/' ? directory + name : directory + "/" + name;
}

void complain(file_list& out, const std::string& path, int error, const char* cure) {
    out.complaints.push_back(apps::shown(path) + ": " + error_text(-error) + "; " + cure);
}

// Only a file that occupies no blocks may lie about its size; it is opened to find out.
bool is_readable(const std::string& path, struct stat& info, file_list& out) {
    host::file_kind kind = host::file_kind::regular;
    if (info.st_blocks != 0 || host::look_at_file(path, info, kind) != 0) return true;
    const std::string why = host::why_not_by_size(kind);
    if (!why.empty()) out.complaints.push_back(apps::shown(path) + ": " + why + "; left out");
    return why.empty();
}

void look_at(const std::string& path, std::vector<std::string>& directories, file_list& out) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) complain(out, path, errno, "left out");
    else if (S_ISDIR(info.st_mode)) directories.push_back(path);
    else if (S_ISREG(info.st_mode) && is_readable(path, info, out))
        out.files.push_back({path, static_cast<std::uint64_t>(info.st_size)});
}

// 0 or an errno for `top` itself; what goes wrong further down becomes a complaint. Directories
// wait in a list and not on the call stack, so depth costs memory only.
int walk(const std::string& top, file_list& out) {
    std::vector<std::string> directories{top};
    for (bool first = true; !directories.empty(); first = false) {
        const std::string path = std::move(directories.back());
        directories.pop_back();
        const std::unique_ptr<DIR, close_directory> directory(::opendir(path.c_str()));
        if (directory == nullptr) {
            if (first) return errno;
            complain(out, path, errno, "what is below it is left out");
            continue;
        }
        errno = 0;
        while (const dirent* entry = ::readdir(directory.get())) {
            const std::string name = entry->d_name;
            if (name != "." && name != "..") look_at(joined(path, entry->d_name), directories, out);
            errno = 0;
        }
        if (errno != 0) complain(out, path, errno, "some of what is in it is left out");
    }
    return 0;
}

status add_path(const std::string& path, file_list& out) {
    const auto failed = [&path](int error, const char* cure) {
        return status{-error, apps::shown(path) + ": " + error_text(-error) + "; " + cure};
    };
    struct stat info {};
    if (path.empty()) return failed(ENOENT, "name a file or directory");
    if (::stat(path.c_str(), &info) != 0)
        return failed(errno, "name a file or directory that exists");
    if (S_ISDIR(info.st_mode)) {
        if (const int error = walk(path, out); error != 0)
            return failed(error, "name a directory that can be read");
        out.roots.push_back(path);
        return {};
    }
    if (!S_ISREG(info.st_mode))
        return {-EOPNOTSUPP,
                apps::shown(path) +
                    ": neither a regular file nor a directory; copy what it gives to a file first"};
    if (status s = apps::look_at_input(path, "name a file that can be read", info); !s) return s;
    out.files.push_back({path, static_cast<std::uint64_t>(info.st_size)});
    out.named.push_back(path);
    return {};
}

}  // namespace

status find_files(const std::vector<std::string>& paths, file_list& out) {
    out.roots.push_back(".");  // relative names are looked up in the first root
    for (const std::string& path : paths)
        if (status s = add_path(path, out); !s) return s;
    const auto by_path = [](const input_file& a, const input_file& b) { return a.path < b.path; };
    std::sort(out.files.begin(), out.files.end(), by_path);
    const auto same = [](const input_file& a, const input_file& b) { return a.path == b.path; };
    out.files.erase(std::unique(out.files.begin(), out.files.end(), same), out.files.end());
    if (out.files.size() > UINT32_MAX)
        return {-EFBIG, std::to_string(out.files.size()) +
                            " files are more than one run can number; search them in parts"};
    return {};
}

}  // namespace penstock::grep
