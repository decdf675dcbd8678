#include "store/version_place.hpp"

#include <cerrno>

#include "os/mount_path.hpp"

namespace penstock::host {

// The mounts are looked at before the path is followed: what is mounted over the file meanwhile
// leads to another one.
int find_place(environment& env, int fd, const file_identity& version, version_place& out) {
    if (const int code = env.real_path(fd, out.real_path); code != 0) return code;
    out.path = path_in_file_system(out.real_path);
    if (out.path.empty()) return -ENOENT;
    return leads_to(env, out, version) ? 0 : -ESTALE;
}

bool leads_to(environment& env, const version_place& place, const file_identity& version) {
    const int found = env.find(-1, place.real_path);
    if (found < 0) return false;
    file_facts now;
    const int code = env.facts(found, now);
    env.close(found);
    return code == 0 && now.identity == version;
}

}  // namespace penstock::host
