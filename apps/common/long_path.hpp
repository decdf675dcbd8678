// Opening files whose path is longer than the operating system takes in one call (PATH_MAX, 4096
// bytes).
#pragma once

#include <string>

namespace penstock::apps {

// As ::open() without O_CREAT, for paths of any length: a long one is opened folder by folder. A
// descriptor, or -1 and errno.
int open_long(const std::string& path, int flags);

}  // namespace penstock::apps
