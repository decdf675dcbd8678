#include "mounted_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "mount/mount.hpp"
#include "penstock/runtime.hpp"

namespace penstock::sssp {

namespace {

namespace fs = std::filesystem;

bool lies_in(const fs::path& inner, const fs::path& outer) {
    const fs::path rest = inner.lexically_relative(outer);
    return !rest.empty() && *rest.begin() != "..";
}

}  // namespace

mounted_folder::mounted_folder() = default;

mounted_folder::~mounted_folder() {
    if (const status s = close(); !s) apps::say(s.message);
}

// A mount point must not lie in what is mounted there, and graphs may lie in the usual folder for
// temporary things.
status mounted_folder::make_point(const std::string& folder) {
    const char* const wanted = std::getenv("TMPDIR");
    for (const std::string& parent :
         {std::string(wanted != nullptr ? wanted : ""), std::string("/tmp"),
          std::string("/var/tmp"), std::string("/dev/shm")}) {
        std::error_code failed;
        const fs::path real = parent.empty() ? fs::path() : fs::canonical(parent, failed);
        if (real.empty() || failed || lies_in(real, folder)) continue;
        const apps::signal_pause until_noted;
        std::string name = (real / "penstock-sssp.XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) continue;
        point_ = name;
        own_point_ = true;
        noted_point_.folder(name);
        return {};
    }
    return {-ENOENT, "there is no folder for temporary things outside of " + apps::shown(folder) +
                         ", where the graph lies; name an empty folder elsewhere by --mount, or "
                         "give --no-mount"};
}

status mounted_folder::open(runtime& rt, const std::string& folder, const std::string& point) {
    if (status s = mount::can_mount(); !s)
        return {s.code, s.message +
                            "; or give --no-mount: the updater then writes the file itself, and "
                            "all of it is brought each time"};
    point_ = point;
    if (point.empty())
        if (status s = make_point(folder); !s) return s;
    const apps::signal_pause until_noted;
    status s = mount_directory(rt, folder, point_, {}, mount_);
    if (s.ok()) noted_mount_.mount(point_);
    if (!s.ok()) s.message = "--mount: " + s.message + "; or give --no-mount";
    return s;
}

status mounted_folder::close() {
    status ended;
    if (mount_ != nullptr)
        if (const int code = mount_->unmount(); code != 0)
            ended = {code, "the mount at " + apps::shown(point_) + ": " + error_text(code) +
                               "; take it away with: fusermount3 -u " + point_};
    mount_.reset();
    noted_mount_.forget();
    noted_point_.forget();
    if (own_point_) ::rmdir(point_.c_str());
    own_point_ = false;
    return ended;
}

}  // namespace penstock::sssp
