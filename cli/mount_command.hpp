// penstock mount: a directory at another place, for programs that know nothing of Penstock.
#pragma once

#include "mount/mount.hpp"

namespace penstock::mount_command {

struct request {
    mount::serve_options how;
    std::string threads, read_ahead, buffer, ram, gpu, page, backend;  // as given; empty: not given
    bool json = false, quiet = false;
};

// Serves until the mount is taken away. The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::mount_command
