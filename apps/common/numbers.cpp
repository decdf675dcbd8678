// Checks files that are nothing but numbers.
#include "common/numbers.hpp"

#include <cerrno>
#include <sys/stat.h>

#include "common/files.hpp"
#include "common/message.hpp"

namespace penstock::apps {

status open_numbers(const std::string& path, const std::string& what, number_file& out) {
    out.path = path;
    struct stat info {};
    if (status s = look_at_input(path, "name a file of numbers that can be read", info); !s)
        return s;
    out.bytes = static_cast<std::uint64_t>(info.st_size);
    out.device = info.st_dev;
    out.inode = info.st_ino;
    if (out.bytes == 0)
        return {-EINVAL, shown(path) + ": is empty; name a " + what + " of at least one number"};
    if (out.bytes % sizeof(float) != 0)
        return {-EINVAL, shown(path) + ": has " + with_commas(out.bytes) +
                             " bytes, which are no whole number of numbers of 4 bytes; copy it "
                             "again or make it again"};
    return {};
}

status check_not_input(const std::string& output, const std::vector<const number_file*>& inputs) {
    struct stat there {};
    if (::stat(output.c_str(), &there) != 0) return {};
    for (const number_file* one : inputs)
        if (there.st_dev == one->device && there.st_ino == one->inode)
            return {-EINVAL, "output file " + shown(output) + ": is the input " + shown(one->path) +
                                 "; give another name"};
    return {};
}

}  // namespace penstock::apps
