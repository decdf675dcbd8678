#include "source_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/message.hpp"

namespace penstock::apps {

std::string cure_of_reading(std::int64_t code, const char* instead) {
    switch (-code) {
        case ENOENT: return "name a file that exists";
        case ENOTDIR: return "a part of the name is a file and not a directory; correct it";
        case EACCES:
        case EPERM: return "change its permissions, or run as somebody who may read it";
        case EISDIR: return "name a file in it";
        case EOPNOTSUPP: return std::string("use ") + instead + " for this one";
        case ESTALE: return "it changed while it was read; run again";
        case ENFILE: return "give fewer files, or set PENSTOCK_MAX_FILES higher";
        case ENOMEM: return "set PENSTOCK_TABLE higher";
        case ENOBUFS: return "give a larger --cache";
        case EMFILE: return "raise the limit on open files (ulimit -n)";
        default: return "nothing more is known; run penstock info";
    }
}

status about_source(const std::string& name, std::int64_t code, const char* instead) {
    return {static_cast<int>(code), shown(name) + ": " + error_text(code) + "; " + cure_of_reading(code, instead)};
}

status look_at_source(const std::string& name, const char* instead, struct stat& facts) {
    if (::stat(name.c_str(), &facts) != 0) return about_source(name, -errno, instead);
    if (S_ISDIR(facts.st_mode)) return about_source(name, -EISDIR, instead);
    if (!S_ISREG(facts.st_mode)) return about_source(name, -EOPNOTSUPP, instead);
    const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return about_source(name, -errno, instead);
    char one = 0;
    const bool lies = facts.st_size == 0 && ::pread(fd, &one, 1, 0) == 1 && ::fstat(fd, &facts) == 0 && facts.st_size == 0;
    ::close(fd);
    if (!lies) return {};
    return {-EOPNOTSUPP, shown(name) + ": it says that it is empty but is not, as files of /proc do; use " + instead + " for this one"};
}

}  // namespace penstock::apps
