#include "mount/own_process.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "mount/tree.hpp"

namespace penstock::mount {

namespace {

bool is_there(const std::string& path) {
    return ::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Of a process the kernel shows these to any user. Links of /proc lead to the first three.
bool is_for_all(std::string_view name) {
    constexpr std::string_view names[] = {"mounts", "mountinfo", "net",   "cgroup",
                                          "status", "cmdline",   "statm", "comm"};
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

// The number of a process in any /proc is that of one of its threads there.
bool shows_own_process(int path_fd) {
    std::string path(PATH_MAX, '\0');
    const ssize_t length = ::readlink(path_of(path_fd).c_str(), path.data(), path.size());
    if (length <= 0 || static_cast<std::size_t>(length) == path.size()) return true;
    path.resize(static_cast<std::size_t>(length));
    bool is_own = false;
    for (std::size_t slash = 0; slash != std::string::npos;) {
        const std::size_t next = path.find('/', slash + 1);
        const std::string name = path.substr(slash + 1, next - slash - 1);
        const std::string threads = path.substr(0, slash) + "/self/task";
        if (next == std::string::npos && name == "keys" && is_there(threads)) return true;
        if (is_own && name != "task" && !is_number(name)) return !is_for_all(name);
        is_own = is_own || (is_number(name) && is_there(threads + "/" + name));
        slash = next;
    }
    return is_own;
}

}  // namespace penstock::mount
