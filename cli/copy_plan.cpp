#include "copy_plan.hpp"

#include <cerrno>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/message.hpp"
#include "copy_job.hpp"
#include "source_file.hpp"

namespace penstock::cp {

namespace {

using identity = std::pair<dev_t, ino_t>;

identity identity_of(const struct stat& facts) { return {facts.st_dev, facts.st_ino}; }

std::string without_slashes(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

std::string directory_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_in(const std::string& directory, const std::string& source) {
    const std::size_t slash = source.rfind('/');
    return directory + (directory.back() == '/' ? "" : "/") +
           (slash == std::string::npos ? source : source.substr(slash + 1));
}

status about(const std::string& path, int code, const std::string& cure) {
    return {code, apps::shown(path) + ": " + error_text(code) + "; " + cure};
}

bool is_directory(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// The destination has to be a directory, and is not.
status no_directory(const std::string& destination) {
    struct stat facts {};
    const int code = ::stat(destination.c_str(), &facts) != 0 ? -errno : -ENOTDIR;
    return about(destination, code,
                 "give a directory that exists, or one file and the name of its copy");
}

// Nothing is made where a link that leads nowhere points, as with cp.
status look_at_new(const planned_copy& copy) {
    struct stat facts {};
    if (::lstat(copy.to.c_str(), &facts) == 0)
        return about(copy.to, -ELOOP,
                     "it is a link that leads nowhere; remove it, or give another name");
    const std::string directory = directory_of(copy.to);
    if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
    const int code = -errno;
    return about(copy.to, code,
                 code == -ENOENT || code == -ENOTDIR
                     ? "make its directory first, or name one that exists"
                     : "name a directory that can be written");
}

status look_at_destination(planned_copy& copy, std::map<identity, std::string>& taken) {
    struct stat facts {};
    if (::stat(copy.to.c_str(), &facts) != 0) {
        if (errno != ENOENT) return about(copy.to, -errno, "give another name");
        copy.is_new = true;
        return look_at_new(copy);
    }
    if (S_ISDIR(facts.st_mode))
        return about(copy.to, -EISDIR, "give another name, or remove the directory");
    if (!S_ISREG(facts.st_mode))
        return about(copy.to, -EOPNOTSUPP, "it is no regular file; use cp for this one");
    const auto found = taken.find(identity_of(facts));
    if (found != taken.end() && found->second == copy.from)
        return {-EINVAL, apps::shown(copy.from) + " and " + apps::shown(copy.to) +
                             " are the same file; give another name"};
    if (found != taken.end())
        return {-EINVAL,
                apps::shown(copy.to) + " is the same file as " + apps::shown(found->second) +
                    ", which is copied too; copy them one after the other, or give another name"};
    if (::faccessat(AT_FDCWD, copy.to.c_str(), W_OK, AT_EACCESS) != 0)
        return about(copy.to, -errno, "change its permissions, or give another name");
    taken.emplace(identity_of(facts), copy.to);
    return {};
}

unsigned mask_of_new_files() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return mask;
}

}  // namespace

status plan_copies(const std::vector<std::string>& sources, const std::string& destination,
                   std::vector<planned_copy>& out) {
    if (destination.empty()) return about(destination, -ENOENT, "give the copy a name");
    const bool into = is_directory(destination);
    if (!into && (sources.size() > 1 || (!destination.empty() && destination.back() == '/')))
        return no_directory(destination);
    const unsigned mask = mask_of_new_files();
    // A source may be given twice, but is no place for a copy; what is put somewhere is no place
    // for another.
    std::map<identity, std::string> taken;
    for (const std::string& source : sources) {
        struct stat facts {};
        if (status failed = apps::look_at_source(source, instead, facts); !failed) return failed;
        if (static_cast<std::uint64_t>(facts.st_size) > most_bytes)
            return about(source, -EFBIG, "it is longer than 2 PiB; use cp for this one");
        taken.emplace(identity_of(facts), source);
        out.push_back({source, into ? name_in(without_slashes(destination), source) : destination,
                       facts.st_mode & 0777 & ~mask});
    }
    std::map<std::string, std::string> new_names;
    for (planned_copy& copy : out) {
        if (status failed = look_at_destination(copy, taken); !failed) return failed;
        if (!copy.is_new) continue;
        const auto [place, first] = new_names.emplace(copy.to, copy.from);
        if (!first)
            return {-EEXIST, apps::shown(copy.to) + ": " + apps::shown(place->second) + " and " +
                                 apps::shown(copy.from) +
                                 " would both go there; copy them to two directories"};
    }
    return {};
}

}  // namespace penstock::cp
