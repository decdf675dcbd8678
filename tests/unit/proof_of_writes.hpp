// Can it be proved of files of a folder that nothing but a runtime wrote them? That is asked of the
// system itself, not of the runtime: a test that skips because a runtime kept no file cannot fail.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "os/env.hpp"
#include "unit/support.hpp"

namespace penstock::test {

// False: a file system where nothing can be proved, or an old kernel, keeps nothing
// (docs/protocol/closed_files.md).
inline bool can_prove_writes(const temporary_folder& folder,
                             host::environment& env = host::linux_environment()) {
    const std::string path = folder / "probe";
    write_file(path, {1});
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    host::file_facts facts;
    const int code = env.take_sole_lease(fd);
    env.end_lease(fd);
    const bool known = env.facts(fd, facts) == 0 && facts.exact_times;
    ::close(fd);
    std::filesystem::remove(path);
    return code == 0 && known;
}

}  // namespace penstock::test
