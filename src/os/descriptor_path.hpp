// The name by which the kernel finds what an open descriptor leads to, also if that is O_PATH.
//
// By the calling thread and not by /proc/self, which stands for the program's first thread: once
// that has ended (pthread_exit in main), it has no descriptors there, no mounts and no memory,
// though the process goes on. And a thread may have descriptors of its own.
#pragma once

#include <string>

namespace penstock::host {

inline std::string path_of_descriptor(int fd) {
    return "/proc/thread-self/fd/" + std::to_string(fd);
}

}  // namespace penstock::host
