// Programs that change the graph while this one runs: the mount that they go through, and the
// updater.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/process.hpp"
#include "penstock/error.hpp"
#include "penstock/mount.hpp"

namespace penstock {
class runtime;
}

namespace penstock::sssp {

// The folder of the graph as other programs see it while this one runs: through a mount of this
// process.
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

// The updater: a program of its own that changes weights in a graph's file, by ordinary system
// calls or by stores to a mapping. It knows nothing of Penstock, of mounts, or of the programs that
// compute with the graph. `penstock-sssp run` starts it and waits for it.

struct update_request {
    std::string file;
    double percent = 0;  // of the pages of the file's edges
    std::uint64_t seed = 1;
    std::uint64_t round = 1;
    bool by_store = false;  // else by write
    std::uint32_t threads = 1;
};

// In the updater: gives every edge of the chosen pages the weight of this round.
status update_weights(const update_request& request);

// In the program that computes: starts the updater as another process and waits for its end, at
// most some minutes. Ends it if `interrupted`.
status run_updater(const update_request& request, const std::function<bool()>& interrupted);

}  // namespace penstock::sssp
