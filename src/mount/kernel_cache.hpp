// How far the kernel reads ahead for programs that use a mount.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace penstock::mount {

// How far the kernel reads ahead for programs that read a file of the mount in order.
//
// Each request is 1 MiB at most, and is answered by a thread; with few processors more than one at
// a time is no gain.
inline std::uint64_t usual_read_ahead(unsigned processors) {
    return std::clamp<std::uint64_t>(processors * (256ull << 10), 1u << 20, 4u << 20);
}

// Up to so much, of the mount at `point`, which has no links in it, and which is not asked, since
// it is not served yet. The kernel allows a new mount 128 KiB; a user that may not write to /sys,
// which takes root, leaves it so.
void allow_read_ahead(const std::string& point, std::uint64_t bytes);

}  // namespace penstock::mount
