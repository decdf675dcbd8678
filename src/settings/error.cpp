// Text of error codes, and the library's version.
#include "penstock/error.hpp"

#include <cstring>

#include "penstock/version.hpp"

namespace penstock {

std::string error_text(std::int64_t negative_errno) {
    const int code = negative_errno < 0 ? static_cast<int>(-negative_errno) : 0;
    if (code == 0) return "no error";
    switch (code) {
        // Where Penstock means something the general text does not say.
        case ESTALE:
            return "the file shrank or was replaced after it was opened; open it again (ESTALE)";
        case ENOBUFS:
            return "every frame of the cache stayed pinned or loading; unmap pages or enlarge the "
                   "cache (ENOBUFS)";
        case ETIMEDOUT: return "the host did not answer in time (ETIMEDOUT)";
        case ECANCELED: return "interrupted (ECANCELED)";
        case ESHUTDOWN:
            return "a service thread of the runtime died; create a new runtime (ESHUTDOWN)";
        case EOPNOTSUPP:
            return "not a regular file, or one with a false size as in /proc, or not supported by "
                   "this back end (EOPNOTSUPP)";
        case EUNATCH:
            return "/proc is not mounted, and files are opened through /proc/thread-self/fd; mount "
                   "it "
                   "(mount "
                   "-t proc proc /proc) (EUNATCH)";
        case EDEADLK:
            return "of a mount that this process serves; name the file in the source folder "
                   "(EDEADLK)";
        case EBADMSG: return "damaged, or not of the format that it is taken for (EBADMSG)";
        case ETXTBSY:
            return "the file is in use in a way that excludes this, by a program that runs or one "
                   "on another machine; end that use (ETXTBSY)";
        case ERANGE: return "outside the view (ERANGE)";
        case ENFILE: return "every file slot is open; close files or raise max_files (ENFILE)";
        default: break;
    }
    const char* const text = strerrordesc_np(code);
    const char* const name = strerrorname_np(code);
    std::string out = text != nullptr ? text : "unknown error";
    out.append(" (").append(name != nullptr ? name : std::to_string(code).c_str()).append(")");
    return out;
}

#define PENSTOCK_TEXT_OF(x) #x
#define PENSTOCK_TEXT(x) PENSTOCK_TEXT_OF(x)

const char* version() {
    return PENSTOCK_TEXT(PENSTOCK_VERSION_MAJOR) "." PENSTOCK_TEXT(
        PENSTOCK_VERSION_MINOR) "." PENSTOCK_TEXT(PENSTOCK_VERSION_PATCH);
}

}  // namespace penstock
