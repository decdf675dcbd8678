#include "store/version_place.hpp"

#include <cerrno>
#include <utility>

#include "os/file_system.hpp"

namespace penstock::host {

namespace {

int facts_at(environment& env, const std::string& path, file_facts& out) {
    const int found = env.find(-1, path);
    if (found < 0) return found;
    const int code = env.facts(found, out);
    env.close(found);
    return code;
}

}  // namespace

// The mounts are looked at before the path is followed: what is mounted over the file meanwhile
// leads to another one.
int find_place(environment& env, int fd, const file_identity& version, version_place& out) {
    if (const int code = env.real_path(fd, out.real_path); code != 0) return code;
    mounted_place place = place_in_file_system(out.real_path);
    if (place.path.empty()) return -ENOENT;
    file_facts now;
    const int code = facts_at(env, out.real_path, now);
    if (code != 0 || now.identity != version) return -ESTALE;
    out.path = std::move(place.path);
    // A local one is another device on each node.
    if (now.times != file_times::local) out.file_system = std::move(place.file_system);
    out.number = now.has_number_for_all ? version.inode : 0;
    return 0;
}

bool leads_to(environment& env, const version_place& place, const file_identity& version) {
    file_facts now;
    return facts_at(env, place.real_path, now) == 0 && now.identity == version;
}

}  // namespace penstock::host
