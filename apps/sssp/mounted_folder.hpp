// The folder of the graph as other programs see it while this one runs: through a mount of this
// process.
#pragma once

#include <memory>
#include <string>

#include "common/leftover.hpp"
#include "penstock/error.hpp"
#include "penstock/mount.hpp"

namespace penstock {
class runtime;
}

namespace penstock::sssp {

class mounted_folder {
public:
    mounted_folder();
    // As close(), and says what went wrong.
    ~mounted_folder();
    mounted_folder(const mounted_folder&) = delete;
    mounted_folder& operator=(const mounted_folder&) = delete;

    // At `point`, an empty folder; "": one of its own, which goes with the mount. The message names
    // the cure.
    status open(runtime& rt, const std::string& folder, const std::string& point);
    // Nothing is mounted after it.
    status close();
    [[nodiscard]] const std::string& point() const { return point_; }

private:
    status make_point(const std::string& folder);

    std::unique_ptr<file_mount> mount_;
    std::string point_;
    bool own_point_ = false;
    apps::leftover noted_mount_, noted_point_;  // for signals
};

}  // namespace penstock::sssp
