// What the operating system says of mounts, without asking the mounts themselves.
#pragma once

#include <string>

namespace penstock::mount {

struct mount_entry {
    std::string device, type;  // "0:52", "fuse.penstock"; empty: nothing is mounted there
};

// At this very path, which has no links in it; of several that on top.
mount_entry mounted_at(const std::string& path);

}  // namespace penstock::mount
