// Where a file lies inside its file system, whatever directory that is mounted at. Nodes that mount
// one file system at different places get the same answer.
#pragma once

#include <string>

namespace penstock::host {

struct mounted_place {
    std::string path;         // inside the file system; empty: no mount of the list has the path
    std::string file_system;  // its type and source, as "nfs4 server:/export"
};

// `real_path` has no links in it; `mounts` is the text of /proc/thread-self/mountinfo.
mounted_place place_in_file_system(const std::string& real_path, const std::string& mounts);

// By the mounts of this process.
mounted_place place_in_file_system(const std::string& real_path);

}  // namespace penstock::host
