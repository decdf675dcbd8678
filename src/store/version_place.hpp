// The place of a file in a certain version, and its number, by which nodes name its blocks.
//
// A path that is asked for after the file's facts may be one that the file got in a later version;
// and a path that was kept may be that of another file by now, in a version that looks the same.
// Blocks of one file would get the name of the other, for all nodes. So the place is asked for
// anew for each block, and a place counts only if its path has led to the file in this version:
// path and version were true together then.
#pragma once

#include <string>

#include "os/env.hpp"

namespace penstock::host {

struct version_place {
    std::string real_path;
    std::string path;          // inside the file system (os/file_system.hpp)
    std::string file_system;   // block_file::file_system
    std::uint64_t number = 0;  // block_file::number
};

// Where the file of an open handle lies, if it is in this version and has a path. 0, or a negative
// errno; -ESTALE: the path leads to another file, or to another version.
int find_place(environment& env, int fd, const file_identity& version, version_place& out);

// Does the path lead to the file in this version, at a moment of this call?
bool leads_to(environment& env, const version_place& place, const file_identity& version);

}  // namespace penstock::host
