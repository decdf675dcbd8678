#include <fstream>

#include "mount/kernel_cache.hpp"
#include "mount/mount.hpp"

namespace penstock::mount {

void allow_read_ahead(const std::string& point, std::uint64_t bytes) {
    const std::string device = mounted_at(point).device;
    if (!device.empty())
        std::ofstream("/sys/class/bdi/" + device + "/read_ahead_kb") << bytes / 1024 << std::flush;
}

}  // namespace penstock::mount
