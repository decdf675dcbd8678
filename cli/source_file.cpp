#include "source_file.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "os/file_kind.hpp"

namespace penstock::apps {

std::string cure_of_reading(std::int64_t code, const char* instead) {
    switch (-code) {
        case ENOENT: return "name a file that exists";
        case ENOTDIR: return "a part of the name is a file and not a directory; correct it";
        case EACCES:
        case EPERM: return "change its permissions, or run as a user that may read it";
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
    return {-EOPNOTSUPP, shown(name) + ": " + host::why_not_by_size(kind) + ", or use " + instead +
                             " for this one"};
}

}  // namespace penstock::apps
