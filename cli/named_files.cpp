// Judges the files that cat and cp are told of, before there is a runtime.
#include "named_files.hpp"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <unistd.h>
#include <utility>

#include "common/message.hpp"
#include "os/file_kind.hpp"

namespace penstock::cli {

using apps::shown;

std::string cure_of_reading(std::int64_t code, const char* instead) {
    switch (-code) {
        case ENOENT: return "name a file that exists";
        case ENOTDIR: return "a part of the name is a file and not a directory; correct it";
        case ELOOP: return "its links lead round in a circle; make one of them lead to a file";
        case ENAMETOOLONG: return "give a shorter name";
        case EACCES:
        case EPERM: return "change its permissions, or run as a user that may read it";
        case EISDIR: return "name a file in it";
        case EOPNOTSUPP:
            return instead != nullptr ? std::string("use ") + instead + " for this one"
                                      : "leave this one out";
        case ESTALE: return "it changed while it was read; run again";
        case ENFILE: return "give fewer files, or set PENSTOCK_MAX_FILES higher";
        case ENOMEM: return "set PENSTOCK_TABLE higher";
        case ENOBUFS: return "give a larger --cache";
        case EMFILE: return "raise the limit on open files (ulimit -n)";
        case ETIMEDOUT:
            return "run again when its disk or server answers, or set "
                   "PENSTOCK_REQUEST_WAIT_MS higher";
        default: return "nothing more is known; run penstock info";
    }
}

status about_source(const std::string& name, std::int64_t code, const char* instead) {
    return {static_cast<int>(code),
            shown(name) + ": " + error_text(code) + "; " + cure_of_reading(code, instead)};
}

status look_at_source(const std::string& name, const char* instead, struct stat& facts) {
    host::file_kind kind = host::file_kind::regular;
    if (const int code = host::look_at_file(name, facts, kind); code != 0)
        return about_source(name, code, instead);
    if (kind == host::file_kind::regular) return {};
    if (kind == host::file_kind::directory) return about_source(name, -EISDIR, instead);
    if (kind == host::file_kind::special) return about_source(name, -EOPNOTSUPP, instead);
    return {-EOPNOTSUPP, shown(name) + ": " + host::why_not_by_size(kind) + ", or " +
                             cure_of_reading(-EOPNOTSUPP, instead)};
}

namespace {

using identity = std::pair<dev_t, ino_t>;

status about(const std::string& path, int code, const std::string& cure) {
    return {code, shown(path) + ": " + error_text(code) + "; " + cure};
}

// Nothing is made where a link that leads nowhere points, as with cp.
status look_at_new(const planned_copy& copy) {
    struct stat facts {};
    if (::lstat(copy.to.c_str(), &facts) == 0)
        return about(copy.to, -ELOOP,
                     "it is a link that leads nowhere; remove it, or give another name");
    if (::faccessat(AT_FDCWD, directory_of(copy.to).c_str(), W_OK | X_OK, AT_EACCESS) == 0)
        return {};
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
    const auto [found, is_first] = taken.emplace(identity{facts.st_dev, facts.st_ino}, copy.to);
    if (!is_first && found->second == copy.from)
        return {-EINVAL, shown(copy.from) + " and " + shown(copy.to) +
                             " are the same file; give another name"};
    if (!is_first)
        return {-EINVAL,
                shown(copy.to) + " is the same file as " + shown(found->second) +
                    ", which is copied too; copy them one after the other, or give another name"};
    if (::faccessat(AT_FDCWD, copy.to.c_str(), W_OK, AT_EACCESS) != 0)
        return about(copy.to, -errno, "change its permissions, or give another name");
    return {};
}

}  // namespace

std::string directory_of(const std::string& path) {
    const std::string out = std::filesystem::path(path).parent_path();
    return out.empty() ? "." : out;
}

status plan_copies(const std::vector<std::string>& sources, const std::string& destination,
                   std::uint64_t most_bytes, std::vector<planned_copy>& out) {
    if (destination.empty()) return about(destination, -ENOENT, "give the copy a name");
    struct stat facts {};
    const int code = ::stat(destination.c_str(), &facts) != 0 ? -errno
                     : S_ISDIR(facts.st_mode)                 ? 0
                                                              : -ENOTDIR;
    if (code != 0 && (sources.size() > 1 || destination.back() == '/'))
        return about(destination, code,
                     "give a directory that exists, or one file and the name of its copy");
    const mode_t mask = ::umask(0);
    ::umask(mask);
    // A source may be given twice, but is no place for a copy; what is put somewhere is no place
    // for another.
    std::map<identity, std::string> taken;
    for (const std::string& source : sources) {
        if (status s = look_at_source(source, "cp", facts); !s) return s;
        if (static_cast<std::uint64_t>(facts.st_size) > most_bytes)
            return about(source, -EFBIG, "it is longer than 2 PiB; use cp for this one");
        taken.emplace(identity{facts.st_dev, facts.st_ino}, source);
        const std::filesystem::path place = destination, name = source;
        out.push_back({source, code == 0 ? place / name.filename() : place,
                       facts.st_mode & 0777 & ~mask, static_cast<std::uint64_t>(facts.st_size)});
    }
    std::map<std::string, std::string> new_names;
    for (planned_copy& copy : out) {
        if (status s = look_at_destination(copy, taken); !s) return s;
        if (!copy.is_new) continue;
        const auto [place, is_first] = new_names.emplace(copy.to, copy.from);
        if (!is_first)
            return {-EEXIST, shown(copy.to) + ": " + shown(place->second) + " and " +
                                 shown(copy.from) +
                                 " would both go there; copy them to two directories"};
    }
    return {};
}

}  // namespace penstock::cli
